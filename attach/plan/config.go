package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// Defaults of the configuration.
const (
	defaultSocket    = "/run/tenure/agent.sock"
	DefaultStateDir  = "/var/lib/cni/tenure-attach" // survives a reboot, as what IPAM plugins hold does
	DefaultConfDir   = "/etc/cni/net.d"
	defaultBinDir    = "/opt/cni/bin"
	defaultNamespace = "kube-system"

	// multusConfDir is where networks without a configuration of their own are
	// looked up if the configuration is Multus's and says nothing else.
	multusConfDir = "/etc/cni/multus/net.d"
)

// ownNamespace is Tenure's own. Its controller is to have the default network alone: it
// cannot wait for an address of a pool that nobody but it opens.
const ownNamespace = "tenure-system"

// PluginType is the type of tenure-attach in a CNI configuration.
const PluginType = "tenure-attach"

// Config is the configuration of tenure-attach: docs/reference/attach.md explains its keys.
type Config struct {
	CNIVersion, Name string

	// Runtime is runtimeConfig, which becomes a [Call]'s.
	Runtime map[string]json.RawMessage
	// PrevResult is prevResult: in an ADD, what the plugins have answered that the runtime has
	// called before. Nil if there are none.
	PrevResult json.RawMessage

	// Default is the network that every pod is attached to first; Extra are those
	// that every pod outside the system namespaces is attached to next, in order.
	Default Source
	Extra   []Source
	// InlineExtra are further configurations of Multus's delegates: they are
	// attached to every pod, those of system namespaces included.
	InlineExtra []Source

	// Namespace is where definitions are looked up that this configuration, or a
	// pod's default-network annotation, names without a namespace.
	Namespace string
	// Isolated restricts pods to the definitions of their own namespace, of
	// GlobalNamespaces, and to those that say otherwise themselves.
	Isolated         bool
	GlobalNamespaces []string
	SystemNamespaces []string

	// Directories and files of the host, absolute. ReadinessFile is empty where
	// nothing is waited for.
	ConfDir, BinDir, StateDir, Socket, ReadinessFile string

	Version npwg.Version
	// FailInvalid makes an invalid annotation an error; else it is ignored with a
	// warning, as the specification says.
	FailInvalid bool
	// AllowIPsWithClaim passes an element on that has both ips and an
	// ipam-claim-reference, against 4.1.2.1.11.1.
	AllowIPsWithClaim bool
	// ArgsWithoutCapability asks by IP= and MAC= in CNI_ARGS, as Multus does, where no
	// plugin of a network declares the capability ips or mac; against 4.1.2.1.3.2 and
	// 4.1.2.1.4.2, by which that is an error.
	ArgsWithoutCapability bool
	// StatusCIDRs writes ips of the status annotation with their prefix lengths.
	StatusCIDRs bool

	// Ignored are keys without effect, each with the reason.
	Ignored []string
}

// A Source says where a network's configuration is: in Inline, in the file or
// directory Path of the host, in the definition Namespace/Name, or, if Namespace
// is empty, in the definition Name of the configuration's namespace or else in a
// file of confDir with that name.
type Source struct {
	Key             string // the configuration's key, for messages
	Inline          json.RawMessage
	Path            string
	Namespace, Name string
	IfName          string // empty: chosen
}

// ParseConfig reads the configuration as it comes on stdin. It reports every
// fault; with an error, the Config has what could be read, so that a DEL finds
// its journal. The error is [ErrUnsupported] if one of the faults is.
func ParseConfig(stdin []byte) (*Config, error) {
	c := &Config{
		Socket: defaultSocket, StateDir: DefaultStateDir, ConfDir: DefaultConfDir, BinDir: defaultBinDir,
		Namespace: defaultNamespace, Isolated: true, SystemNamespaces: []string{defaultNamespace, ownNamespace},
	}
	members, err := plainjson.Object(stdin)
	if err != nil {
		return c, fmt.Errorf("configuration of %s: %w", PluginType, err)
	}
	if isMultus(members) {
		c.ConfDir, c.Isolated, c.GlobalNamespaces = multusConfDir, false, []string{"default"}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(members)) {
		raw := members[name]
		k, known := keys[name]
		switch {
		case string(raw) == "null" || strings.Contains(name, "."): // cni.dev/… and other people's
		case !known:
			errs = append(errs, fmt.Errorf("%s: %w (%.80s): no such key; docs/reference/attach.md lists those that there are", name, ErrUnsupported, raw))
		case k.refused != "":
			errs = append(errs, fmt.Errorf("%s: %w (%.80s): %s", name, ErrUnsupported, raw, k.refused))
		case k.read == nil:
			c.Ignored = append(c.Ignored, name+": "+k.ignored)
		default:
			if err := k.read(c, raw); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	for _, pair := range [][2]string{{"isolation", "namespaceIsolation"}, {"defaultNamespace", "multusNamespace"}} {
		if has(members, pair[0]) && has(members, pair[1]) {
			errs = append(errs, fmt.Errorf("%s, %s: both say the same thing; keep one", pair[0], pair[1]))
		}
	}
	if err := c.checkDefault(members); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("configuration of %s: %w", PluginType, errors.Join(errs...))
	}
	return c, nil
}

// isMultus reports whether a configuration was written for Multus: it has one of
// the two keys that none of Multus's can be without.
func isMultus(members map[string]json.RawMessage) bool {
	return has(members, "clusterNetwork") || has(members, "delegates")
}

// has reports whether members has a value for name that says something.
func has(members map[string]json.RawMessage, name string) bool {
	switch strings.TrimSpace(string(members[name])) {
	case "", "null", `""`, "[]":
		return false
	}
	return true
}

// checkDefault reports whether exactly one key says what the default network is.
func (c *Config) checkDefault(members map[string]json.RawMessage) error {
	var said []string
	for _, name := range []string{"defaultNetwork", "clusterNetwork", "delegates"} {
		if has(members, name) {
			said = append(said, name)
		}
	}
	switch {
	case len(said) == 0:
		return errors.New("defaultNetwork: missing; every pod needs one (NPWG, section 6): give the name of a definition or of a network in confDir, a path, or a CNI configuration")
	case len(said) > 1:
		return fmt.Errorf("%s: all of them say what the default network is; keep one", strings.Join(said, ", "))
	case c.Default.Inline == nil && c.Default.Path != "" && !path.IsAbs(c.Default.Path):
		return fmt.Errorf("%s: %q is no absolute path", said[0], c.Default.Path)
	}
	return nil
}

// Question returns what the plugin asks the agent about pod.
func (c *Config) Question(pod facts.PodRef) facts.Question {
	q := facts.Question{Pod: pod, DefaultNamespace: c.Namespace}
	for _, s := range append([]Source{c.Default}, c.extras(pod.Namespace)...) {
		if ref, ok := c.ref(s); ok && !slices.Contains(q.Networks, ref) {
			q.Networks = append(q.Networks, ref)
		}
	}
	return q
}

// ref returns the definition that s may be in.
func (c *Config) ref(s Source) (facts.Ref, bool) {
	if s.Name == "" {
		return facts.Ref{}, false
	}
	if s.Namespace == "" {
		return facts.Ref{Namespace: c.Namespace, Name: s.Name}, true
	}
	return facts.Ref{Namespace: s.Namespace, Name: s.Name}, true
}

// extras returns the networks that a pod of namespace gets beside the default one,
// selected or not.
func (c *Config) extras(namespace string) []Source {
	all := slices.Clone(c.InlineExtra)
	if !slices.Contains(c.SystemNamespaces, namespace) {
		all = append(all, c.Extra...)
	}
	return all
}
