// Package leasestatus writes, for people, on the statuses of a node's leases who has what
// of their blocks. No right rests on it: what fails is tried again.
package leasestatus

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	// batch is how many leases a round tells of at most, and atOnce how many of them at
	// the same time.
	batch  = 16
	atOnce = 2
)

// Leases writes the statuses of leases.
type Leases interface {
	// PublishLease writes the status of the lease of that name and UID. It may run
	// several times at once.
	PublishLease(ctx context.Context, name string, uid protocol.UID, p protocol.Publication) (protocol.Outcome, error)
}

// Config is what a [Publisher] works with.
type Config struct {
	Store  *store.Store
	Leases Leases
	Sched  sched.Scheduler
	Every  time.Duration      // a lease is told of at most so often
	Term   func() int64       // of the node's registration
	Doubt  func(lease string) // is called with each lease that is found gone, or another's
	Log    *slog.Logger
}

// A Publisher tells of a node's leases. Make one with [New]; it is safe for concurrent
// use.
type Publisher struct {
	cfg    Config
	writes sched.Locks[string] // by lease, over the read of what there is to say and its write

	mu   sync.Mutex
	told map[string]state // guarded by mu; by lease
}

// state is what there is to say of a lease, or was last said, and when. Of one that
// has not been told anything yet, uid is empty, at when it was first seen, and the rest
// what there was to say in the last round.
type state struct {
	uid  protocol.UID
	used int
	free int
	who  []string
	at   protocol.Instant
}

func (s state) same(o state) bool { return s.uid == o.uid && s.alike(o) }

func (s state) alike(o state) bool {
	return s.used == o.used && s.free == o.free && slices.Equal(s.who, o.who)
}

// New returns what tells of the leases that c's store has.
func New(c Config) *Publisher { return &Publisher{cfg: c, told: map[string]state{}} }

// Round writes the status of leases whose content has changed since it was last written. It
// writes that of a new lease once two rounds have found the same content: while a lease is being
// filled, each status would be out of date at once. It writes a few at a time, those first that
// have waited longest, for a node that starts has all its leases to write.
func (p *Publisher) Round(ctx context.Context) {
	now := p.cfg.Sched.Now()
	current, err := p.current()
	if err != nil {
		p.cfg.Log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	due := p.due(current, now)
	sched.Each(ctx, p.cfg.Sched, atOnce, due[:min(len(due), batch)], func(name string) { p.tell(ctx, now, name, "") })
}

// due returns the leases to tell of, in the order to tell of them, and forgets those
// that the node does not hold any more.
func (p *Publisher) due(current map[string]state, now protocol.Instant) (due []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.told {
		if _, ok := current[name]; !ok {
			delete(p.told, name)
		}
	}
	for name, s := range current {
		last, seen := p.told[name]
		if !seen {
			last.at = now
		}
		first := false
		if last.uid == "" {
			first = seen && s.alike(last)
			p.told[name] = state{used: s.used, free: s.free, who: s.who, at: last.at}
		}
		if first || !s.same(last) && now.Since(last.at) >= p.cfg.Every {
			due = append(due, name)
		}
	}
	slices.SortFunc(due, func(x, y string) int {
		return cmp.Or(p.told[x].at.Wall.Compare(p.told[y].at.Wall), strings.Compare(x, y))
	})
	return due
}

// Answer tells of one lease at once, with the ID of the recall that it answers, and
// reports whether it was told of.
func (p *Publisher) Answer(ctx context.Context, lease, recall string) bool {
	return p.tell(ctx, p.cfg.Sched.Now(), lease, recall)
}

// tell writes the status of a lease, with the ID of the recall that it answers, if it
// answers one, and reports whether it was written. It reads what there is to say once nobody
// else writes that status: what was read before could be older than what they write.
func (p *Publisher) tell(ctx context.Context, now protocol.Instant, name, answered string) bool {
	unlock, err := p.writes.Lock(ctx, p.cfg.Sched, name)
	if err != nil {
		return false
	}
	defer unlock()
	current, err := p.current()
	if err != nil {
		p.cfg.Log.ErrorContext(ctx, "store not read", "error", err)
		return false
	}
	s, ok := current[name]
	if !ok {
		return false
	}
	out, err := p.cfg.Leases.PublishLease(ctx, name, s.uid, protocol.Publication{
		Used: s.used, Free: s.free, Allocations: s.who, At: now.Wall, Answered: answered,
	})
	if out == protocol.NotFound || out == protocol.Conflict { // it is gone, or another's
		p.cfg.Doubt(name)
	}
	if out != protocol.Done {
		p.cfg.Log.DebugContext(ctx, "lease status not written", "lease", name, "error", err)
		return false
	}
	s.at = now
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[name] = s
	return true
}

// current returns what there is to say of each lease that serves.
func (p *Publisher) current() (map[string]state, error) {
	term := p.cfg.Term()
	all := map[string]state{}
	err := p.cfg.Store.View(func(tx *store.Tx) error {
		clear(all)
		info, err := assign.Blocks(tx)
		if err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Kind == protocol.RightLease && r.Usable(term) {
				b := info[assign.BlockKey{Pool: r.Pool, Block: r.Block}]
				all[r.Name] = state{uid: r.UID, used: b.Taken, free: b.Free}
			}
		}
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			for _, addr := range att.Addresses {
				if s, ok := all[addr.Lease]; ok {
					s.who = append(s.who, whoHas(addr.Addr, att))
					all[addr.Lease] = s
				}
			}
		}
		return nil
	})
	for name, s := range all {
		slices.Sort(s.who)
		all[name] = s
	}
	return all, err
}

// whoHas says who has an address, as "address namespace/pod interface"; of a device with a fourth
// word, "resourceclaim/name".
func whoHas(a netip.Addr, att store.Attachment) string {
	who := att.Pod.String()
	if att.Pod.Name == "" {
		who = att.ContainerID
	}
	text := fmt.Sprintf("%v %s %s", a, who, att.IfName)
	if ref, ok := att.ResourceClaim(); ok {
		text += " resourceclaim/" + ref.Name
	}
	return text
}
