package kube

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
)

// SetOf reads what a StatefulSet says of its pods' claims; asks is false if its pods are to
// have none. An error says what is wrong with its annotations.
func SetOf(o *appsv1.StatefulSet) (s workload.Set, asks bool, err error) {
	template := o.Spec.Template.Annotations
	claims, asks := template[workload.AnnotationClaims]
	if !asks {
		return workload.Set{}, false, nil
	}
	first, count := 0, 1
	if o.Spec.Ordinals != nil {
		first = int(o.Spec.Ordinals.Start)
	}
	if o.Spec.Replicas != nil {
		count = int(*o.Spec.Replicas)
	}
	s, err = workload.ParseSet(o.Namespace, o.Name, first, count, workload.Text{
		Claims: claims, Networks: template[npwg.AnnotationNetworks], Requested: template[workload.AnnotationRequested],
		Topology:  template[workload.AnnotationTopology],
		Retention: cmp.Or(o.Annotations[workload.AnnotationRetention], template[workload.AnnotationRetention]),
	})
	return s, true, err
}

// SetOfPod returns the name of the StatefulSet of Kubernetes that controls a pod; empty if none
// does.
func SetOfPod(pod metav1.Object) string {
	c := metav1.GetControllerOfNoCopy(pod)
	if c == nil || c.Kind != "StatefulSet" || c.APIVersion != appsv1.SchemeGroupVersion.String() {
		return ""
	}
	return c.Name
}

// WhyNameless says why a pod can have no claims by its name, since no later pod is going to
// have it; empty: it can.
func WhyNameless(pod metav1.Object) string {
	name := workload.PodName{Name: pod.GetName(), Generate: pod.GetGenerateName()}
	if c := metav1.GetControllerOfNoCopy(pod); c != nil {
		name.OwnerKind = c.Kind
	}
	return name.WhyPasses()
}
