package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// The reasons of the events about this node.
const (
	// ReasonLeaseLost: a lease or a sub-lease of the node is another's by now.
	ReasonLeaseLost = "LeaseLost"
	// ReasonRegistrationLost: the agent's term was ended, or another machine has its registration.
	ReasonRegistrationLost = "RegistrationLost"
	// ReasonFenced: the agent gives out nothing new, because no heartbeat of it was
	// accepted for F.
	ReasonFenced = "Fenced"
	// ReasonStoreLost: the agent's store was lost, or was put back to an earlier state.
	ReasonStoreLost = "StoreLost"
)

// warnNode tells people of this node.
func (reg *registration) warnNode(reason, format string, args ...any) {
	uid := reg.current().Self.NodeUID
	reg.cl.Events.WarnNode(reg.cfg.Node, uid, reason, fmt.Sprintf(format, args...))
}

// warnRegistrationLost tells people that the agent has lost its registration of term had, by the
// step that found it so.
func (reg *registration) warnRegistrationLost(ctx context.Context, had int64, res protocol.RegistrationResult) {
	why := fmt.Sprintf("term %d of node %s was ended, as it is when a node is taken for dead", had, reg.cfg.Node)
	if s := res.Next; s.OtherHolder != nil || s.Off {
		_, why = s.Serving(reg.sched.Now())
	}
	reg.log.WarnContext(ctx, "registration lost", "node", reg.cfg.Node, "error", why)
	reg.warnNode(ReasonRegistrationLost, "%s: nothing is given out here before the registration is taken again, and what was held may have been taken meanwhile", why)
}

// A silence is a time in which the agent was fenced, as far as people were told. The
// zero value is none.
type silence struct {
	announced bool
	since     protocol.Instant // when the last heartbeat that was accepted was sent
}

// warnSilence tells people after each heartbeat whether the agent is fenced because
// none was accepted for F: once when it is, though the API server may not hear it
// then, and once when it is over, with how long it took.
func (reg *registration) warnSilence(s *silence, accepted bool) {
	now := reg.sched.Now()
	registrar := reg.current()
	ok, why := registrar.Serving(now)
	switch {
	case accepted && s.announced:
		reg.log.Warn("heartbeat accepted again", "node", reg.cfg.Node, "after", now.Since(s.since))
		reg.warnNode(ReasonFenced, "no heartbeat of node %s was accepted for %v: it gave out no new addresses until now", reg.cfg.Node, now.Since(s.since).Round(time.Second))
		*s = silence{}
	case !accepted && !ok && !s.announced && registrar.Term != 0:
		reg.log.Error("fenced", "node", reg.cfg.Node, "error", why)
		reg.warnNode(ReasonFenced, "%s: this node gives out no new addresses", why)
		*s = silence{announced: true, since: registrar.Sent}
	}
}
