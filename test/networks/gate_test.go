package networks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// TestGate (W4): a pod waits until its networks are there and Ready, and says for what. One that
// has its node already has no gate, and one that lists nothing is left alone.
func TestGate(t *testing.T) {
	ns := namespace(t, nil)
	n := foreign(t, fleet.Unique("net"))
	missing := fleet.Unique("net")
	p := listing(ns, lists(n.Name, missing))
	fleet.Create(t, kc, p)
	if !gated(p) {
		t.Error("a new pod has no gate")
	}
	waits(t, p, gate.ReasonNetworksNotReady, "PodNetwork "+missing+" does not exist")
	waits(t, p, gate.ReasonNetworksNotReady, "PodNetwork "+n.Name+" is not Ready")
	provide(t, n, metav1.ConditionTrue)
	provide(t, foreign(t, missing), metav1.ConditionTrue)
	passes(t, p)
	if c := condition(p); c.Status != corev1.ConditionTrue || c.Reason != gate.ReasonNetworksReady {
		t.Errorf("a pod that goes on has the condition %+v; want it True", c)
	}
	fleet.Event(t, kc, p, gate.ReasonNetworksNotReady)

	needNoGate(t, ns)
	atOnce := listing(ns, lists(n.Name))
	fleet.Create(t, kc, atOnce)
	passes(t, atOnce)
	if c := condition(atOnce); c.Type != "" {
		t.Errorf("a pod that never waited has the condition %+v", c)
	}
}

// TestGateOfAttachments (W4): a pod waits for an attachment and for the network of it, and does
// not go on with two attachments of one network.
func TestGateOfAttachments(t *testing.T) {
	ns := namespace(t, nil)
	n := foreign(t, fleet.Unique("net"))
	a := &v1alpha1.PodNetworkAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Spec: v1alpha1.PodNetworkAttachmentSpec{PodNetworkName: n.Name}}
	p := listing(ns, `[{"podNetworkAttachmentName": "mine"}]`)
	twice := listing(ns, fmt.Sprintf(`[{"podNetworkAttachmentName": "mine"}, {"podNetworkName": %q}]`, n.Name))
	fleet.Create(t, kc, p)
	fleet.Create(t, kc, twice)
	waits(t, p, gate.ReasonNetworksNotReady, "there is no PodNetworkAttachment mine")
	fleet.Create(t, kc, a)
	waits(t, p, gate.ReasonNetworksNotReady, "PodNetworkAttachment "+ns+"/mine is not Ready: PodNetworkNotReady")
	provide(t, n, metav1.ConditionTrue)
	passes(t, p)
	waits(t, twice, gate.ReasonNetworksRefused, "a pod is attached to a PodNetwork once")
}

// TestAccess (W9): a pod waits until its namespace may use the network.
func TestAccess(t *testing.T) {
	ns := namespace(t, nil)
	byLabel, byRole := foreign(t, fleet.Unique("net")), foreign(t, fleet.Unique("net"))
	fleet.Edit(t, kc, byLabel, func() {
		byLabel.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "blue"}}
	})
	fleet.Edit(t, kc, byRole, func() { byRole.Spec.Access = v1alpha1.AccessRBAC })
	provide(t, byLabel, metav1.ConditionTrue)
	provide(t, byRole, metav1.ConditionTrue)
	labelled, bound := listing(ns, lists(byLabel.Name)), listing(ns, lists(byRole.Name))
	fleet.Create(t, kc, labelled)
	fleet.Create(t, kc, bound)
	waits(t, labelled, gate.ReasonNetworksRefused, "the PodNetwork's spec.namespaceSelector (team=blue) does not select it")
	waits(t, bound, gate.ReasonNetworksRefused, "is not allowed the verb use on podnetworks.tenure.dev/"+byRole.Name)

	fleet.Patch(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"metadata": {"labels": {"team": "blue"}}}`)
	passes(t, labelled)

	name := fleet.Unique("use")
	fleet.Create(t, kc, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"podnetworks"}, ResourceNames: []string{byRole.Name}, Verbs: []string{"use"},
	}}})
	fleet.Create(t, kc, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + ns}},
	})
	// It is asked again every 30 s; a change of the network has that done sooner.
	fleet.Eventually(t, 15*time.Second, func() error {
		fleet.Patch(t, kc, byRole, fmt.Sprintf(`{"metadata": {"annotations": {"test": %q}}}`, fleet.Unique("touch")))
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(bound), bound); err != nil {
			return err
		}
		if gated(bound) {
			return fmt.Errorf("a pod whose namespace may use the network waits: %+v", bound.Status.Conditions)
		}
		return nil
	})
}

// TestGateByPolicy (W4): Kubernetes 1.36 and later give the gate without a webhook.
func TestGateByPolicy(t *testing.T) {
	objects, err := manifests.Shipped("podnetworks/gate-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		create(t, o)
	}
	alone(t) // nobody answers the webhook
	ns := namespace(t, nil)
	fleet.Eventually(t, 20*time.Second, func() error {
		p := listing(ns, lists("lan"))
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/x"}}
		if err := kc.Create(t.Context(), p, client.DryRunAll); err != nil {
			return err
		}
		if g := p.Spec.SchedulingGates; len(g) != 2 || !gated(p) {
			return fmt.Errorf("gates are %v; want that of the pod, and ours", g)
		}
		return nil
	})
	needNoGate(t, ns)
}

// TestGateTurnedOff (W7): a controller that serves no PodNetworks takes the gates away, and no pod
// hangs.
func TestGateTurnedOff(t *testing.T) {
	ns := namespace(t, nil)
	p := listing(ns, lists("no-such-network"))
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/x"}}
	fleet.Create(t, kc, p)
	waits(t, p, gate.ReasonNetworksNotReady, "does not exist")
	restart(t, func(c *controller.Config) { c.MultiNetwork = false })
	passes(t, p)
	if g := p.Spec.SchedulingGates; len(g) != 1 || g[0].Name != "example.org/x" {
		t.Errorf("gates are %v; want that of somebody else alone", g)
	}
}

// gated reports whether a pod has the gate.
func gated(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podnetwork.Gate })
}

// needNoGate checks that a pod that has its node already gets no gate, and neither does one that
// lists nothing.
func needNoGate(t *testing.T, namespace string) {
	t.Helper()
	onNode := listing(namespace, lists("no-such-network"))
	onNode.Spec.NodeName = "node-a"
	for _, p := range []*corev1.Pod{onNode, listing(namespace, "")} {
		if fleet.Create(t, kc, p); len(p.Spec.SchedulingGates) > 0 {
			t.Errorf("pod with node %q and annotations %v has gates %v; want none", p.Spec.NodeName, p.Annotations, p.Spec.SchedulingGates)
		}
	}
}

// condition returns what a pod says of its networks, which is nothing if it has never waited.
func condition(p *corev1.Pod) (c corev1.PodCondition) {
	if i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionNetworksReady }); i >= 0 {
		c = p.Status.Conditions[i]
	}
	return c
}

// waits waits until a pod has the gate, and its condition says so for a reason, in these words.
func waits(t *testing.T, p *corev1.Pod, reason, words string) {
	t.Helper()
	fleet.Eventually(t, 5*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if c := condition(p); c.Status == corev1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, words) && gated(p) {
			return nil
		}
		return fmt.Errorf("pod %s has gates %v and conditions %+v; want it to wait: %s, %q", p.Name, p.Spec.SchedulingGates, p.Status.Conditions, reason, words)
	})
}

// passes waits until a pod's gate is lifted.
func passes(t *testing.T, p *corev1.Pod) {
	t.Helper()
	fleet.Eventually(t, 5*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if gated(p) {
			return fmt.Errorf("pod %s has its gate, and conditions %+v; want it lifted", p.Name, p.Status.Conditions)
		}
		return nil
	})
}
