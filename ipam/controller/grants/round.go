package grants

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// tries is how often one write is made again after a conflict within a round.
const tries = 5

// round does what is waiting to be done.
func (b *Broker) round(ctx context.Context) {
	now := b.cfg.Now()
	b.mu.Lock()
	b.book.expire(now)
	asks, jobs := b.book.take(b.cfg.RoundSize, now), b.jobs
	b.jobs = nil
	r := b.book.plan(asks, jobs, now)
	if len(asks) == 0 && len(jobs) == 0 && len(r.registrations) == 0 {
		b.mu.Unlock()
		return
	}
	starving := b.book.takeChanged()
	b.mu.Unlock()
	b.notifyPools(starving) // at once: agents then cede what is free

	b.failRestored(ctx, r.order)
	Each(b.cfg.Calls, r.order, func(wr *write) { b.create(ctx, wr) })
	b.confirm(ctx, r.order)
	Each(b.cfg.Calls, r.tasks(), func(t task) {
		if t.write != nil {
			b.write(ctx, t.write)
			return
		}
		b.recall(ctx, t.reg)
	})

	b.mu.Lock()
	b.book.finish(r, b.cfg.Now())
	more := b.book.pending()
	starving = b.book.takeChanged()
	b.metrics.waiting.Set(float64(len(b.book.queue.asks)))
	b.mu.Unlock()
	b.metrics.round(len(asks), b.cfg.Now().Sub(now))
	b.notifyGrantees(r.news)
	b.notifyPools(starving)
	if more {
		b.signal()
	}
}

// task is a lease to be written, or a registration whose recalls are to be changed.
type task struct {
	write *write
	reg   protocol.NodeName
}

// tasks returns what there is to write: leases, for which somebody waits, before registrations.
func (r *round) tasks() []task {
	tasks := make([]task, 0, len(r.order)+len(r.registrations))
	for _, wr := range r.order {
		tasks = append(tasks, task{write: wr})
	}
	for _, node := range r.registrations {
		tasks = append(tasks, task{reg: node})
	}
	return tasks
}

// Each calls do for every element, at most n at once, and waits for all. With n of
// one they run in order, and on the caller's goroutine.
func Each[T any](n int, of []T, do func(T)) {
	if n == 1 || len(of) == 1 {
		for _, x := range of {
			do(x)
		}
		return
	}
	var g errgroup.Group
	g.SetLimit(n)
	for _, x := range of {
		g.Go(func() error { do(x); return nil })
	}
	_ = g.Wait() // do has nothing to return
}

// create creates the lease of wr, if it is one that is to be created.
func (b *Broker) create(ctx context.Context, wr *write) {
	b.mu.Lock()
	l, pending := wr.lease.Lease, wr.lease.Revision == ""
	b.mu.Unlock()
	if !pending || wr.err != nil {
		return // it exists, or is not to be created
	}
	begun := b.begin()
	got, out, err := b.cluster.CreateLease(ctx, l)
	b.metrics.call("create", out)
	switch out {
	case protocol.Done:
		b.log.DebugContext(ctx, "block leased", "pool", l.Pool, "block", l.Block)
		wr.created = got.Meta
		b.observe(got, begun)
	case protocol.Exists, protocol.Unknown:
		// It may be this broker's all the same: an earlier create may have landed late.
		seen, ok, readErr := b.read(ctx, l.Name)
		switch {
		case readErr != nil:
			wr.err = readErr
		case !ok && out == protocol.Unknown:
			wr.err = err
		case ok:
			b.log.DebugContext(ctx, "block is leased", "pool", l.Pool, "block", l.Block, "holder", seen.Holder.String())
		}
	default:
		wr.err = err
	}
}

// write makes the edits of wr, on the lease as it is by then.
func (b *Broker) write(ctx context.Context, wr *write) {
	wr.done = make([]bool, len(wr.edits))
	if wr.err != nil || wr.start.Revision == "" {
		return
	}
	grantees := wr.grantees()
	b.writing(wr, grantees)
	defer func() {
		b.writing(wr, nil)
		b.notifyGrantees(grantees)
	}()
	l := wr.start
	for range tries {
		next, done, changed := rewrite(l, wr.edits)
		if !changed {
			wr.done = done
			return
		}
		begun := b.begin()
		got, out, err := b.cluster.UpdateLease(ctx, l, next)
		b.metrics.call("update", out)
		switch out {
		case protocol.Done:
			b.observe(got, begun)
			wr.done = done
			return
		case protocol.Refused:
			wr.err = err
			return
		case protocol.Conflict, protocol.NotFound, protocol.Exists, protocol.Unknown:
		}
		// If this update lands late, it does no harm: it names the revision of the next try, or
		// an older one.
		seen, ok, err := b.read(ctx, l.Name)
		if err != nil {
			wr.err = err
			return
		}
		if !ok {
			seen = protocol.Lease{Meta: protocol.Meta{Name: l.Name}} // grants nothing
		}
		l = seen
	}
	wr.err = errBusy
}

// writing notes the grantees of a write that has begun; nil when it is over.
func (b *Broker) writing(wr *write, grantees []protocol.Grantee) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wr.lease.writing = grantees
}

// read reads a lease live, and tells the book.
func (b *Broker) read(ctx context.Context, name string) (l protocol.Lease, ok bool, err error) {
	b.mu.Lock()
	begun := b.book.begin()
	var known protocol.UID
	if _, l := b.book.lease(name); l != nil {
		known = l.UID
	}
	b.mu.Unlock()
	l, out, err := b.cluster.ReadLease(ctx, name)
	b.metrics.call("read", out)
	switch out {
	case protocol.Done:
		b.observe(l, begun)
		return l, true, nil
	case protocol.NotFound:
		if known != "" { // a lease that is about to be created is not forgotten
			b.Forget(name, known)
		}
		return protocol.Lease{}, false, nil
	default:
		return protocol.Lease{}, false, err
	}
}

// recall writes the recalls that are under way for a node onto its registration, and takes this
// broker's other recalls off it.
func (b *Broker) recall(ctx context.Context, node protocol.NodeName) {
	var has []protocol.Recall
	out, err := protocol.Conflict, error(nil)
	for n := 0; n < tries && out == protocol.Conflict; n++ {
		has, out, err = b.tryRecall(ctx, node)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch out {
	case protocol.Done, protocol.NotFound:
		b.book.sent(node, has)
	default:
		b.log.WarnContext(ctx, "node cannot be asked to cede addresses", "node", node, "outcome", out.String(), "error", err)
		b.book.unsent(node)
	}
}

// tryRecall reads a node's registration, and writes it if its recalls are not as they should be. It
// returns the recalls that the registration has then.
func (b *Broker) tryRecall(ctx context.Context, node protocol.NodeName) ([]protocol.Recall, protocol.Outcome, error) {
	reg, out, err := b.cluster.ReadRegistration(ctx, node)
	b.metrics.call("read", out)
	if out != protocol.Done && out != protocol.NotFound {
		return nil, out, err
	}
	b.mu.Lock()
	b.book.reach(node, reg.Store)
	next := b.book.amend(node, reg.Recalls, b.cfg.Now())
	b.mu.Unlock()
	same := slices.EqualFunc(next, reg.Recalls, func(x, y protocol.Recall) bool { return x.ID == y.ID })
	if out == protocol.NotFound {
		return nil, out, nil
	}
	if same {
		return next, out, nil
	}
	reg.Recalls = next
	reg.Writes++
	_, out, err = b.cluster.UpdateRegistration(ctx, reg)
	b.metrics.call("update", out)
	return next, out, err
}
