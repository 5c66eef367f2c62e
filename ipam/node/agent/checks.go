package agent

import (
	"context"
	"sync/atomic"

	"github.com/tenure-ipam/tenure/ipam/delqueue"
)

// faults is what the last look at the node's own files found.
type faults struct {
	store   atomic.Int64 // faults of the store
	journal atomic.Int64 // entries of the journal that do not read
}

// checkStore checks the whole store. What it finds needs a person, or the next start,
// which reads the file before it believes it.
func (a *Agent) checkStore(ctx context.Context) {
	err := a.st.Check()
	a.faults.store.Store(int64(countErrors(err)))
	if err != nil {
		a.log.ErrorContext(ctx, "the store contradicts itself", "store", a.st.Path(), "error", err)
	}
}

// countErrors returns how many errors are joined in err.
func countErrors(err error) int {
	if err == nil {
		return 0
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 1
	}
	n := 0
	for _, e := range joined.Unwrap() {
		n += countErrors(e)
	}
	return max(n, 1)
}

// countDamaged counts the entries of the journal that were set aside.
func (a *Agent) countDamaged(ctx context.Context) {
	aside, err := delqueue.Damaged(a.cfg.JournalDir)
	if err != nil {
		a.log.WarnContext(ctx, "journal not read", "error", err)
		return
	}
	a.faults.journal.Store(int64(len(aside)))
}
