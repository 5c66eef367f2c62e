package attach_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// lists has the pod list PodNetworks a and b, which have the definitions ns/a and ns/b, and the
// default one.
func (n *node) lists(pod, list string) {
	n.annotate(pod, podnetwork.AnnotationNetworks, list)
	n.agent.podNetworks = []facts.PodNetwork{
		{Name: "default"},
		{Name: "a", Definition: facts.Ref{Namespace: "ns", Name: "a"}},
		{Name: "b", Definition: facts.Ref{Namespace: "ns", Name: "b"}},
	}
}

// TestPodNetworkRoutes (W1): each family's default route goes to the network that has its flag,
// and the other networks keep nothing of it.
func TestPodNetworkRoutes(t *testing.T) {
	n := routedNode(t)
	n.define("ns", "b", n.bridge("net-b", 3, true))
	for name, tt := range map[string]struct {
		list string
		want []string
	}{
		"one network": {
			`[{"podNetworkName":"default"},{"podNetworkName":"a","isDefaultGW4":true,"isDefaultGW6":true},{"podNetworkName":"b"}]`,
			[]string{"net1 via 10.2.0.1", "net1 via 2001:db8:2::1"},
		},
		"a network for each family": {
			`[{"podNetworkName":"default"},{"podNetworkName":"a","isDefaultGW4":true},{"podNetworkName":"b","isDefaultGW6":true}]`,
			[]string{"net1 via 10.2.0.1", "net2 via 2001:db8:3::1"},
		},
		"the default network": {
			`[{"podNetworkName":"default","isDefaultGW4":true,"isDefaultGW6":true},{"podNetworkName":"a"},{"podNetworkName":"b"}]`,
			[]string{"eth0 via 10.1.0.1", "eth0 via 2001:db8:1::1"},
		},
		"the default network of one family": {
			`[{"podNetworkName":"default","isDefaultGW6":true},{"podNetworkName":"a","isDefaultGW4":true},{"podNetworkName":"b"}]`,
			[]string{"net1 via 10.2.0.1", "eth0 via 2001:db8:1::1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			ns := netns(t, "p")
			n.lists("p", tt.list)
			o := n.ok("ADD", pod("p"))
			expectDefaults(t, ns, tt.want...)
			n.expectAddresses(o, ns)
			n.ok("CHECK", pod("p"))
			n.ok("DEL", pod("p"))
			n.clean()
		})
	}
}

// TestPodNetworkWithoutGateway (W1): a flag on a network without a gateway fails the ADD, and
// nothing is left.
func TestPodNetworkWithoutGateway(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"ips": []string{"10.7.0.1/24"}}))
	n.define("ns", "b", n.recorder("net-b", nil))
	n.lists("p", `[{"podNetworkName":"default"},{"podNetworkName":"a","isDefaultGW4":true},{"podNetworkName":"b"}]`)
	n.fails("ADD", pod("p"), "ADD of network a on net1", "isDefaultGW4 is set, and the network has no gateway of IPv4")
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestPodNetworkOfTheCluster (W4, W5, W7, P8): the agent itself judges what a pod lists, over a
// real API server, and writes what the pod has. What may pass is code 11.
func TestPodNetworkOfTheCluster(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	ns := c.namespace()
	c.define(ns, "lan", n.recorder("net-lan", map[string]any{"ips": []string{"10.7.0.1/24"}}))
	network := &v1alpha1.PodNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: v1alpha1.PodNetworkSpec{
			Provider:       podnetwork.Provider,
			ParametersRefs: []v1alpha1.ParametersRef{{Group: "k8s.cni.cncf.io", Kind: "NetworkAttachmentDefinition", Namespace: ns, Name: "lan"}},
		},
	}
	list := fmt.Sprintf(`[{"podNetworkName": %q}]`, ns)
	p, s := c.pod(ns, "p", "worker", "")
	must(t, c.client.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"tenure.dev/pod-networks":%q}}}`, list))))
	f := fleet.New(t, c.Config())
	f.Change = func(cfg *daemon.Config) { cfg.MultiNetwork = true }
	agent := f.Start("worker")
	n.config["socket"] = agent.Socket()

	later := func(why string) {
		t.Helper()
		if f := n.fails("ADD", s, why); f.Code != 11 {
			t.Errorf("code %d; want 11: it may pass", f.Code)
		}
	}
	later("PodNetwork " + ns + " does not exist")
	must(t, c.client.Create(t.Context(), network))
	later("PodNetwork " + ns + " is not Ready: the controller has not looked at it yet")
	network.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.NetworkReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNetworkReady, LastTransitionTime: metav1.Now(),
	}}
	must(t, c.client.Status().Update(t.Context(), network))
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD net-lan net1")
	fleet.Eventually(t, waitLimit, func() error {
		if err := c.statusHas(p, []string{"default", ns}); err != nil {
			return err
		}
		return podIPs(p, "10.1.0.5 default eth0", "10.7.0.1 "+ns+" net1")
	})
	n.ok("DEL", s)
	n.clean()

	network.Spec.Enabled = new(bool)
	must(t, c.client.Update(t.Context(), network))
	fleet.Eventually(t, waitLimit, func() error { // when the watch has shown it
		if o := n.call("ADD", s); o.status == 0 {
			n.ok("DEL", s)
			return errors.New("the pod is attached; want it to wait")
		}
		return nil
	})
	later("PodNetwork " + ns + " is disabled")
}

// TestDefaultPodNetworkRequired (FD3): where that is asked for, STATUS fails while the cluster has
// no default PodNetwork, and whether the agent runs or not.
func TestDefaultPodNetworkRequired(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	f := fleet.New(t, c.Config())
	f.Change = func(cfg *daemon.Config) {
		cfg.MultiNetwork, cfg.NeedDefault, cfg.AttachState = true, true, n.path("state")
	}
	agent := f.Start("worker")
	n.config["socket"] = agent.Socket()
	status := func(code uint) {
		t.Helper()
		fleet.Eventually(t, waitLimit, func() error {
			o := n.call("STATUS", sandboxOf{})
			switch {
			case code == 0 && o.status != 0, code != 0 && (o.status == 0 || !strings.Contains(o.stdout, "Default PodNetwork not found") || !strings.Contains(o.stdout, fmt.Sprintf(`"code": %d`, code))):
				return fmt.Errorf("STATUS answers %s; want code %d", o.stdout, code)
			}
			return nil
		})
	}
	status(50)
	agent.Stop()
	status(50)
	agent = f.Start("worker")
	network := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: podnetwork.Default}}
	must(t, c.client.Create(t.Context(), network))
	status(0)
	must(t, c.client.Delete(t.Context(), network))
	status(50)
	agent.Stop()
	agent.Config().NeedDefault = false
	f.Start("worker")
	status(0)
}

// podIPs returns why the pod's annotation of that name does not say want.
func podIPs(p *corev1.Pod, want ...string) error {
	var all []podnetwork.PodIP
	if err := json.Unmarshal([]byte(p.Annotations[podnetwork.AnnotationIPs]), &all); err != nil {
		return err
	}
	got := make([]string, len(all))
	for i, ip := range all {
		got[i] = fmt.Sprintf("%v %s %s", ip.IP, ip.Network, ip.Interface)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s has %q; want %q", podnetwork.AnnotationIPs, got, want)
	}
	return nil
}
