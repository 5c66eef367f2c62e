package translation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// Spiderpool is the type of spiderpool's IPAM plugin, and SpiderpoolGroup the group of its objects,
// with their version.
const (
	Spiderpool      = "spiderpool"
	SpiderpoolGroup = "spiderpool.spidernet.io/v2beta1"
)

// The kinds of its objects.
const (
	kindSpiderPool     = "SpiderIPPool"
	kindSpiderReserved = "SpiderReservedIP"
	kindSpiderMultus   = "SpiderMultusConfig"
)

// spiderPool is a SpiderIPPool. A SpiderReservedIP has its addresses likewise.
type spiderPool struct {
	name string
	Spec struct {
		Subnet            string                `json:"subnet"`
		IPs               []string              `json:"ips"`
		ExcludeIPs        []string              `json:"excludeIPs"`
		Gateway           string                `json:"gateway"`
		Routes            []v1alpha1.Route      `json:"routes"`
		PodAffinity       *metav1.LabelSelector `json:"podAffinity"`
		NamespaceAffinity *metav1.LabelSelector `json:"namespaceAffinity"`
		NamespaceName     []string              `json:"namespaceName"`
		NodeAffinity      *metav1.LabelSelector `json:"nodeAffinity"`
		NodeName          []string              `json:"nodeName"`
		MultusName        []string              `json:"multusName"`
		Default           bool                  `json:"default"`
		Disable           bool                  `json:"disable"`
	} `json:"spec"`
}

// spider is what spiderpool has.
type spider struct {
	pools    []spiderPool
	faults   map[string]string // of pools that cannot be read, by name
	reserved []string
}

// OfSpiderpool translates what spiderpool has: the pools that a definition may take addresses of
// become the ranges of one pool, and what they say of nodes the ranges' selectors.
func OfSpiderpool(read Read) Report {
	r := Report{From: Spiderpool, Definitions: []Definition{}, Pools: []Pool{}}
	s := spider{faults: map[string]string{}}
	for _, o := range read.Objects {
		p := spiderPool{name: o.GetName()}
		switch err := into(o, &p); {
		case err != nil:
			s.faults[o.GetName()] = err.Error()
		case o.GetKind() == kindSpiderReserved:
			s.reserved = append(s.reserved, p.Spec.IPs...)
		default:
			s.pools = append(s.pools, p)
		}
	}
	used, made := map[string]bool{}, map[string]string{}
	for _, o := range read.Definitions {
		_, text, found, err := section(o.Spec.Config, Spiderpool)
		if !found {
			continue
		}
		d, of := s.definition(o, text)
		if err != nil {
			d.fault("%v", err)
		}
		for _, p := range of {
			used[p.name] = true
		}
		if key := strings.Join(d.Of, ","); len(of) > 0 {
			if made[key] == "" {
				made[key] = spiderName(o, of)
				r.Pools = append(r.Pools, s.translate(made[key], of))
			}
			d.Pools = []string{made[key]}
		}
		d.Config = rewrite(o.Spec.Config, text, d.Pools, defaults(text, of))
		r.Definitions = append(r.Definitions, d)
	}
	for _, p := range s.pools {
		if !used[p.name] {
			r.Unnamed = append(r.Unnamed, kindSpiderPool+" "+p.name)
		}
	}
	r.shared()
	r.finish(read)
	return r
}

// defaults returns the default routes that spiderpool's plugin answers: one through the gateway of
// each family, unless its section says clean_gateway.
func defaults(section json.RawMessage, of []spiderPool) (routes []v1alpha1.Route) {
	var keys struct {
		Clean bool `json:"clean_gateway"`
	}
	if json.Unmarshal(section, &keys) != nil || keys.Clean {
		return nil
	}
	for _, p := range of {
		subnet, err := netip.ParsePrefix(p.Spec.Subnet)
		if r := (v1alpha1.Route{Dst: everywhere(subnet)}); err == nil && p.Spec.Gateway != "" && !slices.Contains(routes, r) {
			routes = append(routes, r)
		}
	}
	return routes
}

// shared has pools of spiderpool's that two of Tenure's would be made of be in the way: no address
// can be of two pools.
func (r *Report) shared() {
	by := map[string][]string{}
	for _, p := range r.Pools {
		for _, of := range p.Of {
			by[of] = append(by[of], p.Name)
		}
	}
	for i := range r.Pools {
		for _, of := range r.Pools[i].Of {
			if len(by[of]) > 1 {
				r.Pools[i].fault("definitions that take addresses of %s take those of other pools too, and not of the same ones: write these by hand, with one pool", of)
				break
			}
		}
	}
}

// spiderName names the pool that is made of some of spiderpool's for a definition.
func spiderName(o nad.NetworkAttachmentDefinition, of []spiderPool) string {
	if len(of) == 1 {
		return poolName(of[0].name)
	}
	return poolName(o.Namespace + "-" + o.Name)
}

// definition reads which pools a definition may take addresses of: those that its section names,
// else those that name it, else the default ones.
func (s spider) definition(o nad.NetworkAttachmentDefinition, section json.RawMessage) (d Definition, of []spiderPool) {
	d.Name = o.Namespace + "/" + o.Name
	var keys struct {
		Four []string `json:"default_ipv4_ippool"`
		Six  []string `json:"default_ipv6_ippool"`
	}
	if err := json.Unmarshal(section, &keys); err != nil {
		d.fault("its ipam section cannot be read: %v", err)
		return d, nil
	}
	mine := func(p spiderPool) bool { return slices.Contains(p.Spec.MultusName, d.Name) }
	pick := func(may func(spiderPool) bool) {
		for _, p := range s.pools {
			if may(p) && !p.Spec.Disable && (len(p.Spec.MultusName) == 0 || mine(p)) {
				of = append(of, p)
			}
		}
	}
	if named := slices.Concat(keys.Four, keys.Six); len(named) > 0 {
		pick(func(p spiderPool) bool { return slices.Contains(named, p.name) })
		for _, name := range named {
			if !slices.ContainsFunc(s.pools, func(p spiderPool) bool { return p.name == name }) {
				d.fault("there is no %s %s that can be read %s", kindSpiderPool, name, s.faults[name])
			}
		}
	} else if pick(mine); len(of) == 0 {
		pick(func(p spiderPool) bool { return p.Spec.Default })
	}
	if len(of) == 0 {
		d.fault("no %s is named by it, or names it, or is a default: which pools its pods name, by annotations, Tenure does not read. Make a pool, and write its ipam section by hand", kindSpiderPool)
	}
	for _, owner := range o.OwnerReferences {
		if owner.Kind == kindSpiderMultus {
			d.Notes = append(d.Notes, fmt.Sprintf("%s %s would write it anew: before, kubectl delete spidermultusconfig %s -n %s --cascade=orphan", kindSpiderMultus, owner.Name, owner.Name, o.Namespace))
		}
	}
	for _, p := range of {
		d.Of = append(d.Of, kindSpiderPool+" "+p.name)
	}
	return d, of
}

// translate makes one pool of some of spiderpool's.
func (s spider) translate(name string, of []spiderPool) Pool {
	p := Pool{Name: name}
	for _, from := range of {
		p.Of = append(p.Of, kindSpiderPool+" "+from.name)
		if from.Spec.PodAffinity != nil {
			p.fault("%s has podAffinity, and Tenure does not go by labels of pods: make a definition for these pods, with a pool of their own", from.name)
		}
		if !reflect.DeepEqual(from.namespaces(), of[0].namespaces()) {
			p.fault("%s and %s are for other namespaces, and a pool is for one set of them: write a pool for each by hand", of[0].name, from.name)
		}
		for _, r := range from.routes() {
			if !slices.Contains(p.Spec.Routes, r) {
				p.Spec.Routes = append(p.Spec.Routes, r)
			}
		}
		if strings.Contains(from.Spec.Subnet, ":") == strings.Contains(of[0].Spec.Subnet, ":") && !slices.Equal(from.routes(), of[0].routes()) {
			p.fault("%s and %s have other routes, and the routes of a pool are for all of its ranges: write a pool for each by hand", of[0].name, from.name)
		}
		p.Spec.Ranges = append(p.Spec.Ranges, s.ranges(&p, from)...)
	}
	p.Spec.NamespaceSelector = of[0].namespaces()
	return p
}

// routes returns a pool's routes as Tenure's: one without a next hop leads through the range's
// gateway.
func (p spiderPool) routes() []v1alpha1.Route {
	routes := slices.Clone(p.Spec.Routes)
	for i := range routes {
		if routes[i].GW == p.Spec.Gateway {
			routes[i].GW = ""
		}
	}
	return routes
}

// namespaces returns which namespaces may use a pool. Names come before labels, as with spiderpool.
func (p spiderPool) namespaces() *v1alpha1.LabelSelector {
	if len(p.Spec.NamespaceName) > 0 {
		return &v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{requirement(corev1.LabelMetadataName, "In", p.Spec.NamespaceName)}}
	}
	return selector(p.Spec.NamespaceAffinity)
}

// nodes returns which nodes' pods have addresses of a pool, likewise.
func (p spiderPool) nodes() *v1alpha1.LabelSelector {
	if len(p.Spec.NodeName) > 0 {
		return &v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{requirement(corev1.LabelHostname, "In", p.Spec.NodeName)}}
	}
	return selector(p.Spec.NodeAffinity)
}

// ranges returns the ranges of one of spiderpool's pools: one for each span of its addresses.
func (s spider) ranges(p *Pool, from spiderPool) (ranges []v1alpha1.Range) {
	subnet, err := netip.ParsePrefix(from.Spec.Subnet)
	if err != nil {
		p.fault("subnet %q of %s is no CIDR", from.Spec.Subnet, from.name)
		return nil
	}
	if len(from.Spec.NodeName) > 0 {
		p.note("%s selects nodes by name: the range does by their label %s", from.name, corev1.LabelHostname)
	}
	out := func(span netipx.IPRange) (all []string) {
		for _, text := range slices.Concat(from.Spec.ExcludeIPs, s.reserved) {
			if x, ok := spanOf(text); ok && x.Overlaps(span) {
				all = append(all, cut(x, netipx.RangeOfPrefix(subnet.Masked())).String())
			}
		}
		return all
	}
	for _, text := range from.Spec.IPs {
		span, ok := spanOf(text)
		if !ok {
			p.fault("%q of %s is neither an address nor a range", text, from.name)
			continue
		}
		ranges = append(ranges, v1alpha1.Range{
			CIDR: subnet.Masked().String(), Start: span.From().String(), End: span.To().String(), Exclude: out(span),
			Gateway: from.Spec.Gateway, NodeSelector: from.nodes(),
		})
	}
	if len(from.Spec.IPs) == 0 {
		p.fault("%s has no addresses (spec.ips): leave it out of the definitions", from.name)
	}
	return ranges
}

// spanOf reads an address, or "first-last".
func spanOf(text string) (span netipx.IPRange, ok bool) {
	first, last, _ := strings.Cut(text, "-")
	a, err1 := netip.ParseAddr(first)
	b, err2 := netip.ParseAddr(cmp.Or(last, first))
	span = netipx.IPRangeFrom(a, b)
	return span, err1 == nil && err2 == nil && span.IsValid()
}

// cut returns the part of a span that lies in another, which it overlaps.
func cut(span, to netipx.IPRange) netipx.IPRange {
	first, last := span.From(), span.To()
	if first.Less(to.From()) {
		first = to.From()
	}
	if to.To().Less(last) {
		last = to.To()
	}
	return netipx.IPRangeFrom(first, last)
}
