package foreign

import (
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Facts are what one look has found, all of it read live: the pools before all else, and
// the leases before the sub-leases.
type Facts struct {
	Now         time.Time
	Definitions []Definition
	// Former are definitions as they were until a while ago, when they went or were written again;
	// Changed is when.
	Former []Definition
	Pods   []Pod
	// Others are the other pods that are bound to nodes and have not ended, by their objects' UIDs.
	Others map[protocol.UID]bool
	// Shown are addresses that the status of pods shows, whether they select the network or not, as
	// those do not that have it by default. They prove nothing: they are a reason to ask the nodes.
	Shown   []netip.Addr
	Records []Record
	// Reports are the answers of the nodes' agents.
	Reports map[protocol.NodeName]protocol.Report
	// Asked is what the nodes were asked for; nil is all. PassedOver is what is not waited for any
	// longer.
	Asked, PassedOver map[Word]bool

	Leases map[protocol.PoolName][]protocol.Lease
	// Kept is what is kept for pods, of all pools.
	Kept []Kept
	// SubLeases say which pods grants serve.
	SubLeases []protocol.SubLease
	// Agents are the nodes that have an agent, and whether it lives: what runs there, and by whose
	// word, it knows best.
	Agents map[protocol.NodeName]bool
}

// A Word is what the agent of a node has to say of a pool.
type Word struct {
	Node protocol.NodeName
	Pool protocol.PoolName
}

// Lives reports whether a node has an agent that lives, and that is waited for.
func (f *Facts) Lives(node protocol.NodeName, pool protocol.PoolName) bool {
	return f.Agents[node] && !f.PassedOver[Word{node, pool}]
}

// A Pool is a pool as a look sees it.
type Pool struct {
	Name protocol.PoolName
	// Object is the pool as leases name it: its UID, and the size of its blocks.
	Object protocol.Pool
	// Domain is the pool's, "" for the default domain, and Named that of its spec. Unnamed says
	// that the pool is of the default one, and has the ranges of definitions without a name.
	Domain, Named string
	Unnamed       bool
	// Made is when the pool was made, and Edited since when the controller has seen its spec as it
	// is. Opens says that it is open, or may be at any moment, and Begins that none of its free
	// addresses can be given before it is opened: it never was, or was stopped.
	Made, Edited  time.Time
	Opens, Begins bool
	// Deleted says that it goes when it has no lease.
	Deleted bool
	// Withheld are the addresses that an edit has added, and that are not given yet; nil is none.
	// Releases says that some of them may be given at any moment.
	Withheld *netipx.IPSet
	Releases bool
	// Implicit says that the controller has made it of definitions, and named its domain.
	Implicit bool
	// Whole is the shape of the spec, with what is withheld.
	Whole *allocator.Shape
	// New are the addresses that nobody has been given yet: those withheld, or all of a
	// pool that is about to be opened.
	New *netipx.IPSet
	// Since is when the pool has begun to take addresses over: pods that were bound to
	// their nodes before may have them by another IPAM, whatever their definition says
	// now. Zero is never.
	Since time.Time
	// CheckAll says that every address of the pool is checked: nothing of it was given yet, or
	// all of it is checked anew.
	CheckAll bool
	// Fresh says that the pool has never been open: no node can have given anything of it.
	Fresh bool
	// Fenced says that whereabouts has objects for addresses of the pool.
	Fenced bool
	// Watched says that the pool is open, and that another IPAM gives addresses of it as well, or
	// did so until a while ago.
	Watched bool
	// Kept are the addresses of the pool that are kept for pods of another IPAM. Where the look
	// before the pool is opened has found none, none are looked for among Tenure's own networks,
	// unless it is watched.
	Kept map[netip.Addr]protocol.Grantee
	// TrustStatus is a person's word that the pods' status shows all that pods have by another
	// IPAM, also where a node's agent cannot read that IPAM's files.
	TrustStatus bool
	// ShareWith are the definitions, and pools, of which a person says that they share nothing.
	ShareWith []string
	// MayUse reports whether a namespace may use the pool; nil is whether or not.
	MayUse func(namespace string) bool

	// What [Among] tells.
	among *others // the pools of the cluster, with this one
	meets []*Pool // those that have a range in common with this one, and may not be open beside it
}

// A Pod is a pod that is bound to a node and has not ended.
type Pod struct {
	protocol.PodRef
	// Runtime is the UID by which the runtime knows the pod: of a static pod it is not
	// that of its mirror.
	Runtime protocol.UID
	Node    protocol.NodeName
	// Bound is when it was bound to its node; zero if that is not known.
	Bound time.Time
	// Selected are the definitions that it selects, as namespace/name.
	Selected []string
	// Shows are the addresses that its status annotation shows, of definitions that it
	// selects.
	Shows []npwg.Shown
}

// uid returns the pod's UID as the runtime and the agents name it.
func (p Pod) uid() protocol.UID {
	if p.Runtime != "" {
		return p.Runtime
	}
	return p.UID
}

// on returns the pod as what is said of it tells it apart.
func (p Pod) on() podOn { return podOn{p.uid(), p.Node} }

// nameable reports whether a lease can name p as a grantee: what names p may be a text that others
// have written.
func (p Pod) nameable() bool {
	uid := p.uid()
	return uid != "" && !uid.Several() && len(uid) <= 64 && p.Name != "" && len(p.Name) <= 253 && len(p.Namespace) <= 63
}

// grantee returns p as whom an address is kept for.
func (p Pod) grantee() protocol.Grantee {
	return protocol.Grantee{Kind: protocol.GranteePod, UID: p.uid(), Namespace: p.Namespace, Name: p.Name, Node: p.Node}
}

// Selects reports whether p selects one of some definitions.
func (p Pod) Selects(of map[string]bool) bool {
	return slices.ContainsFunc(p.Selected, func(d string) bool { return of[d] })
}

// gives reports whether p can ever give an address.
func (p Pool) gives(a netip.Addr) bool { return p.Whole.Assignable(a) == nil }

// isLet reports whether a person says of d that the other IPAM which it names gives none of p's
// addresses.
func (p Pool) isLet(d Definition) bool {
	return d.IPAM != Type && slices.Contains(p.ShareWith, d.String())
}

// Others returns those definitions of p's segment by which another IPAM may give addresses of p,
// and these addresses, with those that other pools give: see [Pool.Besides].
func (p Pool) Others(all []Definition) (by []Definition, gives *netipx.IPSet) {
	var set netipx.IPSetBuilder
	set.AddSet(p.Taken())
	for _, d := range p.Segment(all) {
		if p.isLet(d) || !p.isOther(d) {
			continue
		}
		var both netipx.IPSetBuilder
		both.AddSet(d.Takes)
		both.Intersect(p.Whole.Usable())
		common, _ := both.IPSet() // of sets alone
		by = append(by, d)
		set.AddSet(common)
	}
	gives, _ = set.IPSet() // only sets were added
	return by, gives
}

// isOther reports whether another IPAM may give addresses of p by d.
func (p Pool) isOther(d Definition) bool {
	return d.IPAM != Type && d.Takes != nil && d.Takes.Overlaps(p.Whole.Usable())
}
