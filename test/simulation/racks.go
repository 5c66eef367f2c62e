package simulation

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// racks are what is there where the ranges of the nodes' pool are for the nodes of two racks.
type racks struct {
	layout int // of rackLayouts: how people want the ranges
	labels map[protocol.NodeName]string

	// What has been true at some moment: texts of the pool, racks of nodes, and which nodes
	// have used each claim.
	texts []poolspec.PoolText
	were  map[protocol.NodeName][]string
	users map[protocol.UID][]protocol.NodeName
}

// rackLabel is the label that says in which rack a node is.
const rackLabel = "rack"

// rackPart is a part of the nodes' pool, in eighths of its addresses, for the nodes that a
// selector selects; nil selects all.
type rackPart struct {
	eighths  int
	selector *v1alpha1.LabelSelector
}

var (
	rackA    = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{rackLabel: "a"}}
	rackB    = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{rackLabel: "b"}}
	notRackA = &v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{{Key: rackLabel, Operator: "NotIn", Values: []v1alpha1.LabelValue{"a"}}}}
)

// rackLayouts are the ways in which people split the pool. In the fourth, blocks have addresses
// of two parts.
var rackLayouts = [][]rackPart{
	{{4, rackA}, {4, rackB}},
	{{4, rackB}, {4, rackA}},
	{{4, rackA}, {4, nil}},
	{{3, rackA}, {2, nil}, {3, rackB}},
	{{4, rackA}, {4, notRackA}},
	{{8, nil}},
}

// putUpRacks has the run begin with racks. Any layout but the last is the first.
func (w *world) putUpRacks() {
	w.racks = &racks{
		layout: w.rng.IntN(len(rackLayouts) - 1), labels: map[protocol.NodeName]string{},
		were: map[protocol.NodeName][]string{}, users: map[protocol.UID][]protocol.NodeName{},
	}
}

// someRack returns a rack; now and then none.
func (w *world) someRack() string { return []string{"a", "b", "a", "b", ""}[w.rng.IntN(5)] }

// rackRanges splits the range of the nodes' pool.
func (w *world) rackRanges(all []v1alpha1.Range) []v1alpha1.Range {
	if w.racks == nil {
		return all
	}
	addrs := addressesIn(all[0])
	var parts []v1alpha1.Range
	for begin, at := 0, 0; at < len(rackLayouts[w.racks.layout]); at++ {
		part := rackLayouts[w.racks.layout][at]
		first, next := begin*len(addrs)/8, (begin+part.eighths)*len(addrs)/8
		parts = append(parts, v1alpha1.Range{
			CIDR: all[0].CIDR, Start: addrs[first].String(), End: addrs[next-1].String(), NodeSelector: part.selector,
		})
		begin += part.eighths
	}
	return parts
}

// moveRacks puts a node into another rack, or edits the selectors of the pool.
func (w *world) moveRacks() {
	if w.one(3) {
		w.racks.layout = w.rng.IntN(len(rackLayouts))
		w.logf("person: gives the ranges of pool %s layout %d of the racks", poolName, w.racks.layout)
		w.growBack(poolName)
		return
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	w.racks.labels[n.name] = w.someRack()
	w.logf("person: puts node %s into rack %q", n.name, w.racks.labels[n.name])
}

// rackNode is a Node at the server, as far as its labels go.
type rackNode struct {
	protocol.Meta
	rack string
}

// labels returns the Node's labels.
func (n rackNode) labels() map[string]string {
	if n.rack == "" {
		return nil
	}
	return map[string]string{rackLabel: n.rack}
}

// object returns the Node as the API server shows it, as far as labels go.
func (n rackNode) object() *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.labels()}}
	stamp(&o.ObjectMeta, n.Meta)
	return o
}

// syncRacks has the server's Nodes be there and have labels as people and machines have them.
func (w *world) syncRacks() {
	if w.racks == nil {
		return
	}
	for _, n := range w.nodes {
		there := slices.ContainsFunc(w.nodes, func(o *simNode) bool { return o.name == n.name && !o.gone })
		rack := w.racks.labels[n.name]
		switch now, out := w.api.nodes.read(string(n.name)); {
		case !there:
			w.api.nodes.drop(string(n.name))
			continue
		case out != protocol.Done:
			w.api.nodes.create(rackNode{Meta: protocol.Meta{Name: string(n.name)}, rack: rack})
		case now.rack != rack:
			w.api.nodes.update(protocol.Meta{Name: string(n.name)}, func(o *rackNode) { o.rack = rack })
		}
		if !slices.Contains(w.racks.were[n.name], rack) {
			w.racks.were[n.name] = append(w.racks.were[n.name], rack)
		}
	}
}

// restoreRacks has people go by what the server's data have of Nodes since they went back.
func (w *world) restoreRacks() {
	if w.racks == nil {
		return
	}
	for _, o := range w.api.nodes.list(nil) {
		w.racks.labels[protocol.NodeName(o.Name)] = o.rack
	}
}

// noteRacks notes what the text of the nodes' pool has been.
func (w *world) noteRacks(p simPool) {
	if w.racks != nil && p.Name == string(poolName) {
		w.racks.texts = append(w.racks.texts, kube.PoolText(p.obj))
	}
}

// noteUser notes that a node uses a claim, or means to.
func (w *world) noteUser(s protocol.SubLease) {
	if w.racks != nil && s.Use != nil {
		w.racks.users[s.Use.Claim.UID] = append(w.racks.users[s.Use.Claim.UID], s.Node)
	}
}

// annotate has a claim name the rack of its pods, now and then.
func (w *world) annotate(o *metav1.ObjectMeta) {
	if w.racks == nil || !w.one(4) {
		return
	}
	if rack := w.someRack(); rack != "" {
		o.Annotations = map[string]string{workload.AnnotationTopology: rackLabel + "=" + rack}
	}
}

// here leaves of addresses of the nodes' pool those that pods of a node may have now.
func (w *world) here(node protocol.NodeName, addrs []netip.Addr) []netip.Addr {
	if w.kind.perNode {
		return w.inSubnets(node, addrs)
	}
	if w.racks == nil {
		return addrs
	}
	n, _ := w.api.nodes.read(string(node))
	return w.selected(n.labels(), addrs)
}

// selected leaves of addresses of the nodes' pool those whose range selects nodes with these
// labels now.
func (w *world) selected(labels map[string]string, addrs []netip.Addr) []netip.Addr {
	p, out := w.api.pools.read(string(poolName))
	if out != protocol.Done {
		return nil
	}
	text := kube.PoolText(p.obj)
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !selects(text, labels, a) })
}

// selects reports whether the range of an address selects nodes with these labels. An address in no
// range is for everybody who has it.
func selects(t poolspec.PoolText, labels map[string]string, a netip.Addr) bool {
	r, ok := rangeOf(t, a)
	return !ok || r.NodeSelector == nil || r.NodeSelector.Matches(labels)
}

// rangeOf returns the range of the nodes' pool that an address lies in.
func rangeOf(t poolspec.PoolText, a netip.Addr) (r poolspec.RangeText, ok bool) {
	i := slices.IndexFunc(t.Ranges, func(r poolspec.RangeText) bool {
		return !a.Less(netip.MustParseAddr(r.Start)) && !netip.MustParseAddr(r.End).Less(a)
	})
	if i < 0 {
		return r, false
	}
	return t.Ranges[i], true
}
