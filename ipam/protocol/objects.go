package protocol

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
)

// Version is the number that this program writes into the `protocol` field of
// every lease and sub-lease. A writer that meets a higher number leaves the
// object alone: it cannot know what it would destroy.
const Version = 1

// Identifiers. They are distinct types so that one cannot be passed for another.
type (
	// UID is a Kubernetes object's UID.
	UID string
	// Revision is a Kubernetes resourceVersion: opaque but for equality here.
	Revision string
	// NodeName is the name of a Node.
	NodeName string
	// PoolName is the name of an IPPool, at most 63 characters.
	PoolName string
	// StoreID identifies one node store for as long as it exists.
	StoreID string
)

// Meta is what the API server adds to an object. The zero Meta is that of an
// object which has not been created.
type Meta struct {
	Name     string   `json:"name"`
	UID      UID      `json:"uid,omitempty"`
	Revision Revision `json:"revision,omitempty"`
	// Deleting says that a deletionTimestamp is set.
	Deleting bool `json:"deleting,omitempty"`
}

// A Holder is who may hand out a block's addresses: one node, or the cluster,
// on whose behalf the controller acts. The zero Holder is nobody.
type Holder struct {
	// Node is the node's name; empty where the cluster holds.
	Node NodeName `json:"node,omitempty"`
	// Cluster says that the controller hands out the block's addresses.
	Cluster bool `json:"cluster,omitempty"`
}

// String returns "node NAME", "the cluster" or "nobody".
func (h Holder) String() string {
	switch {
	case h.Cluster:
		return "the cluster"
	case h.Node != "":
		return "node " + string(h.Node)
	default:
		return "nobody"
	}
}

// A Grantee is to whom an address of a cluster-held block, or a ceded one, has
// been granted. Its UID identifies it among the pods of its Node, or among all else: that of a
// pod is a text that others may have written ([Grantee.Is]). The other fields are for people.
type Grantee struct {
	Kind      GranteeKind `json:"kind"`
	UID       UID         `json:"uid"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name,omitempty"`
	// Node is the node of a pod. Its agent tells whether the pod still runs there.
	Node NodeName `json:"node,omitempty"`
}

// Is reports whether g and o are one grantee.
func (g Grantee) Is(o Grantee) bool {
	return g.UID == o.UID && (g.Kind == GranteePod) == (o.Kind == GranteePod) && (g.Kind != GranteePod || g.Node == o.Node)
}

// String returns "claim NAMESPACE/NAME", "sub-lease NAME", "pod NAMESPACE/NAME, which
// another IPAM has given it to" or "reservation NAME".
func (g Grantee) String() string {
	switch g.Kind {
	case GranteeSubLease:
		return "sub-lease " + g.Name
	case GranteePod:
		if g.UID.Several() {
			return "nobody: several pods are said to have it by another IPAM"
		}
		return "pod " + g.Namespace + "/" + g.Name + ", which another IPAM has given it to"
	case GranteeReservation:
		return "reservation " + g.Name
	case GranteeClaim:
	}
	return "claim " + g.Namespace + "/" + g.Name
}

// GranteeKind says what kind of object a grant stands for.
type GranteeKind string

// The kinds of grantee.
const (
	GranteeClaim    GranteeKind = "Claim"
	GranteeSubLease GranteeKind = "SubLease"
	// GranteePod is a pod to which another IPAM has given the address.
	GranteePod         GranteeKind = "Pod"
	GranteeReservation GranteeKind = "Reservation"
)

// A Grant gives one address of a block to its grantee, or keeps it for it.
type Grant struct {
	Addr netip.Addr `json:"address"`
	To   Grantee    `json:"to"`
	// Freeing says that the controller wants the address back: a use that
	// reads it must not answer its ADD.
	Freeing bool `json:"freeing,omitempty"`
	// Mark tells one freeing from every other: it is the lease's revision before
	// Freeing was set, of which only one write can have been made. Between two reads
	// that show one mark the grant was marked all the time.
	Mark Revision `json:"mark,omitempty"`
}

// A Lease is the exclusive right of its holder to hand out a block's addresses
// (IPLease). Its name is a function of pool and block, so that the API server
// itself refuses a second lease of a block.
type Lease struct {
	Meta
	Protocol int
	Pool     PoolName
	PoolUID  UID
	Block    netip.Prefix
	Holder   Holder
	// Store and Term are the holder's: which store answers for the lease, and
	// in which of the registration's terms it last said so. Empty and 0 where the
	// cluster holds.
	Store StoreID
	Term  int64
	// Writes counts the fencing writes: each one raises it. The API calls it the turn.
	Writes int64
	// Ceded are the addresses that the holding node has given to the cluster.
	Ceded  []netip.Addr
	Grants []Grant
	// Published is what the holder last told people; zero if it has told nothing.
	Published Publication
}

// GrantsOf returns the grants of l to a claim, sub-lease or reservation of that UID, in the
// lease's order.
func (l Lease) GrantsOf(uid UID) []Grant {
	var own []Grant
	for _, g := range l.Grants {
		if g.To.UID == uid && g.To.Kind != GranteePod {
			own = append(own, g)
		}
	}
	return own
}

// GrantOf returns the grant of a, if a is granted.
func (l Lease) GrantOf(a netip.Addr) (Grant, bool) {
	i := slices.IndexFunc(l.Grants, func(g Grant) bool { return g.Addr == a })
	if i < 0 {
		return Grant{}, false
	}
	return l.Grants[i], true
}

// Clone returns a copy of l that shares no memory with it.
func (l Lease) Clone() Lease {
	l.Ceded, l.Grants = slices.Clone(l.Ceded), slices.Clone(l.Grants)
	return l
}

// PodRef names a pod, and whom it belongs to, as far as siblings are told by it.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       UID    `json:"uid,omitempty"`
	// Owner is the pod's controller, zero if it has none.
	Owner OwnerRef `json:"owner,omitzero"`
}

// String returns "namespace/name".
func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// OwnerRef names the controller of an object.
type OwnerRef struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
	UID  UID    `json:"uid,omitempty"`
}

// ClaimRef names an IPAMClaim.
type ClaimRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       UID    `json:"uid"`
}

// String returns "namespace/name".
func (c ClaimRef) String() string { return c.Namespace + "/" + c.Name }

// A SubLease (IPSubLease) is a node's request for, and record of, addresses
// granted out of blocks, or its use of a claim. Exactly one of Use and Request
// is set.
type SubLease struct {
	Meta
	Protocol int
	Node     NodeName
	Store    StoreID
	Term     int64
	Writes   int64
	Use      *Use
	Request  *Request
	// Granted or Refused is the controller's answer to a request, written once.
	Granted []Granted
	Refused *Refusal
}

// Answered reports whether the controller has answered the request of s.
func (s SubLease) Answered() bool { return len(s.Granted) > 0 || s.Refused != nil }

// Granted is an address that has been granted, and the lease that the grant stands
// on.
type Granted struct {
	Addr  netip.Addr
	Lease string
}

// A Refusal is why a request is not granted, and will not be.
type Refusal struct {
	// Reason is one word for programs, one of the Refused… constants of the API.
	Reason string
	// Message is for people, and says who has what was wanted.
	Message string
}

// RequestName returns the name of a new request of node: a hash of the node's
// name, which may be too long itself, and 64 random bits. It has no dot, so that
// it never is the name of a use.
func RequestName(node NodeName, random uint64) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node)) // a hash takes everything
	return fmt.Sprintf("%016x-%016x", h.Sum64(), random)
}

// A Use says that a node lets a pod use a claim's addresses. While it exists the
// claim's addresses are not freed.
type Use struct {
	Claim     ClaimRef `json:"claim"`
	Pod       PodRef   `json:"pod"`
	Interface string   `json:"interface"`
}

// UseName returns the name of use i, 0 or 1, of a claim. There are two names
// and not more: during a live migration two nodes use a claim, never three.
func UseName(claim UID, i int) string { return fmt.Sprintf("%s.%d", claim, i) }

// A Request asks the controller for addresses that the node has no block for.
type Request struct {
	Pod       PodRef   `json:"pod"`
	Interface string   `json:"interface"`
	Wants     []Wanted `json:"wants"`
}

// Wanted is one address that a [Request] asks for: any of the ranges of a pool.
type Wanted struct {
	Pool   PoolName `json:"pool"`
	Ranges []string `json:"ranges"` // "first-last", inclusive
}

// A Pool is what the protocol reads of an IPPool before it relies on a lease.
type Pool struct {
	Meta
	// Open says that blocks may be leased.
	Open bool
	// Epoch is the later of the pool's status.opening and status.waited; while it has neither, it
	// is when the pool was made. The first opening may keep that. Each later one has another text,
	// greater than those before, and so has each wait after which the pool stays closed.
	Epoch string
	// Generation is that of the spec, 0 where it is not known. Edited says that the controller
	// has not accepted this one yet: what is new of it may still be leased of another pool.
	Generation int64 `json:",omitempty"`
	Edited     bool  `json:"-"`
	// Ranges are those of the spec, from first to last address, with what they exclude.
	Ranges []netipx.IPRange `json:"-"`
	// Confirmed says that this pool's leases are taken from a dead node only if somebody vouches
	// that the machine is off.
	Confirmed bool
	// Bits is the prefix length of the pool's blocks, by family; 0 where the
	// controller has not decided it.
	Bits4, Bits6 int
}

// BlockBits returns the prefix length of p's blocks in the family of a.
func (p Pool) BlockBits(a netip.Addr) int {
	if a.Is4() {
		return p.Bits4
	}
	return p.Bits6
}

// Covers reports whether an address of block lies in p's ranges.
func (p Pool) Covers(block netip.Prefix) bool {
	b := netipx.RangeOfPrefix(block)
	return slices.ContainsFunc(p.Ranges, b.Overlaps)
}

// A Registration says who a node's agent is, that it is alive, and its term
// (a coordination Lease).
type Registration struct {
	Meta
	Node    NodeName
	NodeUID UID
	// Store, Machine and Boot are the agent's identity: it gives addresses only under a
	// registration that names all three.
	Store   StoreID
	Machine string
	Boot    string
	// Term is raised by whoever registers.
	Term int64
	// Fence is F, as this agent understands it; 0 means never by time.
	Fence time.Duration
	// Beat is the wall-clock time of the last heartbeat, for people: nobody
	// decides by another machine's clock.
	Beat time.Time
	// Writes counts the writes: each one raises it. The API calls it the turn.
	Writes int64
	// Recalls are what the controller asks the holder to cede.
	Recalls []Recall
	// Former are the agents that were registered before and may have left something: leases or
	// sub-leases of their stores.
	Former []Former
	// Restored says that the agent has seen the API server go back to an earlier
	// state, and whether it has put back what it holds: a [Restoration] as text; empty
	// if it has not seen that.
	Restored string
	// Query is what the controller asks about the pods on the node, "" for nothing, and
	// Report what the agent has answered: a [Query] and a [Report] as text.
	Query, Report string
	// Strangers are the addresses that the node has lately found strangers to have.
	Strangers []Stranger
	// Labels are those labels of the node that pools' node selectors name, as the controller has
	// copied them; empty if none are named. The protocol does not read them.
	Labels string
}

// A Stranger is somebody on a segment who has an address that a node was to give.
type Stranger struct {
	Pool PoolName   `json:"pool"`
	Addr netip.Addr `json:"address"`
	// MAC is the stranger's hardware address.
	MAC string `json:"mac"`
	// At is when it was found, by the node's wall clock. The node alone decides by it.
	At time.Time `json:"at"`
}

// A Former is an agent that was registered before: which, and until which term.
type Former struct {
	Store   StoreID       `json:"store"`
	Machine string        `json:"machine,omitempty"`
	Boot    string        `json:"boot,omitempty"`
	NodeUID UID           `json:"nodeUID,omitempty"`
	Term    int64         `json:"term"`
	Fence   time.Duration `json:"fence,omitempty"`
	// Ended says that the controller ended the term: what is left of that store in
	// Term or an earlier one is the cluster's, whoever is registered by now.
	Ended bool `json:"ended,omitempty"`
	// Vouched says that somebody has vouched, with the out-of-service taint, that
	// the machine is off: leases of pools that take no other word go too.
	Vouched bool `json:"vouched,omitempty"`
}

// Ended reports whether the controller has ended the term of the agent of s:
// none is registered.
func (s Registration) Ended() bool { return s.Store == "" }

// Registrant returns the agent that s names, as a former one.
func (s Registration) Registrant() Former {
	return Former{Store: s.Store, Machine: s.Machine, Boot: s.Boot, NodeUID: s.NodeUID, Term: s.Term, Fence: s.Fence}
}

// A Publication is what a holder tells people about one block. No right rests on
// it.
type Publication struct {
	Used, Free  int
	Allocations []string // "address namespace/pod interface", of a device with "resourceclaim/name"
	At          time.Time
	// Answered is the ID of the last recall that the holder has answered.
	Answered string
}
