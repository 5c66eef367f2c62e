// Package history keeps what callers of an IPAM have seen, with the time at which each call began
// and ended, and has porcupine judge whether it can have been so.
//
// Calls overlap, so their order is not known. A history is right if each call can be thought to
// have happened at one moment between its beginning and its end, so that at every moment an
// address has at most one owner, and a claim keeps the addresses that it was granted first. An
// owner is a claim, whichever pods use it, or else an interface of a pod.
package history

import (
	"math"
	"sync"
	"time"
)

// Moment is a time in a history.
type Moment int64

// never is the end of a call that was not answered: it may take effect at any time.
const never Moment = math.MaxInt64

// Place is where an address is: an interface on a node, or a claim without a node.
type Place struct{ Node, Interface string }

// OfClaim is the place where a claim has its addresses, with a pod or without.
func OfClaim(claim string) Place { return Place{Interface: "claim " + claim} }

// Owner is who may have an address in several places.
type Owner struct {
	Name  string
	Claim bool // its addresses never change
}

// History is a history. Any number of goroutines may use it.
type History struct {
	began time.Time

	mu       sync.Mutex
	takes    []take             // guarded by mu
	releases []release          // guarded by mu
	open     map[Place]Moment   // guarded by mu; when the first of a place's DELs without an answer began
	renewed  map[string][]event // guarded by mu; when claims began anew
}

// event is when something happened: between two moments.
type event struct{ from, to Moment }

// take is that a place has got addresses, or was seen to have them.
type take struct {
	event
	place Place
	owner Owner
	addrs []string
}

// release is that a place, or all places of a node, have none any more.
type release struct {
	event
	place Place // with an empty Interface, all of Node
}

// New returns an empty history.
func New() *History {
	return &History{began: time.Now(), open: map[Place]Moment{}, renewed: map[string][]event{}}
}

// Now returns the moment that it is.
func (h *History) Now() Moment { return Moment(time.Since(h.began)) }

// Got tells that a place has got addresses by a call that began then and ends now, such as an ADD.
// It may be told again.
func (h *History) Got(began Moment, p Place, o Owner, addrs []string) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, ok := h.open[p]; ok {
		// What is released later is something else.
		h.releases = append(h.releases, release{event{first, never}, p})
		delete(h.open, p)
	}
	h.takes = append(h.takes, take{event{began, now}, p, o, addrs})
}

// Left tells that a place gives up what it has by a call that began then, such as a DEL. It ends
// now if it was answered. One that was not is made again, and these count as one call.
func (h *History) Left(began Moment, p Place, answered bool) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	first, again := h.open[p]
	if !again {
		first = began
	}
	if !answered {
		h.open[p] = first
		return
	}
	delete(h.open, p)
	h.releases = append(h.releases, release{event{first, now}, p})
}

// Off tells that all that ran on a node is gone.
func (h *History) Off(node string) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, release{event{now, now}, Place{Node: node}})
}

// Undone tells that a claim's grant went with the API server's data: it may get others.
func (h *History) Undone(claim string) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, release{event{now, now}, OfClaim(claim)})
	h.renewed[claim] = append(h.renewed[claim], event{now, now})
}
