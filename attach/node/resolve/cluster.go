package resolve

import (
	"context"
	"errors"
	"maps"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Cluster is what a [Resolver] needs of the cluster. All methods may run at once.
type Cluster struct {
	Pods        Pods
	Definitions Definitions
	Namespaces  Namespaces
	// PodNetworks is nil where the cluster serves none.
	PodNetworks PodNetworks
	// Devices asks the node's kubelet.
	Devices Devices
	// Warn says something to the owner of a pod, and Note what is no warning. They do not wait for
	// the API server.
	Warn, Note func(pod protocol.PodRef, reason, message string)
}

// ErrTooLarge says that annotations have more bytes than Kubernetes lets an object have.
var ErrTooLarge = errors.New("too large")

// A Pod is what decides about a pod's networks.
type Pod struct {
	Namespace, Name string
	// UID is the API's. MirrorOf is, of a static pod's mirror, the UID by which the
	// kubelet and the runtime know the pod.
	UID, MirrorOf protocol.UID
	// Annotations are those that [plan.ReadsAnnotation] accepts, or more.
	Annotations map[string]string
	// Moving says that a virtual machine moves to the pod while it runs.
	Moving bool
}

// is reports whether uid, as a runtime told it, is p's. An empty one is anybody's.
func (p Pod) is(uid string) bool {
	return uid == "" || protocol.UID(uid) == p.UID || protocol.UID(uid) == p.MirrorOf
}

// kubelets returns the UID by which the kubelet knows the pod.
func (p Pod) kubelets() protocol.UID {
	if p.MirrorOf != "" {
		return p.MirrorOf
	}
	return p.UID
}

// Pods finds this node's pods.
type Pods interface {
	// Cached returns what the watch of the node's pods has of a pod, which may be an
	// earlier one of that name. It does not block.
	Cached(namespace, name string) (Pod, bool)
	// ReadPod reads a pod live.
	ReadPod(ctx context.Context, namespace, name string) (Pod, protocol.Outcome, error)
	// Annotate sets annotations of the pod that has this UID in the API, takes off those whose
	// text is empty, and touches nothing else. Conflict means that the pod of that name is another
	// one. An error that is ErrTooLarge means that the pod has no room for them.
	Annotate(ctx context.Context, pod protocol.PodRef, annotations map[string]string) (protocol.Outcome, error)
}

// Definitions finds NetworkAttachmentDefinitions.
type Definitions interface {
	// ReadDefinition reads a definition live.
	ReadDefinition(ctx context.Context, ref facts.Ref) (facts.Definition, protocol.Outcome, error)
	// FollowDefinition calls changed with the definition of that name as it is, and
	// again whenever it has changed, until ctx ends; exists is false while there is
	// none. changed is not called concurrently for one FollowDefinition.
	FollowDefinition(ctx context.Context, ref facts.Ref, changed func(d facts.Definition, exists bool)) error
}

// Namespaces finds the labels of namespaces.
type Namespaces interface {
	// ReadLabels reads the labels of a namespace live.
	ReadLabels(ctx context.Context, namespace string) (map[string]string, protocol.Outcome, error)
	// FollowLabels is to labels what FollowDefinition is to a definition.
	FollowLabels(ctx context.Context, namespace string, changed func(labels map[string]string, exists bool)) error
}

// PodNetworks finds PodNetworks and PodNetworkAttachments. The methods are to these what those of
// [Definitions] are to a definition.
type PodNetworks interface {
	ReadPodNetwork(ctx context.Context, name string) (judge.Network, protocol.Outcome, error)
	FollowPodNetwork(ctx context.Context, name string, changed func(n judge.Network, exists bool)) error
	ReadAttachment(ctx context.Context, ref facts.Ref) (judge.Attachment, protocol.Outcome, error)
	FollowAttachment(ctx context.Context, ref facts.Ref, changed func(a judge.Attachment, exists bool)) error
	// MayUse reports whether the service accounts of a namespace, as a group, are allowed the
	// verb use on a PodNetwork.
	MayUse(ctx context.Context, namespace, network string) (bool, error)
}

// Devices tells which devices the kubelet gave to a pod.
type Devices interface {
	// DevicesOf returns a pod's devices by resource name, in the kubelet's order, each as
	// "kind=ID". Where there is no kubelet to ask, there are none.
	DevicesOf(ctx context.Context, namespace, pod string) (map[string][]string, error)
}

// telling returns the annotations that decide about networks.
func telling(annotations map[string]string) map[string]string {
	few := maps.Clone(annotations)
	maps.DeleteFunc(few, func(key, _ string) bool { return !plan.ReadsAnnotation(key) })
	return few
}

// DefinitionOf returns what decides about networks of a definition: of its
// annotations those that [plan.ReadsAnnotation] accepts, which are copied, and its config. An empty
// config is none: the API's type does not tell the two apart, and neither names a
// configuration.
func DefinitionOf(ref facts.Ref, annotations map[string]string, config string) facts.Definition {
	d := facts.Definition{Ref: ref, Annotations: telling(annotations)}
	if config != "" {
		d.Config = &config
	}
	return d
}
