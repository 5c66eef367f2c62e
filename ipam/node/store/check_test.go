package store

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestCheck makes each fault that Check knows.
func TestCheck(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/26")
	leaseName := protocol.LeaseName("vlan-prod", block)
	lease := protocol.Right{Kind: protocol.RightLease, Name: leaseName, Phase: protocol.Held, LeaseRight: protocol.LeaseRight{Pool: "vlan-prod", Block: block}}
	use := protocol.Right{Kind: protocol.RightUse, Name: "u.0", Phase: protocol.Held, SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Claim: protocol.ClaimRef{UID: "claim-uid-9"}}}}
	own, byClaim := sampleAttachment(5), claimed(9)
	own.Addresses[0].Lease = leaseName
	byClaim.Use = "u.0"
	shape, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	space := func(tx *Tx) allocator.Space { return allocator.NewSpace(tx.Table("vlan-prod"), shape) }
	address := own.Addresses[0].Addr
	twin := func(a Attachment) Attachment { a.ContainerID, a.Pod.UID = "twin", "twin"; return a }
	phase := func(r protocol.Right, p protocol.Phase) protocol.Right { r.Phase = p; return r }
	kind := func(r protocol.Right, k protocol.RightKind) protocol.Right { r.Kind = k; return r }
	requestedAddr := netip.MustParseAddr("10.0.0.44")
	ceded := func(addrs ...netip.Addr) protocol.Right { r := lease; r.Ceded = addrs; return r }
	// putRequested puts an attachment on a request that was granted its address.
	putRequested := func(edit func(*Attachment, *protocol.Right)) func(*Tx) error {
		return func(tx *Tx) error {
			a := Attachment{
				Key: Key{Network: "net2", ContainerID: "requested", IfName: "net1"}, Pod: protocol.PodRef{UID: "requester"}, Use: "q",
				Addresses: []Address{{Addr: requestedAddr, Bits: 24, Pool: "vlan-prod"}},
			}
			r := protocol.Right{
				Kind: protocol.RightRequest, Name: "q", Phase: protocol.Held, SubLeaseRight: protocol.SubLeaseRight{Addrs: []netip.Addr{requestedAddr}, Request: &protocol.Request{Pod: a.Pod, Interface: a.IfName}},
			}
			if edit != nil {
				edit(&a, &r)
			}
			return errors.Join(tx.PutRight(r), tx.PutAttachment(a))
		}
	}

	tests := []struct {
		name string
		edit func(*Tx) error
		want string // part of the fault; "" if there is none
	}{
		{"sound", func(*Tx) error { return nil }, ""},
		{"releasing", func(tx *Tx) error { return tx.PutRight(phase(lease, protocol.Releasing)) }, ""},
		{"lost", func(tx *Tx) error {
			return errors.Join(tx.PutRight(phase(lease, protocol.Lost)), tx.PutRight(phase(use, protocol.Lost)))
		}, ""},
		{"one claim, two sandboxes", func(tx *Tx) error { return tx.PutAttachment(twin(byClaim)) }, ""},
		{"local mode", func(tx *Tx) error {
			a := own
			a.Addresses = []Address{own.Addresses[0]}
			a.Addresses[0].Lease = ""
			return errors.Join(tx.PutAttachment(a), tx.DeleteRight(leaseName))
		}, ""},
		{"not taken", func(tx *Tx) error { return space(tx).Free(address) }, "has 10.0.0.5 of pool vlan-prod, which is Free there"},
		{"no block", func(tx *Tx) error { return errors.Join(space(tx).Free(address), space(tx).Close(block)) }, "which is NoBlock there"},
		{"taken by nobody", func(tx *Tx) error { return space(tx).Take(address.Next()) }, "10.0.0.6 of pool vlan-prod is taken, and no attachment has it"},
		{"taken by nobody after a delete", func(tx *Tx) error { return tx.DeleteAttachment(own.Key) }, "10.0.0.5 of pool vlan-prod is taken, and no attachment has it"},
		{"two owners", func(tx *Tx) error { return tx.PutAttachment(twin(own)) }, "10.0.0.5 of pool vlan-prod is recorded for two"},
		{"two claims", func(tx *Tx) error {
			a := twin(byClaim)
			a.Claim, a.Use = &protocol.ClaimRef{Name: "other", UID: "other"}, ""
			return tx.PutAttachment(a)
		}, "10.0.0.9 of pool vlan-prod is recorded for two"},
		{"claim's address in own block", func(tx *Tx) error { return space(tx).Take(byClaim.Addresses[0].Addr) }, "but the node's own blocks have it as Taken"},
		{"no lease", func(tx *Tx) error { return tx.DeleteRight(leaseName) }, "of which there is no record"},
		{"lease noted", func(tx *Tx) error { return tx.PutRight(phase(lease, protocol.Noted)) }, "which is a Lease that is Noted"},
		{"lease is a use", func(tx *Tx) error { return tx.PutRight(kind(lease, protocol.RightUse)) }, "which is a Use that is Held"},
		{"another block's lease", func(tx *Tx) error {
			r := lease
			r.Block = netip.MustParsePrefix("10.0.1.0/26")
			return tx.PutRight(r)
		}, "which is of block 10.0.1.0/26"},
		{"another pool's lease", func(tx *Tx) error { r := lease; r.Pool = "other"; return tx.PutRight(r) }, "of pool other"},
		{"no use", func(tx *Tx) error { return tx.DeleteRight("u.0") }, "needs use u.0, of which there is no record"},
		{"use noted", func(tx *Tx) error { return tx.PutRight(phase(use, protocol.Noted)) }, "which is a Use that is Noted"},
		{"use of another claim", func(tx *Tx) error { r := use; r.Use = &protocol.Use{}; return tx.PutRight(r) }, "which is of another claim"},
		{"use without a claim", func(tx *Tx) error { a := own; a.Use = "u.0"; return tx.PutAttachment(a) }, "which is of another claim"},
		{"by request", putRequested(nil), ""},
		{"by request, of an address that its own block has ceded", func(tx *Tx) error {
			return errors.Join(putRequested(nil)(tx), space(tx).Bar(requestedAddr, true), tx.PutRight(ceded(requestedAddr)))
		}, ""},
		{"by request, two interfaces", func(tx *Tx) error {
			return putRequested(func(a *Attachment, _ *protocol.Right) { a.IfName = "net7" })(tx)
		}, "needs request q, which is not its own"},
		{"by request, another address", func(tx *Tx) error {
			return putRequested(func(_ *Attachment, r *protocol.Right) { r.Addrs = []netip.Addr{address} })(tx)
		}, "has 10.0.0.44, which request q was not granted"},
		{"by request, noted", func(tx *Tx) error {
			return putRequested(func(_ *Attachment, r *protocol.Right) { r.Phase = protocol.Noted })(tx)
		}, "which is a Request that is Noted"},
		{"by request, out of its own block", func(tx *Tx) error {
			return errors.Join(putRequested(nil)(tx), space(tx).Take(requestedAddr))
		}, "but the node's own blocks have it as Taken"},
		{"ceded", func(tx *Tx) error {
			return errors.Join(space(tx).Bar(requestedAddr, true), tx.PutRight(ceded(requestedAddr)))
		}, ""},
		{"ceded and free", func(tx *Tx) error { return tx.PutRight(ceded(requestedAddr)) }, "has ceded 10.0.0.44, which its block has as Free"},
		{"ceded and taken", func(tx *Tx) error { return tx.PutRight(ceded(address)) }, "has ceded 10.0.0.5, which its block has as Taken"},
		{"barred and not ceded", func(tx *Tx) error { return space(tx).Bar(requestedAddr, true) }, "10.0.0.44 of pool vlan-prod is barred, and no lease has ceded it"},
		{"index entry lost", func(tx *Tx) error { return tx.delete(&tx.pods, own.podEntry(own.Key.bytes())) }, "is not among the attachments of pod"},
		{"index entry too many", func(tx *Tx) error { return tx.put(&tx.uses, []byte("x/"+own.Key.String()), nil) }, "index uses has 2 entries, want 1"},
		{"index entry of nothing", func(tx *Tx) error {
			return tx.put(&tx.pods, []byte(string(own.Pod.UID)+"/net1/a/b/c"), nil)
		}, "there is no such attachment"},
		{"table", func(tx *Tx) error { return tx.Table("vlan-prod").Put([]byte("x"), []byte("y")) }, "belongs to no block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(filepath.Join(t.TempDir(), "store.db"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			update(t, s, func(tx *Tx) error {
				return errors.Join(tx.PutRight(lease), tx.PutRight(use), space(tx).Open(block), space(tx).Take(address),
					tx.PutAttachment(own), tx.PutAttachment(byClaim))
			})
			update(t, s, tt.edit)
			err = s.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check = %v; want %q", err, tt.want)
			}
		})
	}
}
