package grants

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An Ask asks for addresses for one grantee: one for each source and family, in
// the order IPv4, IPv6, all of them or none.
type Ask struct {
	To protocol.Grantee
	// From are the sources, in the network's order.
	From []Source
	// Exactly, if not empty, are the addresses wanted, each from another source. There may be
	// fewer of them than sources. They need not be ordinary, nor within a view.
	Exactly []netip.Addr
	// Requested are like Exactly, but each source without an address in Requested gives any
	// address. If Exactly is not empty, Requested is ignored.
	Requested []netip.Addr
	// Pod, if not empty, is the pod that the addresses are for, by its UID and node. An address
	// that is kept for it, because another IPAM gave it, may be granted.
	Pod protocol.Grantee
	// Stamp is the revision of the grantee that led to this ask, for [Answer.Stamp]. Two asks
	// that differ only in it are the same ask.
	Stamp protocol.Revision
}

// A Source is a pool of which addresses are wanted.
type Source struct {
	Pool protocol.PoolName
	View allocator.View
	// Families are the families of which one address each is wanted. Nil is every family that
	// the pool has. AsFar ignores families that the pool does not have.
	Families []allocator.Family
	AsFar    bool
	// Narrow, if not nil, returns the part of View that may be given of a pool of this shape.
	Narrow func(*allocator.Shape) allocator.View
	// Addr, if valid, is the only address that is wanted. It need not be ordinary.
	Addr netip.Addr
	// Spec, if not nil, is the pool's spec by which View was made. Nothing is granted
	// while the pool has another spec. An address in View may be for other nodes then.
	Spec *Spec

	search string // View as text, once the ask is in the book
}

// Spec names one version of the spec of one pool. No pool has the zero Spec.
type Spec struct {
	UID        protocol.UID
	Generation int64
}

// key identifies a. A claim, a request and a reservation have one ask each. A pod of another IPAM
// has one ask for each address of a pool that is kept for it: an address that cannot be had must
// not hold up the others.
func (a Ask) key() protocol.UID {
	if !a.keeps() {
		return a.To.UID
	}
	return keepKey(a.From[0].Pool, a.To.UID, a.From[0].Addr)
}

func keepKey(pool protocol.PoolName, pod protocol.UID, addr netip.Addr) protocol.UID {
	return protocol.UID(string(pool) + " " + string(pod) + " " + addr.String())
}

// keeps reports whether a asks to keep an address for a pod that has it already, by another IPAM.
// Such an address is kept also while the pool is not open: the pool waits for it.
func (a Ask) keeps() bool { return a.To.Kind == protocol.GranteePod }

// equal reports whether a and o ask for the same.
func (a Ask) equal(o Ask) bool {
	return a.To == o.To && a.Pod == o.Pod && slices.Equal(a.Exactly, o.Exactly) && slices.Equal(a.Requested, o.Requested) &&
		slices.EqualFunc(a.From, o.From, func(x, y Source) bool {
			return x.Pool == y.Pool && x.Addr == y.Addr && x.View.Equal(y.View) &&
				slices.Equal(x.Families, y.Families) && x.AsFar == y.AsFar &&
				(x.Narrow == nil) == (y.Narrow == nil) &&
				x.Spec.is(y.Spec)
		})
}

func (s *Spec) is(o *Spec) bool { return s == o || s != nil && o != nil && *s == *o }

// prepare returns a with what is worked out once for all its tries.
func (a Ask) prepare() Ask {
	a.From = slices.Clone(a.From)
	for i := range a.From {
		a.From[i].search = a.From[i].View.String()
	}
	return a
}

// Granted is an address that has been granted, and what it was granted for.
type Granted struct {
	Addr netip.Addr
	// Range is the pool's range that the address lies in.
	Range allocator.Range
	// Source is the index, in [Ask.From], of what asked for it.
	Source int
}

// An Answer is what became of an [Ask] so far.
type Answer struct {
	// Granted are the addresses, in the order of [Ask]; nil while the ask waits.
	Granted []Granted
	// Stamp is a revision of the grantee that was read before each of the grants was last seen
	// live. A status write that carries it fails if somebody gave the grants back meanwhile: see
	// [Broker.Verify]. It is empty if no such revision is known.
	Stamp protocol.Revision
	// Problem is why the ask waits; zero if it is being worked on.
	Problem Problem
}

// A Problem is why an [Ask] cannot be granted now. It is tried again when the
// pool changes. The zero Problem is none.
type Problem struct {
	Reason Reason
	// Message is a sentence for people.
	Message string
	// Since is when the ask was first found to have a problem of this reason.
	Since time.Time
	// Addr is the address, and Lease the name of its lease, for the reasons Taken and Silent.
	Addr  netip.Addr
	Lease string
	// Lasting says that only a person can solve a PoolNotReady.
	Lasting bool
}

// Reason says what kind of [Problem] there is.
type Reason uint8

// The reasons.
const (
	NoProblem Reason = iota
	// PoolMissing: there is no such pool.
	PoolMissing
	// PoolNotReady: the pool is closed, faulty or being deleted.
	PoolNotReady
	// Exhausted: the pool, or the part of it that may be taken, has no free address, and the
	// nodes that were asked to cede some have none free or do not answer.
	Exhausted
	// Taken: an address asked for by name belongs to somebody else, or its node was asked for it
	// and has not ceded it.
	Taken
	// Silent: an address asked for by name lies in a block of a node that does not
	// answer.
	Silent
	// Unassignable: the pools never give an address that was asked for by name.
	Unassignable
	// Failed: a call failed; it is made again.
	Failed
)

// String returns the reason as a word.
func (r Reason) String() string {
	names := [...]string{"NoProblem", "PoolMissing", "PoolNotReady", "Exhausted", "Taken", "Silent", "Unassignable", "Failed"}
	if int(r) >= len(names) {
		return fmt.Sprintf("Reason(%d)", uint8(r))
	}
	return names[r]
}

func problem(r Reason, format string, args ...any) Problem {
	return Problem{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// want is one address that an ask wants.
type want struct {
	source int
	pool   *pool
	family allocator.Family
	view   allocator.View
	search string     // view as text
	addr   netip.Addr // exactly this one; zero is any
	// strict says that an address which was granted outside the view, or is being freed, does
	// not fit.
	strict bool
	keeps  bool             // see [Ask.keeps]
	pod    protocol.Grantee // see [Ask.Pod]
}

// fits reports whether h is what w asked for. For a claim the view does not matter: it says what
// may be handed out, not what may be kept. An address that is being freed fits only a want that
// names it.
func (w want) fits(h Held) bool {
	a := h.Grant.Addr
	if h.Pool != w.pool.name || allocator.FamilyOf(a) != w.family {
		return false
	}
	if w.strict && (h.Grant.Freeing || !w.view.Contains(a)) {
		return false
	}
	if w.addr.IsValid() {
		return a == w.addr
	}
	_, located := w.pool.state.Shape.Locate(a)
	return located && !h.Grant.Freeing
}

// fitsWithin reports whether h is what w asked for and may be handed out for it.
func (w want) fitsWithin(h Held) bool { return w.fits(h) && w.view.Contains(h.Grant.Addr) }

// expand returns what a wants, one element for each address.
func (b *book) expand(a Ask) ([]want, Problem) {
	var wants []want
	for _, f := range allocator.Families() {
		for i, src := range a.From {
			p := b.pools[src.Pool]
			if p == nil || p.state.UID == "" {
				return nil, problem(PoolMissing, "pool %s does not exist", src.Pool)
			}
			if bad := p.unready(a.keeps()); bad.Reason != NoProblem {
				return nil, bad
			}
			if src.Spec != nil && *src.Spec != (Spec{p.state.UID, p.state.Generation}) {
				return nil, problem(PoolNotReady,
					"pool %s was made or edited a moment ago", p.name)
			}
			if p.state.Sourced && a.To.Kind != protocol.GranteeClaim {
				return nil, problem(Unassignable, "pool %s has its addresses from Neutron, and IPAMClaims alone get some of it", p.name)
			}
			families := src.Families
			if families == nil {
				families = p.state.Shape.Families()
			}
			if !slices.Contains(families, f) || src.AsFar && !slices.Contains(p.state.Shape.Families(), f) {
				continue
			}
			view, search := src.View, src.search
			if src.Narrow != nil {
				view = src.Narrow(p.state.Shape)
				search = view.String()
			}
			w := want{
				source: i, pool: p, family: f, view: view, search: search, addr: src.Addr,
				strict: a.To.Kind == protocol.GranteeSubLease, keeps: a.keeps(), pod: a.Pod,
			}
			if why := w.unassignable(); why != "" {
				return nil, problem(Unassignable, "%s", why)
			}
			wants = append(wants, w)
		}
	}
	if len(wants) == 0 {
		return nil, problem(PoolNotReady, "the network's pools have no addresses")
	}
	if len(a.Exactly) == 0 {
		_, bad := name(wants, a.Requested)
		return wants, bad
	}
	return name(wants, a.Exactly)
}

// name gives each of addrs to another of wants, and returns the wants that have got one.
func name(wants []want, addrs []netip.Addr) ([]want, Problem) {
	named := make([]bool, len(wants))
	for _, a := range addrs {
		why := error(nil)
		i := slices.IndexFunc(wants, func(w want) bool {
			if w.addr.IsValid() || allocator.FamilyOf(a) != w.family {
				return false
			}
			if err := w.pool.state.Shape.Assignable(a); err != nil {
				why = fmt.Errorf("pool %s: %w", w.pool.name, err)
				return false
			}
			return true
		})
		switch {
		case i >= 0:
			wants[i].addr, named[i] = a, true
		case why != nil:
			return nil, problem(Unassignable, "%v: %v", a, why)
		default:
			return nil, problem(Unassignable, "%v is one address more than the network gives", a)
		}
	}
	var kept []want
	for i, w := range wants {
		if named[i] {
			kept = append(kept, w)
		}
	}
	return kept, Problem{}
}

// unassignable returns why the pool can never give what w wants, or nothing.
func (w want) unassignable() string {
	shape := w.pool.state.Shape
	if w.keeps {
		return "" // it may be withheld until it is kept, and is not assignable until then
	}
	if w.addr.IsValid() {
		if err := shape.Assignable(w.addr); err != nil {
			return fmt.Sprintf("%v: pool %s: %v", w.addr, w.pool.name, err)
		}
		return ""
	}
	if _, ok := shape.NextBlock(w.family, w.family.BitLen(), w.view, netip.Addr{}); !ok && w.strict {
		return fmt.Sprintf("pool %s has no ordinary address within %s", w.pool.name, shorten(w.view.String()))
	}
	return ""
}

// match gives each want an element of held that fits it. Each element is given once, and as many
// wants as possible get one. It prefers elements within the wants' views, by which alone two wants
// of one pool differ. A want that gets none has the zero Held in given, and then all is false.
func match(wants []want, held []Held) (given []Held, all bool) {
	of := make([]int, len(held)) // the want, plus one, that has an element
	var give func(i int, fits func(want, Held) bool, tried []bool) bool
	give = func(i int, fits func(want, Held) bool, tried []bool) bool {
		for j, h := range held {
			if of[j] == 0 && fits(wants[i], h) {
				of[j] = i + 1
				return true
			}
		}
		for j, h := range held {
			if tried[j] || !fits(wants[i], h) {
				continue
			}
			tried[j] = true
			if give(of[j]-1, fits, tried) { // whoever has it takes another
				of[j] = i + 1
				return true
			}
		}
		return false
	}
	for _, fits := range []func(want, Held) bool{want.fitsWithin, want.fits} {
		all = true
		for i := range wants {
			all = (slices.Contains(of, i+1) || give(i, fits, make([]bool, len(held)))) && all
		}
	}
	given = make([]Held, len(wants))
	for j, i := range of {
		if i > 0 {
			given[i-1] = held[j]
		}
	}
	return given, all
}
