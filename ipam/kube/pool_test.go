package kube

import (
	"cmp"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPoolOfManySubnets: what the protocol reads of a pool with a subnet for each node, at every
// event and by every agent, does not grow with the number of subnets.
func TestPoolOfManySubnets(t *testing.T) {
	o := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{
		PerNode: &v1alpha1.PerNode{PrefixLength: 24}, Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/10"}},
	}}
	p := PoolOf(o)
	if len(p.Ranges) != 1 || p.Edited {
		t.Errorf("got %d ranges, edited: %v; want one", len(p.Ranges), p.Edited)
	}
	for block, want := range map[string]bool{"10.0.0.0/24": true, "10.63.255.0/24": true, "10.64.0.0/24": false} {
		if got := p.Covers(netip.MustParsePrefix(block)); got != want {
			t.Errorf("covers %s: %v; want %v", block, got, want)
		}
	}
}

// TestEpochOfAPoolThatWasNeverOpened: it is when the pool was made. So a pool that is made again
// under its name is in a later epoch than the one before it.
func TestEpochOfAPoolThatWasNeverOpened(t *testing.T) {
	made := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	o := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
	for _, waited := range []string{"", protocol.EpochAfter(made.Add(time.Hour))} {
		o.Status.Waited = waited
		if got, want := PoolOf(o).Epoch, cmp.Or(waited, protocol.EpochAfter(made)); got != want {
			t.Errorf("waited in %q: epoch %q; want %q", waited, got, want)
		}
	}
}

func BenchmarkPoolOfManySubnets(b *testing.B) {
	o := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{
		PerNode: &v1alpha1.PerNode{PrefixLength: 24}, Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/10"}},
	}}
	for b.Loop() {
		PoolOf(o)
	}
}
