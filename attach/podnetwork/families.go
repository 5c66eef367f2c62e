package podnetwork

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// CheckDefinition checks the configuration of a definition that a PodNetwork names: an interface
// gets one address of a family at most. familiesOf returns the families of an IPPool's ranges, or
// the error to be returned. What a configuration on the nodes' disks says, and what IPAM plugins
// do that are not known here, cannot be checked. Other errors are a [*ParamsError].
func CheckDefinition(at facts.Ref, text string, familiesOf func(pool string) ([]allocator.Family, error)) error {
	if text == "" {
		return nil
	}
	configs, err := poolspec.ParseNetwork([]byte(text), at.Name)
	if err != nil {
		return Invalid("NetworkAttachmentDefinition %s/%s: spec.config: %s", at.Namespace, at.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	from := map[allocator.Family][]string{}
	for _, c := range configs {
		asked := map[allocator.Family]bool{} // no other is assigned of these
		for _, r := range c.Requested {
			f := allocator.FamilyOf(r.Addr)
			asked[f] = true
			from[f] = append(from[f], r.Addr.String())
		}
		for _, s := range c.Sources {
			families := s.Families
			if s.Pool == "" { // the pod's namespace names it
				continue
			}
			if s.Implicit == nil {
				if families, err = familiesOf(s.Pool); err != nil {
					return err
				}
			}
			for _, f := range families {
				if !asked[f] && (s.Families == nil || slices.Contains(s.Families, f)) {
					from[f] = append(from[f], "pool "+s.Pool)
				}
			}
		}
	}
	ofOthers(text, from)
	for _, f := range allocator.Families() {
		if len(from[f]) > 1 {
			return Invalid("NetworkAttachmentDefinition %s/%s gives an interface %d %v addresses, of %s; a PodNetwork gives one of a family at most: leave all but one out, or make a PodNetwork of each",
				at.Namespace, at.Name, len(from[f]), f, strings.Join(from[f], " and of "))
		}
	}
	return nil
}

// ofOthers adds what the IPAM plugins of others give of which it is known.
func ofOthers(text string, from map[allocator.Family][]string) {
	type plugin struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	var top struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if json.Unmarshal([]byte(text), &top) != nil {
		return
	}
	for _, p := range append(top.Plugins, top.plugin) {
		for _, address := range ofIPAM(p.IPAM) {
			f := allocator.IPv4
			if strings.Contains(address, ":") {
				f = allocator.IPv6
			}
			from[f] = append(from[f], address)
		}
	}
}

// ofIPAM returns an address or a range for each address that an IPAM section of another plugin
// gives an interface.
func ofIPAM(raw json.RawMessage) (all []string) {
	var kind struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(raw, &kind) // what cannot be read is the plugin's to refuse
	add := func(text string) {
		if text != "" {
			all = append(all, text)
		}
	}
	switch kind.Type {
	case "host-local":
		var c struct {
			Subnet string `json:"subnet"`
			Ranges [][]struct {
				Subnet string `json:"subnet"`
			} `json:"ranges"`
		}
		_ = json.Unmarshal(raw, &c) // likewise
		add(c.Subnet)
		for _, set := range c.Ranges { // one address of each set
			if len(set) > 0 {
				add(set[0].Subnet)
			}
		}
	case "static":
		var c struct {
			Addresses []struct {
				Address string `json:"address"`
			} `json:"addresses"`
		}
		_ = json.Unmarshal(raw, &c) // likewise
		for _, a := range c.Addresses {
			add(a.Address)
		}
	case "whereabouts":
		var c struct {
			Range  string `json:"range"`
			Ranges []struct {
				Range string `json:"range"`
			} `json:"ipRanges"`
		}
		_ = json.Unmarshal(raw, &c) // likewise
		add(c.Range)
		for _, r := range c.Ranges {
			add(r.Range)
		}
	}
	return all
}
