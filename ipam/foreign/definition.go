package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// Types of IPAM plugins, as configurations name them.
const (
	// Type is Tenure's own.
	Type            = poolspec.Type
	TypeWhereabouts = "whereabouts"
	TypeHostLocal   = "host-local"
	typeStatic      = "static"
)

// A Definition is a NetworkAttachmentDefinition, as far as its IPAM is concerned.
type Definition struct {
	Namespace, Name string
	// Network is the configuration's own name, else the definition's.
	Network string
	// IPAM is the type of its IPAM plugin, of a list that of the first plugin that has one;
	// "" where there is none.
	IPAM string
	// Takes are the addresses that its IPAM may hand out by this configuration. It is nil
	// where the configuration does not tell, and where it names a pool of Tenure's.
	Takes *netipx.IPSet
	// CIDRs are the subnets of its ranges, and Gateways the routers that it names, by these.
	CIDRs    []netip.Prefix
	Gateways map[netip.Prefix]netip.Addr
	// Pools are the pools that it names or describes, where IPAM is Tenure's, and
	// PoolsThen those that it does once it is switched to Tenure.
	Pools, PoolsThen []string
	// Unnamed says that its ranges are of the pool of the default domain that has them; the pool
	// that it describes is then what it would be called were it made for this definition alone.
	Unnamed bool
	// Domain is the annotation tenure.dev/domain.
	Domain string
	// NetworkName is whereabouts' network_name.
	NetworkName string
	// Whereabouts are the IPPools of whereabouts that its keys mean, whichever IPAM it
	// names now.
	Whereabouts []Object
	// NodeSlices says that whereabouts parts its ranges among the nodes.
	NodeSlices bool
	// DataDir is host-local's directory, "" for its default, and HostLocal says that host-local
	// has given addresses by its keys, or may have, whichever IPAM it names now.
	DataDir   string
	HostLocal bool
	// Changed is when the definition was last written; zero if that is not known. Before that it
	// may have been another IPAM's.
	Changed time.Time
	// Fault says why the configuration cannot be read; the rest is then empty.
	Fault string
}

// An Object is one of whereabouts' IPPools: its name, and the range that it records
// allocations of.
type Object struct {
	Name  string
	Range netip.Prefix
}

// String returns "namespace/name".
func (d Definition) String() string { return d.Namespace + "/" + d.Name }

// OtherSegment reports whether d says that its network is of another segment than a pool
// of this domain.
func (d Definition) OtherSegment(domain string) bool {
	switch {
	case d.Domain != "":
		return d.Domain != domain
	case d.NetworkName != "" && domain != "":
		return d.NetworkName != domain
	}
	return false
}

// plugin is what is read of any plugin's configuration.
type plugin struct {
	IPAM json.RawMessage `json:"ipam"`
}

// keys are what is read of any IPAM's configuration.
type keys struct {
	Type          string `json:"type"`
	NetworkName   string `json:"network_name"`
	DataDir       string `json:"dataDir"`
	Subnet        string `json:"subnet"`
	Ranges        []any  `json:"ranges"`
	NodeSliceSize string `json:"node_slice_size"`
	Range         string `json:"range"`
	IPRanges      []struct {
		Range string `json:"range"`
	} `json:"ipRanges"`
	Addresses []struct {
		Address string `json:"address"`
	} `json:"addresses"`
}

// ReadDefinition reads the configuration of a definition, single or list.
func ReadDefinition(namespace, name, config string, annotations map[string]string) Definition {
	d := Definition{Namespace: namespace, Name: name, Network: name, Domain: annotations[v1alpha1.AnnotationDomain]}
	var top struct {
		Name string `json:"name"`
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(config), &top); err != nil {
		d.Fault = fmt.Sprintf("its configuration is no JSON: %v", err)
		return d
	}
	if top.Name != "" {
		d.Network = top.Name
	}
	plugins := top.Plugins
	if plugins == nil {
		plugins = []plugin{top.plugin}
	}
	i := slices.IndexFunc(plugins, func(p plugin) bool { return len(p.IPAM) > 0 && string(p.IPAM) != "null" && string(p.IPAM) != "{}" })
	if i < 0 {
		return d // it gives no addresses
	}
	var k keys
	if err := json.Unmarshal(plugins[i].IPAM, &k); err != nil {
		d.Fault = fmt.Sprintf("its ipam section cannot be read: %v", err)
		return d
	}
	d.IPAM, d.NetworkName, d.DataDir, d.NodeSlices = k.Type, k.NetworkName, k.DataDir, k.NodeSliceSize != ""
	d.Whereabouts = k.whereabouts()
	d.HostLocal = k.Type == TypeHostLocal || k.DataDir != "" || k.Subnet != "" || len(k.Ranges) > 0
	switch k.Type {
	case Type, TypeWhereabouts, TypeHostLocal:
		d.readRanges(plugins[i].IPAM)
	case typeStatic:
		d.readStatic(k)
	}
	return d
}

// readRanges reads what Tenure would make of the ipam section, were it Tenure's.
func (d *Definition) readRanges(ipam json.RawMessage) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(ipam, &fields); err != nil {
		d.Fault = fmt.Sprintf("its ipam section cannot be read: %v", err)
		return
	}
	maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, "type") })
	fields["type"] = json.RawMessage(`"` + Type + `"`)
	config, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": d.Network, "type": "any", "ipam": fields})
	if err != nil {
		d.Fault = fmt.Sprintf("its ipam section cannot be read: %v", err)
		return
	}
	configs, err := poolspec.ParseNetwork(config, d.Name)
	if err != nil || len(configs) == 0 {
		d.Fault = strings.ReplaceAll(fmt.Sprint(err), "\n", "; ")
		return
	}
	var takes netipx.IPSetBuilder
	gateways := map[netip.Prefix]netip.Addr{}
	for _, src := range configs[0].Sources {
		d.Unnamed = d.Unnamed || src.Unnamed
		if !slices.Contains(d.PoolsThen, src.Pool) && configs[0].Mode == poolspec.ModeCluster {
			d.PoolsThen = append(d.PoolsThen, src.Pool)
		}
		for _, r := range src.Ranges {
			d.CIDRs = append(d.CIDRs, r.Prefix)
			if r.Gateway.IsValid() {
				gateways[r.Prefix] = r.Gateway
			}
			span := netipx.RangeOfPrefix(r.Prefix)
			if r.Start.IsValid() {
				span = netipx.IPRangeFrom(r.Start, span.To())
			}
			if r.End.IsValid() {
				span = netipx.IPRangeFrom(span.From(), r.End)
			}
			takes.AddRange(span)
			for _, x := range r.Exclude {
				takes.RemoveRange(x)
			}
		}
	}
	if len(gateways) > 0 {
		d.Gateways = gateways
	}
	if d.IPAM == Type {
		d.Pools = d.PoolsThen
	} else {
		d.Takes, _ = takes.IPSet() // of valid ranges alone
	}
}

// readStatic reads the addresses of the reference plugin static.
func (d *Definition) readStatic(k keys) {
	var takes netipx.IPSetBuilder
	for _, a := range k.Addresses {
		p, err := netip.ParsePrefix(a.Address)
		if err != nil {
			continue // the plugin refuses it too
		}
		d.CIDRs = append(d.CIDRs, p.Masked())
		takes.Add(p.Addr())
	}
	d.Takes, _ = takes.IPSet()
}

// whereabouts returns whereabouts' IPPools for these keys.
func (k keys) whereabouts() (objects []Object) {
	ranges := []string{k.Range}
	for _, r := range k.IPRanges {
		ranges = append(ranges, r.Range)
	}
	for _, text := range ranges {
		if _, last, ok := strings.Cut(text, "-"); ok { // "first-last/length"
			text = last
		}
		if p, err := netip.ParsePrefix(text); err == nil {
			objects = append(objects, Object{whereaboutsName(k.NetworkName, p.Masked()), p.Masked()})
		}
	}
	return objects
}

// whereaboutsName returns how whereabouts names the IPPool of a range: its text with '-'
// for ':' and '/', after the network's name if it has one.
func whereaboutsName(network string, p netip.Prefix) string {
	name := strings.NewReplacer(":", "-", "/", "-").Replace(p.String())
	if network != "" {
		name = network + "-" + name
	}
	return name
}
