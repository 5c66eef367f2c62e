package networks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// A Network is one NetworkAttachmentDefinition, as far as it concerns Tenure.
type Network struct {
	// Namespace and Definition are the object's.
	Namespace, Definition string
	Created               time.Time
	// Name is the CNI network's: the configuration's, or else the definition's.
	Name  string
	Owner Owner
	// Sources are where addresses come from, and Fault is what is wrong with the
	// configuration: one of the two where Owner is Tenure. Which pool has ranges without a
	// name, [Network.Place] finds, and [Network.OfNamespace] the pools that labels name.
	Sources []poolspec.Source
	Fault   string
}

// Owner says whose a network is.
type Owner uint8

// The owners.
const (
	// Others: another IPAM gives addresses, or none, or a node's own file does.
	Others Owner = iota
	// Tenure: this cluster's pools do.
	Tenure
)

// String returns "namespace/definition".
func (n Network) String() string { return n.Namespace + "/" + n.Definition }

// Older compares n and o by their age, the oldest first. Of several definitions the oldest decides
// where only one can.
func (n Network) Older(o Network) int {
	if c := n.Created.Compare(o.Created); c != 0 {
		return c
	}
	return strings.Compare(n.String(), o.String())
}

// Read reads the configuration of a definition, single or list.
func Read(namespace, definition string, created time.Time, config string) Network {
	n := Network{Namespace: namespace, Definition: definition, Created: created, Name: definition}
	outline, err := outlineOf(config)
	if err != nil {
		if meant(config) {
			n.Owner, n.Fault = Tenure, fmt.Sprintf("config: cannot be read: %v; correct the JSON", err)
		}
		return n
	}
	if outline.Name != "" {
		n.Name = outline.Name
	}
	if !outline.ours() {
		if n.Fault = outline.mistake(); n.Fault != "" {
			n.Owner = Tenure
		}
		return n
	}
	configs, err := poolspec.ParseNetwork([]byte(config), definition)
	switch {
	case err != nil:
		n.Owner, n.Fault = Tenure, oneLine(err)
	case len(configs) > 0 && configs[0].Mode == poolspec.ModeCluster:
		n.Owner, n.Sources = Tenure, configs[0].Sources
	}
	return n
}

// outline is what can be read of any configuration.
type outline struct {
	Name    string `json:"name"`
	IPAM    ipam   `json:"ipam"`
	Plugins []struct {
		IPAM ipam `json:"ipam"`
	} `json:"plugins"`
}

type ipam struct {
	Type string `json:"type"`
}

func outlineOf(config string) (outline, error) {
	var o outline
	err := json.Unmarshal([]byte(config), &o)
	return o, err
}

func (o outline) ours() bool {
	if o.Plugins == nil {
		return o.IPAM.Type == poolspec.Type
	}
	for _, p := range o.Plugins {
		if p.IPAM.Type == poolspec.Type {
			return true
		}
	}
	return false
}

// oneLine writes joined errors as a sentence.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Verdict is what a network's name means to a claim.
type Verdict uint8

// The verdicts.
const (
	// Unknown: no definition has the name, or one that has it is not Tenure's.
	// The claim may be another implementation's: it is not touched.
	Unknown Verdict = iota
	// Known: the definitions of that name give addresses of the same pools.
	Known
	// Ambiguous: they give addresses of different pools.
	Ambiguous
	// Faulty: their configurations cannot be read.
	Faulty
)

// String returns the verdict as a word.
func (v Verdict) String() string {
	names := [...]string{"Unknown", "Known", "Ambiguous", "Faulty"}
	if int(v) >= len(names) {
		return fmt.Sprintf("Verdict(%d)", uint8(v))
	}
	return names[v]
}

// A Resolution is what a network's name means in a namespace.
type Resolution struct {
	Verdict Verdict
	// Undefined says of an Unknown network that no definition at all has its name.
	Undefined bool
	// Network decides where addresses come from, if the verdict is Known.
	Network Network
	// Message says, for people, what is ambiguous or faulty.
	Message string
}

// Resolve decides which of the networks of one name a claim in namespace means:
// those that are defined there, else the one that the controller has made, else those of any
// namespace. The oldest of several decides which part of the pools it is.
func Resolve(named []Network, namespace string) Resolution {
	at := slices.Clone(named)
	for _, first := range []string{namespace, podnetwork.Namespace} {
		if in := slices.DeleteFunc(slices.Clone(named), func(n Network) bool { return n.Namespace != first }); len(in) > 0 {
			at = in
			break
		}
	}
	if len(at) == 0 {
		return Resolution{Undefined: true}
	}
	if slices.ContainsFunc(at, func(n Network) bool { return n.Owner != Tenure }) {
		return Resolution{}
	}
	slices.SortFunc(at, Network.Older)
	good := slices.DeleteFunc(slices.Clone(at), func(n Network) bool { return n.Fault != "" })
	if len(good) == 0 {
		return Resolution{Verdict: Faulty, Message: fmt.Sprintf("network attachment definition %s: %s", at[0], at[0].Fault)}
	}
	for _, n := range good[1:] {
		if !n.samePools(good[0]) {
			return Resolution{Verdict: Ambiguous, Message: fmt.Sprintf(
				"network %q is defined by %s with %s, and by %s with %s", n.Name, good[0], good[0].pools(), n, n.pools())}
		}
	}
	return Resolution{Verdict: Known, Network: good[0]}
}

// samePools reports whether n and o give the same number of addresses of each
// family, of the same pools.
func (n Network) samePools(o Network) bool {
	return slices.EqualFunc(n.Sources, o.Sources, func(a, b poolspec.Source) bool {
		return a.Pool == b.Pool && a.ByNamespace == b.ByNamespace && slices.Equal(a.Families, b.Families)
	})
}

// pools names the pools of n for a message.
func (n Network) pools() string {
	var names []string
	for _, s := range n.Sources {
		name := s.Pool
		if name == "" {
			name = "by label " + s.ByNamespace + " of the namespace"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return "pool " + names[0]
	}
	return "pools " + strings.Join(names, ", ")
}

// Pools returns the names of the pools that n gets addresses of, each once, in order: without those
// that labels of namespaces name.
func (n Network) Pools() []string {
	var names []string
	for _, s := range n.Sources {
		if s.Pool != "" {
			names = append(names, s.Pool)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ImplicitPools returns what the pools that n describes inline must hold.
func (n Network) ImplicitPools() map[string]poolspec.PoolText {
	pools := map[string]poolspec.PoolText{}
	for _, s := range n.Sources {
		if s.Implicit != nil {
			pools[s.Pool] = *s.Implicit
		}
	}
	return pools
}
