package simulation

import (
	"context"
	"encoding/json"
	"fmt"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

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

// writeClient writes pools, and the status of pools and claims.
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
	var p patch
	must(json.Unmarshal(data, &p))
	name := obj.GetName()
	send := func() protocol.Outcome { return c.w.patchPool(name, p) }
	if _, ok := obj.(*ipamclaims.IPAMClaim); ok {
		if c.w.fault == "M23" {
			p.Metadata.UID, p.Metadata.ResourceVersion = "", ""
		}
		send = func() protocol.Outcome { return c.w.api.patchClaim(name, p) }
	}
	switch out, err := c.write(c.w.text("patch of %s at %s: %.90s", name, p.Metadata.ResourceVersion, p.Status), send); out {
	case protocol.NotFound:
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	case protocol.Conflict:
		return apierrors.NewConflict(schema.GroupResource{}, name, err)
	case protocol.Refused:
		return apierrors.NewForbidden(schema.GroupResource{}, name, err)
	default:
		return err
	}
}
