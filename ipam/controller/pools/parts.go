package pools

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// A part is the ranges of a pool that have one node selector.
type part struct {
	selector string // as text; of the ranges for all nodes it is empty
	shape    *allocator.Shape
	tally    tally
	nodes    int
	starved  bool
}

// lookAtParts finds out what the parts of the pool add up to, if a range has a node selector.
func (r *Reconciler) lookAtParts(ctx context.Context, s *seen, leases []v1alpha1.IPLease, around surroundings) error {
	text := kube.PoolText(s.pool)
	selectors := text.Selectors()
	if s.shape == nil || len(selectors) == 0 {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	labels := make([]poolspec.NodeLabels, len(nodes.Items))
	for i := range nodes.Items {
		labels[i] = kube.LabelsOf(&nodes.Items[i], text.LabelKeys())
	}
	for _, selector := range selectors {
		p := part{selector: selector, shape: text.ForSelectors(s.shape, selector)}
		p.tally = count(leasesIn(leases, p.shape), p.shape, around)
		for _, l := range labels {
			if text.Selects(selector, l) {
				p.nodes++
			}
		}
		p.starved = r.starves(s.pool, selector, p.shape, before(s.pool.Status, selector), s.now)
		s.parts = append(s.parts, p)
	}
	return nil
}

// leasesIn returns those of leases whose block has addresses of a part.
func leasesIn(leases []v1alpha1.IPLease, part *allocator.Shape) []v1alpha1.IPLease {
	return slices.DeleteFunc(slices.Clone(leases), func(l v1alpha1.IPLease) bool {
		block, err := netip.ParsePrefix(l.Spec.Block)
		return err != nil || !part.Meets(block)
	})
}

// before returns the pressure that a status names for a selector.
func before(st v1alpha1.IPPoolStatus, selector string) v1alpha1.Pressure {
	for _, s := range st.Selectors {
		if s.Selector == selector {
			return s.Pressure
		}
	}
	return ""
}

// describeParts fills in what st says of the ranges with each node selector. Numbers that are not
// due yet stay, as the counts of the whole pool do.
func (s seen) describeParts(st *v1alpha1.IPPoolStatus, due bool) {
	was := st.Selectors
	st.Selectors = nil
	for _, p := range s.parts {
		counts := p.tally.counts(p.shape)
		is := v1alpha1.SelectorStatus{
			Selector: p.selector, Nodes: int32(p.nodes), Capacity: counts.Capacity, Used: counts.Used, Free: counts.Free,
			Pressure: p.tally.pressure(before(s.pool.Status, p.selector), p.shape),
		}
		if p.starved || s.pool.Spec.Allocation == v1alpha1.AllocationStopped {
			is.Pressure = v1alpha1.PressureExhausted
		}
		if full, used, capacity, unreachable := p.tally.exhausted(p.shape); full && is.Pressure == v1alpha1.PressureExhausted {
			is.Exhausted = exhaustedText(fmt.Sprintf("pool %s is exhausted for %s", s.pool.Name, forNodes(p.selector)), used, capacity, unreachable)
		}
		if i := slices.IndexFunc(was, func(o v1alpha1.SelectorStatus) bool { return o.Selector == p.selector }); i >= 0 && !due && was[i].Capacity == is.Capacity {
			is.Used, is.Free = was[i].Used, was[i].Free
		}
		st.Selectors = append(st.Selectors, is)
	}
}

// forNodes names the nodes that a selector selects, for people.
func forNodes(selector string) string {
	if selector == "" {
		return "all nodes"
	}
	return "nodes with " + selector
}

// exhaustedParts says which parts of the pool have no address left, and which select no node.
func exhaustedParts(all []v1alpha1.SelectorStatus) string {
	var texts []string
	for _, p := range all {
		if p.Exhausted != "" {
			texts = append(texts, p.Exhausted)
		}
	}
	return strings.Join(few(texts, "selectors"), "; ")
}
