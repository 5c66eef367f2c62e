package ports

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/pause"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	// lanes is how many calls that make ports are under way at once, and batch how many ports
	// one makes at most.
	lanes, batch = 3, 20
	// refusedFor is when a claim tries again whose port cannot be granted.
	refusedFor = 10 * time.Second
	// firstWait and longWait bound how long nobody tries what has just failed for all.
	firstWait, longWait = 2 * time.Second, 30 * time.Second
)

// Run makes and deletes ports until ctx ends.
func (p *Ports) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { p.sweeps(ctx) })
	free := make(chan struct{}, lanes)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		begun := time.Now()
		job, wait := p.take(p.Now())
		took := time.Since(begun) // in which others have waited for the lock
		if job.empty() {
			<-free
			if !p.idle(ctx, wait) || !pause.For(ctx, min(10*took, time.Second)) {
				return nil
			}
			continue
		}
		all.Go(func() {
			p.do(ctx, job)
			<-free
			p.signal()
		})
	}
}

// idle waits until there may be something to do, and reports whether ctx goes on.
func (p *Ports) idle(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.work:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// job is what one lane does: it makes ports, or deletes some.
type job struct {
	make     []*entry
	releases []protocol.UID
	surplus  map[string]protocol.UID
}

func (j job) empty() bool { return len(j.make)+len(j.releases)+len(j.surplus) == 0 }

// take returns the next job, or how long there will be none. Where there are both, ports are made
// after some were deleted, and the other way round: there may be very many of either.
func (p *Ports) take(now time.Time) (j job, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = longWait
	later := func(t time.Time) { wait = min(wait, max(t.Sub(now), time.Millisecond)) }
	if p.hasDeleted {
		p.hasDeleted = false
		if j.make = p.takeMakes(now, later); !j.empty() {
			return j, wait
		}
	}
	if j = p.takeDeletes(now, later); !j.empty() {
		p.hasDeleted = true
		return j, wait
	}
	j.make = p.takeMakes(now, later)
	return j, wait
}

// takeDeletes returns which ports are deleted next. What comes later it tells. The caller holds mu.
func (p *Ports) takeDeletes(now time.Time, later func(time.Time)) (j job) {
	for uid, due := range p.releases {
		switch {
		case p.entries[uid] != nil && p.entries[uid].busy: // what is being made is not there yet
		case now.Before(due):
			later(due)
		case len(j.releases) < batch:
			j.releases = append(j.releases, uid)
			delete(p.releases, uid)
			p.leave(uid)
		}
	}
	if len(p.surplus) > 0 {
		j.surplus, p.surplus = p.surplus, map[string]protocol.UID{}
		maps.Copy(p.deleting, j.surplus)
	}
	return j
}

// takeMakes returns whose ports are made next: of each namespace one, then of each a second one. A
// namespace may have any number of claims. What comes later it tells. The caller holds mu.
func (p *Ports) takeMakes(now time.Time, later func(time.Time)) (makes []*entry) {
	going := map[protocol.UID]bool{} // a port that is being deleted would be found, and chosen
	for _, uid := range p.deleting {
		going[uid] = true
	}
	ready := map[string][]*entry{} // by namespace
	most := 0
	for uid, e := range p.entries {
		g, in := p.closedFor(e.ask), e.ask.Claim.Namespace
		switch {
		case e.busy || e.port != nil || len(e.wants) == 0 || going[uid]:
		case now.Before(e.again):
			later(e.again)
		case g != nil && now.Before(g.until):
			later(g.until)
		case len(ready[in]) < batch:
			ready[in] = append(ready[in], e)
			most = max(most, len(ready[in]))
		}
	}
	tried := map[*gate]bool{}
	for nth := range most {
		for _, of := range ready {
			if nth >= len(of) || len(makes) == batch {
				continue
			}
			if g := p.closedFor(of[nth].ask); g != nil { // one tries whether it is as before
				if tried[g] {
					continue
				}
				tried[g], g.until = true, now.Add(g.wait)
			}
			of[nth].busy = true
			makes = append(makes, of[nth])
		}
	}
	return makes
}

// do does a job.
func (p *Ports) do(ctx context.Context, j job) {
	defer p.deleted(j.surplus)
	nc, err := p.Connect(ctx)
	if err != nil {
		p.settle(j, nil, Problem{Reason: v1alpha1.ReasonNotConfigured, Message: err.Error()})
		return
	}
	surplus := j.surplus
	if len(j.releases)+len(surplus) > 0 {
		j.releases, surplus = p.withoutPairs(ctx, nc, j)
	}
	claims := make([]string, len(j.releases))
	for i, uid := range j.releases {
		claims[i] = string(uid)
	}
	for i, err := range nc.DeleteOf(ctx, claims) {
		p.noteDeleted(ctx, j.releases[i], err)
	}
	for _, id := range slices.Sorted(maps.Keys(surplus)) {
		// What fails is found again: by the claim's next ask, or by the sweep when that is gone.
		if err := nc.Delete(ctx, id, string(surplus[id])); err != nil && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "a port too many is not deleted", "port", id, "error", err)
		}
	}
	if len(j.make) == 0 {
		return
	}
	wants := make([]neutron.Want, len(j.make))
	for i, e := range j.make {
		wants[i] = e.wants[e.next]
	}
	p.settle(j, nc.EnsureMany(ctx, wants), Problem{})
}

// deleted says that nobody deletes these ports any more.
func (p *Ports) deleted(surplus map[string]protocol.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range surplus {
		delete(p.deleting, id)
	}
}

// withoutPairs has the pairs of the ports that j deletes go before them, by which they are known.
// It returns the claims that are gone, and the ports too many, of which there are no pairs any
// more. The others are deleted later.
func (p *Ports) withoutPairs(ctx context.Context, nc Neutron, j job) (releases []protocol.UID, surplus map[string]protocol.UID) {
	stuck, err := p.allowAll(ctx, nc)
	if err != nil {
		p.putBack(ctx, j.releases, err)
		if len(j.surplus) > 0 {
			p.Log.WarnContext(ctx, "ports too many are not deleted yet", "ports", len(j.surplus), "error", err)
		}
		return nil, nil
	}
	var with []protocol.UID
	for _, uid := range j.releases {
		if stuck[uid] {
			with = append(with, uid)
		} else {
			releases = append(releases, uid)
		}
	}
	p.putBack(ctx, with, errors.New("nodes' ports still allow their addresses"))
	surplus = maps.Clone(j.surplus)
	maps.DeleteFunc(surplus, func(_ string, uid protocol.UID) bool { return stuck[uid] })
	return releases, surplus
}

// putBack has claims' ports deleted later.
func (p *Ports) putBack(ctx context.Context, uids []protocol.UID, why error) {
	if len(uids) == 0 {
		return
	}
	p.Log.WarnContext(ctx, "ports of claims that are gone are not deleted yet", "claims", len(uids), "error", why)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range uids {
		p.releases[uid] = p.Now().Add(refusedFor)
	}
}

// noteDeleted notes how the deletion of a claim's ports went.
func (p *Ports) noteDeleted(ctx context.Context, uid protocol.UID, err error) {
	if err == nil {
		p.Metrics.deleted.Inc()
		p.Log.InfoContext(ctx, "port deleted", "claim", uid)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, g := range p.gates { // there is room again
			g.until, g.wait = time.Time{}, firstWait
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	p.Log.WarnContext(ctx, "the port of a claim that is gone is not deleted yet", "claim", uid, "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releases[uid] = p.Now().Add(refusedFor)
}

// settle enters what became of the ports that j was to make.
func (p *Ports) settle(j job, done []neutron.Ensured, all Problem) {
	p.mu.Lock()
	now := p.Now()
	told, pools := []Ask{}, map[protocol.PoolName]bool{}
	for _, uid := range j.releases {
		if !all.None() {
			p.releases[uid] = now.Add(refusedFor)
		}
	}
	for i, e := range j.make {
		e.busy = false
		before, stolen := e.problem, e.stolen()
		bad := all
		if bad.None() && done[i].Err != nil {
			bad = problemOf(done[i].Err)
		}
		p.Metrics.asked(bad.Reason)
		switch {
		case bad.None():
			w := e.wants[e.next]
			p.show(done[i].Port)
			e.port, e.problem = &done[i].Port, Problem{}
			e.granted = Answer{Port: portOf(done[i].Port, w), Addresses: addressesOf(done[i].Port, w)}
		case bad.Reason == neutron.SubnetExhausted && e.next+1 < len(e.wants):
			e.next++ // another subnet may have one
			continue
		default:
			e.next, e.problem, e.again = 0, bad, now.Add(p.againAfter(bad.Reason))
		}
		p.turn(e, now, pools)
		if e.stolen() != stolen {
			for _, name := range namesOf(e.ask) {
				pools[name] = true
			}
		}
		if e.changed || e.port != nil || before.Reason != e.problem.Reason || before.Message != e.problem.Message {
			told = append(told, e.ask)
			e.changed = false
		}
	}
	p.mu.Unlock()
	for _, a := range told {
		p.Notify(a.Claim)
	}
	for name := range pools {
		p.TellPool(name)
	}
}

// againAfter is when one claim tries again whose port was refused for that reason.
func (p *Ports) againAfter(r neutron.Reason) time.Duration {
	if slices.Contains([]neutron.Reason{neutron.Unavailable, neutron.SubnetExhausted, neutron.QuotaExceeded, v1alpha1.ReasonNotConfigured}, r) {
		return 0 // the gate says when
	}
	return p.SweepEvery / 2
}

// turn opens or closes the gates by what became of e, and adds to pools those whose gate has
// changed. The caller holds mu.
func (p *Ports) turn(e *entry, now time.Time, pools map[protocol.PoolName]bool) {
	gates := []protocol.PoolName{}
	switch e.problem.Reason {
	case "":
		for _, name := range append([]protocol.PoolName{""}, namesOf(e.ask)...) {
			if p.gates[name] != nil {
				delete(p.gates, name)
				p.changed(name, pools)
			}
		}
		return
	case neutron.Unavailable, neutron.Unauthorized, v1alpha1.ReasonNotConfigured:
		gates = append(gates, "")
	case neutron.SubnetExhausted, neutron.QuotaExceeded, neutron.Forbidden, neutron.NotFound:
		if e.problem.Reason == neutron.Forbidden && len(e.ask.Addresses) > 0 {
			return // we may not choose addresses, and others may take any
		}
		gates = namesOf(e.ask)
	default: // it is about this claim alone
		return
	}
	for _, name := range gates {
		g := p.gates[name]
		if g == nil {
			g = &gate{wait: firstWait / 2}
			p.gates[name] = g
		}
		if g.problem.Reason != e.problem.Reason {
			p.changed(name, pools)
		}
		if !now.Before(g.until) || g.problem.None() {
			g.wait = min(2*g.wait, longWait)
		}
		g.problem, g.until = e.problem, now.Add(g.wait)
	}
}

// changed adds the pools of a gate. The caller holds mu.
func (p *Ports) changed(name protocol.PoolName, pools map[protocol.PoolName]bool) {
	if name != "" {
		pools[name] = true
		return
	}
	for _, e := range p.entries {
		for _, n := range namesOf(e.ask) {
			pools[n] = true
		}
	}
}

func namesOf(a Ask) []protocol.PoolName {
	names := make([]protocol.PoolName, len(a.From))
	for i, s := range a.From {
		names[i] = s.Pool
	}
	return names
}
