package agent

import (
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

// TestFencedGivesNoGrantAnew: an agent without an accepted heartbeat for F answers a pod's new
// sandbox with what the pod has, out of a lease, and not with what was granted to a request of
// it and never answered: that may be another's by now. The key of another pod is no pod's that
// has an address.
func TestFencedGivesNoGrantAnew(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pod    protocol.UID // that has the address
		key    string
		use    string // under which it has it
		fenced bool
		want   string
	}{
		{"an earlier sandbox of the pod", "pod", "first", "", true, "10.0.0.1"},
		{"by the request itself", "pod", "first", "hash-1", true, "10.0.0.9"},
		{"another pod", "other", "first", "", true, ""},
		{"another pod under this key", "other", "second", "", true, ""},
		{"not fenced", "pod", "first", "", false, "10.0.0.9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const fence = 15 * time.Minute
				a, p := newBubbleAgent(t)
				a.host = goneHost{}
				a.reg.registrar.Term, a.reg.registrar.Fence, a.reg.registrar.Self.Fence, a.reg.registrar.Sent = 3, fence, fence, a.sched.Now()
				if tt.fenced {
					time.Sleep(fence + time.Minute)
				}
				pod := protocol.PodRef{Namespace: "ns", Name: "p", UID: "pod"}
				request := protocol.Right{
					Kind: protocol.RightRequest, Name: "hash-1", Phase: protocol.Held, UID: "u", Revision: "7", Asserted: 3, Term: 3, Writes: 1,
					SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Pod: pod, Interface: "net1", Wants: []protocol.Wanted{{Pool: "lan", Ranges: []string{"10.0.0.1-10.0.0.30"}}}}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Leases: []string{"lan.0a000008.30"}},
				}
				lease := protocol.Right{
					Kind: protocol.RightLease, Name: "lan.0a000000.30", LeaseRight: protocol.LeaseRight{Pool: "lan", PoolUID: "p", Block: netip.MustParsePrefix("10.0.0.0/30")},
					Phase: protocol.Held, UID: "l", Revision: "6", Asserted: 3, Term: 3, Writes: 1,
				}
				has := store.Attachment{
					Key: store.Key{Network: "net", ContainerID: tt.key, IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: tt.pod}, Boot: a.cfg.Boot, Generation: 1,
					Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.1"), Bits: 27, Pool: "lan", Lease: lease.Name}},
				}
				err := a.st.Update(t.Context(), func(tx *store.Tx) error {
					space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
					err := errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(request), tx.PutRight(lease), space.Open(lease.Block))
					if tt.use == "" {
						err = errors.Join(err, space.Take(has.Addresses[0].Addr))
					} else {
						has.Use, has.Addresses = tt.use, []store.Address{{Addr: request.Addrs[0], Bits: 27, Pool: "lan"}}
					}
					return errors.Join(err, tx.PutAttachment(has))
				})
				if err != nil {
					t.Fatal(err)
				}
				a.rights.follows(protocol.Self{Term: 3}, protocol.Result{Next: request})
				key := store.Key{Network: "net", ContainerID: "second", IfName: "net1"}
				add := &addCall{conf: &poolspec.Config{Name: "net", Sources: []poolspec.Source{{Pool: "lan", Families: []allocator.Family{allocator.IPv4}}}}, key: key, demand: assign.Demand{
					Key: key, Pod: pod, Boot: a.cfg.Boot, Gone: a.host.Gone,
				}}
				att, err := a.hold(t.Context(), add)
				got := ""
				if err == nil {
					got = att.Addresses[0].Addr.String()
				}
				if got != tt.want || got == "" && !is[*notServingError](err) {
					t.Errorf("got %q, %v; want %q", got, err, tt.want)
				}
			})
		})
	}
}
