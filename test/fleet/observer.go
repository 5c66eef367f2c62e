package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/history"
)

// Observer keeps the invariants I1 and I3 over everything that agents have answered. I1: in one
// domain, an address has at most one owner. The domain is the interface's, else the pool's name in
// the configuration; an owner is a claim, whichever pods use it, or else an interface of a pod. I3:
// a claim's addresses never change. It judges at once, by the order in which it is told; when the
// test ends, package history judges once more, by when calls began and ended.
type Observer struct {
	t       testing.TB
	history *history.History

	mu      sync.Mutex
	holders map[held]map[string]string // guarded by mu; the owner by place that has the address
	of      map[string][]held          // guarded by mu; what a place has
	fixed   map[string][]netip.Addr    // guarded by mu; a claim's addresses, as first seen
	lines   map[held][]line            // guarded by mu; what happened to an address, the last of it
	answers int                        // guarded by mu
}

type held struct {
	domain string
	addr   netip.Addr
}

// line is one line of an address's time line.
type line struct {
	at   time.Time
	text string
}

// maxLines bounds an address's time line.
const maxLines = 60

// ClaimKey is the key of [Interface.Top] that tells the observer which claim an
// interface uses: its name or, where claims of one name follow one another, its UID.
const ClaimKey = "claim-of-test"

// newObserver returns an observer that reports to t.
func newObserver(t testing.TB) *Observer {
	o := &Observer{
		t: t, history: history.New(), holders: map[held]map[string]string{}, of: map[string][]held{}, fixed: map[string][]netip.Addr{}, lines: map[held][]line{},
	}
	t.Cleanup(func() {
		for _, fault := range o.history.Faults() {
			t.Errorf("I1, I3: %s", fault)
		}
		t.Logf("porcupine has judged %d events", o.history.Events())
	})
	return o
}

func claimOwner(claim string) string { return "claim " + claim }

// ownerOf returns an owner as histories have it.
func ownerOf(who string) history.Owner {
	claim, ok := strings.CutPrefix(who, "claim ")
	if !ok {
		claim = who
	}
	return history.Owner{Name: claim, Claim: ok}
}

func placeOf(node string, i Interface) history.Place {
	return history.Place{Node: node, Interface: i.Network + " " + i.Sandbox + " " + i.IfName}
}

func texts(domain string, addrs []netip.Addr) []string {
	all := make([]string, len(addrs))
	for i, a := range addrs {
		all[i] = fmt.Sprintf("%v of %s", a, domain)
	}
	return all
}

func owner(i Interface) string {
	if claim, ok := i.Top[ClaimKey].(string); ok {
		return claimOwner(claim)
	}
	// A new sandbox of the same pod's interface is the same owner.
	if i.PodUID != "" {
		return "pod " + i.PodUID + " " + i.IfName + " " + i.Network
	}
	return "sandbox " + i.Sandbox + " " + i.IfName + " " + i.Network
}

func domain(i Interface) string {
	if i.Domain != "" {
		return i.Domain
	}
	for _, key := range []string{"pool", "network_name"} {
		if name, ok := i.IPAM[key].(string); ok {
			return name
		}
	}
	return fmt.Sprint(i.IPAM["pools"])
}

func place(node string, i Interface) string {
	return node + " " + i.Network + " " + i.Sandbox + " " + i.IfName
}

// added tells of an ADD that began then and is answered now.
func (o *Observer) added(began history.Moment, node string, i Interface, res *agentapi.Result) {
	var addrs []netip.Addr
	for _, ip := range res.IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	o.history.Got(began, placeOf(node, i), ownerOf(owner(i)), texts(domain(i), addrs))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers++
	where := place(node, i)
	if was := o.of[where]; len(was) > 0 && !slices.Equal(was, inDomain(domain(i), addrs)) {
		o.t.Errorf("I2: the repeated ADD of %s is answered with %v\n%s", where, addrs, o.timeLine(was...))
	}
	o.have(domain(i), addrs, where, owner(i))
}

// Claimed tells that a claim's status shows addresses, which are the claim's until
// Unclaimed, with a pod or without. It may be told again.
func (o *Observer) Claimed(domain, claim string, addrs []netip.Addr) {
	o.history.Got(o.history.Now(), history.OfClaim(claim), ownerOf(claimOwner(claim)), texts(domain, addrs))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.have(domain, addrs, claimOwner(claim), claimOwner(claim))
}

// Unclaimed tells that a claim is about to be deleted. Pods that use it keep its
// addresses.
func (o *Observer) Unclaimed(claim string) {
	o.history.Left(o.history.Now(), history.OfClaim(claim), false)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(claimOwner(claim), "deleted")
}

// Restored tells that the API server went back to an earlier state, before anybody can
// have an address that is free there. claims are the claims that are there, by UID, with
// their status's addresses: one that had others, or is gone, has nothing any more.
func (o *Observer) Restored(claims map[string][]netip.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for claim, had := range o.fixed {
		if !slices.Equal(claims[claim], had) {
			o.history.Undone(claim)
			o.leave(claimOwner(claim), "went with the API server's data")
			delete(o.fixed, claim)
		}
	}
}

// Void tells that what an interface has may be given to others, though its sandbox runs.
func (o *Observer) Void(node, network, sandbox, ifName string) {
	i := Interface{Network: network, Sandbox: sandbox, IfName: ifName}
	o.history.Left(o.history.Now(), placeOf(node, i), false)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(place(node, i), "is void")
}

// Off tells that a node is off, and whatever ran on it: others may have its
// addresses.
func (o *Observer) Off(node string) {
	o.history.Off(node)
	o.mu.Lock()
	defer o.mu.Unlock()
	for where := range o.of {
		if strings.HasPrefix(where, node+" ") {
			o.leave(where, "is off")
		}
	}
}

// have records that a place has addresses. o.mu must be held.
func (o *Observer) have(domain string, addrs []netip.Addr, where, who string) {
	hs := inDomain(domain, addrs)
	for _, h := range hs {
		o.note(h, "%s: %s has it", where, who)
		for there, other := range o.holders[h] {
			if other != who {
				o.t.Errorf("I1: %v of %s is answered to %s at %s while %s at %s has it\n%s", h.addr, domain, who, where, other, there, o.timeLine(h))
			}
		}
		if o.holders[h] == nil {
			o.holders[h] = map[string]string{}
		}
		o.holders[h][where] = who
	}
	o.of[where] = hs
	if claim, ok := strings.CutPrefix(who, "claim "); ok {
		if first, seen := o.fixed[claim]; seen && !slices.Equal(first, addrs) {
			o.t.Errorf("I3: claim %s had %v, and now %v\n%s", claim, first, addrs, o.timeLine(append(inDomain(domain, first), hs...)...))
		}
		o.fixed[claim] = addrs
	}
}

func inDomain(domain string, addrs []netip.Addr) []held {
	hs := make([]held, len(addrs))
	for i, a := range addrs {
		hs[i] = held{domain, a}
	}
	return hs
}

// deleting tells that a DEL begins, and returns what tells that it ends: answered, or not known
// whether it was done.
func (o *Observer) deleting(node string, i Interface) (end func(answered bool)) {
	began := o.history.Now()
	end = func(answered bool) { o.history.Left(began, placeOf(node, i), answered) }
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(place(node, i), "DEL")
	return end
}

// leave records that a place has nothing any more. o.mu must be held.
func (o *Observer) leave(where, why string) {
	for _, h := range o.of[where] {
		delete(o.holders[h], where)
		o.note(h, "%s: %s", where, why)
	}
	delete(o.of, where)
}

// note adds a line to an address's time line. o.mu must be held.
func (o *Observer) note(h held, format string, args ...any) {
	lines := append(o.lines[h], line{time.Now(), fmt.Sprintf(format, args...)})
	o.lines[h] = lines[max(0, len(lines)-maxLines):]
}

// timeLine says what happened to addresses. o.mu must be held.
func (o *Observer) timeLine(hs ...held) string {
	var b strings.Builder
	for _, h := range hs {
		fmt.Fprintf(&b, "  time line of %v of %s:\n", h.addr, h.domain)
		for _, l := range o.lines[h] {
			fmt.Fprintf(&b, "    %s %s\n", l.at.Format("15:04:05.000000"), l.text)
		}
	}
	return b.String()
}

// Held returns how many addresses are held now.
func (o *Observer) Held() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, places := range o.holders {
		if len(places) > 0 {
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
