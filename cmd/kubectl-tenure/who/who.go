// Package who has the verb who: which pod, claim or reservation has an address, and which node or
// whether the cluster hands it out.
package who

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// View is who has an address in one pool, as json and yaml show it.
// docs/reference/kubectl-tenure.md has the fields.
type View struct {
	Pool  string `json:"pool"`
	Lease string `json:"lease,omitempty"`
	Node  string `json:"node,omitempty"` // the lease's holder; empty where that is the cluster
	// Owner is Claim, Pod, ResourceClaim, Request, Foreign, Reservation or empty: nobody, by
	// what can be known. Foreign is a pod to which another IPAM has given the address; without
	// Pods it is kept from all, as Note says.
	Owner   string `json:"owner,omitempty"`
	Claim   string `json:"claim,omitempty"`   // namespace/name
	Request string `json:"request,omitempty"` // the sub-lease's name
	// Reservation is the name of an IPReservation, and For what it says.
	Reservation string      `json:"reservation,omitempty"`
	For         string      `json:"for,omitempty"`
	Freeing     bool        `json:"freeing,omitempty"`
	Pods        []state.Use `json:"pods,omitempty"`
	// Note says what is to be known of it: where nobody has it why, and where a pod does
	// by its status alone that it is so.
	Note string `json:"note,omitempty"`

	// unpublished says that a node hands the address out, and may have done so since it
	// published last.
	unpublished bool
}

// New returns the verb who.
func New(s *session.Session) *cobra.Command {
	var o session.Output
	var p past
	c := &cobra.Command{
		Use: "who ADDRESS", Short: "who has an address: a pod, a claim, a node",
		Long: `Prints, for each pool that has the address, the lease of its block: which node or
whether the cluster hands it out, whom it was granted or given to, and which pods use it.
Grants are the truth; which pod has an address of a node's is what that node has
published, twice a minute while it changes, else what pods there show in their status, as far as
you may read those. Two pools may have the same address: they are two
networks.

With --at and --since it prints who had it then: it has every node's agent tell what it has
written down, by a program that it runs in the agent's pod. That is an administrator's right:
create pods/exec in tenure-system. Everybody else finds the same in the agents' logs. If a
node does not answer, it says which, and ends with 1. A TIME is one such as
2026-11-17T14:00 (this machine's zone), 2026-11-17T14:00:00Z, 2026-11-17, or 7d or 36h, which
is so long ago.`,
		Args: session.One("address"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			addr, err := netip.ParseAddr(args[0])
			if err != nil || addr.Zone() != "" {
				return session.Usagef("who: %q is no IP address: write one such as 10.0.0.5 or fd00::5", args[0])
			}
			if err := session.OneOf("output", o.Format, "", "json", "yaml"); err != nil {
				return err
			}
			if !c.Flags().Changed("at") && !c.Flags().Changed("since") {
				return who(c.Context(), s, o, addr.Unmap())
			}
			p.addr = addr.Unmap()
			if err := p.check(time.Now()); err != nil {
				return err
			}
			return p.who(c.Context(), s, o)
		},
	}
	c.Flags().StringVarP(&o.Format, "output", "o", "", "what to write: json, yaml")
	c.Flags().StringVar(&p.at, "at", "", "who had it at this `TIME`")
	c.Flags().StringVar(&p.since, "since", "", "who has had it since this `TIME`")
	c.Flags().DurationVar(&p.within, "timeout", answerWithin, "with --at and --since: how long to wait for each node")
	return c
}

func who(ctx context.Context, s *session.Session, o session.Output, addr netip.Addr) error {
	if err := s.Connect(); err != nil {
		return err
	}
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	if err != nil {
		return err
	}
	answers, owned := []View{}, false
	for i := range all {
		v, ok, err := InPool(ctx, s, &all[i], addr)
		if err != nil {
			return err
		}
		if ok {
			answers, owned = append(answers, v), owned || v.Owner != ""
		}
	}
	if o.Structured() {
		err = o.Encode(s, map[string]any{"address": addr, "pools": answers})
	} else {
		writeWho(s.Screen(), addr, answers, owned)
	}
	if err == nil && !owned {
		return session.ErrNo
	}
	return err
}

// HasAddress reports whether one of a pool's ranges covers addr.
func HasAddress(p *v1alpha1.IPPool, addr netip.Addr) bool {
	for _, r := range p.Spec.Ranges {
		// Admission has refused what does not parse.
		if prefix, err := netip.ParsePrefix(r.CIDR); err == nil && prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// leaseOf reads the lease of the pool's block that has addr, nil if there is none. Its
// name is known while the pool is open: all its leases have one size then.
func leaseOf(ctx context.Context, s *session.Session, p *v1alpha1.IPPool, addr netip.Addr) (*v1alpha1.IPLease, error) {
	if pool := kube.PoolOf(p); pool.Open && pool.BlockBits(addr) > 0 {
		block, err := addr.Prefix(pool.BlockBits(addr))
		if err != nil {
			return nil, err
		}
		var l v1alpha1.IPLease
		err = s.Client.Get(ctx, client.ObjectKey{Name: protocol.LeaseName(protocol.PoolName(p.Name), block)}, &l)
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // there is no lease, and nothing is wrong
		}
		return &l, err
	}
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn, client.MatchingFields{"spec.pool": p.Name})
	for i := range all {
		if block, err := netip.ParsePrefix(all[i].Spec.Block); err == nil && block.Contains(addr) {
			return &all[i], nil
		}
	}
	return nil, err
}

// InPool says who has addr in one pool; ok is false where the pool has nothing to do
// with it: neither its ranges nor, of earlier ranges, its leases.
func InPool(ctx context.Context, s *session.Session, p *v1alpha1.IPPool, addr netip.Addr) (v View, ok bool, err error) {
	l, err := leaseOf(ctx, s, p, addr)
	switch {
	case err != nil:
		return View{}, false, fmt.Errorf("read the lease of %s in pool %s: %w", addr, p.Name, err)
	case l == nil && !HasAddress(p, addr):
		return View{}, false, nil
	case l == nil:
		v = View{Pool: p.Name, Note: cmp.Or(whyNeverGiven(p, addr), "nobody; its block is not leased")}
		return v, true, v.addShowing(ctx, s, "", addr, "by the pod's status alone: no lease backs it; another IPAM may have given it")
	}
	v = View{Pool: p.Name, Lease: l.Name, Node: l.Spec.Holder.Node}
	for _, g := range l.Spec.Grants {
		if granted, err := netip.ParseAddr(g.Address); err == nil && granted == addr {
			v.Freeing = g.Freeing
			return v, true, grantee(ctx, s, g, &v)
		}
	}
	if a, ok := allocationOf(l, addr); ok {
		v.Owner, v.Pods = "Pod", []state.Use{a}
		if a.ResourceClaim != "" {
			v.Owner = "ResourceClaim"
		}
		v.Note, err = whetherGone(ctx, s, a, l.Status.Published)
		if isFrozen(ctx, s, l) {
			v.Note = frozen
		}
		return v, true, err
	}
	v.Note = whyNobody(v, l, p, addr)
	if v.Node == "" {
		return v, true, v.addShowing(ctx, s, "", addr, "by the pod's status alone: no grant backs it; another IPAM may have given it")
	}
	if err := v.addShowing(ctx, s, v.Node, addr, "by the pod's status: the node has not published it, which it does twice a minute"); err != nil {
		return v, true, err
	}
	v.unpublished = len(v.Pods) == 0 && whyNeverGiven(p, addr) == ""
	return v, true, nil
}

// frozen says of an address that its node's agent does not know.
const frozen = "by what a store of the node published which was lost: it is another's only when no pod of that time is on the node, and no ResourceClaim of theirs has a device there"

// isFrozen reports whether a lease is of an earlier store of its node, as far as the user may know.
func isFrozen(ctx context.Context, s *session.Session, l *v1alpha1.IPLease) bool {
	reg, _, err := state.Registration(ctx, s, protocol.NodeName(l.Spec.Holder.Node))
	return err == nil && reg != nil && string(reg.Store) != l.Spec.Store && slices.ContainsFunc(reg.Former, func(f protocol.Former) bool { return string(f.Store) == l.Spec.Store })
}

// whetherGone says of a pod that has an address, by what its node published then, that the pod is
// gone; "" if it is there, or if the user may not read it.
func whetherGone(ctx context.Context, s *session.Session, a state.Use, then *metav1.Time) (string, error) {
	var pod corev1.Pod
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Pod}, &pod)
	switch {
	case session.Forbidden(err):
		return "", nil
	case client.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("read pod %s/%s: %w", a.Namespace, a.Pod, err)
	case err == nil && pod.Spec.NodeName == a.Node:
		return "", nil
	}
	if a.ResourceClaim != "" {
		return "the pod is gone from that node: the address is free when the ResourceClaim, or the device in it, and the pod's sandbox are gone too", nil
	}
	ago := ""
	if then != nil {
		ago = " " + s.Age(then.Time) + " ago"
	}
	return fmt.Sprintf("the pod is gone from that node: so the node published it%s, and it publishes twice a minute what it has freed", ago), nil
}

// addShowing adds the pods that show the address in their status: those of a node, or of any
// where node is empty.
func (v *View) addShowing(ctx context.Context, s *session.Session, node string, addr netip.Addr, note string) error {
	pods, err := showing(ctx, s, node, v.Pool, addr)
	if len(pods) > 0 {
		v.Owner, v.Pods, v.Note = "Pod", pods, note
	}
	return err
}

// showing returns the pods of a node that show an address of a pool in their status; with
// no node named those of any, also by networks of other IPAMs. There are none where the
// user may not read what tells.
func showing(ctx context.Context, s *session.Session, node, pool string, addr netip.Addr) (shown []state.Use, err error) {
	known, err := state.ReadNetworks(ctx, s)
	if err == nil {
		of := state.Unfinished
		if node != "" {
			of = fields.AndSelectors(of, fields.OneTermEqualSelector("spec.nodeName", node))
		}
		on := client.MatchingFieldsSelector{Selector: of}
		_, err = session.ListAll(ctx, s.Client, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod {
			for i := range l.Items {
				of := showingOf(known, &l.Items[i], protocol.PoolName(pool), addr)
				if len(of) == 0 && node == "" {
					of = showingForeign(&l.Items[i], addr)
				}
				shown = append(shown, of...)
			}
			return nil
		}, on)
	}
	if session.Forbidden(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	return shown, err
}

// showingForeign returns the interfaces of a pod that have, by its status, an address of
// any network.
func showingForeign(o *corev1.Pod, addr netip.Addr) (shown []state.Use) {
	for _, s := range foreign.ReadPod(o).Shows {
		if slices.Contains(s.Addrs, addr) {
			shown = append(shown, state.Use{Node: o.Spec.NodeName, Namespace: o.Namespace, Pod: o.Name, Interface: s.Interface})
		}
	}
	return shown
}

// showingOf returns the interfaces of a pod that have, by its status, an address of a pool.
func showingOf(k state.Networks, o *corev1.Pod, pool protocol.PoolName, addr netip.Addr) (shown []state.Use) {
	p, err := k.Pod(o)
	if err != nil || p.Leaving { // it may have given back what it had
		return nil
	}
	for _, a := range p.Attachments {
		if slices.Contains(a.Pools, pool) && slices.Contains(a.Addrs, addr) {
			shown = append(shown, state.Use{Node: o.Spec.NodeName, Namespace: o.Namespace, Pod: o.Name, Interface: a.Interface})
		}
	}
	return shown
}

// whyNobody says of an address that is granted and given to nobody why that is so.
func whyNobody(v View, l *v1alpha1.IPLease, p *v1alpha1.IPPool, addr netip.Addr) string {
	never := whyNeverGiven(p, addr)
	switch {
	case v.Node != "" && l.Status.Published == nil:
		return "not known: the node has published nothing yet"
	case never != "":
		return never
	case v.Node != "" && containsAddr(l.Spec.Ceded, addr):
		return "nobody; the node has ceded it to the cluster"
	}
	return "nobody; free with " + holderText(v)
}

// whyNeverGiven says why a pool gives addr to nobody. It is empty if the pool gives it, or if the
// pool's ranges cannot be read.
func whyNeverGiven(p *v1alpha1.IPPool, addr netip.Addr) string {
	shape := state.ShapeOf(p)
	if shape == nil {
		return ""
	}
	if err := shape.Assignable(addr); err != nil {
		return "nobody; it is given to nobody: " + err.Error()
	}
	return ""
}

func containsAddr(all []string, addr netip.Addr) bool {
	for _, text := range all {
		if a, err := netip.ParseAddr(text); err == nil && a == addr {
			return true
		}
	}
	return false
}

// allocationOf returns who has addr by what the lease's holder has published.
func allocationOf(l *v1alpha1.IPLease, addr netip.Addr) (state.Use, bool) {
	for _, text := range l.Status.Allocations {
		if a, u, ok := state.ParseAllocation(text); ok && a == addr {
			u.Node = l.Spec.Holder.Node
			return u, true
		}
	}
	return state.Use{}, false
}

// ServesPod reports whether a pod has the address.
func (v View) ServesPod(namespace, name string) bool {
	for _, u := range v.Pods {
		if u.Namespace == namespace && u.Pod == name {
			return true
		}
	}
	return false
}

// grantee says whom an address was granted to, and which pods that serves.
func grantee(ctx context.Context, s *session.Session, g v1alpha1.Grant, v *View) error {
	names := []string{g.To.Name}
	switch g.To.Kind {
	case v1alpha1.GranteeClaim:
		v.Owner, v.Claim = "Claim", g.To.Namespace+"/"+g.To.Name
		names = []string{protocol.UseName(protocol.UID(g.To.UID), 0), protocol.UseName(protocol.UID(g.To.UID), 1)}
	case v1alpha1.GranteePod:
		if v.Owner = "Foreign"; protocol.UID(g.To.UID).Several() {
			v.Note = "several pods are said to have it by another IPAM: the condition TwoOwners of the pool names them"
			return nil
		}
		v.Pods = []state.Use{{Node: g.To.Node, Namespace: g.To.Namespace, Pod: g.To.Name}}
		return nil
	case v1alpha1.GranteeReservation:
		v.Owner, v.Reservation = "Reservation", g.To.Name
		var r v1alpha1.IPReservation
		if err := s.Client.Get(ctx, client.ObjectKey{Name: g.To.Name}, &r); err == nil {
			v.For = r.Spec.For // for people: without it the name tells
		}
		return nil
	case v1alpha1.GranteeSubLease:
		v.Owner, v.Request = "Request", g.To.Name
	}
	for _, name := range names {
		var sub v1alpha1.IPSubLease
		switch err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &sub); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("read sub-lease %s: %w", name, err)
		case sub.Spec.Use != nil:
			v.Pods = append(v.Pods, state.UseOf(&sub))
		case sub.Spec.Request != nil:
			r := sub.Spec.Request
			v.Pods = append(v.Pods, state.Use{Node: sub.Spec.Node, Namespace: r.Pod.Namespace, Pod: r.Pod.Name, Interface: r.Interface})
		}
	}
	return nil
}
