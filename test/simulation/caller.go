package simulation

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A caller is whoever talks to the API server: what it is about to do, and which
// of its requests are under way. Between any two of these steps it may die.
type caller struct {
	w       *world
	who     string
	deaf    func() bool // cut off from the API server
	todo    []func()
	pending []*exchange
	// refusals is how rarely a policy refuses a write of the program's: once in so many times.
	refusals int
}

// An exchange is a request under way and what its caller does with the outcome.
type exchange struct {
	simCall
	answer func(known bool) // known false: no answer came
	reg    bool             // it is about the caller's own registration
}

// later plans f as a step of its own.
func (c *caller) later(f func()) { c.todo = append(c.todo, f) }

// ask sends a request. commit runs at the server, answer at the caller.
func (c *caller) ask(what string, write bool, commit func(), answer func(known bool)) *exchange {
	c.w.logf("%s: sends %s", c.who, what)
	x := &exchange{simCall: simCall{what: c.w.text("%s's %s", c.who, what), write: write, commit: commit}, answer: answer}
	c.pending = append(c.pending, x)
	return x
}

// errNoAnswer is the error of a call that was not answered.
var errNoAnswer = errors.New("no answer")

// request makes one call of the program's: send has commit get to the server, and waits for the
// answer. A write may be refused by a policy.
func request[T any](c *caller, what string, write bool, serve func() (T, protocol.Outcome), send func(commit func()) error) (T, protocol.Outcome, error) {
	var got, none T
	out := protocol.Unknown
	err := send(func() {
		if write && !c.w.calm && c.w.one(c.refusals) {
			out = protocol.Refused
		} else {
			got, out = serve()
		}
		c.w.logf("server: %s's %s: %v", c.who, what, out)
	})
	switch {
	case err != nil:
		return none, protocol.Unknown, err
	case out != protocol.Done:
		return got, out, fmt.Errorf("%s: %v", what, out)
	}
	return got, out, nil
}

// work does the next bit of what the caller is at, if anything.
func (c *caller) work() bool {
	n := len(c.todo) + len(c.pending)
	if n == 0 {
		return false
	}
	i := c.w.rng.IntN(n)
	if i < len(c.todo) {
		f := c.todo[i]
		c.todo = slices.Delete(c.todo, i, i+1)
		f()
		return true
	}
	i -= len(c.todo)
	x, calm := c.pending[i], c.w.calm
	switch {
	// Gives up.
	case !calm && (c.deaf() && c.w.one(3) || c.w.one(c.w.patience) || x.write && c.w.kind.slow && c.w.one(5)):
		c.pending = slices.Delete(c.pending, i, i+1)
		c.w.logf("%s: no answer to %s (committed: %v)", c.who, x.what, x.committed)
		c.w.abandon(x)
		x.answer(false)
	case !calm && c.deaf():
	case !x.committed:
		c.w.logf("server: %s", x.what)
		x.arrive()
	default:
		c.pending = slices.Delete(c.pending, i, i+1)
		x.answer(true)
	}
	return true
}

// die forgets everything that was in memory; what was on its way still is.
func (c *caller) die() {
	for _, x := range c.pending {
		c.w.abandon(x)
	}
	c.todo, c.pending = nil, nil
}

// abandon leaves a request to itself.
func (w *world) abandon(x *exchange) {
	if x.write && !x.committed {
		x.left = w.now
		w.late = append(w.late, &x.simCall)
	}
}
