package nodes_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestNewSandboxOfARunningPod: a pod whose status shows an address of another IPAM has that one
// in its next sandbox, too, by the cluster. One whose status shows what its last sandbox had of
// this node is given an address of the node's, and the API server is not asked.
func TestNewSandboxOfARunningPod(t *testing.T) {
	const name = "renewed"
	controller(t, true)
	define(t, name, fmt.Sprintf(`{"type":"tenure","pool":%q}`, name))
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	w := &network{t: t, name: name, fleet: fleet.New(t, accounts.Agent), dir: t.TempDir()}
	w.fleet.Change = func(c *daemon.Config) { quick(c); c.Listen = address }
	w.start(1)
	n := w.nodes[0]
	old, staying := w.run(n, "renewed-old"), w.run(n, "renewed-staying")
	shows(t, old, netip.MustParseAddr("10.23.0.200"))
	shows(t, staying, netip.MustParseAddr("10.23.0.201"))
	fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{cidr("10.23.0.0/16")}, Domain: name}})
	eventually(t, patience, func() error {
		var p v1alpha1.IPPool
		if err := kc.Get(t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
			return err
		}
		if p.Status.Leasing != v1alpha1.LeasingOpen || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolForeignAddresses) {
			return fmt.Errorf("leasing is %s, conditions are %+v; want it open, and addresses kept", p.Status.Leasing, p.Status.Conditions)
		}
		return nil
	})

	if err := old.attach(); err != nil {
		t.Fatal(err)
	}
	if got := old.addrs[0].Addr().String(); got != "10.23.0.200" {
		t.Errorf("the old pod's new sandbox has %s; want what its last one had by another IPAM", got)
	}

	ours := w.run(n, "renewed-ours")
	if err := ours.attach(); err != nil {
		t.Fatal(err)
	}
	shows(t, ours, ours.addrs[0].Addr())
	if err := n.Del(ours.Interface); err != nil {
		t.Fatal(err)
	}
	n.Stop()
	ours.node = w.fleet.Start(n.Name)
	ours.node.AwaitReady() // it has listed the pods, and so their status
	if err := cp.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	ours.Interface = w.renewed(ours.Interface)
	began := time.Now()
	err = ours.attach()
	took := time.Since(began)
	if err := cp.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("a new sandbox while the API server is away: %v, after %v; want an address of the node's", err, took)
	}
}

// shows writes a pod's status annotation, as a meta-plugin does, and that it runs.
func shows(t *testing.T, p *pod, addr netip.Addr) {
	t.Helper()
	status, err := json.Marshal([]any{map[string]any{"name": "default/" + p.Network, "interface": p.IfName, "ips": []string{addr.String()}}})
	if err != nil {
		t.Fatal(err)
	}
	o := &corev1.Pod{}
	if err := kc.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.Pod}, o); err != nil {
		t.Fatal(err)
	}
	o.Annotations[kube.AnnotationStatus] = string(status)
	if err := kc.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Status.Phase = corev1.PodRunning
	if err := kc.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
