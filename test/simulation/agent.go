package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simAgent is the process of the agent that ships: its [sched.Scheduler], its store on the
// simulated disk, and its calls.
type simAgent struct {
	n     *simNode
	agent *agent.Agent
	st    *store.Store
	crew
	timers  []*simTimer
	follows []*follow
	// dirty says that the store has had a commit which the view does not show yet, and told
	// that nothing has been sent or answered since.
	dirty, untold bool
	dead          bool
	up            chan struct{}                // closed when it serves
	beating       bool                         // the next call is a write of the registration
	dels          []*sandbox                   // whose DELs are under way
	freed         map[netip.Addr]time.Duration // when it freed addresses last
	committed     bool                         // it has, since it started
}

func (n *simNode) journalDir() string { return filepath.Join(n.w.dir, n.machine+".journal") }

// start starts the agent that ships, as cmd/tenured does.
func (n *simNode) start() {
	a := &simAgent{n: n, up: make(chan struct{}), freed: map[netip.Addr]time.Duration{}}
	st := n.openStore(a)
	a.st, n.meddled = st, false
	cfg := agent.DefaultConfig(n.name)
	cfg.Machine, cfg.Boot, cfg.Fence, cfg.JournalDir, cfg.Wait = n.machine, n.bootID(), n.fence, n.journalDir(), addWait
	var err error
	a.agent, err = agent.New(cfg, st, a.cluster(), a, simHost{n}, slog.New(traceLog{n.w, n.machine}))
	must(err)
	n.agent = a
	n.stored()
	n.w.logf("%s: starts, store %s, boot %s, F %v", n.machine, n.disk.store, n.bootID(), n.fence)
	a.Go(func() {
		err := a.agent.Run(context.Background(), func(ctx context.Context) error {
			close(a.up)
			a.Wait(ctx, sched.Forever)
			return nil
		})
		if err != nil {
			n.w.logf("%s: ends: %v", n.machine, err)
			panic(processEnd{})
		}
	})
}

// openStore opens the node's store, or makes a new one in place of one that is not provably
// the latest, as cmd/tenured does.
func (n *simNode) openStore(a *simAgent) *store.Store {
	o := store.Options{Wait: func(ctx context.Context, first, second <-chan struct{}) int {
		return a.Wait(ctx, sched.Forever, first, second)
	}}
	if n.w.fault != "M8" && n.w.fault != "M50" {
		o.Witness = &n.run
	}
	if n.memory == nil {
		n.nextStore()
	}
	st, err := store.OpenOn(drive{n.memory, n}, n.machine, storeID(n.machine, n.stores), o)
	if err == nil && o.Witness != nil {
		reason, _, why := daemon.Doubt(st, agent.Config{Boot: n.bootID(), Machine: n.machine})
		must(why)
		if reason != "" {
			err = errors.Join(store.ErrOlder, st.Close())
		}
	}
	if errors.Is(err, store.ErrOlder) {
		n.w.count("store replaced")
		n.nextStore()
		st, err = store.OpenOn(drive{n.memory, n}, n.machine, storeID(n.machine, n.stores), o)
	}
	must(err)
	return st
}

// nextStore gives the node an empty disk. The store on it knows of nothing that runs.
func (n *simNode) nextStore() {
	n.stores++
	if n.stores > 1 {
		n.w.logf("%s: begins a new store", n.machine)
	}
	n.memory = &disk.Memory{}
	for _, s := range n.sandboxes {
		s.unread = true
		s.unwritten = s.unwritten || n.w.one(10)
	}
	n.forgetDevices()
}

// refresh has the node's disk show what the store has.
func (n *simNode) refresh() {
	if a := n.agent; a != nil && a.dirty && (n.w.fault != "M9" || n.w.one(6)) { // M9: answered before the disk has it
		a.dirty = false
		n.stored()
	}
}

func (n *simNode) stored() {
	d, was := newDisk(n.agent.st.ID()), n.disk
	must(n.agent.st.Peek(func(tx *store.Tx) error {
		id, err := tx.Identity()
		must(err)
		d.term = id.Term
		d.history, err = tx.History()
		must(err)
		n.keepPool(tx)
		for r, err := range tx.Rights() {
			must(err)
			d.rights[r.Name] = r
		}
		for att, err := range tx.Attachments() {
			must(err)
			x := attachment{key: attKey{att.ContainerID, att.IfName}, pod: att.Pod, claim: att.Claim, use: att.Use}
			_, x.device = att.ResourceClaim()
			for _, addr := range att.Addresses {
				x.addrs = append(x.addrs, attAddr{addr: addr.Addr, pool: addr.Pool, lease: addr.Lease})
			}
			d.atts[x.key] = x
		}
		return nil
	}))
	n.agent.checkRest(was, d)
	n.checkSubnets(was, d)
	n.disk = d
	for name, r := range was.rights { // what it has found out is its own business again
		if now := d.rights[name]; now.UID != r.UID || now.Phase == protocol.Lost {
			delete(n.w.excused, r.UID)
		}
	}
	n.countRights(was)
	if d.history.Restored != nil && was.history.Restored == nil {
		n.w.logf("%s: the API server has gone back", n.machine)
		n.w.count("rewound")
		for _, r := range d.rights {
			delete(n.w.outrun, r.UID)
		}
	}
	for _, k := range d.keys(func(att attachment) bool { return len(was.atts[att.key].addrs) == 0 }) {
		att := d.atts[k]
		n.checkGiven(att, was)
		n.w.logf("%s: records %v for %s of pod %s", n.machine, att.addrs, k.cid, att.pod.UID)
		n.voided[k] = d.restsOn(att, func(r protocol.Right) bool { return n.w.excused[r.UID] })
		for _, s := range n.sandboxes {
			if s.key() == k && s.unread {
				s.unread = false
				n.voided[k] = n.voided[k] || s.void
			}
		}
		for _, old := range was.atts { // a new sandbox has what an earlier one of its pod was recorded with
			n.voided[k] = n.voided[k] || n.voided[old.key] && old.pod.UID == att.pod.UID && slices.ContainsFunc(att.addrs, func(x attAddr) bool { return old.has(x.addr) })
		}
	}
}

// countRights counts what has become of the node's rights.
func (n *simNode) countRights(was *simDisk) {
	for name, r := range n.disk.rights {
		before := was.rights[name]
		switch {
		case before.Phase == "" && r.Kind == protocol.RightRequest:
			n.w.count("request")
		case before.Phase == "" && r.Phase == protocol.Frozen:
			n.w.count("frozen")
		case len(r.Ceded) > len(before.Ceded):
			n.w.count("cede")
		case len(r.Ceded) < len(before.Ceded) && r.Phase == protocol.Held:
			n.w.count("take back")
		case r.Phase == protocol.Lost && before.Phase != protocol.Lost:
			n.w.count("right lost")
		}
	}
}

// actAgent lets the agent that ships go on.
func (n *simNode) actAgent() {
	w := n.w
	n.agent.tell(w.one(3))
	n.agent.goOn()
	for range 1 + w.rng.IntN(8) {
		if n.agent == nil || w.one(5) || !n.work() {
			break
		}
		if n.agent != nil && w.one(2) {
			n.agent.goOn()
		}
	}
}

// recoverAgent is actAgent when nothing befalls the node.
func (n *simNode) recoverAgent() {
	n.agent.tell(true)
	n.agent.goOn()
}

// traceLog is a [slog.Handler]: what the agent logs goes to the trace.
type traceLog struct {
	w   *world
	who string
}

func (t traceLog) Enabled(context.Context, slog.Level) bool { return t.w.tracing }
func (t traceLog) WithAttrs([]slog.Attr) slog.Handler       { return t }
func (t traceLog) WithGroup(string) slog.Handler            { return t }

func (t traceLog) Handle(_ context.Context, r slog.Record) error {
	text := ""
	r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	t.w.logf("%s: log: %s%s", t.who, r.Message, text)
	return nil
}

// makeDir makes the directory of the nodes' journals.
func (w *world) makeDir() {
	under := "/dev/shm"
	if _, err := os.Stat(under); err != nil {
		under = ""
	}
	dir, err := os.MkdirTemp(under, "tenure-simulation-")
	must(err)
	w.dir = dir
}

// stop ends the process of the agent that ships, if it runs. The plugins whose DELs it had
// journal these.
func (n *simNode) stop() {
	a := n.agent
	if a == nil {
		return
	}
	a.kill()
	n.refresh()
	must(a.st.Close())
	n.agent = nil
	for _, s := range a.dels {
		if !s.hasDevice() {
			n.journalDel(s)
		}
	}
}
