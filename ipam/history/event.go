// Package history is who had which address of a node from when to when. A node's agent writes a
// line for each address that it gives and that is given back, into files beside its store ([File],
// [Recorder]). Who asks later reads the lines ([Read]) and makes spans of them ([Spans]).
//
// The files are segments, in a directory of their own, by ascending numbers. A segment begins with
// a line that says when it was begun. What is open when its segment is removed is written again, so
// that the segments that are there tell all that is open.
package history

import (
	"net/netip"
	"time"
)

// A Holding is an address that an interface of a pod has.
type Holding struct {
	Address netip.Addr `json:"address,omitzero"`
	Pool    string     `json:"pool,omitempty"`
	Network string     `json:"network,omitempty"`
	// Namespace, Pod and PodUID are empty where the runtime did not name a pod.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	Container string `json:"container,omitempty"` // the ID of the sandbox
	Interface string `json:"interface,omitempty"`
	// Claim is the namespace and name of the claim that the address is of; empty if it is of none.
	Claim string `json:"claim,omitempty"`
	// ResourceClaim is the namespace and name of the ResourceClaim by which the pod has the device
	// Interface; Container is its UID then.
	ResourceClaim string `json:"resourceClaim,omitempty"`
	Node          string `json:"node"`
}

// key is what tells a holding from every other one at a time.
type key struct {
	address                          netip.Addr
	pool, network, container, ifName string
}

func (h Holding) key() key { return key{h.Address, h.Pool, h.Network, h.Container, h.Interface} }

// place is an address of a pool, which has one holder at a time on a node.
type place struct {
	address netip.Addr
	pool    string
}

func (h Holding) place() place { return place{h.Address, h.Pool} }

// What says what an [Event] is.
type What string

// The kinds of events.
const (
	Given What = "given"
	Freed What = "freed"
	// Begun is the first line of a segment.
	Begun What = "begun"
)

// An Event is one line.
type Event struct {
	Time time.Time `json:"time"`
	What What      `json:"event"`
	Holding
	// Late says that the agent did not see the end of the holding: it found later that it had
	// ended, at Time at the latest.
	Late bool `json:"late,omitempty"`
}

// given is the event by which a holding began.
func (s Span) given() Event { return Event{Time: s.From, What: Given, Holding: s.Holding} }

// Missing returns the events that lead from the holdings that are open by what was written to those
// that there are now. Of what has begun unseen the time is known, and of what has ended unseen that
// it did before now, and before the next one had the address.
func Missing(open, held []Span, now time.Time) (missed []Event) {
	was, is, next := map[key]bool{}, map[key]bool{}, map[place]time.Time{}
	for _, s := range open {
		was[s.key()] = true
	}
	for _, s := range held {
		is[s.key()] = true
		if s.Claim == "" { // several attachments of a node may have a claim's
			next[s.place()] = s.From
		}
	}
	for _, s := range open {
		if is[s.key()] {
			continue
		}
		end := now
		if began, ok := next[s.place()]; ok && began.Before(end) && !began.Before(s.From) {
			end = began
		}
		missed = append(missed, Event{Time: end, What: Freed, Holding: s.Holding, Late: true})
	}
	for _, s := range held {
		if !was[s.key()] {
			missed = append(missed, s.given())
		}
	}
	return missed
}
