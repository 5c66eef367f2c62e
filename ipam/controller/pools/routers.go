package pools

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// routers are the addresses of a pool that routers have: nobody is given them.
type routers struct {
	of     map[netip.Addr]string // which router it is
	beside []string              // those that the pool's spec would give
}

// maxGateways is how many addresses of routers the status takes.
const maxGateways = 1024

// routersOf returns the routers of a pool: the gateways of its ranges, and what networks that
// use it name, or have their interface plugin take. A pool whose spec is faulty has none.
func (r *Reconciler) routersOf(ctx context.Context, pool *v1alpha1.IPPool) (routers, error) {
	using, err := r.Networks.Using(ctx, pool.Name)
	if err != nil {
		return routers{}, err //nolint:wrapcheck // says what it is about
	}
	shape, ok := r.Shapes.Whole(pool)
	if !ok {
		return routers{}, nil // the condition Ready says so
	}
	found := routers{of: map[netip.Addr]string{}}
	for _, in := range shape.Ranges() {
		if in.Gateway.IsValid() {
			found.of[in.Gateway] = fmt.Sprintf("the gateway of range %v", in.Prefix)
		}
	}
	var beside []netip.Addr
	for _, n := range using {
		for _, src := range n.Sources {
			if src.Pool != pool.Name {
				continue
			}
			for _, a := range src.RoutersIn(shape.Ranges()) {
				if found.of[a] != "" {
					continue
				}
				found.of[a] = "the gateway of network attachment definition " + n.String()
				if shape.Assignable(a) == nil {
					beside = append(beside, a)
				}
			}
		}
	}
	if len(beside) > maxGateways {
		r.Log.ErrorContext(ctx, "the pool's networks have more gateways than its status takes: pods may be given the last ones", "pool", pool.Name, "gateways", len(beside))
		beside = beside[:maxGateways]
	}
	slices.SortFunc(beside, netip.Addr.Compare)
	for _, a := range beside {
		found.beside = append(found.beside, a.String())
	}
	return found, nil
}

// usedBy returns a sentence for each address of a router that somebody has, by the pool's leases.
func (r routers) usedBy(leases []v1alpha1.IPLease) (sentences []string) {
	say := func(address, who string) {
		if a, err := netip.ParseAddr(address); err == nil && r.of[a] != "" {
			sentences = append(sentences, fmt.Sprintf("address %v is %s, and %s has it", a, r.of[a], who))
		}
	}
	for i := range leases {
		for _, g := range leases[i].Spec.Grants {
			if g.To.Kind == v1alpha1.GranteeClaim || g.To.Kind == v1alpha1.GranteePod {
				say(g.Address, fmt.Sprintf("%s %s/%s", strings.ToLower(string(g.To.Kind)), g.To.Namespace, g.To.Name))
			}
		}
		for _, held := range leases[i].Status.Allocations { // "address namespace/pod interface"
			if f := strings.Fields(held); len(f) > 1 {
				say(f[0], "pod "+f[1])
			}
		}
	}
	slices.Sort(sentences)
	return slices.Compact(sentences)
}
