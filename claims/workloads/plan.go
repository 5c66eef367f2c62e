package workloads

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/workload"
)

// Reasons of the Events about a StatefulSet.
const (
	// ReasonInvalid: the annotations of the StatefulSet or of its template are wrong.
	ReasonInvalid = "InvalidClaimsAnnotation"
	// ReasonNetworkNotFound: a network that the annotation names gives no addresses of
	// Tenure, or is not there.
	ReasonNetworkNotFound = "ClaimsNetworkNotFound"
	// ReasonTaken: a claim of a name that the StatefulSet needs is somebody else's.
	ReasonTaken = "ClaimTaken"
	// ReasonNotMade: the API server has refused to make a claim.
	ReasonNotMade = "ClaimNotMade"
)

// batch is how many claims one plan makes at most: the set may have changed by then.
const batch = 1000

// ahead is for how many ordinals a set has claims before it has their pods: people write the
// addresses into firewalls and DNS. It is no more, since a set may name any number of replicas, and
// each claim takes addresses from everybody else.
const ahead = 1000

// facts are what a plan is made of.
type facts struct {
	set workload.Set
	uid types.UID
	// made is how many pods of the set there are.
	made int
	// networks are the CNI networks, by element.
	networks map[workload.Element]network
	// claims are those with the set's label.
	claims []claim
	// pods are the set's pods of ordinals that it has no more, as far as they were asked for.
	pods map[int]types.UID
}

// network is what is known of an element's network.
type network struct {
	name string
	// pools are those that give its addresses. There are none where one does not exist yet, or
	// cannot be read: a pool says that itself.
	pools []pool
}

// pool is what is known of a pool.
type pool struct {
	name  string
	shape *allocator.Shape
}

// refuses says why none of a network's pools can ever give an address that is asked for; empty:
// one can.
func (n network) refuses(a netip.Addr) string {
	var why []string
	for _, p := range n.pools {
		err := p.shape.Assignable(a)
		if err == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("pool %s: %v", p.name, err))
	}
	return strings.Join(why, "; ")
}

// unassignable returns the fault of a set which asks, for a claim that is not there yet, for an
// address that no pool of its network gives. Then no claim is made: some pods would have what they
// ask for, and others would wait for ever.
func (f facts) unassignable() *fault {
	there := map[string]bool{}
	for _, c := range f.claims {
		there[c.name] = true
	}
	ordinals := f.ordinals()
	for _, e := range f.set.Elements {
		for _, ordinal := range ordinals {
			if there[f.set.ClaimName(ordinal, e)] {
				continue
			}
			for _, a := range f.set.Addresses(ordinal, e) {
				if why := f.networks[e].refuses(a); why != "" {
					return &fault{ReasonInvalid, fmt.Sprintf("%s: %s: %v is for ordinal %d, and cannot be given: %s: no claim is made",
						workload.AnnotationRequested, e, a, ordinal, why)}
				}
			}
		}
	}
	return nil
}

// claim is what is known of an IPAMClaim.
type claim struct {
	name            string
	uid             types.UID
	revision        string
	network, ifName string
	deleting        bool
	set, vm         string    // by its labels
	byName          types.UID // likewise: the owner of the pods for which it was made by their name
	owners          []metav1.OwnerReference
}

// wanted is a claim that the set is to have.
type wanted struct {
	ordinal                          int
	name, network, ifName, requested string
}

// change is what is to be written to a claim: the set's label, and these owners.
type change struct {
	claim  claim
	owners []metav1.OwnerReference
}

// fault is what people are to be told.
type fault struct{ reason, message string }

// plan is what is to be done.
type plan struct {
	create []wanted
	change []change
	remove []claim
	faults []fault
	more   bool // claims are to be made after these
}

// decide says what is to be done about the claims of a set.
func decide(f facts) plan {
	var p plan
	there := map[string]claim{}
	for _, c := range f.claims {
		there[c.name] = c
		ordinal, ok := workload.OrdinalOfClaim(f.set.Name, c.name)
		if ok && !f.set.Wants(c.name) {
			p.add(f.judge(c, ordinal, wanted{}))
		}
	}
	for _, ordinal := range f.ordinals() {
		for _, e := range f.set.Elements {
			w := f.want(ordinal, e)
			if c, ok := there[w.name]; ok {
				p.add(f.judge(c, w.ordinal, w))
			} else if p.more = len(p.create) == batch; p.more {
				return p
			} else {
				p.create = append(p.create, w)
			}
		}
	}
	return p
}

// ordinals returns the ordinals of the set that are to have claims: as many from the lowest as it
// has pods, those that come next, and those that have one.
func (f facts) ordinals() (all []int) {
	for i := range min(f.set.Count, f.made+ahead) {
		all = append(all, f.set.First+i)
	}
	for _, c := range f.claims {
		if ordinal, ok := workload.OrdinalOfClaim(f.set.Name, c.name); ok && f.set.Has(ordinal) {
			all = append(all, ordinal)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (f facts) want(ordinal int, e workload.Element) wanted {
	return wanted{
		ordinal: ordinal, name: f.set.ClaimName(ordinal, e), network: f.networks[e].name, ifName: e.Interface, requested: f.set.Requested(ordinal, e),
	}
}

// add adds what is to be done about one claim.
func (p *plan) add(v verdict) {
	switch {
	case v.remove != nil:
		p.remove = append(p.remove, *v.remove)
	case v.change != nil:
		p.change = append(p.change, *v.change)
	case v.fault != nil:
		p.faults = append(p.faults, *v.fault)
	}
}

// verdict is what is to be done about one claim: at most one of these.
type verdict struct {
	change *change
	remove *claim
	fault  *fault
}

// judge decides about a claim that has a name of the set's ordinal. w is what it is wanted
// for, zero if the set has no such claim any more. A claim that is somebody else's is left
// alone.
func (f facts) judge(c claim, ordinal int, w wanted) verdict {
	taken := func(format string, args ...any) verdict {
		return verdict{fault: &fault{ReasonTaken, fmt.Sprintf("claim %s is left alone: %s", c.name, fmt.Sprintf(format, args...))}}
	}
	foreign, stale := f.owned(c, ordinal)
	switch {
	case c.deleting, stale: // it goes, and then another is made
		return verdict{}
	case c.set != "" && c.set != f.set.Name:
		return taken("it is for StatefulSet %s", c.set)
	case c.vm != "":
		return taken("it is for virtual machine %s", c.vm)
	case c.byName != "":
		return taken("it is for pods of another controller, by their name")
	case foreign != "":
		return taken("it belongs to %s", foreign)
	case w.name != "" && c.network != w.network:
		return taken("it is of network %q, and the StatefulSet needs one of %q", c.network, w.network)
	case w.name != "" && c.ifName != "" && w.ifName != "" && c.ifName != w.ifName:
		return taken("it is for interface %s, and the StatefulSet needs one for %s", c.ifName, w.ifName)
	}
	owners := f.ownersOf(ordinal)
	if owners == nil {
		if slices.ContainsFunc(c.owners, isPod) { // it goes with the pod
			return verdict{}
		}
		return verdict{remove: &c}
	}
	if c.set == f.set.Name && slices.EqualFunc(c.owners, owners, sameOwner) {
		return verdict{}
	}
	return verdict{change: &change{c, owners}}
}

// ownersOf returns who is to own the claims of an ordinal, as Kubernetes has it for volume
// claims: nobody, the set, or the pod that goes. It is nil if the claim is to be deleted,
// since that pod is gone.
func (f facts) ownersOf(ordinal int) []metav1.OwnerReference {
	switch keep := f.set.Retention; {
	case !f.set.Has(ordinal) && keep.WhenScaled == workload.Delete:
		if uid, ok := f.pods[ordinal]; ok {
			return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: f.podName(ordinal), UID: uid}}
		}
		return nil
	case keep.WhenDeleted == workload.Delete:
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: f.set.Name, UID: f.uid}}
	}
	return []metav1.OwnerReference{}
}

func (f facts) podName(ordinal int) string { return fmt.Sprintf("%s-%d", f.set.Name, ordinal) }

// condemned returns the ordinals whose pods decide about a claim: those that the set has no
// more, where their claims are to go and no pod owns these yet.
func (f facts) condemned() (ordinals []int) {
	if f.set.Retention.WhenScaled != workload.Delete {
		return nil
	}
	for _, c := range f.claims {
		ordinal, ok := workload.OrdinalOfClaim(f.set.Name, c.name)
		if ok && !f.set.Has(ordinal) && !slices.ContainsFunc(c.owners, isPod) {
			ordinals = append(ordinals, ordinal)
		}
	}
	slices.Sort(ordinals)
	return slices.Compact(ordinals)
}

// owned says who else owns a claim; foreign is empty if nobody does. stale says that it was
// of an earlier set of that name, and that Kubernetes deletes it therefore.
func (f facts) owned(c claim, ordinal int) (foreign string, stale bool) {
	for _, o := range c.owners {
		switch {
		case o.APIVersion == "apps/v1" && o.Kind == "StatefulSet" && o.Name == f.set.Name:
			stale = o.UID != f.uid
		case isPod(o) && o.Name == f.podName(ordinal):
		default:
			foreign = cmp.Or(foreign, o.Kind+" "+o.Name)
		}
	}
	return foreign, stale && foreign == ""
}

func isPod(o metav1.OwnerReference) bool { return o.APIVersion == "v1" && o.Kind == "Pod" }

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID
}
