package soak_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// These faults take something from a node that it had, or give it what it must not
// have.

// moveClock sets the clock of a node's machine, whose wall clock may go back. Nothing
// is excused: at most the agent gives out nothing new until its next heartbeat.
func (f *faults) moveClock() {
	n := f.pick(func(n *node) bool { return !n.process }) // a process has the machine's own
	if n == nil {
		return
	}
	if f.rng.IntN(2) == 0 {
		n.clock.Wall.Add(int64(time.Duration(f.rng.IntN(4*3600)-2*3600) * time.Second))
		return
	}
	n.clock.Boot.Add(int64(time.Duration(f.rng.Int64N(int64(2 * fence))))) // as of a machine that slept
}

// twin starts a second agent under a node's name, on another machine, as a copied
// configuration does. It finds the registration taken, by one that beats, for less than the F/2
// after which it might take it, gives nothing to anybody, and goes. Nothing is excused.
func (f *faults) twin() {
	n := f.pick(func(*node) bool { return true })
	if n == nil || !f.registered(n) { // one that has just come back may not, and the registration is anybody's
		return
	}
	second := f.w.fleet.LaunchTwin(n.Node)
	defer second.Stop()
	i, err := f.w.sandbox(n, subjects[f.rng.IntN(len(subjects))])
	if err != nil {
		f.w.t.Error(err)
		return
	}
	if _, err := second.Add(i); err == nil { // it waits as long as an ADD may, a fifth of F/2
		f.w.t.Errorf("a second agent of %s has answered an ADD", n.Name)
	}
	if err := os.Remove(i.Netns); err != nil {
		f.w.t.Error(err)
	}
}

// registered reports whether a node's registration names an agent, for all that the API server
// answers.
func (f *faults) registered(n *node) bool {
	ctx, cancel := context.WithTimeout(f.w.t.Context(), 5*time.Second)
	defer cancel()
	reg, out, _ := api.ReadRegistration(ctx, protocol.NodeName(n.Name))
	return out == protocol.Done && !reg.Ended()
}

// storeLost removes a node's store while its pods run on. They keep their addresses,
// and nobody else may have them, though nobody knows them any more: what is excused is
// that a repeated ADD or a CHECK of theirs is not answered as before, and so the load
// makes none.
func (f *faults) storeLost() {
	n := f.pick(func(*node) bool { return true })
	if n == nil {
		return
	}
	n.gate.Lock()
	defer n.gate.Unlock()
	f.end(n)
	f.removeStore(n)
	n.lossy = true
	f.w.launch(n, n.Name)
}

// nodeReplaced switches a node off, and it comes back in another boot with an empty
// disk. What ran there is gone, and others may have its addresses; nobody vouches for
// that, and nobody has deleted the Node.
func (f *faults) nodeReplaced() {
	n := f.pick(func(n *node) bool { return !n.process }) // a process cannot have another boot here
	if n == nil {
		return
	}
	f.switchOff(n)
	f.off = append(f.off, absence{n: n, until: time.Now().Add(offVouched), back: func() { f.removeStore(n) }})
}

func (f *faults) removeStore(n *node) {
	if err := os.Remove(n.Config().Store); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.w.t.Error(err)
	}
	n.losses.Add(1)
}

// listAnew starts the agents anew whose store was lost. A create that was under way when
// that happened may have landed after the new store's list, and its name was in the old
// one: the list of the next hour finds it, or that of the next start, for which nobody
// has to wait so long.
func (f *faults) listAnew() {
	for _, n := range f.w.nodes {
		if n.losses.Load() > 0 {
			f.end(n)
			f.w.launch(n, n.Name)
			n.AwaitServing()
		}
	}
}

// end ends a node's agent, as a kill does where it can be killed.
func (f *faults) end(n *node) {
	if n.process {
		n.Kill()
	} else {
		n.Stop()
	}
}

// forgotten reports whether an attachment was made before its node's store was lost.
func (n *node) forgotten(losses int64) bool { return losses != n.losses.Load() }

// emptyNetns removes the network namespaces of a node, as its end does.
func (n *node) emptyNetns() error {
	dir := n.Config().NetnsDirs[0]
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// neverRegistered reports whether the store of a node whose agent has ended is one that never had
// a registration, as its agent says when it begins and when it registers.
func (n *node) neverRegistered() bool {
	log := n.Log()
	start := log[max(0, strings.LastIndex(log, "agent resumes")):]
	return unregistered.MatchString(start) && !strings.Contains(start, "registration taken")
}

var unregistered = regexp.MustCompile(`agent resumes.*\bregistered"?[=:]false`)
