package kube

import (
	"context"
	"fmt"
	"sync"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Annotations of pods that a node reads.
const (
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	AnnotationStatus   = "k8s.v1.cni.cncf.io/network-status"
	// annotationMirror is, on the mirror of a static pod, the UID by which the
	// runtime knows the pod.
	annotationMirror = corev1.MirrorPodAnnotationKey
)

// FollowPool calls changed with the pool of that name as it is, nil if there is
// none, and again whenever it has changed, until ctx ends.
func FollowPool(ctx context.Context, c client.WithWatch, name protocol.PoolName, changed func(*v1alpha1.IPPool)) error {
	return follow(ctx, c, client.ObjectKey{Name: string(name)}, &v1alpha1.IPPool{}, &v1alpha1.IPPoolList{}, changed)
}

// FollowSubLease calls changed with the sub-lease of that name as FollowPool does
// with a pool. Of one that was seen at revision since it is only called with what came
// after: such a watch costs the API server no list, and no look at etcd. An empty since is
// none.
func FollowSubLease(ctx context.Context, c client.WithWatch, name string, since protocol.Revision, changed func(*v1alpha1.IPSubLease)) error {
	if since != "" && !changesSince(ctx, c, name, since, changed) {
		return nil
	}
	return follow(ctx, c, client.ObjectKey{Name: name}, &v1alpha1.IPSubLease{}, &v1alpha1.IPSubLeaseList{}, changed)
}

// changesSince calls changed with each version of a sub-lease after revision since, and
// with nil when it is gone, until ctx ends. It returns true if the watch has ended before:
// the API server may be away, or not know the changes since then any more.
func changesSince(ctx context.Context, c client.WithWatch, name string, since protocol.Revision, changed func(*v1alpha1.IPSubLease)) (ended bool) {
	w, err := c.Watch(ctx, &v1alpha1.IPSubLeaseList{}, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name), Raw: &metav1.ListOptions{ResourceVersion: string(since)},
	})
	if err != nil {
		return ctx.Err() == nil // whoever follows it in the usual way hears what is wrong
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-w.ResultChan():
			o, is := e.Object.(*v1alpha1.IPSubLease)
			switch {
			case !ok || !is: // an error is a status
				return ctx.Err() == nil
			case e.Type == watch.Deleted:
				changed(nil)
			default:
				changed(o)
			}
		}
	}
}

// FollowRegistration calls changed with a registration, of that key, as FollowPool does with a
// pool.
func FollowRegistration(ctx context.Context, c client.WithWatch, key client.ObjectKey, changed func(*coordination.Lease)) error {
	return follow(ctx, c, key, &coordination.Lease{}, &coordination.LeaseList{}, changed)
}

// FollowDefinition calls changed with a network attachment definition, of that key,
// as FollowPool does with a pool.
func FollowDefinition(ctx context.Context, c client.WithWatch, key client.ObjectKey, changed func(*nad.NetworkAttachmentDefinition)) error {
	return follow(ctx, c, key, &nad.NetworkAttachmentDefinition{}, &nad.NetworkAttachmentDefinitionList{}, changed)
}

// FollowPodNetwork calls changed with a PodNetwork as FollowPool does with a pool.
func FollowPodNetwork(ctx context.Context, c client.WithWatch, name string, changed func(*v1alpha1.PodNetwork)) error {
	return follow(ctx, c, client.ObjectKey{Name: name}, &v1alpha1.PodNetwork{}, &v1alpha1.PodNetworkList{}, changed)
}

// FollowPodNetworkAttachment calls changed with a PodNetworkAttachment, of that key, as
// FollowPool does with a pool.
func FollowPodNetworkAttachment(ctx context.Context, c client.WithWatch, key client.ObjectKey, changed func(*v1alpha1.PodNetworkAttachment)) error {
	return follow(ctx, c, key, &v1alpha1.PodNetworkAttachment{}, &v1alpha1.PodNetworkAttachmentList{}, changed)
}

// FollowNamespace calls changed with the metadata of a namespace as FollowPool does
// with a pool.
func FollowNamespace(ctx context.Context, c client.WithWatch, name string, changed func(*metav1.PartialObjectMetadata)) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	return follow(ctx, c, client.ObjectKey{Name: name}, metadataOf("Namespace"), &list, changed)
}

// follow calls changed with the object of that key as it is, nil if there is none,
// and again whenever it has changed, until ctx ends. It watches by name: the API
// server keeps an index of names, and tests every other selector on every event.
func follow[O client.Object](ctx context.Context, c client.WithWatch, key client.ObjectKey, kind O, list client.ObjectList, changed func(O)) error {
	var none O
	var mu sync.Mutex
	heard := false // guarded by mu
	tell := func(o O) {
		mu.Lock()
		defer mu.Unlock()
		heard = true
		changed(o)
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell(o.(O)) },
		UpdateFunc: func(_, o any) { tell(o.(O)) },
		DeleteFunc: func(any) { tell(none) },
	}
	selector := fields.OneTermEqualSelector("metadata.name", key.Name)
	kept, run := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch(c, key.Namespace, selector, func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) }),
		ObjectType:    kind, Handler: handler, Transform: strip,
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		run.RunWithContext(ctx)
	}()
	if cache.WaitForCacheSync(ctx.Done(), run.HasSynced) {
		mu.Lock()
		if !heard && len(kept.ListKeys()) == 0 {
			changed(none)
		}
		mu.Unlock()
	}
	<-done
	return nil
}

// PodCache watches the metadata of one node's pods.
type PodCache struct {
	store cache.Store
	run   cache.Controller
}

// NewPodCache returns a cache of the pods of node. It has of their annotations those
// alone whose keys keep wants, and the one that marks a mirror. changed is called,
// never concurrently, with a pod that has come or has changed, and once it has gone
// with exists false. It starts nothing.
func NewPodCache(c client.WithWatch, node protocol.NodeName, keep func(key string) bool, changed func(o *metav1.PartialObjectMetadata, exists bool)) *PodCache {
	tell := func(o any, exists bool) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if pod, ok := o.(*metav1.PartialObjectMetadata); ok {
			changed(pod, exists)
		}
	}
	selector := fields.OneTermEqualSelector("spec.nodeName", string(node))
	p := &PodCache{}
	p.store, p.run = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch(c, metav1.NamespaceAll, selector, func() client.ObjectList {
			var list metav1.PartialObjectMetadataList
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
			return &list
		}),
		ObjectType: metadataOf("Pod"),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { tell(o, true) },
			UpdateFunc: func(_, o any) { tell(o, true) },
			DeleteFunc: func(o any) { tell(o, false) },
		},
		Transform: func(o any) (any, error) {
			if obj, ok := o.(metav1.Object); ok {
				obj.SetAnnotations(kept(obj.GetAnnotations(), keep))
			}
			return strip(o)
		},
	})
	return p
}

// Run watches until ctx ends.
func (p *PodCache) Run(ctx context.Context) { p.run.RunWithContext(ctx) }

// Synced reports whether all pods of the node have been listed since Run began: until then a
// pod that Get does not find may be there.
func (p *PodCache) Synced() bool { return p.run.HasSynced() }

// Get returns what the watch has of a pod.
func (p *PodCache) Get(namespace, name string) (*metav1.PartialObjectMetadata, bool) {
	o, ok, err := p.store.GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil, false
	}
	pod, ok := o.(*metav1.PartialObjectMetadata)
	return pod, ok
}

// All returns what the watch has of the node's pods.
func (p *PodCache) All() (all []*metav1.PartialObjectMetadata) {
	for _, o := range p.store.List() {
		if pod, ok := o.(*metav1.PartialObjectMetadata); ok {
			all = append(all, pod)
		}
	}
	return all
}

// ReadPodMetadata reads the metadata of a pod live.
func (a *API) ReadPodMetadata(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, protocol.Outcome, error) {
	pod := metadataOf("Pod")
	out, err := a.get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod)
	return pod, out, err
}

// PodsOfNode lists the pods of a node live.
func (a *API) PodsOfNode(ctx context.Context, node protocol.NodeName) ([]corev1.Pod, error) {
	return PodsOfNode(ctx, a.c, node)
}

// PodsOfNode lists the pods of a node live, by a client that reads so.
func PodsOfNode(ctx context.Context, live client.Reader, node protocol.NodeName) ([]corev1.Pod, error) {
	ctx, cancel := within(ctx, ListTimeout)
	defer cancel()
	var list corev1.PodList
	if _, err := outcome(ctx, live.List(ctx, &list, client.MatchingFields{"spec.nodeName": string(node)})); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// kept returns the annotations whose keys keep wants, and the one that marks a
// mirror. What people and tools write there can be hundreds of kilobytes.
func kept(annotations map[string]string, keep func(key string) bool) map[string]string {
	few := make(map[string]string)
	for key, value := range annotations {
		if key == annotationMirror || keep(key) {
			few[key] = value
		}
	}
	return few
}

// metadataOf returns the metadata, empty, of an object of Kubernetes' first group.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return &o
}

// MirrorOf returns the UID by which the runtime knows the static pod that o
// mirrors, "" if o mirrors none.
func MirrorOf(o metav1.Object) protocol.UID {
	return protocol.UID(o.GetAnnotations()[annotationMirror])
}

// listWatch lists and watches, for an agent, the objects of a namespace, or of all, that
// selector tells by their fields.
func listWatch(c client.WithWatch, namespace string, selector fields.Selector, list func() client.ObjectList) cache.ListerWatcher {
	options := func(raw metav1.ListOptions) client.ListOption {
		return &client.ListOptions{Namespace: namespace, FieldSelector: selector, Raw: &raw}
	}
	return Persist(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, c.List(ctx, l, options(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list(), options(raw))
		},
	}, c), agentPause)
}

// strip drops what no reader of a cache needs.
func strip(o any) (any, error) {
	obj, ok := o.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("cache: %T is no object", o)
	}
	obj.SetManagedFields(nil)
	return o, nil
}
