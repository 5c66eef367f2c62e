package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An unsaidError says that a right has not been said in the registration's term yet: until
// it is, nobody knows whether it was taken.
type unsaidError struct {
	Right string
	Why   string // what came of the try to say it; empty before
}

func (e *unsaidError) Error() string {
	text := fmt.Sprintf("whether %s is still this node's is not known yet", e.Right)
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// rightKeeps reports whether an attachment may be answered again what it has out of
// a lease, or by a use or a request. Without a term nobody is answered; of a right of
// an earlier term only a fencing write tells, and then the error is an
// [*unsaidError].
func (a *Agent) rightKeeps(tx *store.Tx, name string) (bool, error) {
	term := a.term()
	if term == 0 {
		_, why := a.serving()
		return false, &notServingError{Why: why}
	}
	r, ok, err := tx.Right(name)
	switch {
	case err != nil:
		return false, err
	case !ok: // read back from elsewhere: nobody took it from this store
		return true, nil
	case r.Phase == protocol.Frozen:
		return a.frozenKeeps(tx, r)
	case r.Keeps(term):
		return true, nil
	case r.Phase == protocol.Held:
		return false, &unsaidError{Right: name}
	default:
		return false, nil
	}
}

// frozenKeeps reports whether what a lost store gave may be answered again: in the
// boot in which that was lost. After another, nothing of its time runs, and where this
// store is lost too, the next one gives it back at once: nothing new may rest on it.
func (a *Agent) frozenKeeps(tx *store.Tx, r protocol.Right) (bool, error) {
	lost, known, err := tx.Lost(r.Store)
	return err == nil && (!known || lost.Boot == a.cfg.Boot), err
}

// say has a right said in the registration's term, or learns that it was taken.
func (a *Agent) say(ctx context.Context, name string) error {
	var r protocol.Right
	var ok bool
	err := a.st.ViewContext(ctx, func(tx *store.Tx) (err error) {
		r, ok, err = tx.Right(name)
		return err
	})
	if err != nil || !ok {
		return err
	}
	r, res, err := a.driveForADD(ctx, r, a.beginWith(protocol.Event{Kind: protocol.EventWant}))
	if err == nil && !r.Serves(a.term()) && (res.Verdict == protocol.VerdictLater || res.Verdict == protocol.VerdictRefused) {
		err = &unsaidError{Right: name, Why: res.Why}
	}
	return err
}

// restsOn returns the names of the rights that att rests on: what was granted rests
// on the right that it was granted to, not on the lease that it stands on.
func restsOn(att store.Attachment) []string {
	if att.Use != "" {
		return []string{att.Use}
	}
	names := make([]string, len(att.Addresses))
	for i, addr := range att.Addresses {
		names[i] = addr.Lease
	}
	return names
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
