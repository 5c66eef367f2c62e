// Package translation writes the pools of IPAMs that administer addresses in objects of their own,
// nv-ipam and spiderpool, as Tenure's, and the definitions that name them. It goes by what was read
// alone. What Tenure has no word for is in the way, and never left out silently.
package translation

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// Read is what was read of a cluster.
type Read struct {
	Definitions []nad.NetworkAttachmentDefinition
	// Objects are the other IPAM's.
	Objects []unstructured.Unstructured
	// There are the names of the pools that Tenure has.
	There []string
}

// A Report says what becomes of an IPAM's networks, as json and yaml show it.
type Report struct {
	From string `json:"from"`
	// Definitions are those that name the IPAM, and Pools those that they are to name.
	Definitions []Definition `json:"definitions"`
	Pools       []Pool       `json:"pools"`
	// Unnamed are the IPAM's pools that no definition names.
	Unnamed []string `json:"unnamed,omitempty"`
}

// A Definition is one that names the IPAM.
type Definition struct {
	Name string `json:"name"` // namespace/name
	// Of are the IPAM's pools that it may take addresses of, and Pools those of Tenure's.
	Of    []string `json:"of,omitempty"`
	Pools []string `json:"pools,omitempty"`
	// Config is its configuration for Tenure; empty if something is in the way.
	Config   string   `json:"config,omitempty"`
	InTheWay []string `json:"inTheWay,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// A Pool is one of Tenure's.
type Pool struct {
	Name string `json:"name"`
	// Of are the IPAM's pools that it is made of.
	Of   []string            `json:"of"`
	Spec v1alpha1.IPPoolSpec `json:"spec"`
	// PerNode says that each node has a subnet of it.
	PerNode  bool     `json:"perNode,omitempty"`
	InTheWay []string `json:"inTheWay,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// fault notes that something of it has no word in Tenure, and what to do.
func (p *Pool) fault(format string, args ...any) {
	p.InTheWay = append(p.InTheWay, fmt.Sprintf(format, args...))
}

func (p *Pool) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func (d *Definition) fault(format string, args ...any) {
	d.InTheWay = append(d.InTheWay, fmt.Sprintf(format, args...))
}

// finish checks the pools as the controller does, and has what hangs together stay together.
func (r *Report) finish(read Read) {
	for i := range r.Pools {
		p := &r.Pools[i]
		if slices.Contains(read.There, p.Name) {
			p.fault("Tenure has a pool %s: have the definitions name it by hand, if it is the one that they are to have, or delete it", p.Name)
		}
		if len(p.InTheWay) > 0 {
			continue
		}
		if _, err := poolspec.ParsePool(kube.SpecText(&v1alpha1.IPPool{Spec: p.Spec})); err != nil {
			p.fault("Tenure would not open the pool: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	r.stayTogether()
	slices.SortFunc(r.Definitions, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
}

// stayTogether has definitions with a pool in common stay as they are, or none: two IPAMs must not
// give addresses of one pool.
func (r *Report) stayTogether() {
	stays := map[string]string{} // why, by pool of the other IPAM
	for i := range r.Pools {
		for _, of := range r.Pools[i].Of {
			if ways := r.Pools[i].InTheWay; len(ways) > 0 {
				stays[of] = fmt.Sprintf("%s: %s", of, strings.Join(ways, "; "))
			}
		}
	}
	for again := true; again; {
		again = false
		for i := range r.Definitions {
			d := &r.Definitions[i]
			if at := slices.IndexFunc(d.Of, func(of string) bool { return stays[of] != "" }); len(d.InTheWay) == 0 && at >= 0 {
				d.fault("%s", stays[d.Of[at]])
			}
			if len(d.InTheWay) == 0 {
				continue
			}
			d.Config = ""
			for _, of := range d.Of {
				if stays[of] == "" {
					stays[of], again = fmt.Sprintf("%s: definition %s stays with it", of, d.Name), true
				}
			}
		}
	}
	for i := range r.Pools {
		for _, of := range r.Pools[i].Of {
			if len(r.Pools[i].InTheWay) == 0 && stays[of] != "" {
				r.Pools[i].fault("%s", stays[of])
			}
		}
	}
}

// errSeveral says that a configuration has several ipam sections of an IPAM, which differ.
var errSeveral = errors.New("several ipam sections of it differ: write it by hand")

// section finds the ipam section of a configuration that names an IPAM. found is false where none
// does.
func section(config, ipam string) (network string, text json.RawMessage, found bool, err error) {
	type plugin struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	var top struct {
		Name string `json:"name"`
		plugin
		Plugins []plugin `json:"plugins"`
	}
	_ = json.Unmarshal([]byte(config), &top) // import says so of each that cannot be read
	for _, p := range append(top.Plugins, top.plugin) {
		var of struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(p.IPAM, &of) != nil || of.Type != ipam {
			continue
		}
		if found && string(text) != string(p.IPAM) {
			return top.Name, text, true, errSeveral
		}
		text, found = p.IPAM, true
	}
	return top.Name, text, found, nil
}

// rewrite returns a configuration whose section of the other IPAM is Tenure's instead. All else of
// the text stays as it is.
func rewrite(config string, section json.RawMessage, pools []string, routes []v1alpha1.Route) string {
	ipam := map[string]any{"type": poolspec.Type, "pools": pools}
	if len(pools) == 1 {
		ipam = map[string]any{"type": poolspec.Type, "pool": pools[0]}
	}
	if len(routes) > 0 {
		ipam["routes"] = routes
	}
	text, _ := json.Marshal(ipam) // of texts alone
	return strings.ReplaceAll(config, string(section), string(text))
}

// into reads an object into a type of this package.
func into(o unstructured.Unstructured, to any) error {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, to)
}

// everywhere is the destination of the default route in the family of a subnet.
func everywhere(subnet netip.Prefix) string {
	if subnet.Addr().Is6() {
		return "::/0"
	}
	return "0.0.0.0/0"
}

// poolName makes a pool's name of another's: Tenure's have neither dots nor underscores.
func poolName(of string) string {
	name := strings.Trim(strings.NewReplacer(".", "-", "_", "-", "/", "-").Replace(strings.ToLower(of)), "-")
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// selector writes a selector of labels as Tenure's.
func selector(s *metav1.LabelSelector) *v1alpha1.LabelSelector {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil
	}
	to := &v1alpha1.LabelSelector{}
	for key, value := range s.MatchLabels {
		if to.MatchLabels == nil {
			to.MatchLabels = map[string]v1alpha1.LabelValue{}
		}
		to.MatchLabels[key] = v1alpha1.LabelValue(value)
	}
	for _, e := range s.MatchExpressions {
		to.MatchExpressions = append(to.MatchExpressions, requirement(e.Key, string(e.Operator), e.Values))
	}
	return to
}

func requirement(key, operator string, values []string) v1alpha1.LabelRequirement {
	r := v1alpha1.LabelRequirement{Key: key, Operator: operator}
	for _, v := range values {
		r.Values = append(r.Values, v1alpha1.LabelValue(v))
	}
	return r
}
