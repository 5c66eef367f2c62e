package simulation

import (
	"iter"
	"slices"
)

// A routine is blocking code of the program, run as a coroutine: it goes on until
// it needs an answer of the API server, or an outcome of another routine, and is
// resumed when the scheduler has that come. So a run stays determined by what was
// chosen, and between any two calls somebody else may act, or the process die.
type routine struct {
	on *coroutine
	// ready says whether what the routine waits for has come; nil while it waits
	// for a call.
	ready func() bool
	done  func()
}

// crew are the routines of a process, of which one at a time goes on.
type crew struct {
	routines []*routine
	running  *routine
}

// resume has r go on. It reports whether r has ended.
func (p *crew) resume(w *world, r *routine) (ended bool) {
	before := p.running
	p.running = r
	paused, _ := r.on.next()
	p.running = before
	if !paused {
		p.routines = slices.DeleteFunc(p.routines, func(o *routine) bool { return o == r })
		w.idle = append(w.idle, r.on)
	}
	return !paused
}

// pause has the running routine wait until it is resumed, by somebody or because it is ready.
func (p *crew) pause(ready func() bool) {
	r := p.running
	r.ready = ready
	r.on.pause()
	r.ready = nil
}

// kill ends every routine where it stands, but for the running one.
func (p *crew) kill() {
	for _, r := range slices.Clone(p.routines) {
		if r != p.running {
			r.on.stop()
		}
	}
	p.routines = nil
}

// died unwinds a routine whose process has died.
type died struct{}

// A coroutine runs one body after the other, so that a stack which has grown once is
// used again: most of what is done here is done by short routines.
type coroutine struct {
	body func()
	// next has the body go on; it reports whether that has paused, and not ended.
	next  func() (paused, ok bool)
	stop  func()
	pause func()
}

func newCoroutine() *coroutine {
	co := &coroutine{}
	co.next, co.stop = iter.Pull(func(yield func(bool) bool) {
		co.pause = func() {
			if !yield(true) {
				panic(died{})
			}
		}
		for more := true; more; more = yield(false) {
			co.body()
		}
	})
	return co
}

// coroutine returns one that is to run body. What body panics with goes to failed, unless its
// process has died.
func (w *world) coroutine(body func(), failed func(why any)) *coroutine {
	var co *coroutine
	if last := len(w.idle) - 1; last >= 0 {
		co, w.idle = w.idle[last], w.idle[:last]
	} else {
		co = newCoroutine()
	}
	co.body = func() {
		defer func() {
			switch why := recover().(type) {
			case nil, died:
			default:
				failed(why)
			}
		}()
		body()
	}
	return co
}

// start runs body as a routine; done runs after its end, unless the process dies.
func (c *simController) start(what string, body, done func()) {
	r := &routine{done: done, on: c.w.coroutine(body, func(why any) { // it may have left locks behind
		c.w.fail(I1, "%s panics in %s: %v", c.who, what, why)
	})}
	c.routines = append(c.routines, r)
	c.resume(r)
}

// resume has r go on, and then those that wait for what has come.
func (c *simController) resume(r *routine) {
	if c.crew.resume(c.w, r) {
		r.done()
	}
	for _, o := range c.routines {
		if o.ready != nil && o.ready() {
			o.ready = nil
			c.later(func() { c.resume(o) })
		}
	}
}

// await pauses the running routine until ready.
func (c *simController) await(ready func() bool) {
	if !ready() {
		c.pause(ready)
	}
}
