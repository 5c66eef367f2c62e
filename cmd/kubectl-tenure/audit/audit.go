// Package audit looks, in what the objects of a cluster say, for what the rules of
// Tenure forbid: an address with two owners, a right that nothing backs, an address
// that nobody gives back. It is pure: whoever reads the cluster hands in what was read.
package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A State is what was read of a cluster. Leases must have been read before sub-leases,
// and these before claims and pods: what stands on a lease is older than the lists that
// it is looked up in.
type State struct {
	Now       time.Time // by the API server's clock
	Pools     []Pool
	Leases    []protocol.Lease
	SubLeases []protocol.SubLease
	Claims    []Claim
	Pods      []Pod
	// LetGo are those of [State.Alone] that are not allocated to their ResourceClaims any more.
	LetGo map[Device]bool
	// Faulty are the NetworkAttachmentDefinitions of Tenure's that cannot be used.
	Faulty []Unreadable
	// Nameless are the Services that ask for names of addresses and get none.
	Nameless []Unreadable
	// Reservations are the UIDs of the IPReservations that there are.
	Reservations map[protocol.UID]bool
	Nodes        map[protocol.NodeName]protocol.Node
	// Registrations are by their nodes. The Beat of each is by the API server's clock where that
	// is known, else by its node's.
	Registrations map[protocol.NodeName]protocol.Registration
	// NotReady are the Nodes whose kubelet does not answer, or says that it is not ready.
	NotReady map[protocol.NodeName]bool
	// Webhooks tells of the certificate of PodNetworks' webhooks, nil where there are none.
	Webhooks *Webhooks
	// Unreadable are the objects that say what nobody understands.
	Unreadable []Unreadable
}

// An Unreadable is an object that cannot be read: kind and name, and why.
type Unreadable struct{ Object, Why string }

// A Pool is what decides about a pool's addresses.
type Pool struct {
	protocol.Pool
	// Shape is nil where the ranges cannot be read.
	Shape *allocator.Shape
	// Overlaps says, in the words of the pool's condition, with which pools it shares addresses;
	// empty if with none.
	Overlaps string
	// Strangers says, in the words of the pool's condition, which addresses strangers have; empty:
	// none.
	Strangers string
	// PinsTaken says, in the words of the pool's condition, which subnets of nodes others have;
	// empty: none.
	PinsTaken string
}

// A Claim is a claim, and the pools of its network: none where that is not Tenure's.
type Claim struct {
	protocol.Claim
	Pools []protocol.PoolName
}

// A Pod is a pod that runs, or will: finished ones have given back what they had.
type Pod struct {
	protocol.PodRef
	// MirrorOf is the UID by which the node knows a static pod, "" for others.
	MirrorOf protocol.UID
	Node     protocol.NodeName
	// Leaving says that it is being deleted, or that it has no sandbox any more, or not
	// yet: it may have given back what it had.
	Leaving     bool
	Attachments []Attachment
	// Lacks are the networks that it selects, where nobody has said that he attached its present
	// sandbox, which was made at Since.
	Lacks []string
	Since time.Time
}

// An Attachment is what a pod's status annotation says of a network of Tenure's.
type Attachment struct {
	Interface string
	Pools     []protocol.PoolName
	Addrs     []netip.Addr
	// HostLocal says that the network is described in host-local's form: host-local may have given
	// the addresses before it was Tenure's.
	HostLocal bool
}

// A Device is a device that a pod has by a ResourceClaim.
type Device struct{ Namespace, ResourceClaim, Name string }

// Alone returns the devices that have addresses by what nodes have published, and whose pods are
// not there.
func (s State) Alone() (all []Device) {
	there := map[string]bool{}
	for i := range s.Pods {
		there[s.Pods[i].String()] = true
	}
	for i := range s.Leases {
		for _, text := range s.Leases[i].Published.Allocations {
			if _, pod, d := allocationOf(text); d != (Device{}) && !there[pod] {
				all = append(all, d)
			}
		}
	}
	return all
}

// allocationOf reads what a node has published: the address, the pod, and of a device that.
func allocationOf(text string) (addr, pod string, d Device) {
	words := strings.Fields(text)
	if len(words) == 4 {
		name, ok := strings.CutPrefix(words[3], "resourceclaim/")
		if !ok {
			return "", "", d
		}
		d.Namespace, _, _ = strings.Cut(words[1], "/")
		d.ResourceClaim, d.Name = name, words[2]
	} else if len(words) != 3 {
		return "", "", d
	}
	return words[0], words[1], d
}

// A Rule is what a finding is about.
type Rule string

// The rules. Those of the first group are broken as soon as they are seen to be; what
// the second group finds comes back by itself within its time, or is stuck.
const (
	TwoOwners      Rule = "TwoOwners"      // an address has two owners
	TwoLeases      Rule = "TwoLeases"      // two leases of a pool share addresses
	PodNotBacked   Rule = "PodNotBacked"   // no lease backs a pod's address
	ClaimNotBacked Rule = "ClaimNotBacked" // no lease backs a claim's address
	UseNotBacked   Rule = "UseNotBacked"   // a sub-lease stands on no lease
	PoolGone       Rule = "PoolGone"       // a lease is of a pool that is gone
	NodeGone       Rule = "NodeGone"       // a node that is gone holds leases
	NodeSilent     Rule = "NodeSilent"     // a node gives out nothing, and keeps what it holds
	StoreUnknown   Rule = "StoreUnknown"   // nobody knows whose a lease is
	NotAttached    Rule = "NotAttached"    // a pod runs without the networks that it selects
	NotUnderstood  Rule = "NotUnderstood"  // an object cannot be read
	PoolsOverlap   Rule = "PoolsOverlap"   // two pools share addresses

	GrantLeaked      Rule = "GrantLeaked"      // a grant's claim or request is gone
	SubLeaseLeaked   Rule = "SubLeaseLeaked"   // a sub-lease's pod is gone
	AllocationLeaked Rule = "AllocationLeaked" // a node's address is of a pod that is gone
	ForeignLeaked    Rule = "ForeignLeaked"    // an address is kept for a pod of another IPAM that is gone
	StoreFrozen      Rule = "StoreFrozen"      // a node's lease is of an earlier store
	AddressOutside   Rule = "AddressOutside"   // an address lies outside its pool's ranges
	DefinitionFaulty Rule = "DefinitionFaulty" // a network definition cannot be used
	NamesAbsent      Rule = "NamesAbsent"      // a Service asks for names, and gets none
	StrangerFound    Rule = "StrangerFound"    // a stranger has an address of a pool
	PinsTaken        Rule = "PinsTaken"        // a subnet that is pinned to a node is another's
	NoAgent          Rule = "NoAgent"          // nodes have no agent, and never had one
	WebhooksUnused   Rule = "WebhooksUnused"   // the API server does not call the webhooks, or not for long
)

// settles is how long the rules of the second group allow what they find, by the times
// that Tenure promises and some room; never is for what harms nobody.
var settles = map[Rule]time.Duration{
	GrantLeaked: time.Minute, SubLeaseLeaked: 4 * time.Minute, AllocationLeaked: 5 * time.Minute, ForeignLeaked: 5 * time.Minute,
	StoreFrozen: never, AddressOutside: never, DefinitionFaulty: never, NamesAbsent: never, StrangerFound: never, PinsTaken: never, NoAgent: never, WebhooksUnused: never,
}

const never = time.Duration(1<<63 - 1)

// SaysWithin is how long after a sandbox was made its node has to say what it was attached to.
const SaysWithin = 10 * time.Second

// A Finding is one thing that is not as it must be.
type Finding struct {
	Rule   Rule   `json:"rule"`
	Object string `json:"object"` // kind and name
	// Pool and Address are empty where it is not about one.
	Pool    string `json:"pool,omitempty"`
	Address string `json:"address,omitempty"`
	What    string `json:"what"`
	Remedy  string `json:"remedy"`
	// Wrong says that something is wrong; else it is worth knowing, and either nobody
	// is harmed or it may still come back by itself.
	Wrong bool `json:"wrong"`
	// Settling says that it should come back by itself, and has not been seen for as long
	// as that takes.
	Settling bool `json:"settling,omitempty"`

	// whose are the owners that it is about, by their keys, where others may come to own
	// the same object or address.
	whose string
	// beat is the last heartbeat of a node that is gone, zero where it is not about that.
	beat time.Time
}

// key tells what a finding is about from everything else.
func (f Finding) key() [5]string {
	return [5]string{string(f.Rule), f.Object, f.Pool, f.Address, f.whose}
}

// Lasting returns those of now that before had found as well, apart later. What a look
// sees for the first time may be no more than two lists that were read one after the
// other; and what comes back by itself is wrong only if it has not within its time.
func Lasting(before, now []Finding, apart time.Duration) (last []Finding) {
	seen := map[[5]string]Finding{}
	for _, f := range before {
		seen[f.key()] = f
	}
	for _, f := range now {
		first, ok := seen[f.key()]
		if !ok {
			continue
		}
		if !f.beat.IsZero() && !first.beat.IsZero() && !f.beat.Equal(first.beat) {
			f.What += ", and its agent still beats"
			f.Remedy = "the machine runs: let its kubelet register the Node again, or stop the machine"
			f.Wrong = true
		}
		if within, ok := settles[f.Rule]; ok {
			f.Wrong = apart >= within
			f.Settling = !f.Wrong && within != never
			if f.Settling {
				f.Remedy = fmt.Sprintf("none yet: it has been seen for %v, and should come back by itself within %v; --apart=%v tells. If it stays: %s", apart, within, within, f.Remedy)
			}
		}
		last = append(last, f)
	}
	return last
}

// Look returns what one look finds, what is wrong first, ordered by rule and object.
func Look(s State) []Finding {
	l := newLook(s)
	l.conditions()
	l.definitions()
	l.names()
	l.leasesApart()
	l.leases()
	l.grants()
	l.claims()
	l.subLeases()
	l.pods()
	l.owners()
	l.nodes()
	l.webhooks()
	for _, u := range s.Unreadable {
		l.add(NotUnderstood, u.Object, place{}, "it cannot be read as a whole, and what cannot is left out: "+u.Why, "correct what it says, or see who has written it; a newer Tenure may understand it")
	}
	slices.SortFunc(l.found, func(a, b Finding) int {
		if a.Wrong != b.Wrong {
			return map[bool]int{true: -1, false: 1}[a.Wrong]
		}
		ka, kb := a.key(), b.key()
		return slices.Compare(ka[:], kb[:])
	})
	return l.found
}

// look is one look at a state.
type look struct {
	State
	pools  map[protocol.PoolName]*Pool
	byPool map[protocol.PoolName][]*protocol.Lease // in order of their blocks
	// lengths are the prefix lengths of a pool's leases' blocks, longest first.
	lengths map[protocol.PoolName][]int
	claim   map[protocol.UID]*Claim
	sub     map[protocol.UID]*protocol.SubLease
	pod     map[protocol.UID]*Pod
	named   map[string]bool                       // pods, as namespace/name
	uses    map[protocol.UID][]*protocol.SubLease // by the claim's UID
	held    map[protocol.UID]map[place]bool       // what is granted to a UID
	owner   map[place][]owner                     // who says that an address is its
	found   []Finding
}

// place is an address in its pool.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

func newLook(s State) *look {
	l := &look{
		State: s, pools: map[protocol.PoolName]*Pool{}, byPool: map[protocol.PoolName][]*protocol.Lease{}, lengths: map[protocol.PoolName][]int{}, claim: map[protocol.UID]*Claim{},
		sub: map[protocol.UID]*protocol.SubLease{}, pod: map[protocol.UID]*Pod{}, named: map[string]bool{}, uses: map[protocol.UID][]*protocol.SubLease{},
		held: map[protocol.UID]map[place]bool{}, owner: map[place][]owner{},
	}
	for i := range s.Pools {
		l.pools[protocol.PoolName(s.Pools[i].Name)] = &s.Pools[i]
	}
	for i := range s.Leases {
		lease := &s.Leases[i]
		l.byPool[lease.Pool] = append(l.byPool[lease.Pool], lease)
		for _, g := range lease.Grants {
			if l.held[g.To.UID] == nil {
				l.held[g.To.UID] = map[place]bool{}
			}
			l.held[g.To.UID][place{lease.Pool, g.Addr}] = true
		}
	}
	for pool, leases := range l.byPool {
		slices.SortFunc(leases, func(a, b *protocol.Lease) int { return a.Block.Compare(b.Block) })
		var lengths []int
		for _, lease := range leases {
			lengths = append(lengths, lease.Block.Bits())
		}
		slices.Sort(lengths)
		lengths = slices.Compact(lengths)
		slices.Reverse(lengths)
		l.lengths[pool] = lengths
	}
	for i := range s.SubLeases {
		sub := &s.SubLeases[i]
		l.sub[sub.UID] = sub
		if sub.Use != nil {
			l.uses[sub.Use.Claim.UID] = append(l.uses[sub.Use.Claim.UID], sub)
		}
	}
	for i := range s.Claims {
		l.claim[s.Claims[i].UID] = &s.Claims[i]
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		l.pod[p.UID], l.named[p.String()] = p, true
		if p.MirrorOf != "" {
			l.pod[p.MirrorOf] = p
		}
	}
	return l
}

// add adds a finding. What a rule of the first group finds is wrong.
func (l *look) add(rule Rule, object string, at place, what, remedy string) {
	_, settling := settles[rule]
	f := Finding{Rule: rule, Object: object, Pool: string(at.pool), What: what, Remedy: remedy, Wrong: !settling}
	if at.addr.IsValid() {
		f.Address = at.addr.String()
	}
	l.found = append(l.found, f)
}

// note adds a finding that is worth knowing, and not wrong yet.
func (l *look) note(rule Rule, object string, at place, what, remedy string) {
	l.add(rule, object, at, what, remedy)
	l.found[len(l.found)-1].Wrong = false
}

// about says whose the last finding is.
func (l *look) about(whose string) { l.found[len(l.found)-1].whose = whose }

// leasesAt returns the leases whose blocks have an address, those of the smallest first.
// There should be no more than one.
func (l *look) leasesAt(at place) (found []*protocol.Lease) {
	all := l.byPool[at.pool]
	for _, bits := range l.lengths[at.pool] {
		block, err := at.addr.Prefix(bits)
		if err != nil { // the length is one of the other family
			continue
		}
		i, _ := slices.BinarySearchFunc(all, block, func(lease *protocol.Lease, block netip.Prefix) int { return lease.Block.Compare(block) })
		for ; i < len(all) && all[i].Block == block; i++ {
			found = append(found, all[i])
		}
	}
	return found
}

// placeOf returns in which of some pools an address is: the one that leases it, or
// else has it in its ranges.
func (l *look) placeOf(pools []protocol.PoolName, a netip.Addr) (place, bool) {
	for _, pool := range pools {
		if at := (place{pool, a}); len(l.leasesAt(at)) > 0 {
			return at, true
		}
	}
	for _, pool := range pools {
		if p := l.pools[pool]; p != nil && p.Shape != nil {
			if _, ok := p.Shape.Locate(a); ok {
				return place{pool, a}, true
			}
		}
	}
	return place{}, false
}
