package endpoints

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/names"
)

// ByObject is what the reconciler's own cache holds: of slices those made here, and of Services and
// pods what decides about them.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&discovery.EndpointSlice{}: {Label: labels.SelectorFromSet(labels.Set{discovery.LabelManagedBy: names.ManagedBy})},
		&corev1.Service{}: {Transform: func(o any) (any, error) {
			if s, ok := o.(*corev1.Service); ok {
				condenseService(s)
			}
			return o, nil
		}},
		&corev1.Pod{}: {Transform: func(o any) (any, error) {
			if p, ok := o.(*corev1.Pod); ok {
				condensePod(p)
			}
			return o, nil
		}},
	}
}

func condenseService(s *corev1.Service) {
	s.ManagedFields, s.Status = nil, corev1.ServiceStatus{}
	if !names.Asks(s) { // it is known by its name and UID, for what is left of the time when it did
		s.Annotations, s.Labels, s.Spec = nil, nil, corev1.ServiceSpec{}
	}
}

// podAnnotations are those that say which addresses a pod has on which network.
var podAnnotations = []string{
	npwg.AnnotationNetworks, npwg.AnnotationDefaultNetwork, npwg.AnnotationStatus, podnetwork.AnnotationNetworks, podnetwork.AnnotationIPs,
}

// condensePod drops of a pod what decides about no slice: of one without a status, as most are in
// clusters where few pods have a second network, nearly all.
func condensePod(p *corev1.Pod) {
	meta := metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp,
	}
	if p.Annotations[npwg.AnnotationStatus] == "" {
		p.ObjectMeta, p.Spec, p.Status = meta, corev1.PodSpec{}, corev1.PodStatus{}
		return
	}
	meta.Labels, meta.Annotations = p.Labels, maps.Clone(p.Annotations)
	maps.DeleteFunc(meta.Annotations, func(key, _ string) bool { return !slices.Contains(podAnnotations, key) })
	p.ObjectMeta = meta
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain, HostNetwork: p.Spec.HostNetwork,
		Containers: withPorts(p.Spec.Containers), InitContainers: withPorts(p.Spec.InitContainers),
	}
	status := corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	p.Status = status
}

// withPorts returns the containers that have ports, and of them no more: a Service may name them.
func withPorts(all []corev1.Container) (few []corev1.Container) {
	for i := range all {
		if c := &all[i]; len(c.Ports) > 0 {
			few = append(few, corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
	}
	return few
}

// podChanged reports whether something of a pod has changed that decides about a slice.
func podChanged(before, after *corev1.Pod) bool {
	was, is := *before, *after
	was.ResourceVersion, is.ResourceVersion = "", ""
	return !equality.Semantic.DeepEqual(was, is)
}
