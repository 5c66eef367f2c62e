package networks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// meant reports whether a text that cannot be read was to be a network of Tenure's: it has the
// word where a plugin's name would stand. The others' texts are none of Tenure's business.
func meant(config string) bool {
	return strings.Contains(strings.ToLower(config), `"`+poolspec.Type+`"`)
}

// mistake says, of an outline by which no plugin calls Tenure, that it was to be one of Tenure's,
// where, and what to do. It is empty of a network of somebody else.
func (o outline) mistake() string {
	if o.Plugins == nil {
		return o.IPAM.misspelt("ipam")
	}
	for i, p := range o.Plugins {
		if fault := p.IPAM.misspelt(fmt.Sprintf("plugins[%d].ipam", i)); fault != "" {
			return fault
		}
	}
	if strings.EqualFold(o.IPAM.Type, poolspec.Type) {
		return "ipam: stands beside plugins, where no plugin is given it; move it into the plugin that makes the interface, as plugins[0].ipam"
	}
	return ""
}

// misspelt says that the section at path names a plugin that is there under another spelling.
func (i ipam) misspelt(path string) string {
	if i.Type == poolspec.Type || !strings.EqualFold(i.Type, poolspec.Type) {
		return ""
	}
	return fmt.Sprintf("%s.type: is %q, and no plugin is called so; write %q", path, i.Type, poolspec.Type)
}

// Missing says which of the pools that n names do not exist, and what to do; it is empty if all
// exist. Those that n describes the controller makes.
func (n Network) Missing(exists func(pool string) bool) string {
	named := n.NamedPools()
	missing := slices.DeleteFunc(slices.Clone(named), exists)
	key := "ipam.pool"
	if len(named) > 1 {
		key = "ipam.pools"
	}
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s: pool %s does not exist; make the IPPool, or correct the name", key, missing[0])
	}
	return fmt.Sprintf("%s: pools %s do not exist; make the IPPools, or correct the names", key, strings.Join(missing, ", "))
}

// NamedPools returns the pools that n names itself, each once.
func (n Network) NamedPools() (named []string) {
	for _, src := range n.Sources {
		if src.Implicit == nil && src.Pool != "" && !slices.Contains(named, src.Pool) {
			named = append(named, src.Pool)
		}
	}
	return named
}
