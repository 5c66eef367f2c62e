package translation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// NVIPAM is the type of NVIDIA's IPAM plugin, and NVIPAMGroup the group of its objects, with their
// version.
const (
	NVIPAM      = "nv-ipam"
	NVIPAMGroup = "nv-ipam.nvidia.com/v1alpha1"
)

// The kinds of its pools.
const (
	kindIPPool   = "IPPool"
	kindCIDRPool = "CIDRPool"
)

// nvPool is an IPPool or a CIDRPool of nv-ipam.
type nvPool struct {
	Spec struct {
		// What both kinds have.
		Exclusions        []nvSpan             `json:"exclusions"`
		PerNodeExclusions []any                `json:"perNodeExclusions"`
		NodeSelector      *corev1.NodeSelector `json:"nodeSelector"`
		DefaultGateway    bool                 `json:"defaultGateway"`
		Routes            []v1alpha1.Route     `json:"routes"`
		// Of an IPPool.
		Subnet  string `json:"subnet"`
		Gateway string `json:"gateway"`
		// Of a CIDRPool.
		CIDR              string     `json:"cidr"`
		GatewayIndex      *int32     `json:"gatewayIndex"`
		Prefix            int32      `json:"perNodeNetworkPrefix"`
		StaticAllocations []nvSubnet `json:"staticAllocations"`
	} `json:"spec"`
	Status struct {
		Allocations []nvSubnet `json:"allocations"`
	} `json:"status"`
}

// nvSpan is a part of a pool that is not given.
type nvSpan struct {
	First string `json:"startIP"`
	Last  string `json:"endIP"`
}

// nvSubnet is what a node has of a CIDRPool.
type nvSubnet struct {
	Node    string `json:"nodeName"`
	Prefix  string `json:"prefix"`
	Gateway string `json:"gateway"`
}

// OfNVIPAM translates what nv-ipam has: an IPPool becomes a pool, and a CIDRPool one that gives
// each node a subnet. The subnets that nodes have are pinned to them.
func OfNVIPAM(read Read) Report {
	r := Report{From: NVIPAM, Definitions: []Definition{}, Pools: []Pool{}}
	used := map[string]bool{}
	for _, o := range read.Definitions {
		network, text, found, err := section(o.Spec.Config, NVIPAM)
		if !found {
			continue
		}
		d := Definition{Name: o.Namespace + "/" + o.Name}
		if err != nil {
			d.fault("%v", err)
		}
		kind, names := nvNames(text, cmp.Or(network, o.Name))
		if len(names) > 2 || slices.Contains(names, "") {
			d.fault("poolName %q names no pool, or more than two: nv-ipam refuses it too", strings.Join(names, ","))
		}
		for _, name := range names {
			obj, err := nvFind(read.Objects, kind, name)
			if err != nil {
				d.fault("%v", err)
				continue
			}
			of := ref(obj)
			d.Of, d.Pools = append(d.Of, of), append(d.Pools, nvPoolName(read.Objects, obj))
			if !used[of] {
				r.Pools, used[of] = append(r.Pools, nvTranslate(obj, nvPoolName(read.Objects, obj))), true
			}
		}
		d.Config = rewrite(o.Spec.Config, text, d.Pools, nil)
		r.Definitions = append(r.Definitions, d)
	}
	for _, o := range read.Objects {
		if !used[ref(o)] {
			r.Unnamed = append(r.Unnamed, ref(o))
		}
	}
	r.finish(read)
	return r
}

// ref says which object is meant, for people.
func ref(o unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// nvNames returns which pools a section means, as nv-ipam reads it.
func nvNames(section json.RawMessage, network string) (kind string, names []string) {
	var s struct {
		PoolName string `json:"poolName"`
		PoolType string `json:"poolType"`
	}
	_ = json.Unmarshal(section, &s) // it has been read before, and a wrong type names no pool
	kind = kindIPPool
	if strings.EqualFold(s.PoolType, kindCIDRPool) {
		kind = kindCIDRPool
	}
	return kind, strings.Split(cmp.Or(s.PoolName, network), ",")
}

// nvFind finds a pool. nv-ipam looks in one namespace, which it is told by a flag.
func nvFind(objects []unstructured.Unstructured, kind, name string) (found unstructured.Unstructured, err error) {
	n := 0
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			found, n = o, n+1
		}
	}
	if n != 1 {
		return found, fmt.Errorf("there are %d objects %s %s of nv-ipam, and one is needed", n, kind, name)
	}
	return found, nil
}

// nvPoolName returns what a pool is called: a CIDRPool that has the name of an IPPool gets one of
// its own.
func nvPoolName(objects []unstructured.Unstructured, o unstructured.Unstructured) string {
	if _, err := nvFind(objects, kindIPPool, o.GetName()); err == nil && o.GetKind() == kindCIDRPool {
		return poolName(o.GetName() + "-cidr")
	}
	return poolName(o.GetName())
}

// nvTranslate writes a pool of nv-ipam as Tenure's.
func nvTranslate(o unstructured.Unstructured, name string) Pool {
	p := Pool{Name: name, Of: []string{ref(o)}}
	var nv nvPool
	if err := into(o, &nv); err != nil {
		p.fault("it cannot be read: %v", err)
		return p
	}
	if len(nv.Spec.PerNodeExclusions) > 0 {
		p.fault("it has perNodeExclusions, and Tenure excludes addresses by their value: write them as exclusions")
	}
	whole := netip.Prefix{}
	if w, err := netip.ParsePrefix(cmp.Or(nv.Spec.CIDR, nv.Spec.Subnet)); err == nil {
		whole = w.Masked()
	}
	rng := v1alpha1.Range{CIDR: whole.String(), Exclude: within(whole, nv.Spec.Exclusions)}
	p.Spec.Routes = nv.Spec.Routes
	if nv.Spec.DefaultGateway {
		p.Spec.Routes = append(p.Spec.Routes, v1alpha1.Route{Dst: everywhere(whole)})
	}
	if o.GetKind() == kindCIDRPool {
		p.subnets(nv, whole, &rng)
	} else {
		p.flat(nv, &rng)
	}
	p.Spec.Ranges = []v1alpha1.Range{rng}
	return p
}

// flat writes what an IPPool has of its own: nodes lease blocks by themselves, so those that
// nv-ipam has given them do not matter.
func (p *Pool) flat(nv nvPool, rng *v1alpha1.Range) {
	rng.Gateway = nv.Spec.Gateway
	s := nv.Spec.NodeSelector
	if s == nil || len(s.NodeSelectorTerms) == 0 {
		return
	}
	if len(s.NodeSelectorTerms) > 1 || len(s.NodeSelectorTerms[0].MatchFields) > 0 {
		p.fault("its nodeSelector has several terms, or matchFields, and that of a range has one term of labels: give the nodes a label of their own, and select that")
		return
	}
	rng.NodeSelector = &v1alpha1.LabelSelector{}
	for _, e := range s.NodeSelectorTerms[0].MatchExpressions {
		if e.Operator == corev1.NodeSelectorOpGt || e.Operator == corev1.NodeSelectorOpLt {
			p.fault("its nodeSelector compares label %s by %s, which Tenure does not: give the nodes a label of their own, and select that", e.Key, e.Operator)
		}
		rng.NodeSelector.MatchExpressions = append(rng.NodeSelector.MatchExpressions, requirement(e.Key, string(e.Operator), e.Values))
	}
}

// subnets writes what a CIDRPool has of its own.
func (p *Pool) subnets(nv nvPool, whole netip.Prefix, rng *v1alpha1.Range) {
	p.PerNode = true
	per := &v1alpha1.PerNode{PrefixLength: nv.Spec.Prefix, Gateway: v1alpha1.PerNodeGatewayFirst, Routes: v1alpha1.PerNodeRoutesNone}
	p.Spec.PerNode = per
	switch index := nv.Spec.GatewayIndex; {
	case index == nil:
		per.Gateway = v1alpha1.PerNodeGatewayNone
	case *index != 1:
		p.fault("its gatewayIndex is %d, and the gateway of a node's subnet is its first address, or none", *index)
	}
	if nv.Spec.NodeSelector != nil && len(nv.Spec.NodeSelector.NodeSelectorTerms) > 0 {
		p.note("its nodeSelector is left out: each node gets a subnet that has pods of the network")
	}
	if whole.IsValid() && whole.Addr().BitLen()-int(nv.Spec.Prefix) > 8 {
		p.note("of each subnet the first 256 addresses are given")
	}
	pins := map[string]string{}
	for _, s := range slices.Concat(nv.Status.Allocations, nv.Spec.StaticAllocations) {
		sub, err := netip.ParsePrefix(s.Prefix)
		switch {
		case err != nil:
			p.fault("%q, which node %q has, is no subnet", s.Prefix, s.Node)
			continue
		case s.Node == "":
			rng.Exclude = append(rng.Exclude, sub.Masked().String())
			continue
		case pins[s.Node] != "" && pins[s.Node] != s.Prefix:
			p.fault("node %s has %s, and %s by staticAllocations: correct one of them", s.Node, pins[s.Node], s.Prefix)
		case pins[s.Node] == "":
			per.Pinned = append(per.Pinned, v1alpha1.PinnedSubnet{Node: s.Node, CIDR: s.Prefix})
		}
		pins[s.Node] = s.Prefix
		first := ""
		if per.Gateway == v1alpha1.PerNodeGatewayFirst {
			first = sub.Masked().Addr().Next().String()
		}
		if s.Gateway != "" && s.Gateway != first {
			p.fault("the gateway of node %s is %s, and that of a node's subnet is its first address, or none", s.Node, s.Gateway)
		}
	}
	if len(per.Pinned) > 1024 {
		p.fault("%d nodes have a subnet, and 1,024 can be pinned", len(per.Pinned))
	}
}

// within returns what lies in whole of spans, as a range's exclude has them. nv-ipam does not mind
// others.
func within(whole netip.Prefix, spans []nvSpan) (exclude []string) {
	if !whole.IsValid() {
		return nil
	}
	for _, s := range spans {
		span, ok := spanOf(s.First + "-" + s.Last)
		if all := netipx.RangeOfPrefix(whole); ok && span.Overlaps(all) {
			exclude = append(exclude, cut(span, all).String())
		}
	}
	return exclude
}
