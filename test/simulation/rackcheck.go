package simulation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// hearsay is what a node's agents were told of the nodes' pool and of the node's labels, in order,
// and what the store has kept of it.
type hearsay struct {
	texts  []poolspec.PoolText
	labels []poolspec.NodeLabels
	kept   agent.Pool
	before []agent.Pool // what it had before, of another shape or state, the last ones
	raw    []byte       // kept, as the store has it
}

// since says from which on what a node was told may count.
type since struct{ text, labels int }

// hearPool notes what the agent is told of the nodes' pool.
func (n *simNode) hearPool(p agent.Pool) {
	if n.w.racks != nil && p.Name == string(poolName) {
		n.heard.texts = append(n.heard.texts, p.Text)
	}
}

// hearLabels notes what the agent is told of the node's labels.
func (n *simNode) hearLabels(s protocol.Registration) {
	if n.w.racks == nil || s.Labels == "" {
		return
	}
	told, err := poolspec.ParseNodeLabels(s.Labels)
	must(err)
	n.heard.labels = append(n.heard.labels, told)
}

// keepPool notes what the store has of the nodes' pool.
func (n *simNode) keepPool(tx *store.Tx) {
	if n.w.racks == nil && !n.w.kind.perNode {
		return
	}
	raw, _, err := tx.Pool(poolName)
	must(err)
	if bytes.Equal(raw, n.heard.raw) {
		return
	}
	last := n.heard.kept
	n.heard.raw, n.heard.kept = bytes.Clone(raw), agent.Pool{}
	if len(raw) > 0 {
		must(json.Unmarshal(raw, &n.heard.kept))
	}
	if now := n.heard.kept; now.UID != last.UID || now.Open != last.Open || now.Deleting != last.Deleting || !reflect.DeepEqual(now.Text, last.Text) {
		n.heard.before = append(n.heard.before[max(0, len(n.heard.before)-2):], last)
	}
}

// now returns what an ADD may go by that begins now: what the store has, and what the agent was
// told since.
func (h *hearsay) now() (from since) {
	for i, t := range h.texts {
		if sameSelectors(t, h.kept.Text) {
			from.text = i
		}
	}
	for i, l := range h.labels {
		if l.String() == h.kept.Labels.String() {
			from.labels = i
		}
	}
	return from
}

// sameSelectors reports whether two texts of a pool have the same ranges for the same nodes.
func sameSelectors(t, u poolspec.PoolText) bool {
	return slices.EqualFunc(t.Ranges, u.Ranges, func(a, b poolspec.RangeText) bool {
		return a.Start == b.Start && a.End == b.End && fmt.Sprint(a.NodeSelector) == fmt.Sprint(b.NodeSelector)
	})
}

// allows reports whether, by something that the agent was told, the range of an address is for the
// node.
func (h *hearsay) allows(from since, a netip.Addr) bool {
	return slices.ContainsFunc(h.texts[from.text:], func(t poolspec.PoolText) bool {
		r, ok := rangeOf(t, a)
		return !ok || r.NodeSelector == nil ||
			slices.ContainsFunc(h.labels[from.labels:], func(l poolspec.NodeLabels) bool { return selects(t, there(l), a) })
	})
}

// there returns the labels that a node has.
func there(l poolspec.NodeLabels) map[string]string {
	all := map[string]string{}
	for key, value := range l {
		if value != nil {
			all[key] = *value
		}
	}
	return all
}

// checkGiven holds that an attachment which the store has now and had not before has no address of
// a range that is for other nodes (Place). An ADD goes by what its node knew at some moment since
// it began. What the pod's interface had before it may keep, also where the store has been lost
// since, and the status of the device's ResourceClaim tells it.
func (n *simNode) checkGiven(att attachment, was *simDisk) {
	s := firstOf(n.sandboxes, func(s *sandbox) bool { return s.key() == att.key && s.adding })
	if n.w.racks == nil || s == nil {
		return
	}
	for _, x := range att.addrs {
		had := was.some(func(o attachment) bool { return o.pod.UID == att.pod.UID && o.has(x.addr) }) ||
			s.hasDevice() && slices.Contains(s.pod.resource.status, netip.PrefixFrom(x.addr, n.w.length(x.addr)))
		if x.pool == poolName && !had && !slices.Contains(s.addrs, x.addr) && !n.heard.allows(s.since, x.addr) {
			n.w.fail(Place, "%v is given %v, whose range is for other nodes: %s knows labels %s and ranges %v", s, x.addr, n.machine, n.heard.kept.Labels, n.heard.kept.Text.Selectors())
		}
	}
}

// checkPlace holds that the addresses which a claim has got are for a node that has used it, or for
// nodes with the labels that it names: by what was true at some moment, since what a controller
// knows may be long ago (Place).
func (w *world) checkPlace(c simClaim, addrs []netip.Addr) {
	if w.racks == nil || c.Network != string(poolName) {
		return
	}
	var nodes []map[string]string
	if named := annotated(c); named != nil {
		nodes = append(nodes, named)
	} else {
		for _, name := range w.racks.users[c.UID] {
			for _, rack := range w.racks.were[name] {
				nodes = append(nodes, rackNode{rack: rack}.labels())
			}
		}
	}
	for _, a := range addrs {
		if !slices.ContainsFunc(w.racks.texts, func(t poolspec.PoolText) bool {
			return len(t.LabelKeys()) == 0 || slices.ContainsFunc(nodes, func(labels map[string]string) bool { return selects(t, labels, a) })
		}) {
			w.fail(Place, "claim %s (%s) has %v, whose range has never been for one of its nodes: %v", c.Name, c.UID, a, nodes)
		}
	}
}

// annotated returns the labels that a claim names; nil if it names none.
func annotated(c simClaim) map[string]string {
	text, ok := c.obj.Annotations[workload.AnnotationTopology]
	if !ok {
		return nil
	}
	return rackNode{rack: text[len(rackLabel+"="):]}.labels()
}

// forClaim leaves of addresses of the nodes' pool those that a claim may have now, which has none
// yet: none while no pod of it has come to a node.
func (w *world) forClaim(c simClaim, addrs []netip.Addr) []netip.Addr {
	if w.kind.perNode && c.Network == string(poolName) {
		return nil
	}
	p, _ := w.api.pools.read(string(poolName))
	if w.racks == nil || c.Network != string(poolName) || p.obj == nil || len(kube.PoolText(p.obj).LabelKeys()) == 0 {
		return addrs
	}
	if named := annotated(c); named != nil {
		return w.selected(named, addrs)
	}
	for i := range 2 {
		if use, out := w.api.subs.read(protocol.UseName(c.UID, i)); out == protocol.Done {
			return w.here(use.Node, addrs)
		}
	}
	return nil
}

// rackUnrest says which node goes by labels or ranges that are not those of now, if any.
func (w *world) rackUnrest(n *simNode) string {
	p, out := w.api.pools.read(string(poolName))
	if w.racks == nil || out != protocol.Done || len(n.heard.raw) == 0 {
		return ""
	}
	kept := n.heard.kept
	if text := kube.PoolText(p.obj); !sameSelectors(text, kept.Text) {
		return fmt.Sprintf("%s goes by ranges %v of pool %s, which has %v", n.machine, kept.Text.Ranges, poolName, text.Ranges)
	}
	if rack := w.racks.labels[n.name]; len(kept.Text.LabelKeys()) > 0 && there(kept.Labels)[rackLabel] != rack {
		return fmt.Sprintf("%s goes by labels %s, and is in rack %q", n.machine, kept.Labels, rack)
	}
	return ""
}
