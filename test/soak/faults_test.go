package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// How long a node is off: one that somebody vouches for, and that comes back in
// another boot; one that cannot have another boot here, which must be longer than its
// F, within which it would serve what was vouched to be dead; and one that is deleted
// and silent, which must be longer than its F and the minute that follows.
const (
	offVouched  = 8 * time.Second
	offSameBoot = fence + 2*time.Second
	offSilent   = fence + 70*time.Second
)

// faults is what disturbs the cluster. Only the test's own goroutine calls it.
type faults struct {
	w       *world
	rng     *rand.Rand
	off     []absence
	edited  map[string]bool
	started time.Time
	all     []fault
	backups backups
}

// absence is a node that is off.
type absence struct {
	n     *node
	until time.Time
	back  func()
	// forget says that the node was taken over and a restore has undone it.
	forget bool
}

// fault is one way to disturb, and how often it is drawn.
type fault struct {
	name   string
	weight int
	do     func()
	always bool // also while pools wait to be opened after a restore
}

func (w *world) newFaults() *faults {
	return &faults{w: w, rng: rand.New(rand.NewPCG(w.set.seed, 0)), edited: map[string]bool{}, started: time.Now()}
}

// kinds are the faults that are drawn. The last is one of the slowest.
func (f *faults) kinds() []fault {
	return []fault{
		{"agent killed", 22, f.killAgent, true},
		{"agent restarted", 8, f.restartAgent, true},
		{"controller killed", 12, f.killController, true},
		{"API server restarted", 8, f.restartAPIServer, true},
		{"API server frozen", 8, f.freezeAPIServer, true},
		{"etcd frozen", 8, f.freezeEtcd, true},
		{"etcd slow", 12, f.slowEtcd, true},
		{"pool edited", 12, f.editPool, false},
		{"node off, by a person's word", 8, f.nodeOff, false},
		{"clock moved", 10, f.moveClock, true},
		{"second agent of a node", 4, f.twin, true},
		{"store lost while pods run", 5, f.storeLost, false},
		{"node back with an empty disk", 4, f.nodeReplaced, false},
		{"node deleted and silent", 2, f.nodeGone, false},
	}
}

// run disturbs until the load is over.
func (f *faults) run(until time.Time) {
	f.all = f.kinds()
	f.backups = backups{take: time.Now().Add(f.seconds(5, 15)), most: 25}
	// One of the slowest kind at once, so that a short run sees the end of it.
	f.do(f.all[len(f.all)-1])
	for time.Now().Before(until) {
		time.Sleep(f.seconds(0, 3) + 500*time.Millisecond) // a random moment is the point
		f.returned(time.Now())
		if !f.restored(until) {
			f.draw(func(fault) bool { return true })
		}
	}
}

// draw plays one of these faults.
func (f *faults) draw(these func(fault) bool) {
	total := 0
	for _, x := range f.all {
		if these(x) {
			total += x.weight
		}
	}
	n := f.rng.IntN(total)
	for _, x := range f.all {
		if !these(x) {
			continue
		}
		if n -= x.weight; n < 0 {
			f.do(x)
			return
		}
	}
}

func (f *faults) do(x fault) {
	f.w.stats.fault(x.name)
	f.say(x.name)
	x.do()
}

// say logs what happens.
func (f *faults) say(what string) { f.w.t.Logf("%6.1f s: %s", time.Since(f.started).Seconds(), what) }

// settle ends every disturbance.
func (f *faults) settle() {
	for len(f.off) > 0 {
		f.returned(f.off[0].until)
	}
	for name, edited := range f.edited {
		if edited {
			f.exclude(name)
		}
	}
}

// pick returns a node that is not off, of which ok is true.
func (f *faults) pick(ok func(*node) bool) *node {
	for _, i := range f.rng.Perm(len(f.w.nodes)) {
		n := f.w.nodes[i]
		if ok(n) && !slices.ContainsFunc(f.off, func(a absence) bool { return a.n == n }) {
			return n
		}
	}
	return nil
}

func (f *faults) killAgent() {
	n := f.pick(func(n *node) bool { return n.process })
	if n == nil {
		return
	}
	n.Kill()
	time.Sleep(time.Duration(f.rng.IntN(1000)) * time.Millisecond) // as the kubelet takes to start it again
	f.w.launch(n, n.Name)
}

func (f *faults) restartAgent() {
	n := f.pick(func(n *node) bool { return !n.process })
	n.Stop()
	f.w.launch(n, n.Name)
}

func (f *faults) killController() {
	f.w.controlling.Lock()
	defer f.w.controlling.Unlock()
	i := f.rng.IntN(len(f.w.controllers))
	f.w.fleet.Kill(f.w.controllers[i])
	f.w.launchController(i)
}

func (f *faults) restartAPIServer() {
	if err := cp.StopAPIServer(); err != nil {
		f.w.t.Error(err)
	}
	time.Sleep(time.Duration(f.rng.IntN(3000)) * time.Millisecond)
	f.start(cp.StartAPIServer)
}

// start starts a part of the control plane again. Without it nothing can go on.
func (f *faults) start(part func(context.Context) error) {
	if err := part(f.w.t.Context()); err != nil {
		f.w.t.Fatal(err)
	}
}

func (f *faults) freezeAPIServer() {
	f.freeze(cp.PauseAPIServer, cp.ResumeAPIServer, 7000)
}

func (f *faults) freezeEtcd() { f.freeze(cp.PauseEtcd, cp.ResumeEtcd, 5000) }

func (f *faults) freeze(pause, resume func() error, millis int) {
	if err := pause(); err != nil {
		f.w.t.Error(err)
	}
	time.Sleep(time.Duration(500+f.rng.IntN(millis)) * time.Millisecond)
	if err := resume(); err != nil {
		f.w.t.Fatal(err)
	}
}

func (f *faults) slowEtcd() {
	f.delay(time.Duration(20+f.rng.IntN(300)) * time.Millisecond)
	time.Sleep(time.Duration(2000+f.rng.IntN(6000)) * time.Millisecond)
	f.delay(0)
}

func (f *faults) delay(d time.Duration) {
	if err := cp.DelayEtcd(d); err != nil {
		f.w.t.Error(err)
	}
}

func (f *faults) editPool() { f.exclude([]string{"single", "wide"}[f.rng.IntN(2)]) }

// exclude takes a few addresses out of a pool or, at the next call, puts them back.
func (f *faults) exclude(name string) {
	var next []string
	if !f.edited[name] {
		i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
		a := subjects[i].prefix.Addr().As4()
		next = []string{fmt.Sprintf("%d.%d.%d.%d/29", a[0], a[1], a[2], 8*(1+f.rng.IntN(30)))}
	}
	f.w.insist("edit pool "+name, func(ctx context.Context) error {
		p := &v1alpha1.IPPool{}
		if err := kc.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		p.Spec.Ranges[0].Exclude = next
		return kc.Update(ctx, p)
	})
	f.edited[name] = !f.edited[name]
}

// nodeOff switches a node off; a person vouches for it with the taint, and removes
// that before the node is on again.
func (f *faults) nodeOff() {
	n := f.pick(func(*node) bool { return true })
	if n == nil {
		return
	}
	f.switchOff(n)
	f.setTaints(n.Name, outOfService)
	off := offVouched
	if n.process {
		off = offSameBoot
	}
	f.off = append(f.off, absence{n: n, until: time.Now().Add(off), back: func() { f.setTaints(n.Name) }})
}

// outOfService is somebody's word that a machine is off.
var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

func (f *faults) setTaints(node string, taints ...corev1.Taint) {
	f.w.insist("taint "+node, func(ctx context.Context) error {
		var o corev1.Node
		if err := kc.Get(ctx, client.ObjectKey{Name: node}, &o); err != nil {
			return err
		}
		o.Spec.Taints = taints
		return kc.Update(ctx, &o)
	})
}

// nodeGone switches a node off, and its Node is deleted.
func (f *faults) nodeGone() {
	n := f.pick(func(*node) bool { return true })
	if n == nil || len(f.off) > 2 {
		return
	}
	f.switchOff(n)
	f.w.insist("delete "+n.Name, func(ctx context.Context) error {
		return client.IgnoreNotFound(kc.Delete(ctx, nodeObject(n.Name)))
	})
	f.off = append(f.off, absence{n: n, until: time.Now().Add(offSilent), back: func() {
		f.w.insist("create "+n.Name, func(ctx context.Context) error {
			err := kc.Create(ctx, nodeObject(n.Name))
			if client.IgnoreAlreadyExists(err) != nil {
				return err
			}
			return nil
		})
	}})
}

// switchOff ends a node's agent and all that runs on the node, and keeps calls away.
func (f *faults) switchOff(n *node) {
	n.gate.Lock()
	f.end(n)
	f.emptied(n)
}

// emptied ends all that runs on a node.
func (f *faults) emptied(n *node) {
	if err := n.emptyNetns(); err != nil {
		f.w.t.Error(err)
	}
	n.epoch.Add(1)
	n.lossy = false
	f.w.fleet.Observer.Off(n.Name)
}

// reboot has a node's agent begin in another boot, where it runs in this process.
func (n *node) reboot() {
	if !n.process {
		n.Config().Agent.Boot = fmt.Sprintf("boot-%d-of-%s", n.epoch.Load(), n.Name)
	}
}

// returned switches nodes on again whose time has come. A node whose agent runs in
// this process comes back in another boot, the others as if they had been frozen for
// longer than F: the agent must take that as well.
func (f *faults) returned(now time.Time) {
	f.off = slices.DeleteFunc(f.off, func(a absence) bool {
		if now.Before(a.until) {
			return false
		}
		a.back()
		if a.forget {
			f.setTaints(a.n.Name)
			f.removeStore(a.n)
		}
		a.n.reboot()
		f.w.launch(a.n, a.n.Name)
		a.n.gate.Unlock()
		a.n.back = now
		f.say(a.n.Name + " is back")
		return true
	})
}
