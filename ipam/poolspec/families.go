package poolspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
)

// families reads the families to which addresses are limited. The ipam section limits them for the
// network, and args.cni, which comes from the pod's element, for one interface.
func (p *parser) families() {
	only := p.familiesAt(p.ipam)
	mine := p.familiesAt(p.runtime.args)
	for _, f := range mine {
		if only != nil && !slices.Contains(only, f) {
			p.addf(p.runtime.args.at(keyFamilies), "leave it out, or ask for what the network gives", "has %v, which %s leaves out", f, p.ipam.at(keyFamilies))
		}
	}
	if mine != nil {
		only = mine
	}
	if only == nil {
		return
	}
	for _, r := range p.cfg.Requested {
		if f := allocator.FamilyOf(r.Addr); !slices.Contains(only, f) {
			p.addf(r.Path, "ask for an address of another family, or name both families", "%v is of %v, which %s leaves out", r.Addr, f, keyFamilies)
		}
	}
	p.cfg.Only(only)
	if len(p.cfg.Sources) == 0 && p.n == p.mark {
		p.addf(p.ipam.path, "name the family of its ranges", "has no range of %v", only[0])
	}
}

// keyFamilies is the key in the ipam section and in args.cni.
const keyFamilies = "families"

// familiesAt reads the families that o names, in their order; nil is all.
func (p *parser) familiesAt(o object) (only []allocator.Family) {
	for i, text := range p.texts(o, keyFamilies) {
		at := slices.IndexFunc(allocator.Families(), func(f allocator.Family) bool { return strings.EqualFold(f.String(), text) })
		switch {
		case text == "": // reported
		case at < 0:
			p.addf(fmt.Sprintf("%s[%d]", o.at(keyFamilies), i), `write "IPv4" or "IPv6"`, "%q is no IP family", text)
		case !slices.Contains(only, allocator.Families()[at]):
			only = append(only, allocator.Families()[at])
		}
	}
	slices.Sort(only)
	return only
}

// FamiliesOf returns the families of which the source gives one address each, of a pool of this
// shape. For inline ranges they are the families of the ranges, also if the pool does not have them
// yet. For a named pool they are the families of the pool that the configuration allows.
func (s Source) FamiliesOf(shape *allocator.Shape) []allocator.Family {
	if s.Implicit != nil {
		return s.Families
	}
	return slices.DeleteFunc(shape.Families(), func(f allocator.Family) bool { return s.Families != nil && !slices.Contains(s.Families, f) })
}

// Only leaves of c's sources what gives addresses of these families.
func (c *Config) Only(families []allocator.Family) {
	var sources []Source
	for _, s := range c.Sources {
		if s.Families == nil {
			s.Families = slices.Clone(families)
		} else {
			s.Families = slices.DeleteFunc(slices.Clone(s.Families), func(f allocator.Family) bool { return !slices.Contains(families, f) })
		}
		if len(s.Families) > 0 {
			sources = append(sources, s)
		}
	}
	c.Sources = sources
}
