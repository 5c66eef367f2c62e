package podnetworks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
)

// neutronOf returns the subnets of Neutron that a pool consists of; nil: it consists of none.
func neutronOf(pool *v1alpha1.IPPool) *v1alpha1.NeutronSource {
	if pool.Spec.Source == nil {
		return nil
	}
	return pool.Spec.Source.Neutron
}

// subnetsOf returns the IDs of the subnets that a pool consists of.
func subnetsOf(pool *v1alpha1.IPPool) []string {
	if n := neutronOf(pool); n != nil {
		return n.SubnetIDs
	}
	return nil
}

// poolOf returns the pool that a network of a definition names, or that has its subnet.
func (r *VIFs) poolOf(ctx context.Context, of types.NamespacedName, n vif.Network) (*v1alpha1.IPPool, error) {
	if n.Subnet != nil {
		n.Pool = vif.PoolName(of.Namespace, of.Name)
	}
	if n.SubnetID != "" {
		return r.poolOfSubnet(ctx, n.SubnetID)
	}
	var pool v1alpha1.IPPool
	err := r.Cache.Get(ctx, client.ObjectKey{Name: n.Pool}, &pool)
	if apierrors.IsNotFound(err) && n.Subnet != nil {
		return nil, vifFault{ReasonVIFPoolNotFound, fmt.Sprintf("annotation %s: its subnet has not been made yet: if no other Event says why, see whether the controller has credentials for Neutron", vif.AnnotationNetwork)}
	}
	if apierrors.IsNotFound(err) {
		return nil, vifFault{ReasonVIFPoolNotFound, fmt.Sprintf("annotation %s: IPPool %.260s does not exist: make it, or name another", vif.AnnotationNetwork, n.Pool)}
	}
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", n.Pool, err)
	}
	return &pool, nil
}

// poolOfSubnet returns the pool that has a subnet of Neutron's.
func (r *VIFs) poolOfSubnet(ctx context.Context, id string) (*v1alpha1.IPPool, error) {
	var list v1alpha1.IPPoolList
	if err := r.Cache.List(ctx, &list, client.MatchingFields{bySubnet: id}); err != nil {
		return nil, fmt.Errorf("list the pools with subnet %s: %w", id, err)
	}
	switch len(list.Items) {
	case 0:
		return nil, vifFault{ReasonVIFPoolNotFound, fmt.Sprintf("no IPPool has Neutron's subnet %.80q: make one that has it in spec.source.neutron.subnetIDs", id)}
	case 1:
		return &list.Items[0], nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	slices.Sort(names)
	return nil, vifFault{ReasonVIFPoolAmbiguous, fmt.Sprintf("IPPools %s have Neutron's subnet %q in spec.source.neutron.subnetIDs: delete all but one, or name one by pool in annotation %s",
		strings.Join(names, " and "), id, vif.AnnotationNetwork)}
}

// keyInterface is where a definition says how interfaces are made, for messages.
const keyInterface = "annotation " + vif.AnnotationNetwork + ": interfaceParameters"

// interfaceOf returns the parameters that a network of that namespace names, or has inline, or has
// from its pool. A pool of Neutron's has to have interfaces of a plugin that can be given the
// hardware address of their port.
func (r *VIFs) interfaceOf(ctx context.Context, namespace string, text json.RawMessage, pool *v1alpha1.IPPool) (spec v1alpha1.InterfaceParametersSpec, err error) {
	name, named := parametersName(text)
	switch {
	case len(text) == 0 || string(text) == "null":
		spec, err = r.interfaceOfPool(ctx, pool)
	case named:
		spec, err = r.parametersNamed(ctx, keyInterface, facts.Ref{Namespace: namespace, Name: name})
	default:
		if spec, err = podnetwork.ReadInline(text); err != nil {
			err = invalidVIF("%s: %s: write what InterfaceParameters have in spec, or give the name of such", keyInterface, oneLine(err))
		}
	}
	if err == nil && neutronOf(pool) != nil && !podnetwork.TakesMAC(spec) {
		err = invalidVIF("interfaces of IPPool %s must have the hardware addresses of their ports in Neutron, which lets nothing else through, and the plugins ipvlan and vlan cannot be given one: take macvlan, bridge or sriov", pool.Name)
	}
	return spec, err
}

// interfaceOfPool returns the parameters that a pool names, for networks that have none.
func (r *VIFs) interfaceOfPool(ctx context.Context, pool *v1alpha1.IPPool) (v1alpha1.InterfaceParametersSpec, error) {
	const missing = keyInterface + " is missing, which says how interfaces are made: give the name of InterfaceParameters of the definition's namespace, or what such have in spec"
	n := neutronOf(pool)
	switch {
	case n == nil:
		return v1alpha1.InterfaceParametersSpec{}, invalidVIF(missing)
	case n.InterfaceParameters == "":
		return v1alpha1.InterfaceParametersSpec{}, invalidVIF("%s; or give IPPool %s the name of InterfaceParameters of namespace %s, in spec.source.neutron.interfaceParameters", missing, pool.Name, api.Namespace)
	}
	where := fmt.Sprintf("IPPool %s: spec.source.neutron.interfaceParameters", pool.Name)
	return r.parametersNamed(ctx, where, facts.Ref{Namespace: api.Namespace, Name: n.InterfaceParameters})
}

// parametersNamed returns parameters that are an object of their own. where says who names them.
func (r *VIFs) parametersNamed(ctx context.Context, where string, at facts.Ref) (v1alpha1.InterfaceParametersSpec, error) {
	spec, err := r.readParameters(ctx, at)
	if err == nil {
		err = podnetwork.CheckVIFParameters(at, spec)
	}
	if fault, ok := errors.AsType[*podnetwork.ParamsError](err); ok {
		reason := ReasonVIFInvalid
		if fault.Reason == v1alpha1.ReasonParamsMissing {
			reason = ReasonVIFParametersNotFound
		}
		return spec, vifFault{reason, where + ": " + fault.Message}
	}
	return spec, err
}

// parametersName returns the name that a network gives of InterfaceParameters; named is false if it
// has something else in that place.
func parametersName(text json.RawMessage) (name string, named bool) {
	err := json.Unmarshal(text, &name)
	return name, err == nil && name != ""
}
