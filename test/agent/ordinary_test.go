package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

func newPool(t *testing.T, name, cidr string, bits int32) {
	t.Helper()
	ctx := context.Background()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: cidr}}}}
	if err := kc.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	p.Status = v1alpha1.IPPoolStatus{Leasing: v1alpha1.LeasingOpen, BlockPrefixLengths: &v1alpha1.BlockPrefixLengths{IPv4: &bits}}
	if err := kc.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
}

func TestSmoke(t *testing.T) {
	newPool(t, "smoke", "10.9.0.0/24", 32)
	f := fleet.New(t, cp.Config())
	n := f.Start("n1")
	for i := range 5 {
		began := time.Now()
		res, err := n.Add(fleet.Interface{Network: "lan", Sandbox: fmt.Sprintf("c%d", i), IfName: "net1", IPAM: map[string]any{"type": "tenure", "pool": "smoke"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(res.IPs, time.Since(began))
	}
	leases, err := api.LeasesOfPool(t.Context(), "smoke")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		t.Logf("%+v", l)
	}
}
