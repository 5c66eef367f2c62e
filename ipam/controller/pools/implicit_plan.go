package pools

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// implicit reports whether a pool is one.
func implicit(p *v1alpha1.IPPool) bool { return p.Labels[v1alpha1.LabelImplicit] == "true" }

// described is what is known when an implicit pool is looked at.
type described struct {
	name   string
	domain string             // that the pool names if it is made
	by     []networks.Network // oldest first
	pool   *v1alpha1.IPPool   // nil: there is none
	inUse  bool               // there are leases of the pool's name
}

// implicitPlan is what is to be done about an implicit pool: one of create, update
// and remove, or nothing.
type implicitPlan struct {
	create *v1alpha1.IPPool
	update *update
	remove bool
	// notices are to be told to the definitions, by "namespace/name".
	notices map[string]notice
}

// update is how an implicit pool is to change. Other parts of its spec are a
// person's to set.
type update struct {
	ranges      []v1alpha1.Range
	definitions string
}

// notice is an Event for a definition.
type notice struct{ reason, message string }

// Reasons of Events about definitions.
const (
	reasonDisagrees = "DefinitionsDisagree"
	reasonPersons   = "PoolOfAPerson"
	reasonRefused   = "PoolRefused"
	reasonFull      = "PoolFull"
	reasonBridges   = "BridgesPools"
)

// decideImplicit returns what is to be done.
func decideImplicit(d described) (implicitPlan, error) {
	if d.pool != nil && !implicit(d.pool) {
		return implicitPlan{notices: d.uncovered()}, nil
	}
	if len(d.by) == 0 {
		// A pool that is in use stays as it is, and drains.
		return implicitPlan{remove: d.pool != nil && d.pool.DeletionTimestamp == nil && !d.inUse}, nil
	}
	u, err := unite(d.name, d.by, d.pool)
	if err != nil {
		return implicitPlan{}, err
	}
	p := implicitPlan{notices: map[string]notice{}}
	for _, disagreement := range u.found {
		p.notices[disagreement.Member] = notice{reasonDisagrees, disagreement.String()}
	}
	for _, n := range u.left {
		p.notices[n.String()] = notice{reasonFull, noRoom(n, d.name)}
	}
	next := update{ranges: toRanges(u.text), definitions: definitions(u.by)}
	switch {
	case len(next.ranges) == 0: // there is nothing that the API would take
	case d.pool == nil:
		p.create = &v1alpha1.IPPool{
			ObjectMeta: metav1.ObjectMeta{
				Name: d.name, Labels: map[string]string{v1alpha1.LabelImplicit: "true"},
				Annotations: map[string]string{v1alpha1.AnnotationDefinitions: next.definitions},
			},
			Spec: v1alpha1.IPPoolSpec{Ranges: next.ranges, Domain: d.domain},
		}
	case d.pool.DeletionTimestamp != nil: // made anew when it is gone
	case !reflect.DeepEqual(d.pool.Spec.Ranges, next.ranges) || d.pool.Annotations[v1alpha1.AnnotationDefinitions] != next.definitions:
		p.update = &next
	}
	return p, nil
}

// uncovered returns a notice for every definition whose ranges do not lie in those
// of a person's pool.
func (d described) uncovered() map[string]notice {
	notices := map[string]notice{}
	for _, n := range d.by {
		for _, r := range n.ImplicitPools()[d.name].Ranges {
			if d.has(r.CIDR) {
				continue
			}
			notices[n.String()] = notice{reasonPersons, fmt.Sprintf(
				"pool %s was made by a person and is not changed: it does not have %s", d.name, r.CIDR)}
		}
	}
	return notices
}

// has reports whether one of the pool's CIDRs contains cidr.
func (d described) has(cidr string) bool {
	inner, err := netip.ParsePrefix(cidr)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(d.pool.Spec.Ranges, func(r v1alpha1.Range) bool {
		outer, err := netip.ParsePrefix(r.CIDR)
		return err == nil && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
	})
}

// cut ends the annotation where not all definitions fit into it.
const cut = "…"

// definitions names networks for the annotation. There may be thousands; what does
// not fit is left out.
func definitions(by []networks.Network) string {
	const most = 16 << 10
	var names []string
	length := 0
	for _, n := range by {
		if length += len(n.String()) + 1; length > most {
			names = append(names, cut)
			break
		}
		names = append(names, n.String())
	}
	return strings.Join(names, ",")
}

// toRanges writes a pool's text as the API has it.
func toRanges(t poolspec.PoolText) []v1alpha1.Range {
	var out []v1alpha1.Range
	for _, r := range t.Ranges {
		out = append(out, v1alpha1.Range{
			CIDR: r.CIDR, Start: r.Start, End: r.End, Exclude: r.Exclude, StaticOnly: r.StaticOnly, Gateway: r.Gateway,
		})
	}
	return out
}

// sorted returns the notices' definitions in order.
func (p implicitPlan) sorted() []string { return slices.Sorted(maps.Keys(p.notices)) }
