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
	what  string
	next  func() (struct{}, bool)
	stop  func()
	pause func()
	// known says whether the call that the routine waited for was answered.
	known bool
	// ready says whether what the routine waits for has come; nil while it waits
	// for a call.
	ready func() bool
	done  func()
}

// died unwinds a routine whose process has died.
type died struct{}

// start runs body as a routine; done runs after its end, unless the process dies.
func (c *simController) start(what string, body, done func()) {
	r := &routine{what: what, done: done}
	r.next, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			switch why := recover().(type) {
			case nil, died:
			default: // it may have left locks behind
				c.w.fail(I1, "%s panics in %s: %v", c.who, what, why)
			}
		}()
		r.pause = func() {
			if !yield(struct{}{}) {
				panic(died{})
			}
		}
		body()
	})
	c.routines = append(c.routines, r)
	c.resume(r)
}

// resume has r go on.
func (c *simController) resume(r *routine) {
	c.running = r
	_, alive := r.next()
	c.running = nil
	if !alive {
		c.routines = slices.DeleteFunc(c.routines, func(o *routine) bool { return o == r })
		if r.done != nil {
			r.done()
		}
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
		r := c.running
		r.ready = ready
		r.pause()
	}
}

// exchange sends a call of the running routine's and waits for its answer.
func (c *simController) exchange(what string, write bool, serve func()) (known bool) {
	r := c.running
	c.ask(what, write, serve, func(known bool) {
		r.known = known
		c.resume(r)
	})
	r.pause()
	return r.known
}

// kill ends every routine where it stands.
func (c *simController) kill() {
	for _, r := range c.routines {
		r.stop()
	}
	c.routines, c.running = nil, nil
}
