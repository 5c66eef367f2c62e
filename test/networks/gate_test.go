package networks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// TestGate (W4): a pod waits until its networks are there and Ready, and says for what. One that
// has its node already has no gate, and one that lists nothing is left alone.
func TestGate(t *testing.T) {
	start(t)
	ns := namespace(t)
	n := network(t)
	missing := fleet.Unique("net")
	p := pod(ns, lists(n.Name, missing))
	fleet.Create(t, kc, p)
	if !gated(p) {
		t.Error("a new pod has no gate")
	}
	waits(t, p, gate.ReasonNetworksNotReady, "PodNetwork "+missing+" does not exist")
	waits(t, p, gate.ReasonNetworksNotReady, "PodNetwork "+n.Name+" is not Ready")
	ready(t, n)
	ready(t, network(t, func(n *v1alpha1.PodNetwork) { n.Name = missing }))
	passes(t, p)
	var c corev1.PodCondition
	for _, c = range p.Status.Conditions {
		if c.Type == gate.ConditionNetworksReady {
			break
		}
	}
	if c.Status != corev1.ConditionTrue || c.Reason != gate.ReasonNetworksReady {
		t.Errorf("a pod that goes on has the condition %+v; want it True", c)
	}
	fleet.Event(t, kc, p, gate.ReasonNetworksNotReady)

	onNode := pod(ns, lists("no-such-network"))
	onNode.Spec.NodeName = "node-a"
	plain := pod(ns, "")
	for _, p := range []*corev1.Pod{onNode, plain} {
		fleet.Create(t, kc, p)
		if len(p.Spec.SchedulingGates) > 0 {
			t.Errorf("pod with node %q and annotations %v has gates %v; want none", p.Spec.NodeName, p.Annotations, p.Spec.SchedulingGates)
		}
	}
	atOnce := pod(ns, lists(n.Name))
	fleet.Create(t, kc, atOnce)
	passes(t, atOnce)
	for _, c := range atOnce.Status.Conditions {
		if c.Type == gate.ConditionNetworksReady {
			t.Errorf("a pod that never waited has the condition %+v", c)
		}
	}
}

// TestGateOfAttachments (W4): a pod waits for an attachment and for the network of it, and does
// not go on with two attachments of one network.
func TestGateOfAttachments(t *testing.T) {
	start(t)
	ns := namespace(t)
	n := network(t)
	a := &v1alpha1.PodNetworkAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Spec: v1alpha1.PodNetworkAttachmentSpec{PodNetworkName: n.Name}}
	p := pod(ns, `[{"podNetworkAttachmentName": "mine"}]`)
	twice := pod(ns, fmt.Sprintf(`[{"podNetworkAttachmentName": "mine"}, {"podNetworkName": %q}]`, n.Name))
	fleet.Create(t, kc, p)
	fleet.Create(t, kc, twice)
	waits(t, p, gate.ReasonNetworksNotReady, "there is no PodNetworkAttachment mine")
	fleet.Create(t, kc, a)
	waits(t, p, gate.ReasonNetworksNotReady, "PodNetworkAttachment "+ns+"/mine is not Ready: PodNetworkNotReady")
	ready(t, n)
	passes(t, p)
	waits(t, twice, gate.ReasonNetworksRefused, "a pod is attached to a PodNetwork once")
}

// TestAccess (W9): a pod waits until its namespace may use the network.
func TestAccess(t *testing.T) {
	start(t)
	ns := namespace(t)
	byLabel := network(t, func(n *v1alpha1.PodNetwork) {
		n.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "blue"}}
	})
	byRole := network(t, func(n *v1alpha1.PodNetwork) { n.Spec.Access = v1alpha1.AccessRBAC })
	ready(t, byLabel)
	ready(t, byRole)
	labelled, bound := pod(ns, lists(byLabel.Name)), pod(ns, lists(byRole.Name))
	fleet.Create(t, kc, labelled)
	fleet.Create(t, kc, bound)
	waits(t, labelled, gate.ReasonNetworksRefused, "the PodNetwork's spec.namespaceSelector (team=blue) does not select it")
	waits(t, bound, gate.ReasonNetworksRefused, "is not allowed the verb use on podnetworks.tenure.dev/"+byRole.Name)

	var o corev1.Namespace
	if err := kc.Get(t.Context(), client.ObjectKey{Name: ns}, &o); err != nil {
		t.Fatal(err)
	}
	o.Labels["team"] = "blue"
	if err := kc.Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
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
		touch := fmt.Appendf(nil, `{"metadata": {"annotations": {"test": %q}}}`, fleet.Unique("touch"))
		if err := kc.Patch(t.Context(), byRole, client.RawPatch("application/merge-patch+json", touch)); err != nil {
			return err
		}
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
		fleet.Create(t, kc, o)
		t.Cleanup(func() {
			if err := kc.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Error(err)
			}
		})
	}
	ns := namespace(t)
	// No controller runs: nobody answers the webhook.
	fleet.Eventually(t, 20*time.Second, func() error {
		p := pod(ns, lists("lan"))
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/x"}}
		if err := kc.Create(t.Context(), p, client.DryRunAll); err != nil {
			return err
		}
		if g := p.Spec.SchedulingGates; len(g) != 2 || !gated(p) {
			return fmt.Errorf("gates are %v; want that of the pod, and ours", g)
		}
		return nil
	})
	onNode := pod(ns, lists("lan"))
	onNode.Spec.NodeName = "node-a"
	plain := pod(ns, "")
	for _, p := range []*corev1.Pod{onNode, plain} {
		if fleet.Create(t, kc, p); len(p.Spec.SchedulingGates) > 0 {
			t.Errorf("pod with node %q and annotations %v has gates %v; want none", p.Spec.NodeName, p.Annotations, p.Spec.SchedulingGates)
		}
	}
}

// TestTurnedOff (W7): a controller that serves no PodNetworks takes the gates away, and no pod
// hangs.
func TestTurnedOff(t *testing.T) {
	stop := start(t)
	ns := namespace(t)
	p := pod(ns, lists("no-such-network"))
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/x"}}
	fleet.Create(t, kc, p)
	waits(t, p, gate.ReasonNetworksNotReady, "does not exist")
	stop()
	start(t, func(c *controller.Config) { c.MultiNetwork = false })
	passes(t, p)
	if g := p.Spec.SchedulingGates; len(g) != 1 || g[0].Name != "example.org/x" {
		t.Errorf("gates are %v; want that of somebody else alone", g)
	}
}
