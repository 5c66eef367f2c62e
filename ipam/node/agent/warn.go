package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store"
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
func (a *Agent) warnNode(reason, format string, args ...any) {
	uid := a.current().Self.NodeUID
	a.cl.Events.WarnNode(a.cfg.Node, uid, reason, fmt.Sprintf(format, args...))
}

// WarnNode tells people of this node what another part of its agent has to say. told is false
// while it is not known yet which Node this is. Safe for concurrent use.
func (a *Agent) WarnNode(reason, message string) (told bool) {
	uid := a.current().Self.NodeUID
	if uid == "" {
		return false
	}
	a.cl.Events.WarnNode(a.cfg.Node, uid, reason, message)
	return true
}

// podsNamed is how many pods an event names: the log names all.
const podsNamed = 10

// sayLost tells people that a right was taken from this node, and who uses it: the
// addresses of these pods may be others' by now.
func (a *Agent) sayLost(r protocol.Right, why string) {
	var pods []string
	err := a.st.Peek(func(tx *store.Tx) error { // an event waits for no disk
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			if slices.Contains(restsOn(att), r.Name) {
				pods = append(pods, fmt.Sprintf("%s %s", att.Pod, att.IfName))
			}
		}
		return nil
	})
	users := usersText(pods)
	if err != nil {
		a.log.Error("store not read", "error", err)
		users = "its addresses may be others' by now, and the agent's store does not say which pods use them: see the agent's log"
	}
	a.log.Warn("right lost", "right", r.Name, "error", why, "usedBy", pods)
	a.warnNode(ReasonLeaseLost, "taken from this node: %s; %s", why, users)
}

// usersText says who uses what was taken, and what to do.
func usersText(pods []string) string {
	if len(pods) == 0 {
		return "no pod here uses it"
	}
	named := strings.Join(pods[:min(len(pods), podsNamed)], ", ")
	if more := len(pods) - podsNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return "its addresses may be others' by now: delete the pods that use it: " + named
}

// sayRegistrationLost tells people that the agent has lost its registration of term had, by the
// step that found it so.
func (a *Agent) sayRegistrationLost(ctx context.Context, had int64, res protocol.RegistrationResult) {
	why := fmt.Sprintf("term %d of node %s was ended, as it is when a node is taken for dead", had, a.cfg.Node)
	if s := res.Next; s.Stranger != nil || s.Off {
		_, why = s.Serving(a.sched.Now())
	}
	a.log.WarnContext(ctx, "registration lost", "node", a.cfg.Node, "error", why)
	a.warnNode(ReasonRegistrationLost, "%s: nothing is given out here before the registration is taken again, and what was held may have been taken meanwhile", why)
}

// sayStoreLost tells people that a store of this machine was lost, which held so many
// rights.
func (a *Agent) sayStoreLost(f protocol.Former, rights int) {
	then := "frozen until the pods of that time have ended"
	if f.Boot != a.cfg.Boot {
		then = "given back, since the machine was started again"
	}
	a.warnNode(ReasonStoreLost, "store %s of this machine was lost, or put back to an earlier state: what it held (leases and sub-leases: %d) is %s", f.Store, rights, then)
}

// A silence is a time in which the agent was fenced, as far as people were told. The
// zero value is none.
type silence struct {
	announced bool
	since     protocol.Instant // when the last heartbeat that was accepted was sent
}

// saySilence tells people after each heartbeat whether the agent is fenced because
// none was accepted for F: once when it is, though the API server may not hear it
// then, and once when it is over, with how long it took.
func (a *Agent) saySilence(s *silence, accepted bool) {
	now := a.sched.Now()
	registrar := a.current()
	ok, why := registrar.Serving(now)
	switch {
	case accepted && s.announced:
		a.log.Warn("heartbeat accepted again", "node", a.cfg.Node, "after", now.Since(s.since))
		a.warnNode(ReasonFenced, "no heartbeat of node %s was accepted for %v: it gave out no new addresses until now", a.cfg.Node, now.Since(s.since).Round(time.Second))
		*s = silence{}
	case !accepted && !ok && !s.announced && registrar.Term != 0:
		a.log.Error("fenced", "node", a.cfg.Node, "error", why)
		a.warnNode(ReasonFenced, "%s: this node gives out no new addresses", why)
		*s = silence{announced: true, since: registrar.Sent}
	}
}
