package ports

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
)

// What the schema of an IPPool admits.
const (
	mostRanges      = 64
	mostRoutes      = 32
	mostNameservers = 16
)

// followed is what a pool with a source is to be.
type followed struct {
	status *v1alpha1.NeutronStatus
	ranges []v1alpha1.Range
	routes []v1alpha1.Route
	// nameservers are all that subnets say of spec.dns: the pool's other keys are its own.
	nameservers []string
	// gone says which subnets are not there any more. What the pool has of them stays: their
	// ranges, and all routes and name servers.
	gone Problem
}

// An unfitError says why subnets cannot make a pool.
type unfitError struct {
	reason  neutron.Reason
	message string
}

func (e *unfitError) Error() string { return e.message }

func unfit(format string, args ...any) error {
	return &unfitError{v1alpha1.ReasonSubnetUnfit, fmt.Sprintf(format, args...)}
}

// follow returns what the pool is to be as its subnets are. What Neutron does not show is left as
// it was: it may show it again, and until then pods have its addresses.
func follow(pool *v1alpha1.IPPool, subnets []neutron.Subnet) (followed, error) {
	next := followed{status: &v1alpha1.NeutronStatus{}}
	if pool.Status.Neutron != nil { // who keeps pairs writes it
		next.status.NodePorts = pool.Status.Neutron.NodePorts
	}
	var gone []string
	kept := false
	for _, s := range subnets {
		if s.Gone {
			gone = append(gone, s.ID)
			kept = next.keep(pool, s.ID) || kept
			continue
		}
		if err := next.add(s); err != nil {
			return next, err
		}
	}
	if kept { // nobody knows which of the routes are its
		next.routes, next.nameservers = pool.Spec.Routes, nameserversOf(pool.Spec)
	}
	if len(gone) > 0 {
		next.gone = Problem{Reason: v1alpha1.ReasonSubnetNotFound, Message: fmt.Sprintf(
			"Neutron has no subnet %s, or shows it not to us: remove it from spec.source.neutron.subnetIDs, or see whether the credentials are of the right project", strings.Join(gone, ", "))}
	}
	switch {
	case len(next.status.Subnets) == 0:
		return next, &unfitError{v1alpha1.ReasonSubnetNotFound, next.gone.Message}
	case len(next.ranges) > mostRanges:
		return next, unfit("the subnets have %d allocation pools together, and a pool can have %d: give the subnets fewer, or make a pool for each", len(next.ranges), mostRanges)
	case len(next.routes) > mostRoutes:
		return next, unfit("the subnets have %d host routes together, and a pool can have %d: give the subnets fewer, or make a pool for each", len(next.routes), mostRoutes)
	}
	return next, nil
}

// keep adds what the pool has of a subnet already, and reports whether it has something.
func (f *followed) keep(pool *v1alpha1.IPPool, id string) bool {
	if pool.Status.Neutron == nil {
		return false
	}
	i := slices.IndexFunc(pool.Status.Neutron.Subnets, func(s v1alpha1.NeutronSubnet) bool { return s.ID == id })
	if i < 0 {
		return false
	}
	was := pool.Status.Neutron.Subnets[i]
	f.status.Subnets = append(f.status.Subnets, was)
	if f.status.NetworkID == "" {
		f.status.NetworkID = pool.Status.Neutron.NetworkID
	}
	for _, r := range pool.Spec.Ranges {
		if r.CIDR == was.CIDR {
			f.ranges = append(f.ranges, r)
		}
	}
	return true
}

// add adds a subnet.
func (f *followed) add(s neutron.Subnet) error {
	switch {
	case len(f.status.Subnets) > 0 && f.status.NetworkID != s.Network:
		return unfit("subnet %s is of network %s, and those before it of network %s: a pool is one network, make another for it", s.ID, s.Network, f.status.NetworkID)
	case s.SLAAC:
		return unfit("subnet %s has addresses that follow from hardware addresses (ipv6_address_mode), so that Neutron gives none: use a subnet with dhcpv6-stateful, or without a mode", s.ID)
	}
	f.status.NetworkID = s.Network
	f.status.Subnets = append(f.status.Subnets, v1alpha1.NeutronSubnet{ID: s.ID, CIDR: s.Prefix.String()})
	f.ranges = append(f.ranges, rangesOf(s)...)
	for _, r := range s.Routes {
		f.routes = append(f.routes, v1alpha1.Route{Dst: r.To.Masked().String(), GW: r.Via.String()})
	}
	for _, a := range s.DNS {
		if text := a.String(); !slices.Contains(f.nameservers, text) && len(f.nameservers) < mostNameservers {
			f.nameservers = append(f.nameservers, text)
		}
	}
	return nil
}

// rangesOf returns the ranges of a subnet: one for each allocation pool. All addresses are
// static-only, so that no node leases a block of them, and nobody is given one that Neutron has
// not given first.
func rangesOf(s neutron.Subnet) (all []v1alpha1.Range) {
	base := v1alpha1.Range{CIDR: s.Prefix.String(), StaticOnly: []string{s.Prefix.String()}}
	if s.Gateway.IsValid() && s.Gateway.Is4() == s.Prefix.Addr().Is4() {
		base.Gateway = s.Gateway.String()
	}
	for _, p := range s.Pools {
		r := base
		r.Start, r.End = p.From().String(), p.To().String()
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b v1alpha1.Range) int {
		x, _ := netip.ParseAddr(a.Start)
		y, _ := netip.ParseAddr(b.Start)
		return x.Compare(y)
	})
	if len(all) == 0 { // nothing is given of it, and what is given stays known
		base.Exclude = []string{s.Prefix.String()}
		all = append(all, base)
	}
	return all
}

// same reports whether a pool has already what it is to have.
func (f followed) same(spec v1alpha1.IPPoolSpec) bool {
	return len(f.ranges) == 0 || reflect.DeepEqual(f.ranges, spec.Ranges) && slices.Equal(f.routes, spec.Routes) && slices.Equal(f.nameservers, nameserversOf(spec))
}

func nameserversOf(spec v1alpha1.IPPoolSpec) []string {
	if spec.DNS == nil {
		return nil
	}
	return spec.DNS.Nameservers
}

// dnsFor returns what a patch has to say of a pool's DNS.
func (f followed) dnsFor(spec v1alpha1.IPPoolSpec) any {
	var own v1alpha1.DNS
	if spec.DNS != nil {
		own = *spec.DNS
		own.Nameservers = nil
	}
	if len(f.nameservers) == 0 && reflect.DeepEqual(own, v1alpha1.DNS{}) {
		return nil
	}
	return map[string]any{"nameservers": f.nameservers}
}

// change says in a sentence what of a pool changes.
func (f followed) change(was v1alpha1.IPPoolSpec) string {
	var parts []string
	texts := func(all []v1alpha1.Range) (t []string) {
		for _, r := range all {
			text := fmt.Sprintf("%s from %s to %s", r.CIDR, r.Start, r.End)
			if r.Gateway != "" {
				text += " by gateway " + r.Gateway
			}
			t = append(t, text)
		}
		return t
	}
	before, after := texts(was.Ranges), texts(f.ranges)
	for _, t := range after {
		if !slices.Contains(before, t) {
			parts = append(parts, "has now "+t)
		}
	}
	for _, t := range before {
		if !slices.Contains(after, t) {
			parts = append(parts, "has no more "+t+": who has addresses of it keeps them")
		}
	}
	if !slices.Equal(f.routes, was.Routes) {
		parts = append(parts, "has other routes")
	}
	if !slices.Equal(f.nameservers, nameserversOf(was)) {
		parts = append(parts, "has other DNS servers")
	}
	return "Neutron's subnets have changed: the pool " + strings.Join(parts, "; ")
}
