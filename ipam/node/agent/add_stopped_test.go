package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestStartedAgain (I1): of a pool that was stopped a node gives nothing that is free before the
// pool is open again, not even out of a block that it holds, for another IPAM may have given it.
// A sandbox has its addresses again, and so has a new sandbox of its pod's.
func TestStartedAgain(t *testing.T) {
	for _, tt := range []struct {
		name, sandbox, exact string
		pod                  protocol.UID
		givenAway            bool
		want                 string // empty: it waits
	}{
		{"the same sandbox", "s1", "", "old", true, "10.0.0.1"},
		{"a new sandbox of the pod", "s2", "", "old", true, "10.0.0.1"},
		{"a new sandbox, by name", "s2", "10.0.0.1", "old", true, "10.0.0.1"},
		{"another pod", "s3", "", "new", true, ""},
		{"another pod, by name", "s3", "10.0.0.2", "new", true, ""},
		{"another pod, while the pool is closed for another reason", "s3", "10.0.0.2", "new", false, "10.0.0.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newBubbleAgent(t)
				a.host, a.metrics = goneHost{}, newMetrics(nil)
				a.cfg.Fence, a.reg.registrar.Term = 0, 3
				lease := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.0/30"))
				lease.Phase, lease.UID, lease.Revision, lease.Asserted, lease.Term, lease.Writes = protocol.Held, "l", "6", 3, 3, 1
				has := store.Attachment{
					Key: store.Key{Network: "net", ContainerID: "s1", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "old"}, Boot: a.cfg.Boot, Generation: 1,
					Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.1"), Bits: 27, Pool: "lan", Lease: lease.Name}},
				}
				err := a.st.Update(t.Context(), func(tx *store.Tx) error {
					space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
					return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(lease), space.Open(lease.Block), space.Take(has.Addresses[0].Addr), tx.PutAttachment(has))
				})
				if err != nil {
					t.Fatal(err)
				}
				p.set(changed(p, func(k *knownPool) { k.Open, k.GivenAway, k.Waits = false, tt.givenAway, "it is looked at" }), false)
				key := store.Key{Network: "net", ContainerID: tt.sandbox, IfName: "net1"}
				add := &addCall{
					key: key, conf: &poolspec.Config{Name: "net", CNIVersion: "1.1.0", Sources: []poolspec.Source{{Pool: "lan", Families: []allocator.Family{allocator.IPv4}}}},
					demand: assign.Demand{Key: key, Pod: protocol.PodRef{Namespace: "ns", Name: string(tt.pod), UID: tt.pod}, Boot: a.cfg.Boot, Gone: a.host.Gone},
				}
				if tt.exact != "" {
					add.conf.Requested = []poolspec.Requested{{Addr: netip.MustParseAddr(tt.exact)}}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				att, err := a.hold(ctx, add)
				got := ""
				if err == nil {
					got = att.Addresses[0].Addr.String()
				}
				if got != tt.want || got == "" && !is[*notReadyError](err) {
					t.Errorf("gets %q, %v; want %q", got, err, tt.want)
				}
				if got != "" && att.Addresses[0].Lease != lease.Name {
					t.Errorf("it is said to be of lease %q; want %q", att.Addresses[0].Lease, lease.Name)
				}
			})
		})
	}
}
