package podnetworks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// madeOf is the label of the definitions that are made here, which says of which kind of object
// one is made, and the annotation that says of which object.
const madeOf = "tenure.dev/made-of"

// Values of the label.
const (
	ofNetwork    = "PodNetwork"
	ofAttachment = "PodNetworkAttachment"
	ofVIF        = "NetworkAttachmentDefinition"
)

// A made definition is one that is made here.
type made struct {
	// name is the definition's, in the namespace of all of them.
	name string
	// kind is the label's value, and object the annotation's.
	kind, object string
	// uids are those of the objects that it is made for; of a definition, its fingerprint.
	uids []string
	// owners are those with which the definition goes.
	owners []metav1.OwnerReference
	podnetwork.Rendered
}

// madeOfNetwork returns the definition of a network.
func madeOfNetwork(o *v1alpha1.PodNetwork, r podnetwork.Rendered) made {
	return made{
		name: podnetwork.Of(o, access.Rule{}).Definition.Name, kind: ofNetwork, object: o.Name, uids: []string{string(o.UID)}, Rendered: r,
		owners: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: ofNetwork, Name: o.Name, UID: o.UID, Controller: new(true)}},
	}
}

// madeOfAttachment returns the definition of an attachment. Who is in another namespace cannot own
// it: it goes with the attachment's finalizer.
func madeOfAttachment(o *v1alpha1.PodNetworkAttachment, network *v1alpha1.PodNetwork, r podnetwork.Rendered) made {
	return made{
		name: podnetwork.AttachmentOf(o).Definition.Name, kind: ofAttachment, object: o.Namespace + "/" + o.Name,
		uids: []string{string(network.UID), string(o.UID)}, Rendered: r,
	}
}

// isMade reports whether a definition is made here, of that object.
func isMade(o *nad.NetworkAttachmentDefinition, kind, object string) bool {
	if o.Labels[madeOf] == kind && o.Annotations[madeOf] == object {
		return true
	}
	return kind == ofNetwork && slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.APIVersion == v1alpha1.GroupVersion.String() && r.Kind == ofNetwork && r.Name == object
	})
}

// applyDefinition makes a definition, or puts it back as it should be.
func (c *Cluster) applyDefinition(ctx context.Context, m made) error {
	var o nad.NetworkAttachmentDefinition
	err := c.Cache.Get(ctx, client.ObjectKey{Namespace: api.Namespace, Name: m.name}, &o)
	if apierrors.IsNotFound(err) {
		o.Namespace, o.Name = api.Namespace, m.name
		m.into(&o)
		if err := call(ctx, func(ctx context.Context) error { return c.Live.Create(ctx, &o) }); err != nil {
			return fmt.Errorf("make %s: %w", describe(&o), err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read NetworkAttachmentDefinition %s/%s: %w", api.Namespace, m.name, err)
	}
	if !isMade(&o, m.kind, m.object) {
		//nolint:wrapcheck // it is the condition's message
		return podnetwork.Invalid("NetworkAttachmentDefinition %s/%s, which would be made of the parameters, is there already and is somebody else's: delete it, or make another %s", o.Namespace, o.Name, m.kind)
	}
	before := o.DeepCopy()
	if m.into(&o); equality.Semantic.DeepEqual(before, &o) {
		return nil
	}
	return c.patch(ctx, &o, before)
}

// into writes what m says into o: configuration and owners, and its annotations in the place of all
// that say who may select the definition, or how it is read. Other labels and annotations stay.
func (m made) into(o *nad.NetworkAttachmentDefinition) {
	o.Labels, o.Annotations = withKeys(o.Labels, map[string]string{madeOf: m.kind}), withKeys(o.Annotations, nil)
	maps.DeleteFunc(o.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, v1alpha1.GroupName+"/") || key == npwg.AnnotationResource
	})
	maps.Copy(o.Annotations, m.Annotations)
	o.Annotations[madeOf], o.Annotations[api.AnnotationMadeFor] = m.object, judge.MadeFor(m.uids...)
	o.OwnerReferences, o.Spec.Config = m.owners, m.Config
}

func withKeys(all, more map[string]string) map[string]string {
	with := maps.Clone(all)
	if with == nil {
		with = map[string]string{}
	}
	maps.Copy(with, more)
	return with
}

// removeDefinition deletes the definition of an attachment, if there is one.
func (c *Cluster) removeDefinition(ctx context.Context, namespace, name string) error {
	at := podnetwork.DefinitionOfAttachment(namespace, name)
	var o nad.NetworkAttachmentDefinition
	err := call(ctx, func(ctx context.Context) error {
		return c.Live.Get(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Name}, &o)
	})
	if err == nil && isMade(&o, ofAttachment, namespace+"/"+name) {
		err = call(ctx, func(ctx context.Context) error { return c.Live.Delete(ctx, &o, client.Preconditions{UID: &o.UID}) })
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the definition of PodNetworkAttachment %s/%s: %w", namespace, name, err)
	}
	return nil
}
