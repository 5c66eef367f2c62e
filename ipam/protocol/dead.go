package protocol

import (
	"fmt"
	"slices"
	"time"
)

// A Node is what the protocol reads, live, of a node's Node object. The zero Node
// is none: there is no such object.
type Node struct {
	UID UID
	// Off says that it has the out-of-service taint: somebody vouches that the
	// machine is off.
	Off bool
}

// gone reports whether the Node for which who was registered is gone: there is none, or one with
// another UID. If who knew of no Node's UID, any Node of the name counts as its own.
func (n Node) gone(who Former) bool {
	return n.UID == "" || who.NodeUID != "" && who.NodeUID != n.UID
}

// Evidence is why the registrant of a registration counts as dead: it gives out no address any
// more, and its pods do not run.
type Evidence uint8

// What evidence there may be, weakest first.
const (
	// EvidenceNone: it may be alive.
	EvidenceNone Evidence = iota
	// EvidenceSilence: its Node object is gone, and it has been silent for longer
	// than its F.
	EvidenceSilence
	// EvidenceTaint: somebody vouches that the machine is off.
	EvidenceTaint
)

func (e Evidence) String() string {
	names := [...]string{"None", "Silence", "Taint"}
	if int(e) >= len(names) {
		return fmt.Sprintf("Evidence(%d)", uint8(e))
	}
	return names[e]
}

// A Vigil is what a controller remembers of one registration: since when, by its own clock, it has
// seen the last heartbeat, and each former agent. The zero Vigil has seen nothing; a new leader
// begins with it.
//
// Its times are of any clock that does not jump. If the clock stands still while the machine
// sleeps, the controller waits longer, which does no harm.
type Vigil struct {
	heartbeat heartbeat
	since     time.Duration
	former    []watchedFormer
}

// heartbeat identifies a heartbeat. The registration's revision and write counter do not: recalls
// change these, too.
type heartbeat struct {
	reg   UID
	store StoreID
	term  int64
	beat  time.Time
}

func heartbeatOf(s Registration) heartbeat {
	return heartbeat{reg: s.UID, store: s.Store, term: s.Term, beat: s.Beat.UTC()}
}

// watchedFormer is a former agent of the registration, and since when that was known.
type watchedFormer struct {
	store StoreID
	term  int64
	since time.Duration
}

// See returns v after registration has been seen at now. What a watch shows counts as well
// as a live read: it is never newer than the truth.
func (v Vigil) See(reg Registration, now time.Duration) Vigil {
	h := heartbeatOf(reg)
	next := Vigil{heartbeat: h, since: now}
	if h == v.heartbeat {
		next.since = v.since
	}
	for _, f := range reg.Former {
		since, ok := v.left(f)
		if !ok || h.reg != v.heartbeat.reg {
			since = now
		}
		next.former = append(next.former, watchedFormer{store: f.Store, term: f.Term, since: since})
	}
	return next
}

// Silent returns for how long, at now, the registration's last heartbeat has been seen.
func (v Vigil) Silent(now time.Duration) time.Duration { return now - v.since }

// left returns since when f has been known not to be registered any more.
func (v Vigil) left(f Former) (since time.Duration, ok bool) {
	i := slices.IndexFunc(v.former, func(w watchedFormer) bool { return w.store == f.Store && w.term == f.Term })
	if i < 0 {
		return 0, false
	}
	return v.former[i].since, true
}

// A Judgement is what is to be done about a registration.
type Judgement struct {
	// End is why the registration's term is to be ended, by [EndTerm]. It comes before
	// anything else: the registration is judged again afterwards.
	End Evidence
	// Dead are those of the registration's former registrants whose leases and sub-leases are
	// to be taken.
	Dead []Dead
	// After is how soon time alone may lead to more; 0 means never.
	After time.Duration
}

// Dead is a former registrant of a registration who counts as dead.
type Dead struct {
	Former
	// Strays says that what names a store which the registration does not know is taken as
	// well: no agent is registered, and all that is left of earlier terms is nobody's.
	Strays bool
	// others are the stores that the registration knows.
	others []StoreID
}

// Judge decides about a registration, by the Node as it was read live after the registration, and
// a vigil that has seen this very registration. margin is what is waited beyond F.
//
//   - The out-of-service taint ends the term at once.
//   - A Node that is gone, or has been made again, ends the term of a registrant who
//     has been silent for F and margin; never where F is 0. One that beats stays.
//   - Silence alone changes nothing, nor does what else the Node says.
//   - A former agent is taken over if the controller ended the term; on
//     another machine than the registrant's, also by the rules above, counted from when
//     it was seen not to be registered any more. What is left of a store of the registrant's
//     machine is the business of its agent.
func Judge(reg Registration, v Vigil, node Node, margin, now time.Duration) Judgement {
	var j Judgement
	if !reg.Ended() {
		j.End = j.weigh(node, reg.Registrant(), v.Silent(now), margin)
		if j.End != EvidenceNone {
			return j
		}
	}
	for _, f := range reg.Former {
		if !reg.Ended() && (f.Store == reg.Store || !f.Ended && f.Machine == reg.Machine) {
			continue
		}
		since, _ := v.left(f)
		switch evidence := j.weigh(node, f, now-since, margin); {
		case !f.Ended && evidence == EvidenceNone:
			continue
		case evidence == EvidenceTaint, f.Ended && node.Off:
			f.Vouched = true
		}
		d := Dead{Former: f, others: []StoreID{reg.Store}}
		// The last agent of a registration that was ended answers for all earlier terms.
		d.Strays = reg.Ended() && f.Ended && f.Term == reg.Term-1
		for _, other := range reg.Former {
			d.others = append(d.others, other.Store)
		}
		j.Dead = append(j.Dead, d)
	}
	return j
}

// weigh returns the evidence that who is dead, where quiet is how long nothing was heard of it. It
// notes in j.After when there may be more.
func (j *Judgement) weigh(node Node, who Former, quiet, margin time.Duration) Evidence {
	if !node.gone(who) {
		if node.Off {
			return EvidenceTaint
		}
		return EvidenceNone
	}
	// The Node was made again, and its taint is about its own machine, which may be another than
	// who's. So it counts only when who has been silent for F, as if the Node were gone. If F is
	// 0, no time is long enough, and the taint counts at once.
	switch left := who.Fence + margin - quiet; {
	case who.Fence <= 0 && node.Off, who.Fence > 0 && left <= 0 && node.Off:
		return EvidenceTaint
	case who.Fence > 0 && left <= 0:
		return EvidenceSilence
	case who.Fence > 0 && !who.Ended && (j.After == 0 || left < j.After):
		j.After = left
	}
	return EvidenceNone
}

// EndTerm returns reg with its term ended on evidence e: it names no agent. It is to be written by
// compare-and-swap, so that a heartbeat that came meanwhile wins, and one of several controllers.
func EndTerm(reg Registration, e Evidence) Registration {
	last := reg.Registrant()
	last.Ended, last.Vouched = true, e == EvidenceTaint
	former := slices.DeleteFunc(slices.Clone(reg.Former), func(f Former) bool { return f.Store == last.Store })
	reg.Former = append(former, last)
	reg.Former = reg.Former[max(0, len(reg.Former)-formerMax):]
	reg.Store, reg.Boot, reg.Recalls, reg.Query, reg.Report, reg.Strangers = "", "", nil, "", "", nil
	reg.Term++
	reg.Writes++
	return reg
}

// of reports whether an object of the node that names store, and was last written in term, is d's.
func (d Dead) of(store StoreID, term int64) bool {
	return term <= d.Term && (store == d.Store || d.Strays && !slices.Contains(d.others, store))
}

// TakeLease returns l, a lease that node holds, as a lease of the cluster, if it is d's. Its grants
// stay. It is to be written by compare-and-swap, so that an agent wins that came back and has
// written its lease again. confirmed says that the pool asks for somebody who vouches that the
// machine is off. A lease that a newer program has written is left alone.
func (d Dead) TakeLease(l Lease, node NodeName, confirmed bool) (Lease, bool) {
	if l.Holder.Node != node || l.Protocol > Version || confirmed && !d.Vouched || !d.of(l.Store, l.Term) {
		return l, false
	}
	l = l.Clone()
	l.Holder, l.Store, l.Term, l.Ceded = Holder{Cluster: true}, "", 0, nil
	l.Protocol = Version
	l.Writes++
	return l, true
}

// TakesSubLease reports whether s, a sub-lease of node, is d's and is to be deleted, by UID and
// revision. held are the UIDs that have grants in pools which ask for somebody who vouches that the
// machine is off: their sub-leases stay until somebody does.
func (d Dead) TakesSubLease(s SubLease, node NodeName, held map[UID]bool) bool {
	if s.Node != node || s.Protocol > Version || !d.of(s.Store, s.Term) {
		return false
	}
	return d.Vouched || !held[s.UID] && (s.Use == nil || !held[s.Use.Claim.UID])
}

// Settle returns reg without the former registrants of which nothing is left. stores are the stores
// that the node's leases and sub-leases name, as listed live after the registration was read. A
// former registrant stays for [LastRecheck] after it was seen not to be registered any more: one of
// its creates may still come. ok is false if none is removed.
func Settle(reg Registration, v Vigil, stores map[StoreID]bool, now time.Duration) (next Registration, ok bool) {
	next = reg
	next.Former = slices.DeleteFunc(slices.Clone(reg.Former), func(f Former) bool {
		since, known := v.left(f)
		return f.Store == reg.Store || !stores[f.Store] && known && now-since >= LastRecheck
	})
	next.Writes++
	return next, len(next.Former) < len(reg.Former)
}

// Abandoned reports whether a registration can go, by UID and revision: its term was ended,
// nothing is left of any former agent, and there is no Node of that name. So it
// stays at least for [LastRecheck] after the last agent.
func Abandoned(reg Registration, node Node) bool {
	return reg.Ended() && len(reg.Former) == 0 && node.UID == ""
}
