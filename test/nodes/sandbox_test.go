package nodes_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

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
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	w := frame(t, "renewed", func(c *daemon.Config) { quick(c); c.Listen = address })
	w.define("default", w.definition)
	w.start(1)
	n := w.nodes[0]
	old, staying := w.run(n, "renewed-old"), w.run(n, "renewed-staying")
	shows(t, old, netip.MustParseAddr("10.23.0.200"))
	shows(t, staying, netip.MustParseAddr("10.23.0.201"))
	p := newPool(t, w.name, w.name, cidr("10.23.0.0/16"))
	await(t, patience, p, func() error {
		if p.Status.Leasing != v1alpha1.LeasingOpen || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolForeignAddresses) {
			return fmt.Errorf("leasing is %s, conditions are %+v; want it open, and addresses kept", p.Status.Leasing, p.Status.Conditions)
		}
		return nil
	})

	must(t, old.attach())
	if got := old.addrs[0].Addr().String(); got != "10.23.0.200" {
		t.Errorf("the old pod's new sandbox has %s; want what its last one had by another IPAM", got)
	}

	ours := w.run(n, "renewed-ours")
	must(t, ours.attach())
	shows(t, ours, ours.addrs[0].Addr())
	must(t, n.Del(ours.Interface))
	n.Stop()
	ours.node = w.fleet.Start(n.Name)
	ours.node.AwaitReady() // it has listed the pods, and so their status
	must(t, cp.PauseAPIServer())
	ours.Interface = w.renewed(ours.Interface)
	began := time.Now()
	err = ours.attach()
	took := time.Since(began)
	must(t, cp.ResumeAPIServer())
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
	o := podOf(p.Interface)
	fleet.Edit(t, kc, o, func() { o.Annotations[kube.AnnotationStatus] = string(status) })
	o.Status.Phase = corev1.PodRunning
	must(t, kc.Status().Update(t.Context(), o))
}
