package podnetworks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// networkParams finds out whether what a network names is ready, and makes its definition. A
// [*podnetwork.ParamsError] says why it is not.
func (c *Cluster) networkParams(ctx context.Context, o *v1alpha1.PodNetwork) error {
	refs, err := podnetwork.ReadRefs(o.Spec.ParametersRefs)
	if err != nil {
		return err //nolint:wrapcheck // it is the condition's message
	}
	if refs.Definition != (facts.Ref{}) {
		return c.checkDefinition(ctx, refs.Definition)
	}
	spec, err := c.parameters(ctx, refs.Parameters)
	if err != nil {
		return err
	}
	if refs.Pool != "" { // one address of each family that its ranges have: never two
		if err := c.read(ctx, client.ObjectKey{Name: refs.Pool}, &v1alpha1.IPPool{}); err != nil {
			return err
		}
	}
	return c.applyDefinition(ctx, madeOfNetwork(o, podnetwork.Render(podnetwork.Of(o, access.Rule{}).Definition.Name, spec, refs.Pool)))
}

// attachmentParams finds out whether what an attachment names is ready, and makes its definition.
// A [*podnetwork.ParamsError] says why it is not.
func (c *Cluster) attachmentParams(ctx context.Context, o *v1alpha1.PodNetworkAttachment, network *v1alpha1.PodNetwork) error {
	refs, err := podnetwork.ReadRefs(network.Spec.ParametersRefs)
	if err != nil {
		return podnetwork.Missing("PodNetwork %s has no parameters that could be varied: %v", network.Name, err)
	}
	at, err := podnetwork.ReadOwnRefs(o.Namespace, o.Spec.ParametersRefs, network.Name, refs)
	if err != nil {
		return err //nolint:wrapcheck // it is the condition's message
	}
	spec, err := c.parameters(ctx, refs.Parameters)
	if err != nil {
		return err
	}
	own, err := c.readParameters(ctx, at)
	if err != nil {
		return err
	}
	varied, err := podnetwork.Vary(spec, own, at)
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	return c.applyDefinition(ctx, madeOfAttachment(o, network, podnetwork.Render(podnetwork.AttachmentOf(o).Definition.Name, varied, refs.Pool)))
}

// parameters returns the InterfaceParameters that a network names.
func (c *Cluster) parameters(ctx context.Context, at facts.Ref) (v1alpha1.InterfaceParametersSpec, error) {
	spec, err := c.readParameters(ctx, at)
	if err != nil {
		return spec, err
	}
	return spec, podnetwork.CheckParameters(at, spec) //nolint:wrapcheck // it is the condition's message
}

func (c *Cluster) readParameters(ctx context.Context, at facts.Ref) (v1alpha1.InterfaceParametersSpec, error) {
	var o v1alpha1.InterfaceParameters
	err := c.read(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Name}, &o)
	return o.Spec, err
}

// read reads an object of the cache. One that is not there is Missing.
func (c *Cluster) read(ctx context.Context, key client.ObjectKey, o client.Object) error {
	err := c.Cache.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
		return podnetwork.Missing("%s does not exist: make it", describe(o)) //nolint:wrapcheck // it is the condition's message
	}
	if err != nil {
		return fmt.Errorf("read what parametersRefs names: %w", err)
	}
	return nil
}

// checkDefinition checks a definition that a network names.
func (c *Cluster) checkDefinition(ctx context.Context, at facts.Ref) error {
	var o nad.NetworkAttachmentDefinition
	if err := c.read(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Name}, &o); err != nil {
		return err
	}
	return podnetwork.CheckDefinition(at, o.Spec.Config, func(pool string) ([]allocator.Family, error) { //nolint:wrapcheck // likewise
		return c.families(ctx, pool)
	})
}

// families returns the families of a pool's ranges.
func (c *Cluster) families(ctx context.Context, pool string) (all []allocator.Family, err error) {
	var o v1alpha1.IPPool
	if err := c.read(ctx, client.ObjectKey{Name: pool}, &o); err != nil {
		return nil, err
	}
	for _, r := range o.Spec.Ranges {
		cidr, err := netip.ParsePrefix(r.CIDR)
		if f := allocator.FamilyOf(cidr.Addr()); err == nil && !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all, nil
}

// faultOf parts what an administrator can mend from what is tried again.
func faultOf(err error) (*podnetwork.ParamsError, error) {
	if fault, ok := errors.AsType[*podnetwork.ParamsError](err); ok {
		return fault, nil
	}
	return nil, err
}
