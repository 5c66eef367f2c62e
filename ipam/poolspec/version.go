package poolspec

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
)

// oldVersion reports whether results have at most one address of each family,
// which is so up to CNI 0.2.0. A configuration without a version has 0.1.0.
func (c *Config) oldVersion() bool {
	v := c.CNIVersion
	return v == "" || strings.HasPrefix(v, "0.0.") || strings.HasPrefix(v, "0.1.") || strings.HasPrefix(v, "0.2.")
}

// HasScopes reports whether routes in results have a scope: from CNI 1.1.0 on.
func (c *Config) HasScopes() bool {
	return !c.oldVersion() && !strings.HasPrefix(c.CNIVersion, "0.") && !strings.HasPrefix(c.CNIVersion, "1.0.")
}

// ScopeFault says that c's version cannot express a route through gw, which lies outside of the
// interface's subnets.
func (c *Config) ScopeFault(gw netip.Addr) error {
	return &Fault{
		Path: "cniVersion", kind: ErrVersion,
		Problem: fmt.Sprintf("%s cannot express a route through the gateway %v, which lies outside of the interface's subnet", cmp.Or(c.CNIVersion, "0.1.0, for want of another,"), gw),
		Remedy:  "use cniVersion 1.1.0 or later, or a gateway within the subnet",
	}
}

// CheckVersion returns an error if a result of c's CNI version cannot hold these
// addresses: up to 0.2.0 there is one of each family. It is for named pools,
// whose families ParseConfig does not know.
func (c *Config) CheckVersion(addrs []netip.Addr) error {
	if !c.oldVersion() {
		return nil
	}
	var families []allocator.Family
	for _, a := range addrs {
		families = append(families, allocator.FamilyOf(a))
	}
	for _, f := range allocator.Families() {
		if n := countFamily(families, f); n > 1 {
			return c.versionFault("cniVersion", f, n)
		}
	}
	return nil
}

// countFamily returns how many of families are f.
func countFamily(families []allocator.Family, f allocator.Family) int {
	n := 0
	for _, g := range families {
		if g == f {
			n++
		}
	}
	return n
}

// versionFault says that c's version cannot express n addresses of family f.
func (c *Config) versionFault(path string, f allocator.Family, n int) *Fault {
	version := cmp.Or(c.CNIVersion, "0.1.0, for want of another,")
	return &Fault{
		Path:    path,
		Problem: fmt.Sprintf("%s cannot express %d %v addresses of one interface", version, n, f),
		Remedy:  "use cniVersion 0.3.1 or later, or one range of each family",
		kind:    ErrVersion,
	}
}
