package agent

import (
	"context"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// subLeasesThatGo are sub-leases that are there until they are deleted.
type subLeasesThatGo struct {
	SubLeases
	deleted bool
}

func (s *subLeasesThatGo) DeleteSubLease(context.Context, protocol.Meta) (protocol.Outcome, error) {
	s.deleted = true
	return protocol.Done, nil
}

func (s *subLeasesThatGo) ReadSubLease(context.Context, string) (protocol.SubLease, protocol.Outcome, error) {
	return protocol.SubLease{}, protocol.NotFound, nil
}

// TestH9UseGoesBack: while a pool is closed after a restore a use and a request that nothing
// rests on go back, once they have been said anew. The pool may have been deleted by force
// and made again, and wait for a lease of the cluster's with what is granted for them: it
// would be closed for ever (I4).
func TestH9UseGoesBack(t *testing.T) {
	lease := protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.10/32"))
	use := protocol.Right{Kind: protocol.RightUse, Name: "c.0", Use: &protocol.Use{Claim: protocol.ClaimRef{UID: "c"}}, Leases: []string{lease}}
	request := protocol.Right{Kind: protocol.RightRequest, Name: "r", Request: &protocol.Request{Wants: []protocol.Wanted{{Pool: "lan"}}}, Leases: []string{lease}}
	for _, r := range []protocol.Right{use, request} {
		for said, kept := range map[int64]bool{2: true, 3: false} {
			a := newRestoredAgent(t)
			r.Phase, r.UID, r.Revision, r.Said, r.Term = protocol.Held, "u", "7", said, 2
			a.put(t, r)
			s := &subLeasesThatGo{}
			a.cl.SubLeases = carefulSubLeases{s, a}
			_, _, _ = a.drive(t.Context(), r, protocol.Event{Kind: protocol.EventLetGo})
			if _, known := a.right(r.Name); known != kept || s.deleted == kept {
				t.Errorf("%s, said in term %d of 3: recorded %v, deleted %v; want it kept: %v", r.Name, said, known, s.deleted, kept)
			}
		}
	}
}
