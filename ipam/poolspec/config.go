package poolspec

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/tenure-ipam/tenure/allocator"
)

// Type is the value of "type" under "ipam" that means this plugin.
const Type = "tenure"

// DefaultDomain is the domain of the implicit pools of inline ranges in whereabouts' form whose
// configuration has no network_name. It is also the name of the one pool that earlier versions
// have made of all of them.
const DefaultDomain = "default-domain"

// Defaults of a [Config].
const (
	DefaultSocket     = "/run/tenure/agent.sock"
	defaultDataDir    = "/var/lib/tenure/local"
	defaultJournalDir = "/var/lib/tenure/journal"
)

// Mode is who hands out the addresses of a configuration.
type Mode uint8

// The modes.
const (
	ModeCluster Mode = iota // the node's agent
	ModeLocal               // the plugin itself, from a file on this host
)

// String returns "cluster" or "local", as in the configuration.
func (m Mode) String() string {
	switch m {
	case ModeCluster:
		return "cluster"
	case ModeLocal:
		return "local"
	default:
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
}

// Config is one CNI network configuration as Tenure reads it. It shares no
// memory with the text and must not be changed: callers keep it by content.
type Config struct {
	// CNIVersion is as in the text; empty is 0.1.0, as the CNI library has it.
	CNIVersion string
	// Name is the network's, never empty.
	Name string
	Mode Mode

	// Socket is where the agent listens, JournalDir where DELs are kept that
	// found no agent; both matter in cluster mode only. DataDir is where local
	// mode keeps its state. All are absolute and have defaults.
	Socket, JournalDir, DataDir string

	// OwnsGateway says that the interface plugin takes the gateway of the result as an address of
	// its own. ptp does, and a bridge with isGateway.
	OwnsGateway bool

	// Sources say where addresses come from, in order. There is at least one.
	Sources []Source
	// Requested are the addresses that were asked for by name. If there is one of a family, no
	// other of that family is assigned. Those of inline sources have been checked against the
	// sources; for a named pool the caller must check them.
	Requested []Requested

	// Routes and DNS go into the result as they are.
	Routes []Route
	DNS    DNS
	// ResolvConf is a file of the host from which DNS is to be read with
	// [ParseResolvConf]; empty if there is none. DNS is empty if it is set.
	ResolvConf string

	// Pod is whose sandbox this is, as far as the runtime says.
	Pod Pod
	// ReportFull says that STATUS is to answer with an error while a pool of
	// this network is full.
	ReportFull bool

	// ValidAttachments are the attachments that GC keeps. If HasValidAttachments is false, the
	// runtime has named none and GC must free nothing. If it is true and the list is empty, GC
	// frees all that the network has.
	ValidAttachments    []AttachmentRef
	HasValidAttachments bool

	// PrevResult is the result that CHECK is to compare with, as JSON; nil if
	// there is none. See [Config.PrevAddresses].
	PrevResult json.RawMessage

	// Ignored has a sentence for each key that was read and has no effect,
	// starting with the key's path. It is for people.
	Ignored []string
}

// Source is where addresses of a configuration come from.
type Source struct {
	// Pool is the pool's name: a DNS label of at most 63 characters. Where ByNamespace is set it is
	// empty until [OfNamespace] has found it.
	Pool string
	// ByNamespace is the label of the pod's or claim's namespace whose value is the pool's name;
	// empty where the configuration names or describes its pool.
	ByNamespace string
	// Unnamed says that the configuration does not name its pool: [Place] finds the pool of
	// [DefaultDomain] that has the ranges. Until then Pool is the name that the controller would
	// give a pool made for this configuration alone.
	Unnamed bool
	// Implicit has the ranges that the pool must have at least, for a configuration that describes
	// it inline. It is nil for a named pool. Sources of one configuration and pool share it.
	Implicit *PoolText
	// View is what this configuration may take of the pool, by name or not.
	View allocator.View
	// Families are the families of which one address each is taken, as far as the pool
	// has them: exactly one for inline ranges. Nil is all that the pool has.
	Families []allocator.Family
	// Ranges are the inline ranges as the configuration describes them, for
	// [Source.Answer].
	Ranges []allocator.Range
	// TakesFirst says that the interface plugin takes the first address of the CIDR for itself if
	// the result names no gateway: see [Source.routers].
	TakesFirst bool
}

// Requested is an address asked for by name.
type Requested struct {
	Addr netip.Addr
	// Bits is the prefix length asked for with it; 0 if there was none.
	Bits int
	// Path is where it was asked for: "runtimeConfig.ips[0]".
	Path string
}

// Route is a route for the result. A zero GW is none; Table and Scope are nil
// where the configuration says nothing.
type Route struct {
	Dst                   netip.Prefix
	GW                    netip.Addr
	MTU, AdvMSS, Priority int
	Table, Scope          *int
}

// DNS is what the result says about name resolution.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

// Pod identifies a pod by what a Kubernetes runtime puts into CNI_ARGS. Fields
// that it did not say are empty.
type Pod struct {
	Namespace, Name, UID string
	// Unselected says, by [ArgUnselected], that the interface is none that the pod's
	// annotation selects.
	Unselected bool
	// Claim is the claim whose addresses the interface has, by [argClaim]. If it is empty, the
	// pod's annotation names the claim.
	Claim string
}

// ArgUnselected is the key of CNI_ARGS by which the meta-plugin says that no element of the pod's
// annotation selects the interface: the cluster's configuration does. Only a caller that runs
// plugins as root can set it. It gives no right: a caller that sets it wrongly gets some address,
// although the pod may have asked for a certain one.
const ArgUnselected = "TENURE_UNSELECTED"

// argClaim is the key of CNI_ARGS by which the meta-plugin says which claim of the pod's
// namespace an interface has, where the control plane has decided it and the pod's annotation does
// not name the claim. It gives no right that the claim does not.
const argClaim = "TENURE_CLAIM"

// AttachmentRef is one attachment that GC is to keep. An empty IfName means all
// interfaces of the container.
type AttachmentRef struct {
	ContainerID string
	IfName      string
}

// SourceOf returns the source of c that gives a, and whether the pool of any source has a in its
// ranges. Several may, if sources share a pool or pools share a CIDR. Then it is the first whose
// pool can give a and whose view has a, else the first whose pool can give a, else the first whose
// view has a, else the first of them. If no pool has a, it is the first source of c.
//
// shapeOf returns a pool's shape. SourceOf returns its error, and does not call it after the best
// source is found.
func (c *Config) SourceOf(a netip.Addr, shapeOf func(pool string) (*allocator.Shape, error)) (src Source, found bool, err error) {
	const located, viewed, given = 1, 2, 4
	src = c.Sources[0]
	best := 0
	for _, s := range c.Sources {
		shape, err := shapeOf(s.Pool)
		if err != nil {
			return Source{}, false, err
		}
		if _, ok := shape.Locate(a); !ok {
			continue
		}
		rank := located
		if s.ViewOf(shape).Contains(a) {
			rank += viewed
		}
		if shape.Assignable(a) == nil {
			rank += given
		}
		if rank > best {
			src, best = s, rank
		}
		if best == located+viewed+given {
			break
		}
	}
	return src, best > 0, nil
}
