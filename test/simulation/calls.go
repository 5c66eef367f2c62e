package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// errNoAnswer is the error of a call that was not answered.
var errNoAnswer = errors.New("no answer")

// liveCalls are the controller's calls to the API server, as ipam/kube has them:
// each pauses the routine that makes it until the scheduler has the answer come.
type liveCalls struct{ *simController }

// call makes one call. A write may be refused by a policy.
func call[T any](c *simController, what string, write bool, serve func() (T, protocol.Outcome)) (T, protocol.Outcome, error) {
	var got T
	out := protocol.Unknown
	known := c.exchange(what, write, func() {
		if write && !c.w.calm && c.w.one(80) {
			out = protocol.Refused
		} else {
			got, out = serve()
		}
		c.w.logf("server: %s's %s: %v", c.who, what, out)
	})
	if !known {
		var zero T
		return zero, protocol.Unknown, errNoAnswer
	}
	if out != protocol.Done {
		return got, out, fmt.Errorf("%s: %v", what, out)
	}
	return got, out, nil
}

func (c liveCalls) CreateLease(_ context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	return call(c.simController, "create of "+l.Name, true, func() (protocol.Lease, protocol.Outcome) { return c.w.api.leases.create(l) })
}

func (c liveCalls) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	return call(c.simController, "read of "+name, false, func() (protocol.Lease, protocol.Outcome) { return c.w.api.leases.read(name) })
}

func (c liveCalls) UpdateLease(_ context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	switch c.w.fault {
	case "M14":
		old.Revision = ""
	case "M38":
		next = next.Clone()
		for i := range next.Grants {
			next.Grants[i].Freeing, next.Grants[i].Mark = false, ""
		}
	default:
	}
	return call(c.simController, "update of "+old.Name, true, func() (protocol.Lease, protocol.Outcome) {
		return c.w.api.leases.update(old.Meta, func(l *protocol.Lease) { *l = next.Clone() })
	})
}

func (c liveCalls) DeleteLease(_ context.Context, m protocol.Meta) (protocol.Outcome, error) {
	if c.w.fault == "M13" {
		m.Revision = ""
	}
	_, out, err := call(c.simController, "delete of "+m.Name, true, func() (struct{}, protocol.Outcome) {
		return struct{}{}, c.w.deleteLease(c.who, m)
	})
	return out, err
}

func (c liveCalls) Leases(context.Context) ([]protocol.Lease, error) {
	return listOf(c, "list of leases", c.w.api.leases, nil)
}

func (c liveCalls) LeasesOfPool(_ context.Context, pool protocol.PoolName) ([]protocol.Lease, error) {
	return listOf(c, "list of the leases of "+string(pool), c.w.api.leases, func(l protocol.Lease) bool { return l.Pool == pool })
}

// listOf lists those objects of a table that keep accepts.
func listOf[T any](c liveCalls, what string, t *simTable[T], keep func(T) bool) ([]T, error) {
	all, _, err := call(c.simController, what, false, func() ([]T, protocol.Outcome) { return t.list(keep), protocol.Done })
	return all, err
}

func (c liveCalls) ReadPool(_ context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return call(c.simController, "read of pool "+string(name), false, func() (protocol.Pool, protocol.Outcome) { return c.w.api.readPool(name) })
}

func (c liveCalls) ReadIPPool(_ context.Context, name protocol.PoolName) (*v1alpha1.IPPool, protocol.Outcome, error) {
	p, out, err := call(c.simController, "read of pool "+string(name), false, func() (simPool, protocol.Outcome) {
		return c.w.api.pools.read(string(name))
	})
	if out != protocol.Done {
		return nil, out, err
	}
	return p.object(), out, nil
}

func (c liveCalls) IPPools(context.Context) ([]v1alpha1.IPPool, error) {
	all, _, err := call(c.simController, "list of pools", false, func() (all []v1alpha1.IPPool, _ protocol.Outcome) {
		for _, p := range c.w.api.pools.list(nil) {
			all = append(all, *p.object())
		}
		return all, protocol.Done
	})
	return all, err
}

func (c liveCalls) Registrations(context.Context) ([]protocol.Registration, error) {
	return listOf(c, "list of registrations", c.w.api.regs, nil)
}

func (c liveCalls) ReadClaim(_ context.Context, _, name string) (protocol.Claim, protocol.Outcome, error) {
	return call(c.simController, "read of claim "+name, false, func() (protocol.Claim, protocol.Outcome) { return c.w.api.readClaim(name) })
}

func (c liveCalls) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	return call(c.simController, "read of use "+name, false, func() (protocol.SubLease, protocol.Outcome) { return c.w.api.subs.read(name) })
}

// deleteLease deletes a lease for who, of which nothing must be granted.
func (w *world) deleteLease(who string, m protocol.Meta) protocol.Outcome {
	l, _ := w.api.leases.read(m.Name)
	out := w.api.leases.remove(m)
	if out == protocol.Done && len(l.Grants) > 0 {
		w.fail(I1, "%s deleted lease %s, of which %v is granted", who, l.Name, l.Grants[0].Addr)
	}
	return out
}

// claimReads are the claims' reconciler's reads.
type claimReads struct{ liveCalls }

func (c claimReads) ReadClaim(ctx context.Context, namespace, name string) (protocol.Claim, protocol.Outcome, error) {
	if c.w.fault == "M24" {
		claim, out := c.claims.read(name)
		return claim.Claim, out, nil
	}
	return c.liveCalls.ReadClaim(ctx, namespace, name)
}

func (c claimReads) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	switch c.w.fault {
	case "M16":
		s, out := c.subs.read(name)
		return s, out, nil
	case "M25":
		return protocol.SubLease{}, protocol.NotFound, nil
	default:
		return c.liveCalls.ReadSubLease(ctx, name)
	}
}

// granter is the broker for the claims' reconciler: where that waits for a round,
// its routine does.
type granter struct {
	*grants.Broker
	c *simController
}

func (g granter) Mark(_ context.Context, held []grants.Held) ([]grants.Held, error) {
	if err := g.change(grants.Mark, held); err != nil {
		return nil, err
	}
	return g.Marked(held), nil
}

func (g granter) Unmark(_ context.Context, held []grants.Held) error {
	return g.change(grants.Unmark, held)
}

func (g granter) Clear(_ context.Context, held []grants.Held) error {
	return g.change(grants.Clear, held)
}

func (g granter) change(v grants.Verb, held []grants.Held) error {
	done := g.Submit(v, held)
	g.c.await(func() bool { return len(done) > 0 })
	return <-done
}

// Ask is, with M37, an ask for one address after the other, in any order. With M63 what another pod
// shows is asked for that pod.
func (g granter) Ask(a grants.Ask) grants.Answer {
	if g.c.w.fault == "M63" && a.To.Kind == protocol.GranteePod {
		a.To = g.c.forger(a.From[0].Addr, a.To)
	}
	answer := g.Broker.Ask(a)
	if g.c.w.fault != "M37" || len(answer.Granted) > 0 {
		return answer
	}
	for i := range a.From {
		one := a
		one.From = a.From[i : i+1]
		if len(g.Broker.Ask(one).Granted) == 0 {
			return grants.Answer{}
		}
	}
	return g.Broker.Ask(a)
}

// forger is M63: the pod to whose status somebody has written an address that another has.
func (c *simController) forger(a netip.Addr, found protocol.Grantee) protocol.Grantee {
	for _, p := range c.w.all {
		if p.forged == a {
			return protocol.Grantee{Kind: protocol.GranteePod, UID: p.ref.UID, Namespace: p.ref.Namespace, Name: p.ref.Name, Node: p.node.name}
		}
	}
	return found
}

// cacheReader reads from the controller's informers.
type cacheReader struct {
	client.Reader
	c *simController
}

func (r cacheReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *ipamclaims.IPAMClaim:
		return get(r.c.claims, key.Name, simClaim.object, o)
	case *v1alpha1.IPPool:
		return get(r.c.pools, key.Name, simPool.object, o)
	case *v1alpha1.IPSubLease:
		return get(r.c.subs, key.Name, subObject, o)
	case *corev1.Node:
		return get(r.c.rackNodes, key.Name, rackNode.object, o)
	case *coordination.Lease:
		return get(r.c.regs, key.Name, registrationObject, o)
	default:
		panic(fmt.Sprintf("simulation: no informer of %T", into))
	}
}

// get reads an object from an informer in the API's words.
func get[T, O any](from *simWatch[T], name string, object func(T) *O, into *O) error {
	obj, out := from.read(name)
	if out != protocol.Done {
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	*into = *object(obj)
	return nil
}

func (r cacheReader) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	pool := ""
	if o.FieldSelector != nil {
		pool, _ = o.FieldSelector.RequiresExactMatch("spec.pool")
	}
	switch list := into.(type) {
	case *v1alpha1.IPLeaseList:
		ofPool := func(l protocol.Lease) bool { return pool == "" || string(l.Pool) == pool }
		list.Items = listed(r.c.w, r.c.leases, ofPool, leaseObject)
	case *v1alpha1.IPPoolList:
		list.Items = listed(r.c.w, r.c.pools, nil, simPool.object)
	case *v1alpha1.IPSubLeaseList:
		list.Items = listed(r.c.w, r.c.subs, nil, subObject)
	case *nad.NetworkAttachmentDefinitionList:
		r.c.definitions(list)
	case *corev1.NodeList:
		list.Items = listed(r.c.w, r.c.rackNodes, nil, rackNode.object)
	case *ipamclaims.IPAMClaimList: // those that wait
		waits := func(claim simClaim) bool { return claims.Waits(claim.obj) }
		list.Items = listed(r.c.w, r.c.claims, waits, simClaim.object)
	case *coordination.LeaseList: // what is said of silent nodes bears on counts alone
	case *v1alpha1.IPReservationList: // there are none
	default:
		panic(fmt.Sprintf("simulation: no informer of %T", into))
	}
	return nil
}

// listed returns those objects of an informer that keep accepts, in the API's words. Who lists an
// object at the same revision shares what it points to: the program reads lists without a copy.
func listed[T, O any](w *world, from *simWatch[T], keep func(T) bool, object func(T) *O) (all []O) {
	for _, obj := range from.list(keep) {
		rev := from.meta(&obj).Revision
		known, ok := w.shown[rev].(*O)
		if !ok {
			known = object(obj)
			w.shown[rev] = known
		}
		all = append(all, *known)
	}
	return all
}

// statusClient writes claims' status.
type statusClient struct{ c *simController }

func (s statusClient) Status() client.SubResourceWriter { return statusWriter{c: s.c} }

// writeClient writes pools.
type writeClient struct {
	client.Client
	c *simController
}

func (s writeClient) Status() client.SubResourceWriter { return statusWriter{c: s.c} }

func (s writeClient) Patch(_ context.Context, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
	return s.c.patch(obj, p)
}

type statusWriter struct {
	client.SubResourceWriter
	c *simController
}

func (s statusWriter) Patch(_ context.Context, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.c.patch(obj, p)
}

// patch sends a merge patch of a claim or a pool.
func (c *simController) patch(obj client.Object, raw client.Patch) error {
	data, err := raw.Data(obj)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	p, name := parsePatch(data), obj.GetName()
	send := func() protocol.Outcome { return c.w.patchPool(name, p) }
	if _, ok := obj.(*ipamclaims.IPAMClaim); ok {
		if c.w.fault == "M23" {
			p.Metadata.UID, p.Metadata.ResourceVersion = "", ""
		}
		send = func() protocol.Outcome { return c.w.api.patchClaim(name, p) }
	}
	_, out, err := call(c, c.w.text("patch of %s at %s: %.90s", name, p.Metadata.ResourceVersion, p.Status), true,
		func() (struct{}, protocol.Outcome) { return struct{}{}, send() })
	switch out {
	case protocol.NotFound:
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	case protocol.Conflict:
		return apierrors.NewConflict(schema.GroupResource{}, name, err)
	case protocol.Refused:
		return apierrors.NewForbidden(schema.GroupResource{}, name, err)
	case protocol.Done, protocol.Unknown, protocol.Exists:
	}
	return err
}

// noEvents takes Events and keeps none.
type noEvents struct{}

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {} //nolint:revive // the interface has that many
