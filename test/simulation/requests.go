package simulation

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// UpdateSubLease implements [requests.SubLeases]: it changes what identifies the
// holder, and never the answer.
func (c liveCalls) UpdateSubLease(_ context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	return call(c.simController, "update of "+old.Name, true, func() (protocol.SubLease, protocol.Outcome) {
		return c.w.api.subs.update(old.Meta, func(s *protocol.SubLease) {
			granted, refused := s.Granted, s.Refused
			*s = cloneSub(next)
			s.Granted, s.Refused = granted, refused
		})
	})
}

// AnswerSubLease implements [requests.SubLeases]: the answer alone, which is
// written once.
func (c liveCalls) AnswerSubLease(_ context.Context, answer protocol.SubLease) (protocol.Outcome, error) {
	_, out, err := call(c.simController, "answer to "+answer.Name, true, func() (protocol.SubLease, protocol.Outcome) {
		if s, out := c.w.api.subs.read(answer.Name); out == protocol.Done && s.Answered() && c.w.fault != "M53" {
			return s, protocol.Refused
		}
		if c.w.fault == "M53" {
			answer.Revision = ""
		}
		return c.w.api.subs.update(answer.Meta, func(s *protocol.SubLease) { s.Granted, s.Refused = answer.Granted, answer.Refused })
	})
	return out, err
}

func (g granter) Drop(_ context.Context, held []grants.Held) error {
	return g.change(grants.Drop, held)
}
