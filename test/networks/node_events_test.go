package networks_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// told waits until an agent has warned of its Node.
func told(t *testing.T, node *corev1.Node, reason string, words ...string) {
	t.Helper()
	e := fleet.Event(t, kc, node, reason, words...)
	if from := (corev1.EventSource{Component: "tenured", Host: node.Name}); e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind != "Node" || e.Source != from {
		t.Errorf("the Event %s is %s, about a %s, of %+v; want a warning of %+v about the Node", reason, e.Type, e.InvolvedObject.Kind, e.Source, from)
	}
}

// leasesOf returns a node's leases.
func leasesOf(t *testing.T, api *kube.API, node string) []protocol.Lease {
	t.Helper()
	leases, _, err := api.NodeLeases(t.Context(), protocol.NodeName(node))
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// TestNodeEvents: an agent, with its own rights and under the policies, says of its Node
// what it cannot set right: that it was fenced, that its registration, its leases and its store
// were lost.
func TestNodeEvents(t *testing.T) {
	alone(t)
	const name, pool = "losing", "losing"
	var bits int32 = 28
	p := create(t, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.70.0.0/20"}}}})
	p.Status = v1alpha1.IPPoolStatus{Leasing: v1alpha1.LeasingOpen, BlockPrefixLengths: &v1alpha1.BlockPrefixLengths{IPv4: &bits}}
	if err := kc.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	node := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	api := kube.NewAPI(kc)
	f := fleet.New(t, tokenOf(t, name))
	f.Change = func(c *daemon.Config) { c.Agent.Fence, c.MultiNetwork = 8*time.Second, true } // a heartbeat every two
	n := f.Start(name)
	add := func(sandbox string) netip.Addr {
		t.Helper()
		pod := newPod(t, "default", sandbox, name, "")
		res, err := n.Insist(fleet.Interface{
			Network: "net-" + pool, Sandbox: sandbox, IfName: "net1", IPAM: map[string]any{"type": "tenure", "pool": pool},
			Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID),
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.IPs[0].Address.Addr()
	}
	used := add("losing-pod")

	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, minute, func() error {
		if !strings.Contains(n.Log(), "msg=fenced") {
			return fmt.Errorf("the agent has not noticed that it is fenced")
		}
		return nil
	})
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	told(t, node, agent.ReasonFenced, "until now")

	fleet.Amend(t, api, string(name), func(reg *protocol.Registration) {
		reg.Store, reg.Boot, reg.Term, reg.Writes = "", "", reg.Term+1, reg.Writes+1
	})
	told(t, node, agent.ReasonRegistrationLost, "was ended")
	n.AwaitServing()

	n.Stop() // else it would put the lease back at once
	for _, l := range leasesOf(t, api, name) {
		if !l.Block.Contains(used) {
			continue
		}
		marked := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: l.Name}}
		confirmDeletion(t, marked)
		l.Revision = protocol.Revision(marked.ResourceVersion)
		if out, err := api.DeleteLease(t.Context(), l.Meta); out != protocol.Done {
			t.Fatal(out, err)
		}
		l.Meta = protocol.Meta{Name: l.Name}
		l.Holder, l.Store, l.Term, l.Writes = protocol.Holder{Node: "winning"}, "winners", 1, 1
		if _, out, err := api.CreateLease(t.Context(), l); out != protocol.Done {
			t.Fatal(out, err)
		}
	}
	n = f.Start(name)
	told(t, node, agent.ReasonLeaseLost, "winning", "default/losing-pod net1")

	add("losing-more")
	n.Stop()
	held := len(leasesOf(t, api, name))
	if err := os.Remove(n.Config().Store); err != nil {
		t.Fatal(err)
	}
	n = f.Start(name)
	told(t, node, agent.ReasonStoreLost, fmt.Sprintf("leases and sub-leases: %d", held), "frozen until")
}
