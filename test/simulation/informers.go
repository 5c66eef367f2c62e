package simulation

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// hear tells one informer of up to n events.
func (c *simController) hear(n int) {
	all := c.informers
	if c.w.racks == nil {
		all = all[:len(all)-1] // nothing befalls Nodes
	}
	all[c.w.rng.IntN(len(all))].hear(n)
}

// hearAll tells the informers of all that there is to tell.
func (c *simController) hearAll() {
	for _, i := range c.informers {
		i.hear(i.behind())
	}
}

// relist has the informers list anew, at replicas that are behind; at a start
// maybe far.
func (c *simController) relist(start bool) {
	c.w.logf("%s: lists anew", c.who)
	c.starting = start
	defer func() { c.starting = false }()
	for _, i := range c.informers {
		i.relist(c.w, start)
	}
}

// simQueue is a reconciler and its [trigger.Queue], of which its watches tell.
type simQueue struct {
	trigger.Queue
	c       *simController
	kind    taskKind
	run     func(context.Context, reconcile.Request) (reconcile.Result, error)
	watches []trigger.Watch
}

func (q simQueue) Add(r reconcile.Request)                       { q.c.soon(task{q.kind, r.Name}, 0) }
func (q simQueue) AddAfter(r reconcile.Request, d time.Duration) { q.c.soon(task{q.kind, r.Name}, d) }

// hear has the watches hear of an object that was so, and is so now; nil: it was not there, or is
// not.
func (q simQueue) hear(was, is client.Object) {
	ctx := context.Background()
	for _, w := range q.watches {
		switch of := reflect.TypeOf(w.Of); {
		case is == nil:
			if e := (event.DeleteEvent{Object: was}); reflect.TypeOf(was) == of && (w.If == nil || w.If.Delete(e)) {
				w.To.Delete(ctx, e, q)
			}
		case reflect.TypeOf(is) != of:
		case was == nil:
			if e := (event.CreateEvent{Object: is, IsInInitialList: q.c.starting}); w.If == nil || w.If.Create(e) {
				w.To.Create(ctx, e, q)
			}
		default:
			if e := (event.UpdateEvent{ObjectOld: was, ObjectNew: is}); w.If == nil || w.If.Update(e) {
				w.To.Update(ctx, e, q)
			}
		}
	}
}

// wake has the reconcilers hear of what an informer has heard. One that lists anew does not tell of
// what is as it was.
func wake[T any, O client.Object](c *simController, ev simEvent[T], object func(T) O) {
	var was, is client.Object
	if ev.was != nil {
		was = object(*ev.was)
	}
	switch {
	case !ev.gone:
		is = object(ev.obj)
	case was == nil:
		return
	}
	if was != nil && is != nil && was.GetResourceVersion() == is.GetResourceVersion() {
		return
	}
	for _, q := range c.queues {
		q.hear(was, is)
	}
}

func (c *simController) seeLease(ev simEvent[protocol.Lease]) {
	if ev.gone {
		c.broker.Forget(ev.name, ev.obj.UID)
	} else {
		c.broker.Observe(ev.obj)
	}
	wake(c, ev, leaseObject)
	c.alsoPool(string(ev.obj.Pool), 500*time.Millisecond)
}

func (c *simController) seeSub(ev simEvent[protocol.SubLease]) { wake(c, ev, subObject) }

// alsoPool has a pool looked at, though no watch tells of it, as a controller does that starts.
// That ends with the faults: then the watches alone have to do.
func (c *simController) alsoPool(name string, after time.Duration) {
	if !c.w.calm {
		c.soon(task{lookAtPool, name}, after)
	}
}

func (c *simController) seeClaim(ev simEvent[simClaim]) { wake(c, ev, simClaim.object) }

func (c *simController) seeNode(ev simEvent[rackNode]) { wake(c, ev, rackNode.object) }

func (c *simController) seePool(ev simEvent[simPool]) {
	if ev.gone {
		c.broker.DropPool(protocol.PoolName(ev.name), ev.obj.UID)
	} else {
		c.broker.SetPool(controller.PoolState(ev.obj.object(), c.shapes))
	}
	c.wakeLooker()
	wake(c, ev, simPool.object)
	for name := range c.pools.objects {
		c.alsoPool(name, 0)
	}
}

func (c *simController) seeRegistration(ev simEvent[protocol.Registration]) {
	wake(c, ev, registrationObject)
	c.soon(task{lookAtRegistration, ev.name}, 0)
}

// informer is what a controller knows of one table by watching it.
type informer interface {
	// hear tells it of up to n events.
	hear(n int)
	// behind returns how many events it has not heard of.
	behind() int
	// relist has it begin anew at another replica, which is behind: at a start by 20 events at$
	// else no further than it was itself.
	relist(w *world, start bool)
}

// simWatch is an informer of a table.
type simWatch[T any] struct {
	simObjects[T]
	t   *simTable[T]
	pos int // in the table's log
	see func(simEvent[T])
}

// watch returns a watch that knows of nothing yet, and tells see of what it hears.
func (t *simTable[T]) watch(see func(simEvent[T])) *simWatch[T] {
	return &simWatch[T]{simObjects: simObjects[T]{objects: map[string]T{}, meta: t.meta, clone: t.clone}, t: t, see: see}
}

func (v *simWatch[T]) behind() int { return len(v.t.log) - v.pos }

func (v *simWatch[T]) hear(n int) {
	for range min(n, v.behind()) {
		v.see(v.next())
	}
}

// next takes the next event over.
func (v *simWatch[T]) next() simEvent[T] {
	ev := v.t.log[v.pos]
	v.pos++
	if was, known := v.objects[ev.name]; known {
		ev.was = &was
	}
	if ev.gone {
		v.unset(ev.name)
	} else {
		v.set(ev.obj)
	}
	return ev
}

func (v *simWatch[T]) relist(w *world, start bool) {
	before, names := maps.Clone(v.objects), slices.Clone(v.names)
	most := v.behind()
	if start {
		most = min(most, 20)
	}
	last := len(v.t.log) - w.rng.IntN(most+1)
	clear(v.objects)
	v.names, v.pos = v.names[:0], 0
	for v.pos < last {
		v.next()
	}
	told := func(name string, obj T, gone bool) {
		ev := simEvent[T]{name: name, obj: obj, gone: gone}
		if was, ok := before[name]; ok {
			ev.was = &was
		}
		v.see(ev)
	}
	for _, name := range names { // nothing else tells of what has been deleted
		if _, ok := v.objects[name]; !ok {
			told(name, before[name], true)
		}
	}
	for _, name := range v.names {
		told(name, v.objects[name], false)
	}
}
