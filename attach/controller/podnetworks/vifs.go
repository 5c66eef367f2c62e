package podnetworks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// Reasons of the Events about a definition whose interfaces the control plane decides.
const (
	// ReasonVIFInvalid: its annotation, or the parameters in it, cannot be read or cannot be had.
	ReasonVIFInvalid = "InvalidVIFAnnotation"
	// ReasonVIFPoolNotFound: the pool that it names does not exist, or none has its subnet.
	ReasonVIFPoolNotFound = "VIFPoolNotFound"
	// ReasonVIFPoolAmbiguous: more than one pool has the subnet that it names.
	ReasonVIFPoolAmbiguous = "VIFPoolAmbiguous"
	// ReasonVIFParametersNotFound: the InterfaceParameters that it or its pool names do not exist.
	ReasonVIFParametersNotFound = "VIFParametersNotFound"
)

// VIFs makes, for each NetworkAttachmentDefinition without a configuration that says which network
// its interfaces are of, a definition with one in the namespace of those that are made.
type VIFs struct {
	*Cluster
	reported reported.Faults[vifFault] // of definitions
}

// A vifFault says why nothing is made of a definition, in the reason and the message of an Event.
type vifFault struct{ reason, message string }

func (f vifFault) Error() string { return f.message }

func invalidVIF(format string, args ...any) error {
	return vifFault{ReasonVIFInvalid, fmt.Sprintf(format, args...)}
}

// Reconcile looks at one definition. What is made of a VIF definition is as it says; of any other
// one, and of one that says what cannot be made, nothing is.
func (r *VIFs) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var o nad.NetworkAttachmentDefinition
	switch err := r.Cache.Get(ctx, req.NamespacedName, &o); {
	case apierrors.IsNotFound(err):
		r.reported.Forget(req.NamespacedName)
		return settle(r.removeVIF(ctx, req.Namespace, req.Name))
	case err != nil:
		return reconcile.Result{}, err //nolint:wrapcheck // says what it is about
	}
	if !isVIF(&o) || o.DeletionTimestamp != nil {
		r.reported.Forget(req.NamespacedName)
		return settle(r.removeVIF(ctx, o.Namespace, o.Name))
	}
	m, err := r.madeOfVIF(ctx, &o)
	if err == nil {
		err = r.applyDefinition(ctx, m)
	}
	if other, ok := errors.AsType[*podnetwork.ParamsError](err); ok { // the name is somebody else's
		err = vifFault{ReasonVIFInvalid, other.Message}
	}
	if fault, ok := errors.AsType[vifFault](err); ok {
		r.tell(ctx, &o, fault)
		return settle(r.removeVIF(ctx, o.Namespace, o.Name))
	}
	r.reported.Forget(req.NamespacedName)
	return settle(err)
}

// isVIF reports whether a definition, which is not made here, is a VIF definition.
func isVIF(o *nad.NetworkAttachmentDefinition) bool {
	return o.Labels[madeOf] == "" && vif.Is(o.Annotations, o.Spec.Config)
}

// madeOfVIF returns the definition that is to be made of o. A vifFault says why none is.
func (r *VIFs) madeOfVIF(ctx context.Context, o *nad.NetworkAttachmentDefinition) (made, error) {
	n, err := vif.NetworkOf(o.Annotations)
	if err != nil {
		return made{}, invalidVIF("%v: no interface is made by this definition before that is mended", err)
	}
	pool, err := r.poolOf(ctx, client.ObjectKeyFromObject(o), n)
	if err != nil {
		return made{}, err
	}
	spec, err := r.interfaceOf(ctx, o.Namespace, n.Interface, pool)
	if err != nil {
		return made{}, err
	}
	name := vif.DefinitionName(o.Namespace, o.Name)
	return made{
		name: name, kind: ofVIF, object: o.Namespace + "/" + o.Name, uids: []string{vif.Fingerprint(o.Annotations)},
		Rendered: podnetwork.RenderVIF(name, spec, pool.Name),
	}, nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// removeVIF deletes what was made of a definition, if the cache has it. If it has not yet, its
// event leads here again.
func (r *VIFs) removeVIF(ctx context.Context, namespace, name string) error {
	var o nad.NetworkAttachmentDefinition
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: api.Namespace, Name: vif.DefinitionName(namespace, name)}, &o)
	if err == nil && isMade(&o, ofVIF, namespace+"/"+name) {
		err = call(ctx, func(ctx context.Context) error { return r.Live.Delete(ctx, &o, client.Preconditions{UID: &o.UID}) })
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete what was made of NetworkAttachmentDefinition %s/%s: %w", namespace, name, err)
	}
	return nil
}

// tell makes an Event of a fault that people were not told at the last look.
func (r *VIFs) tell(ctx context.Context, o *nad.NetworkAttachmentDefinition, f vifFault) {
	key := client.ObjectKeyFromObject(o)
	if len(r.reported.New(key, f)) == 0 {
		return
	}
	r.Events.Eventf(o, nil, corev1.EventTypeWarning, f.reason, "MakeDefinition", "%.1000s", f.message)
	r.Log.WarnContext(ctx, "no interfaces by a definition", "definition", key.String(), "reason", f.reason, "message", f.message)
}

// RetireVIFs deletes all definitions that were made of VIF definitions, for a controller that
// serves none. Where definitions are not defined there is nothing to delete.
func (c *Cluster) RetireVIFs(ctx context.Context) error {
	var list nad.NetworkAttachmentDefinitionList
	err := call(ctx, func(ctx context.Context) error {
		return c.Live.List(ctx, &list, client.InNamespace(api.Namespace), client.MatchingLabels{madeOf: ofVIF})
	})
	if undefined(err) {
		return nil
	}
	errs := []error{err}
	for i := range list.Items {
		o := &list.Items[i]
		err := call(ctx, func(ctx context.Context) error { return c.Live.Delete(ctx, o, client.Preconditions{UID: &o.UID}) })
		errs = append(errs, client.IgnoreNotFound(err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete what was made for VIFs: %w", err)
	}
	return nil
}
