package soak_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

const (
	// reopen is how long the pools may stay closed after a restore. They wait for F at
	// most; the rest is for a controller to lead, and for a machine that is busy.
	reopen = 3 * time.Minute
	// lastSnapshot is how long before the end of a run one may be taken.
	lastSnapshot = time.Minute
	// settled is how long a node that was off takes at most to learn whether others have
	// what it had.
	settled = 20 * time.Second
)

// backups is when the next snapshot of etcd is taken, and when that is put back.
type backups struct {
	take, restore time.Time
	most          int // seconds between the two
	snapshot      *controlplane.Snapshot
	beats         map[string]time.Time // the nodes' last heartbeats when it was taken
	done          int
}

// seconds draws a time from low to high, in seconds.
func (f *faults) seconds(low, high int) time.Duration {
	return time.Duration(low*1000+f.rng.IntN((high-low)*1000)) * time.Millisecond
}

// restored takes a snapshot of etcd when its time has come, and puts it back when it is
// time for that; it reports whether it has. The first is early, for a short run has one.
func (f *faults) restored(until time.Time) bool {
	b := &f.backups
	switch now := time.Now(); {
	case b.snapshot == nil && now.After(b.take) && (b.done == 0 || now.Before(until.Add(-lastSnapshot))):
		s, err := cp.SnapshotEtcd()
		if err != nil {
			f.w.t.Error(err)
			return false
		}
		f.say("snapshot of etcd")
		b.snapshot, b.beats, b.restore = &s, f.beats(), now.Add(f.seconds(3, b.most))
		return false
	case b.snapshot != nil && now.After(b.restore):
		if !f.beaten(b.beats) {
			return false
		}
		f.do(fault{name: "etcd restored", do: func() { f.restore(*b.snapshot) }})
		if err := b.snapshot.Remove(); err != nil {
			f.w.t.Error(err)
		}
		b.done++
		b.most = 60
		b.snapshot, b.take = nil, time.Now().Add(f.seconds(10, 60))
		return true
	}
	return false
}

// beats returns the last heartbeats of the agents that run, by node.
func (f *faults) beats() map[string]time.Time {
	beats := map[string]time.Time{}
	f.w.insist("read the registrations' heartbeats", func(ctx context.Context) error {
		clear(beats)
		for _, n := range f.w.nodes {
			reg, out, err := api.ReadRegistration(ctx, protocol.NodeName(n.Name))
			if out != protocol.Done && out != protocol.NotFound {
				return errors.Join(err, fmt.Errorf("registration of %s: %v", n.Name, out))
			}
			if f.runs(n) && reg.Store != "" {
				beats[n.Name] = reg.Beat
			}
		}
		return nil
	})
	return beats
}

// beaten reports whether every agent that ran when a snapshot was taken, and runs, has beaten
// since: one that has not notices nothing of a restore.
func (f *faults) beaten(since map[string]time.Time) bool {
	for name, beat := range f.beats() {
		if before, ran := since[name]; ran && beat.Equal(before) {
			f.w.stats.count("restores put off for a heartbeat")
			return false
		}
	}
	return true
}

// restore puts a snapshot of etcd back as docs/operations/README.md tells it, while the load goes
// on with all but new pods. What it excuses:
//
//   - refusals: from when the agents stop until the pools have been opened again an ADD
//     that has not been answered may be told to try again;
//   - what was granted after the snapshot, to claims and requests, and what lies in a block
//     that is again somebody's who cannot give it back in time ([world.voided]): nobody can
//     put that back. Whoever has such an address is ended soon, and others may have it
//     before. So it is with claims that were made since;
//   - what runs where a store was lost since the node was booted: the node is drained and,
//     where it can be, booted.
//
// All else that runs keeps what it has, and nobody else is given that.
func (f *faults) restore(s controlplane.Snapshot) {
	w := f.w
	w.holding.Store(true)
	w.controlling.Lock()
	f.stopAll()
	was := f.people()
	w.calls.Lock()
	f.putBack(s)
	f.sayAgain(was)
	f.drain(was)
	w.lookBack(was.leases, f.silent(was))
	w.calls.Unlock()
	joins := f.joins(was)
	f.startAgents(func(n *node) bool { return !joins[n] })
	f.say("all agents are ready that know of the restore")
	word, noticed := f.noticed()
	w.holding.Store(false)
	for i := range w.controllers {
		w.launchController(i)
	}
	w.controlling.Unlock()
	if noticed {
		f.awaitClosed(word)
	}
	f.startAgents(func(n *node) bool { return joins[n] })
	f.awaitOpen()
}

// stopAll stops agents and controllers.
func (f *faults) stopAll() {
	var stopping sync.WaitGroup
	for _, n := range f.w.nodes {
		if f.runs(n) {
			stopping.Go(n.Stop)
		}
	}
	stopping.Wait()
	for _, c := range f.w.controllers {
		f.w.fleet.Kill(c)
	}
}

// words are what people have said that the API server's data forget.
type words struct {
	pools map[string]v1alpha1.IPPoolSpec
	nodes map[string][]corev1.Taint // of those that are there
	ended map[string]bool           // nodes that were taken over and may not know it
	// leases are those that there were.
	leases []protocol.Lease
}

// people reads what people have said so far.
func (f *faults) people() words {
	was := words{pools: map[string]v1alpha1.IPPoolSpec{}, nodes: map[string][]corev1.Taint{}, ended: map[string]bool{}}
	f.w.insist("read what a restore undoes", func(ctx context.Context) error {
		var pools v1alpha1.IPPoolList
		var nodes corev1.NodeList
		if err := errors.Join(kc.List(ctx, &pools), kc.List(ctx, &nodes)); err != nil {
			return err
		}
		var err error
		if was.leases, err = api.Leases(ctx); err != nil {
			return err
		}
		for _, p := range pools.Items {
			was.pools[p.Name] = p.Spec
		}
		for _, n := range nodes.Items {
			was.nodes[n.Name] = n.Spec.Taints
		}
		for _, n := range f.w.nodes {
			reg, out, err := api.ReadRegistration(ctx, protocol.NodeName(n.Name))
			if out != protocol.Done && out != protocol.NotFound {
				return errors.Join(err, fmt.Errorf("registration of %s: %v", n.Name, out))
			}
			was.ended[n.Name] = out == protocol.Done && reg.Store == "" || time.Since(n.back) < settled
		}
		return nil
	})
	return was
}

// putBack restores etcd. Half of the times resourceVersions go on where they were, as
// where etcd's tool is told to raise them, or where others write much before the agents
// are started: then they do not tell that the data went back.
func (f *faults) putBack(s controlplane.Snapshot) {
	ctx := f.w.t.Context()
	high, err := cp.EtcdRevision(ctx)
	if err = errors.Join(err, cp.StopControllerManager()); err == nil {
		err = cp.RestoreEtcd(ctx, s)
	}
	if err == nil && f.rng.IntN(2) == 0 {
		err = cp.RaiseEtcdRevision(ctx, high)
		f.w.stats.count("restores with resourceVersions that went on")
	}
	if err = errors.Join(err, cp.StartControllerManager(ctx)); err != nil {
		f.w.t.Fatal(err)
	}
}

// sayAgain has people say again what they had: the specs of pools, and of nodes which are
// there, which are off, and which are not any more. A node that was taken over is vouched
// for with the taint, however it was: what others have of it by now stands in its name again.
func (f *faults) sayAgain(was words) {
	for name, spec := range was.pools {
		f.w.insist("put back pool "+name, func(ctx context.Context) error {
			p := &v1alpha1.IPPool{}
			if err := kc.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
				return err
			}
			p.Spec = spec
			return kc.Update(ctx, p)
		})
	}
	for _, n := range f.w.nodes {
		taints, there := was.nodes[n.Name]
		if was.ended[n.Name] && !f.runs(n) {
			taints, there = []corev1.Taint{outOfService}, true
		}
		f.w.insist("put back Node "+n.Name, func(ctx context.Context) error {
			if !there {
				return client.IgnoreNotFound(kc.Delete(ctx, nodeObject(n.Name)))
			}
			return client.IgnoreAlreadyExists(kc.Create(ctx, nodeObject(n.Name)))
		})
		if there {
			f.setTaints(n.Name, taints...)
		}
	}
}

// silent returns the nodes that are off, and that nobody vouches for: what the restored data
// have in their names nobody gives back in time.
func (f *faults) silent(was words) map[protocol.NodeName]bool {
	silent := map[protocol.NodeName]bool{}
	for _, n := range f.w.nodes {
		vouched := was.ended[n.Name] || slices.ContainsFunc(was.nodes[n.Name], func(t corev1.Taint) bool { return t.Key == outOfService.Key })
		silent[protocol.NodeName(n.Name)] = !f.runs(n) && !vouched
	}
	return silent
}

// drain empties and boots the nodes that cannot say what they hold: those of a lost store,
// and those that were taken over, and do not know it. These leave their stores, too.
func (f *faults) drain(was words) {
	for i, a := range f.off {
		f.off[i].forget = a.forget || was.ended[a.n.Name]
	}
	for _, n := range f.w.nodes {
		if !f.runs(n) || !n.lossy && !was.ended[n.Name] {
			continue
		}
		f.w.stats.count("nodes drained for a restore")
		if was.ended[n.Name] {
			f.removeStore(n)
		}
		f.emptied(n)
		n.reboot()
	}
}

// joins returns the nodes that do not know that the data went back, for their stores were
// never registered, or were moved away: they would lease what the others have not put back yet.
func (f *faults) joins(was words) map[*node]bool {
	joins := map[*node]bool{}
	for _, n := range f.w.nodes {
		joins[n] = was.ended[n.Name] || n.neverRegistered()
	}
	return joins
}

// startAgents starts the agents of these nodes, as far as they are on, and waits until each is
// ready.
func (f *faults) startAgents(these func(*node) bool) {
	var started []*node
	for _, n := range f.w.nodes {
		if f.runs(n) && these(n) {
			f.w.launch(n, n.Name)
			started = append(started, n)
		}
	}
	for _, n := range started {
		n.AwaitReady()
	}
}

// noticed returns the greatest word of an opening that a registration says had been heard of when
// the data went back, and whether one says so at all.
func (f *faults) noticed() (word string, any bool) {
	regs := 0
	f.w.insist("read who has noticed", func(ctx context.Context) error {
		word, regs = "", 0
		for _, n := range f.w.nodes {
			reg, out, err := api.ReadRegistration(ctx, protocol.NodeName(n.Name))
			if out != protocol.Done && out != protocol.NotFound {
				return errors.Join(err, fmt.Errorf("registration of %s: %v", n.Name, out))
			}
			if said, ok := protocol.ParseRestoration(reg.Restored); ok {
				word = max(word, said.Epoch)
				regs++
			}
		}
		return nil
	})
	f.w.stats.add("agents that noticed a restore", regs)
	return word, regs > 0
}

// awaitClosed waits until each pool has been closed that was opened by this word or an earlier
// one.
func (f *faults) awaitClosed(word string) {
	err := patiently(f.w.t.Context(), reopen, func(ctx context.Context) error {
		var pools v1alpha1.IPPoolList
		if err := kc.List(ctx, &pools); err != nil {
			return err
		}
		for _, p := range pools.Items {
			if p.Status.Leasing == v1alpha1.LeasingOpen && p.Status.Opening <= word {
				return fmt.Errorf("pool %s is open", p.Name)
			}
		}
		return nil
	})
	if err != nil {
		f.w.t.Errorf("I1: %v after a restore: %v", reopen, err)
	}
	f.say("all pools are closed")
}

// awaitOpen waits until the pools are open and the nodes know it. A few faults come first.
func (f *faults) awaitOpen() {
	for range f.rng.IntN(3) {
		time.Sleep(f.seconds(0, 3)) // a random moment is the point
		f.returned(time.Now())
		f.draw(func(x fault) bool { return x.always })
	}
	err := patiently(f.w.t.Context(), reopen, func(ctx context.Context) error {
		var pools v1alpha1.IPPoolList
		if err := kc.List(ctx, &pools); err != nil {
			return err
		}
		for _, p := range pools.Items {
			if p.Status.Leasing != v1alpha1.LeasingOpen {
				return fmt.Errorf("pool %s is closed: %+v", p.Name, p.Status.Conditions)
			}
		}
		for _, n := range f.w.nodes {
			reg, out, err := api.ReadRegistration(ctx, protocol.NodeName(n.Name))
			if err != nil || out != protocol.Done || f.runs(n) && reg.Restored != "" {
				return errors.Join(err, fmt.Errorf("the registration of %s, %v, says %q", n.Name, out, reg.Restored))
			}
		}
		return nil
	})
	if err != nil {
		f.w.t.Errorf("I5: %v after a restore: %v", reopen, err)
	}
	f.say("all pools are open")
}
