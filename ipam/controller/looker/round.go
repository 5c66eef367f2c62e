package looker

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// round is one look on its way.
type round struct {
	*Looker
	facts    foreign.Facts
	calls    int
	waiting  []*waiting
	watching bool // there are pools beside which another IPAM gives addresses
	soon     bool // a pool waits for no look, but for a moment to pass
	verdicts map[protocol.PoolName]foreign.Verdict
	// served says that there are whereabouts' objects, of which these are its IPPools.
	served  bool
	objects []object

	id         string                                           // of the look that nodes are asked, "" if none are
	nodes      []protocol.NodeName                              // that are asked
	silent     []protocol.NodeName                              // of these, those that live and have not answered
	candidates map[protocol.PoolName]map[protocol.NodeName]bool // that are asked for each pool
	ended      map[protocol.NodeName]bool                       // whose registration's term was ended
	registered map[protocol.NodeName]bool                       // that have a registration with somebody on it
	// without says of nodes that were looked at whether there is no Node of their name.
	without map[protocol.NodeName]bool
	unread  error // why what whereabouts has recorded cannot be read
}

// object is one of whereabouts' IPPools.
type object struct {
	name   string
	covers netip.Prefix
}

// ending is since when an address has been seen without its pod.
type ending struct {
	pod   protocol.UID
	since time.Time
}

// fence is what a pool says of whereabouts' IPPools that give nothing new, and since when
// that has been seen.
type fence struct {
	of    string
	since time.Time
}

// place is an address of a pool.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

// waiting is a pool that waits for a look.
type waiting struct {
	pool   foreign.Pool
	uid    protocol.UID
	bars   int // to be kept, and not yet kept
	unkept string
}

// cause reports whether there is a cause to look.
func (t *round) cause() bool {
	return len(t.waiting) > 0 || t.watching || len(t.Broker.Kept()) > 0 || len(t.asking) > 0
}

// consider works out what is to be found out about a pool.
func (t *round) consider(o *v1alpha1.IPPool) {
	whole, err := poolspec.ParsePool(kube.SpecText(o))
	if err != nil || o.DeletionTimestamp != nil {
		return
	}
	open := o.Status.Leasing == v1alpha1.LeasingOpen
	p := foreign.Pool{
		Name: protocol.PoolName(o.Name), Domain: o.Spec.Domain, Whole: whole, ShareWith: o.Spec.ShareWith,
		TrustStatus: foreign.TrustsStatus(o),
	}
	if poolspec.InDefaultDomain(o.Name, o.Spec.Domain) {
		p.Domain, p.Unnamed = "", true
	}
	p.Kept = slices.ContainsFunc(t.Broker.Kept(), func(h grants.Held) bool { return h.Pool == p.Name })
	if o.Status.FencedSince != nil {
		p.Since = o.Status.FencedSince.Time
	}
	v := foreign.Verdict{Of: foreign.StateOf(o)}
	if o.Spec.Allocation == v1alpha1.AllocationStopped { // another IPAM may be about to give its addresses
		t.verdicts[p.Name] = v
		return
	}
	v.Others, v.Blocked = p.Others(t.facts.Definitions)
	p.New = newOf(o, whole, v.Blocked)
	v.Fence = o.Status.Fenced
	if waits(*o) && t.unread == nil {
		v.Fence = t.fence(p)
	}
	switch {
	case t.unread != nil && waits(*o):
		v.Why = "what whereabouts has recorded cannot be read: " + t.unread.Error()
	case open && len(p.New.Ranges()) == 0:
		v.Clear = true // nothing of it waits
	case !open && o.Status.Opening == "" && len(v.Others) > 0:
		v.Why = "another IPAM may still give its addresses"
	case !open && o.Status.FencedSince == nil, !slices.Equal(v.Fence, o.Status.Fenced), o.Status.BlockPrefixLengths == nil:
		v.Why, t.soon = "it has yet to be taken over from other IPAMs", true // the reconciler writes that first
	case len(v.Fence) > 0 && t.facts.Now.Sub(t.fences[o.Name].since) < fenceWithin:
		v.Why, t.soon = "the API servers have yet to hear that whereabouts gives none of its addresses any more", true
	default:
		p.Opening, p.Fenced = !open, len(v.Fence) > 0
		t.waiting = append(t.waiting, &waiting{pool: p, uid: protocol.UID(o.UID)})
	}
	t.verdicts[p.Name] = v
	t.facts.Pools = append(t.facts.Pools, p)
	t.watching = t.watching || open && len(v.Others) > 0
}

// newOf returns the addresses of a pool that nobody has been given yet, without blocked.
func newOf(o *v1alpha1.IPPool, whole *allocator.Shape, blocked *netipx.IPSet) *netipx.IPSet {
	var b netipx.IPSetBuilder
	if o.Status.Leasing != v1alpha1.LeasingOpen {
		b.AddSet(whole.Usable())
	}
	for _, text := range o.Status.Withheld {
		if r, err := netipx.ParseIPRange(text); err == nil {
			b.AddRange(r)
		}
	}
	if blocked != nil && o.Status.Leasing == v1alpha1.LeasingOpen {
		b.RemoveSet(blocked)
	}
	b.Intersect(whole.Usable())
	set, _ := b.IPSet() // only valid ranges were added
	return set
}

// look reads what there is to find.
func (t *round) look(ctx context.Context) error {
	for _, p := range t.facts.Pools {
		leases, err := t.Live.LeasesOfPool(ctx, p.Name)
		// Of those that cannot be read the pool says so.
		if _, garbled := kube.LeaseErrors(err); err != nil && !garbled {
			return err
		}
		t.facts.Leases[p.Name] = leases
	}
	var err error
	if t.facts.SubLeases, err = t.Live.SubLeases(ctx); err != nil {
		return err
	}
	calls, err := t.Live.BoundPods(ctx, func(o *corev1.Pod) {
		if p := foreign.ReadPod(o); len(p.Selected) > 0 {
			t.facts.Pods = append(t.facts.Pods, p)
		}
	})
	t.calls += calls
	return err
}

// records reads what whereabouts has recorded.
func (t *round) records(ctx context.Context) error {
	text := func(o *unstructured.Unstructured) (namespace, name string, spec map[string]any) {
		spec, _, _ = unstructured.NestedMap(o.Object, "spec") // none where it is something else
		return o.GetNamespace(), o.GetName(), spec
	}
	var err error
	t.served, err = t.Live.WhereaboutsPools(ctx, func(o *unstructured.Unstructured) {
		records, _ := foreign.WhereaboutsPool(text(o)) // what is damaged, the import says
		t.facts.Records = append(t.facts.Records, records...)
		cidr, _, _ := unstructured.NestedString(o.Object, "spec", "range")
		if p, err := netip.ParsePrefix(cidr); err == nil {
			t.objects = append(t.objects, object{o.GetName(), p.Masked()})
		}
	})
	if err != nil || !t.served {
		return err
	}
	there, err := t.Live.FencePolicy(ctx)
	switch {
	case err != nil:
		return err
	case !there:
		return errNoFence
	}
	_, err = t.Live.WhereaboutsReservations(ctx, func(o *unstructured.Unstructured) {
		if r, fault := foreign.WhereaboutsReservation(text(o)); fault == "" {
			t.facts.Records = append(t.facts.Records, r)
		}
	})
	return err
}
