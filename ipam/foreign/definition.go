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

	"github.com/tenure-ipam/tenure/allocator"
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
	// TypeLocal stands for Tenure's own in local mode. Each node then gives addresses by itself, as
	// with host-local: for the cluster's pools it is another IPAM.
	TypeLocal = "tenure in local mode"
)

// A Definition is a NetworkAttachmentDefinition, as far as its IPAM is concerned.
type Definition struct {
	Namespace, Name string
	// Network is the configuration's own name, else the definition's.
	Network string
	// IPAM is the type of its IPAM plugin, or TypeLocal, of a list that of the first plugin that
	// has one; "" where there is none.
	IPAM string
	// Takes are the addresses that its IPAM may hand out by this configuration. It is nil
	// where nothing is known of that IPAM, and where it is Tenure's. Of static they are the whole
	// subnets of the addresses that it names: pods may ask for others.
	Takes *netipx.IPSet
	// explains are the addresses of its own ranges, whichever IPAM it names.
	explains []allocator.View
	// CIDRs are the subnets of its ranges, and Gateways the routers that it names, by these.
	CIDRs    []netip.Prefix
	Gateways map[netip.Prefix]netip.Addr
	// Pools are the pools that it names or describes, where IPAM is Tenure's, and
	// PoolsThen those that it does once it is switched to Tenure.
	Pools, PoolsThen []string
	// Unnamed says that its ranges are of the pool of the default domain that has them; the pool
	// that it describes is then what it would be called were it made for this definition alone.
	Unnamed bool
	// ByNamespace says that labels of namespaces name pools of it: it may be of any.
	ByNamespace bool
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
	// Since is from when on no other IPAM can have had a definition of its name: it has never been
	// written again, and the controller has seen it made. Zero if that is not known.
	Since time.Time
	// Fault says why the configuration cannot be read. The rest is then empty, but for one of
	// Tenure's. By that nobody gets an address, and pods may have some by what it was before. It
	// has the pool that it names, or its ranges, or all that there are, where none can be read.
	Fault string
	// Unread says why the ranges of another IPAM cannot be read. That IPAM may then give any
	// address: CIDRs and Takes are all that there are.
	Unread string
	// Refused says why Tenure does not take the ipam section of another IPAM as its own.
	Refused string
	// AnyAddress says that its IPAM gives a pod whichever address the pod asks for.
	AnyAddress bool
}

// An Object is one of whereabouts' IPPools: its name, and the range that it records
// allocations of.
type Object struct {
	Name  string
	Range netip.Prefix
}

// String returns "namespace/name".
func (d Definition) String() string { return d.Namespace + "/" + d.Name }

// By says, for people, which IPAM gives addresses by d.
func (d Definition) By() string {
	if d.Unread == "" {
		return d.IPAM
	}
	return d.IPAM + ", whose ranges cannot be read: " + d.Unread
}

// plugin is what is read of any plugin's configuration.
type plugin struct {
	IPAM json.RawMessage `json:"ipam"`
}

// ReadDefinition reads the configuration of a definition, single or list.
func ReadDefinition(namespace, name, config string, annotations map[string]string) Definition {
	d := Definition{Namespace: namespace, Name: name, Network: name, Domain: annotations[v1alpha1.AnnotationDomain]}
	var top struct {
		Name string `json:"name"`
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if strings.TrimSpace(config) == "" {
		d.Fault = "it has no configuration of its own, and files on the nodes are not read: see that it gives no addresses of a network that is moved"
		return d
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
	// A value of another type than the key's leaves its field empty, and the rest is read.
	if err := json.Unmarshal(plugins[i].IPAM, &k); err != nil && k.Type == "" {
		d.Fault = fmt.Sprintf("its ipam section cannot be read: %v", err)
		return d
	}
	d.IPAM, d.NetworkName, d.DataDir, d.NodeSlices = k.Type, k.NetworkName, k.DataDir, k.NodeSliceSize != ""
	d.Whereabouts = k.whereabouts()
	d.HostLocal = k.Type == TypeHostLocal || k.DataDir != "" || k.Subnet != "" || len(k.Ranges) > 0
	switch k.Type {
	case Type:
		d.Fault = d.readAsTenures(plugins[i].IPAM)
		switch {
		case d.Fault != "" && k.Pool != "":
			d.PoolsThen = []string{k.Pool}
		case d.Fault != "":
			d.readTheirs(k)
			d.Takes, d.Unread = nil, ""
		case d.IPAM == TypeLocal:
			d.readTheirs(k)
		}
		d.Pools = d.PoolsThen
	case TypeWhereabouts, TypeHostLocal:
		d.Refused = d.readAsTenures(plugins[i].IPAM)
		d.readTheirs(k)
	case typeStatic:
		d.AnyAddress = true
		d.readStatic(k)
	}
	return d
}

// readAsTenures reads what Tenure makes of the ipam section, were it Tenure's. Where Tenure
// refuses it, it reads nothing, and returns why.
func (d *Definition) readAsTenures(ipam json.RawMessage) (fault string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(ipam, &fields); err != nil {
		return fmt.Sprintf("its ipam section cannot be read: %v", err)
	}
	maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return strings.EqualFold(key, "type") })
	fields["type"] = json.RawMessage(`"` + Type + `"`)
	config, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": d.Network, "type": "any", "ipam": fields})
	if err != nil {
		return fmt.Sprintf("its ipam section cannot be read: %v", err)
	}
	configs, err := poolspec.ParseNetwork(config, d.Name)
	if err != nil || len(configs) == 0 {
		return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ")
	}
	local := configs[0].Mode == poolspec.ModeLocal
	if local && d.IPAM == Type {
		d.IPAM = TypeLocal
	}
	gateways := map[netip.Prefix]netip.Addr{}
	for _, src := range configs[0].Sources {
		d.Unnamed = d.Unnamed || src.Unnamed
		if src.Pool == "" {
			d.ByNamespace = true
			continue
		}
		if !slices.Contains(d.PoolsThen, src.Pool) && !local {
			d.PoolsThen = append(d.PoolsThen, src.Pool)
		}
		if len(src.Ranges) > 0 {
			d.explains = append(d.explains, src.View)
		}
		for _, r := range src.Ranges {
			d.CIDRs = append(d.CIDRs, r.Prefix)
			if r.Gateway.IsValid() {
				gateways[r.Prefix] = r.Gateway
			}
		}
	}
	if len(gateways) > 0 {
		d.Gateways = gateways
	}
	return ""
}
