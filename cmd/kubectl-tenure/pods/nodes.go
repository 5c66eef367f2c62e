package pods

import (
	"context"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// nodeLabels returns the labels of the pod's node as its agent has been told them. It is nil where
// the pod has no node, or they are not seen from here: not everybody may read registrations.
func (l podLook) nodeLabels(ctx context.Context, v *podView) (node poolspec.NodeLabels, err error) {
	if v.Node == "" {
		return node, nil
	}
	reg, _, err := state.Registration(ctx, l.Session, protocol.NodeName(v.Node))
	switch {
	case session.Forbidden(err):
		return node, nil
	case err != nil || reg == nil:
		return node, err
	}
	return poolspec.ParseNodeLabels(reg.Labels)
}

// addresses adds that a pool has no address for the pod's node: none of its ranges is for the node,
// or those that are have none left. Of a node that is not known it adds what the pool says of all.
func (v *podView) addresses(n networkView, p *v1alpha1.IPPool, node poolspec.NodeLabels) {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolExhausted)
	exhausted := c != nil && c.Status == metav1.ConditionTrue
	text, whole := kube.PoolText(p), state.ShapeOf(p)
	switch {
	case node == nil || len(text.LabelKeys()) == 0 || whole == nil:
		if exhausted {
			v.because("network %s: %s", n.Network, c.Message) // it names the pool
		}
		return
	case !node.Tells(text):
		v.because("network %s: pool %s has ranges for some nodes alone, and node %s has not been told its labels yet: is the controller running?", n.Network, p.Name, v.Node)
		return
	case len(text.ForNode(whole, node).Ranges()) == 0:
		v.because("network %s: pool %s has no range for node %s (%s): the nodeSelectors of its ranges are %s; label the node, or add a range for it",
			n.Network, p.Name, v.Node, node.Of(text.LabelKeys()).ForPeople(), strings.Join(text.Selectors(), "; "))
		return
	}
	var full []string
	for _, s := range p.Status.Selectors {
		switch {
		case !text.Selects(s.Selector, node):
		case s.Exhausted == "":
			return // the node finds an address there
		default:
			full = append(full, s.Exhausted)
		}
	}
	if exhausted && len(full) == 0 {
		full = []string{c.Message}
	}
	for _, why := range full {
		v.because("network %s: %s", n.Network, why)
	}
}

// claimElsewhere adds that an address of the pod's claim is for other nodes.
func (v *podView) claimElsewhere(n networkView, has []string, p *v1alpha1.IPPool, node poolspec.NodeLabels) {
	for _, ip := range has {
		if prefix, err := netip.ParsePrefix(ip); err == nil && elsewhere(prefix.Addr(), p, node) != "" {
			v.because("network %s: claim %s has address %v of pool %s, whose range is for nodes with %s, and node %s has %s: have the pod run where the claim's addresses are, by a node affinity",
				n.Network, n.Claim, prefix.Addr(), p.Name, elsewhere(prefix.Addr(), p, node), v.Node, node.Of(kube.PoolText(p).LabelKeys()).ForPeople())
		}
	}
}

// askedElsewhere adds that an address that an interface asks for is for other nodes.
func (v *podView) askedElsewhere(n networkView, addr netip.Addr, p *v1alpha1.IPPool, node poolspec.NodeLabels) {
	if selector := elsewhere(addr, p, node); selector != "" {
		v.because("network %s: it asks for %v of pool %s, whose range is for nodes with %s, and node %s has %s: ask for an address that is for its node, or have the pod run where the address is",
			n.Network, addr, p.Name, selector, v.Node, node.Of(kube.PoolText(p).LabelKeys()).ForPeople())
	}
}

// elsewhere returns the node selector of the range of an address, if that is for other nodes.
func elsewhere(addr netip.Addr, p *v1alpha1.IPPool, node poolspec.NodeLabels) string {
	text, whole := kube.PoolText(p), state.ShapeOf(p)
	if node == nil || whole == nil || !node.Tells(text) {
		return ""
	}
	selector, _ := text.Elsewhere(whole, node, addr)
	return selector
}
