package pools

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// answerWithin is how long a holder may take to answer a recall before what is
// free in its block counts as out of reach.
const answerWithin = 2 * time.Second

// registrations remembers what was seen of the registrations, and since when: how long a node
// has been silent is told by the controller's own clock. It may be used
// concurrently; the zero registrations has seen nothing.
type registrations struct {
	mu    sync.Mutex
	nodes map[protocol.NodeName]*registrant // guarded by mu
	// awake is for how long this controller has looked, and last when it did last: what
	// it slept is not in it.
	awake time.Duration // guarded by mu
	last  time.Time     // guarded by mu
}

// tick notes that the controller runs now, or did a moment ago, if another call was faster. mu must
// be held.
func (l *registrations) tick(now time.Time) {
	switch d := now.Sub(l.last); {
	case l.last.IsZero() || d < -atOnce: // its first, or its clock was set back
		l.last = now
	case d > 0:
		l.awake += min(d, atOnce)
		l.last = now
	}
}

// registrant is the agent that a node's registration names.
type registrant struct {
	reg protocol.UID
	// shown is the revision of the registration that this is, and read the latest that was read
	// live: watches may be behind that.
	shown, read protocol.Revision
	store       protocol.StoreID
	term        int64
	beat        time.Time // by the node's clock: only told apart
	since       time.Time // when that heartbeat was first seen here
	// heard is that in time awake, and before when the heartbeat before it was seen. What
	// a registration shows first is no heartbeat: it may be of long ago, or from a backup.
	heard, before time.Duration
	beats         int // those that have been seen, two at most
	fence         time.Duration
	restored      string
	recalls       map[string]recalled // by lease
}

// recallsMax bounds the leases of a node of whose recalls the last is remembered: between two beats
// a stolen credential can write any number of recalls. A registration has room for some 2,000.
const recallsMax = 16384

// recalled is the last recall of a lease, and when it was first seen.
type recalled struct {
	id    string
	since time.Time
}

// observe notes a registration as a watch shows it, and reports whether it says something else of a
// restored API server than before.
func (l *registrations) observe(reg protocol.Registration, now time.Time) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.nodes[reg.Node]; was != nil && was.reg == reg.UID && older(reg.Revision, was.read) {
		return false
	}
	return l.record(reg, now)
}

// observeLive is like observe, for a registration that was read live. Watches may have shown a
// later one.
func (l *registrations) observeLive(reg protocol.Registration, now time.Time) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.nodes[reg.Node]; was != nil && was.reg == reg.UID && older(reg.Revision, was.shown) {
		return false
	}
	news = l.record(reg, now)
	if o := l.nodes[reg.Node]; o != nil {
		o.read = reg.Revision
	}
	return news
}

// record notes a registration that is not older than what is known, and returns what hear
// returns. mu must be held.
func (l *registrations) record(reg protocol.Registration, now time.Time) (news bool) {
	l.tick(now)
	was := l.nodes[reg.Node]
	if reg.Ended() {
		delete(l.nodes, reg.Node)
		return was != nil && was.restored != ""
	}
	o := &registrant{
		reg: reg.UID, shown: reg.Revision, store: reg.Store, term: reg.Term, beat: reg.Beat, since: now, heard: l.awake, fence: reg.Fence,
		restored: reg.Restored, recalls: map[string]recalled{},
	}
	if was != nil && was.reg == o.reg {
		o.read = was.read
		// Recalls change the registration too, but are no sign of life.
		switch {
		case was.store != o.store:
		case was.term == o.term && was.beat.Equal(o.beat):
			o.since, o.heard, o.before, o.beats = was.since, was.heard, was.before, was.beats
		case was.beats == 0:
			o.beats = 1
		default:
			o.beats, o.before = 2, was.heard
		}
		o.recalls = was.recalls
	}
	for _, r := range reg.Recalls {
		if was, known := o.recalls[r.Lease]; was.id != r.ID && (known || len(o.recalls) < recallsMax) {
			o.recalls[r.Lease] = recalled{r.ID, now}
		}
	}
	for lease, r := range o.recalls { // whoever beats after a recall lives
		if o.since.Sub(r.since) > answerWithin {
			delete(o.recalls, lease)
		}
	}
	if l.nodes == nil {
		l.nodes = map[protocol.NodeName]*registrant{}
	}
	l.nodes[reg.Node] = o
	return o.restored != "" && was == nil || was != nil && was.restored != o.restored
}

// forget notes that a node's registration of that UID is gone.
func (l *registrations) forget(node protocol.NodeName, uid protocol.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.nodes[node]; o != nil && o.reg == uid {
		delete(l.nodes, node)
	}
}

// greatestEpoch returns the greatest epoch that a registration names, credible or not. It is
// empty if none names one.
func (l *registrations) greatestEpoch() (epoch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.nodes {
		if r, ok := protocol.ParseRestoration(o.restored); ok {
			epoch = max(epoch, r.Epoch)
		}
	}
	return epoch
}

// reaches reports whether the holder of a node's lease can be expected to hand out,
// or to cede, what is free in it: it has been heard of within F/2, it is the store
// that the lease is of, and it has answered the last recall.
func (l *registrations) reaches(lease *v1alpha1.IPLease, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.nodes[protocol.NodeName(lease.Spec.Holder.Node)]
	if o == nil || string(o.store) != lease.Spec.Store || o.fence > 0 && now.Sub(o.since) >= o.fence/2 {
		return false
	}
	r, ok := o.recalls[lease.Name]
	return !ok || r.id == lease.Status.Answered || now.Sub(r.since) < answerWithin
}

// Beats reports whether the agent of a node that has a registration has been heard of within F/2.
// One of which nothing was heard yet does: this controller has just begun to lead.
func (r *Reconciler) Beats(node protocol.NodeName) bool {
	r.regs.mu.Lock()
	defer r.regs.mu.Unlock()
	o := r.regs.nodes[node]
	return o == nil || o.fence <= 0 || r.Now().Sub(o.since) < o.fence/2
}

// credibleEpoch returns the greatest epoch that a registration names and that a pool may have
// had, and the node of that registration. Of several nodes it is the first by name, so that it
// does not change from call to call. mu must be held.
func (l *registrations) credibleEpoch(w epochs, now time.Time) (epoch, restoredNode string) {
	credible := max(protocol.EpochAfter(now.Add(clockSkew)), w.last, w.made)
	for node, o := range l.nodes {
		r, ok := protocol.ParseRestoration(o.restored)
		greater := r.Epoch > epoch || r.Epoch == epoch && string(node) < restoredNode
		if ok && greater && r.Epoch <= credible && protocol.IsEpoch(r.Epoch) {
			epoch, restoredNode = r.Epoch, string(node)
		}
	}
	return epoch, restoredNode
}

// restoration returns what is known of an API server that has gone back, or nil for a pool that
// need not be closed for it: a pool that has waited since, and is not closed for a restoration
// already. epoch is the pool's (see [epochs.of]), and w are the epochs of all pools.
func (l *registrations) restoration(epoch string, w epochs, closed bool, now time.Time) *restoration {
	r := &restoration{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick(now)
	r.epoch, r.restoredNode = l.credibleEpoch(w, now)
	if !closed && !openedBefore(r.epoch, epoch) {
		return nil
	}
	var fences []time.Duration
	for node, o := range l.nodes {
		if o.fence > 0 && l.awake-o.heard >= o.fence { // silent
			continue
		}
		fences = append(fences, o.fence)
		reported, ok := protocol.ParseRestoration(o.restored)
		if reported.Back {
			continue
		}
		m := absent{node: string(node), never: o.fence == 0}
		if !ok && o.beats == 2 {
			m.compared = max(l.awake-o.before, 1)
		}
		r.missing = append(r.missing, m)
	}
	r.fence = longest(fences)
	slices.SortFunc(r.missing, func(a, b absent) int { return strings.Compare(a.node, b.node) })
	return r
}

// longest returns the longest of these F, 0 being never, but no longer than
// [protocol.MaxFence], which no agent exceeds. A never that one registration alone says, and not
// the others, is that too: it may be in the hands of who has taken its node over, and F is
// the same on all nodes.
func longest(fences []time.Duration) (fence time.Duration) {
	never := 0
	for _, f := range fences {
		if f == 0 {
			never++
			f = protocol.MaxFence
		}
		fence = max(fence, min(f, protocol.MaxFence))
	}
	switch {
	case len(fences) == 0:
		return usualFence
	case never == len(fences), never > 1:
		return 0
	}
	return fence
}
