package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/wire"
)

// Observer keeps invariant I1 over everything that agents have answered: in one
// domain, an address has at most one owner. The domain is the pool's name in the
// configuration; an owner is a claim, or else an interface of a sandbox.
type Observer struct {
	t testing.TB

	mu      sync.Mutex
	owner   map[held]map[string]bool // guarded by mu; interfaces that have it
	of      map[string][]held        // guarded by mu; by node and interface
	answers int                      // guarded by mu
}

type held struct {
	domain string
	addr   netip.Addr
}

// NewObserver returns an observer that reports to t.
func NewObserver(t testing.TB) *Observer {
	return &Observer{t: t, owner: map[held]map[string]bool{}, of: map[string][]held{}}
}

func owner(i Interface) string {
	if claim, ok := i.Top["claim-of-test"].(string); ok {
		return "claim " + claim
	}
	// A new sandbox of the same pod's interface is the same owner.
	if i.PodUID != "" {
		return "pod " + i.PodUID + " " + i.IfName + " " + i.Network
	}
	return "sandbox " + i.Sandbox + " " + i.IfName + " " + i.Network
}

func domain(i Interface) string {
	return fmt.Sprint(i.IPAM["pool"], i.IPAM["pools"], i.IPAM["network_name"])
}

func (o *Observer) added(node string, i Interface, res *wire.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers++
	who, place := owner(i), node+" "+i.Network+" "+i.Sandbox+" "+i.IfName
	for _, ip := range res.IPs {
		h := held{domain(i), ip.Address.Addr()}
		for other := range o.owner[h] {
			if other != who {
				o.t.Errorf("I1: %v of %s answered to %s on %s while %s has it", h.addr, h.domain, who, node, other)
			}
		}
		if o.owner[h] == nil {
			o.owner[h] = map[string]bool{}
		}
		o.owner[h][who] = true
		o.of[place] = append(o.of[place], h)
	}
}

func (o *Observer) deleting(node string, i Interface) {
	o.mu.Lock()
	defer o.mu.Unlock()
	place := node + " " + i.Network + " " + i.Sandbox + " " + i.IfName
	mine := o.of[place]
	delete(o.of, place)
	who := owner(i)
	for _, h := range mine {
		if !o.stillHeld(h) {
			delete(o.owner[h], who)
		}
	}
}

// stillHeld reports whether another attachment of the same owner has h. o.mu must
// be held.
func (o *Observer) stillHeld(h held) bool {
	for _, hs := range o.of {
		if slices.Contains(hs, h) {
			return true
		}
	}
	return false
}

// Held returns how many addresses are held now.
func (o *Observer) Held() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, owners := range o.owner {
		if len(owners) > 0 {
			n++
		}
	}
	return n
}

// Answers returns how many ADDs have been answered with addresses.
func (o *Observer) Answers() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answers
}
