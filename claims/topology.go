package claims

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// place is for which nodes a claim's addresses are. The zero place is anywhere: no pool of the
// network has ranges for some nodes alone.
type place struct {
	parts []placed
	// specs are the specs of the pools that were read; zero for a missing pool.
	specs map[protocol.PoolName]grants.Spec
	// wait says why that is not known yet, and fault why it never will be.
	wait, fault string
}

// placed is one pool that has ranges for some nodes alone.
type placed struct {
	pool        protocol.PoolName
	whole, part *allocator.Shape // part is for the claim's nodes
	text        poolspec.PoolText
	labels      poolspec.NodeLabels // nil where the addresses that it asks for decide
	of          string              // whose labels they are, for people
}

// place finds out for which nodes the addresses of a claim are: those with the labels of its
// annotation, else those of the addresses that it asks for, else the node of the pod that first
// uses it.
func (r *Reconciler) place(ctx context.Context, s seen) (at place, err error) {
	at.specs = map[protocol.PoolName]grants.Spec{}
	requested, err := s.claim.request().parse()
	if err != nil {
		return at, nil //nolint:nilerr // decide says it
	}
	for _, src := range s.network.Network.Sources {
		var pool v1alpha1.IPPool
		err := r.Cache.Get(ctx, client.ObjectKey{Name: src.Pool}, &pool)
		spec := grants.Spec{UID: protocol.UID(pool.UID), Generation: pool.Generation}
		at.specs[protocol.PoolName(src.Pool)] = spec
		switch {
		case apierrors.IsNotFound(err):
			continue // the broker says so
		case err != nil:
			return at, fmt.Errorf("read pool %s: %w", src.Pool, err)
		}
		if pool.Spec.PerNode != nil {
			at.fault = fmt.Sprintf("pool %s gives each node a subnet of its own (spec.perNode), and a claim's address follows its pods from node to node: use another pool for claims", src.Pool)
			return at, nil
		}
		text := kube.PoolText(&pool)
		keys := text.LabelKeys()
		whole, err := poolspec.ParsePool(text)
		if len(keys) == 0 || err != nil { // the broker says that it cannot be used
			continue
		}
		p := placed{pool: protocol.PoolName(src.Pool), whole: whole, text: text}
		if p.part = p.asked(requested, src.Families); s.claim.topology == "" && p.part != nil {
			at.parts = append(at.parts, p)
			continue
		}
		if s.claim.topology != "" {
			p.labels, at.fault = annotated(s.claim.topology, keys)
			p.of = "annotation " + workload.AnnotationTopology
		} else {
			p.labels, p.of, err = r.consumer(ctx, s.uses, keys)
		}
		switch {
		case err != nil || at.fault != "":
			return at, err
		case p.of == "":
			at.wait = fmt.Sprintf("pool %s has ranges for some nodes alone: addresses are allocated when a pod of the claim comes to a node; "+
				"or name the labels of its nodes by the annotation %s, for example %s=VALUE", src.Pool, workload.AnnotationTopology, keys[0])
			return at, nil
		}
		p.part = text.ForNode(whole, p.labels)
		if len(p.part.Ranges()) == 0 {
			at.fault = fmt.Sprintf("pool %s has no range for the nodes of the claim (%s, of %s): the nodeSelectors of its ranges are %s; correct the labels, or add a range for them",
				src.Pool, p.labels.ForPeople(), p.of, strings.Join(text.Selectors(), "; "))
			return at, nil
		}
		at.parts = append(at.parts, p)
	}
	return at, nil
}

// asked returns the part of a pool that the addresses which a claim asks for lie in, with what is
// for all nodes. It is nil if they do not tell where an address of each family of the pool is to
// be, as far as families are limited.
func (p placed) asked(requested []netip.Addr, families []allocator.Family) *allocator.Shape {
	var of []string
	for _, a := range requested {
		if selector, ok := p.text.SelectorOf(p.whole, a); ok {
			of = append(of, selector)
		}
	}
	if len(of) == 0 {
		return nil
	}
	part := p.text.ForSelectors(p.whole, append(of, "")...)
	for _, f := range p.whole.Families() {
		if (families == nil || slices.Contains(families, f)) && !slices.Contains(part.Families(), f) {
			return nil
		}
	}
	return part
}

// annotated reads the labels of the annotation. Fault says, for people, what is wrong with it.
func annotated(text string, keys []string) (of poolspec.NodeLabels, fault string) {
	named, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, fmt.Sprintf("annotation %s cannot be read: %v; write key=value[,key=value], the labels of nodes", workload.AnnotationTopology, err)
	}
	return kube.LabelsOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: named}}, keys), ""
}

// consumer returns the labels of the node whose pod was the first to use the claim; of is empty
// while there is none.
func (r *Reconciler) consumer(ctx context.Context, uses []use, keys []string) (l poolspec.NodeLabels, of string, err error) {
	if len(uses) == 0 {
		return nil, "", nil
	}
	first := slices.MinFunc(uses, func(a, b use) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	var node corev1.Node
	switch err := r.Cache.Get(ctx, client.ObjectKey{Name: first.node}, &node); {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("read node %s: %w", first.node, err)
	}
	return kube.LabelsOf(&node, keys), "node " + first.node, nil
}

// anywhere reports whether a claim's addresses are for all nodes.
func (at place) anywhere() bool { return len(at.parts) == 0 && at.wait == "" && at.fault == "" }

// nowhere decides what to do about a claim for whose nodes, as far as they are known, no addresses
// can be allocated. It gives back what was granted for a pod that has gone since, before the status
// showed it.
func (s seen) nowhere(why outcome) plan {
	p := plan{status: s.change(why)}
	if len(s.held) > 0 {
		p = s.giveBack(why)
	}
	p.withdraw = true
	if len(s.uses) > 0 {
		p.after = recheckAfter // no event tells of a change of the pod's Node
	}
	return p
}

// whyNowhere returns why no addresses can be allocated, as far as that depends on nodes.
func (s seen) whyNowhere() *outcome {
	switch {
	case s.place.fault != "":
		return new(s.failed(ReasonTopologyInvalid, s.place.fault))
	case s.place.wait != "":
		return new(s.failed(ReasonWaitForFirstConsumer, s.place.wait))
	}
	return nil
}

// elsewhere says that one of some addresses is for other nodes; empty if none is.
func (at place) elsewhere(addrs []netip.Addr) string {
	for _, p := range at.parts {
		if p.labels == nil {
			continue
		}
		for _, a := range addrs {
			if selector, ok := p.text.Elsewhere(p.whole, p.labels, a); ok {
				return fmt.Sprintf("%v of pool %s is for nodes with %s, and the claim is for %s (%s)", a, p.pool, selector, p.of, p.labels.ForPeople())
			}
		}
	}
	return ""
}

// narrow has only addresses for the claim's nodes granted, of the families that these have.
// After the pool is made or edited, nothing of it is granted before the claim asks again.
func (at place) narrow(from *grants.Source) {
	if spec, ok := at.specs[from.Pool]; ok {
		from.Spec = &spec
	}
	for _, p := range at.parts {
		if p.pool != from.Pool {
			continue
		}
		from.View = from.View.Intersect(allocator.NewView(p.part.Usable()))
		families := p.part.Families()
		switch {
		case from.Families == nil:
			from.Families = families
		case from.AsFar:
			from.Families = slices.DeleteFunc(slices.Clone(from.Families), func(f allocator.Family) bool { return !slices.Contains(families, f) })
		}
	}
}
