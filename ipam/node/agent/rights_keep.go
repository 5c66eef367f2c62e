package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// confirm has a right written in the registration's term, or learns that it was taken.
func (rs *rights) confirm(ctx context.Context, name string) error {
	var r protocol.Right
	var ok bool
	err := rs.st.ViewContext(ctx, func(tx *store.Tx) (err error) {
		r, ok, err = tx.Right(name)
		return err
	})
	if err != nil || !ok {
		return err
	}
	r, res, err := rs.settleForADD(ctx, r, rs.beginWith(protocol.Event{Kind: protocol.EventWant}), nil)
	if err == nil && !r.Usable(rs.reg.term()) && (res.Verdict == protocol.VerdictLater || res.Verdict == protocol.VerdictRefused) {
		err = &assign.UnconfirmedError{Right: name, Why: res.Why}
	}
	return err
}

// countLost returns how many attachments rest on rights that are Lost.
func countLost(tx *store.Tx) (n int, err error) {
	lost := map[string]bool{}
	for r, err := range tx.Rights() {
		if err != nil {
			return 0, err
		}
		if r.Phase == protocol.Lost {
			lost[r.Name] = true
		}
	}
	if len(lost) == 0 {
		return 0, nil
	}
	for att, err := range tx.Attachments() {
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(restsOn(att), func(name string) bool { return lost[name] }) {
			n++
		}
	}
	return n, nil
}

// checkLost is CHECK's part: an attachment whose addresses were taken is not as it
// should be.
func checkLost(tx *store.Tx, key store.Key) error {
	att, ok, err := tx.Attachment(key)
	if err != nil || !ok {
		return err
	}
	for _, name := range restsOn(att) {
		r, ok, err := tx.Right(name)
		if err != nil {
			return err
		}
		if ok && r.Phase == protocol.Lost {
			return &assign.LostError{Held: att}
		}
	}
	return nil
}

// warnLost tells people that a right was taken from this node, and who uses it: the
// addresses of these pods may be others' by now.
func (rs *rights) warnLost(r protocol.Right, why string) {
	var pods []string
	err := rs.st.Peek(func(tx *store.Tx) error { // an event waits for no disk
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
		rs.log.Error("store not read", "error", err)
		users = "its addresses may be others' by now, and the agent's store does not say which pods use them: see the agent's log"
	}
	rs.log.Warn("right lost", "right", r.Name, "error", why, "usedBy", pods)
	rs.reg.warnNode(ReasonLeaseLost, "taken from this node: %s; %s", why, users)
}

// podsNamed is how many pods an event names: the log names all.
const podsNamed = 10

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
