package agent

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A notReadyError says why nothing can be taken from a pool now; it may change.
type notReadyError struct {
	Pool protocol.PoolName
	Why  string
	News bool // only news of the pool will change it
}

func (e *notReadyError) Error() string { return fmt.Sprintf("pool %s %s", e.Pool, e.Why) }

// ready returns pool name once it can be used, waiting until ctx ends.
func (a *Agent) ready(ctx context.Context, name protocol.PoolName) (*knownPool, error) {
	known, _, err := a.pool(name).until(ctx, a.sched, unready)
	return known, err
}

// until waits until nothing stands against p by the word of against, which it asks
// again at each news of p. It returns p as it is then, and whether it has waited; when
// ctx ends, a [*notReadyError] with what stood against p last.
func (p *pool) until(ctx context.Context, s sched.Scheduler, against func(known *knownPool, absent bool) string) (known *knownPool, waited bool, err error) {
	for {
		known, absent, changed := p.now()
		why := against(known, absent)
		switch {
		case why == "":
			return known, waited, nil
		case known == nil && !absent:
			why = p.whyUnknown()
		}
		if err := p.awaitNews(ctx, s, changed, why); err != nil {
			return nil, true, err
		}
		waited = true
	}
}

// awaitNews waits until changed, which came from [pool.now], closes. When ctx ends it
// returns a [*notReadyError] with why p was waited for.
func (p *pool) awaitNews(ctx context.Context, s sched.Scheduler, changed <-chan struct{}, why string) error {
	if s.Wait(ctx, sched.Forever, changed) == 0 {
		return nil
	}
	return &notReadyError{Pool: p.name, Why: why}
}

// unread says of a pool that nothing was heard of it yet.
const unread = "has not been read yet: the API server does not answer"

func unready(known *knownPool, absent bool) string {
	switch {
	case absent:
		return "does not exist: create the IPPool, or correct the name in the network configuration"
	case known == nil:
		return unread
	case known.Deleting:
		return "is being deleted"
	case known.Stopped:
		return "gives no addresses: its spec.allocation is Stopped"
	case known.Bits4 == 0 && known.Bits6 == 0:
		return "has not been opened by the controller yet: " + known.notOpen()
	}
	return ""
}

// notOpen says why p is not open, in the words of its condition where it has one.
func (p *knownPool) notOpen() string { return cmp.Or(p.Waits, "see its condition Ready") }

// unleasable returns what stands against leasing a block of pool name, which is as
// heard: news of the pool may change it.
func (a *Agent) unleasable(name protocol.PoolName, known *knownPool, absent bool) string {
	if why := unready(known, absent); why != "" {
		return why
	}
	if !known.Open {
		return "is closed: " + known.notOpen()
	}
	if known.Edited { // its ranges may be another pool's by now
		return "was edited, and the controller has not accepted it yet"
	}
	return a.unopened(name)
}

// unopened returns that pool name has not been opened again since the API server has
// gone back; empty if that is not so.
func (a *Agent) unopened(name protocol.PoolName) string {
	if err := a.withheld(name); err != nil {
		return "waits: " + err.Error()
	}
	return ""
}
