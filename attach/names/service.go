package names

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// Annotations of a Service.
const (
	// AnnotationNetwork is the network whose addresses it names: [namespace/]name of a definition,
	// or the name of a PodNetwork.
	AnnotationNetwork = "tenure.dev/network"
	// AnnotationSelector is a label selector of the pods: spec.selector would have Kubernetes add
	// their addresses on the cluster's network.
	AnnotationSelector = "tenure.dev/selector"
)

// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on the slices that are
// made for such Services.
const ManagedBy = "names.tenure.dev"

// ReasonRefused is of the Event on a Service that asks for what it does not get.
const ReasonRefused = "NamesRefused"

// A Request is what a Service asks for.
type Request struct {
	// Namespace and Name are the definition's.
	Namespace, Name string
	// Short says that no namespace is written: where there is no such definition, a PodNetwork of
	// that name is meant.
	Short bool
	// Pods selects pods of the Service's namespace.
	Pods labels.Selector
}

// Definition returns namespace/name.
func (q Request) Definition() string { return q.Namespace + "/" + q.Name }

// Asks reports whether a Service has one of the annotations.
func Asks(s metav1.Object) bool {
	_, network := s.GetAnnotations()[AnnotationNetwork]
	_, selector := s.GetAnnotations()[AnnotationSelector]
	return network || selector
}

// Read reads a Service that asks. An error says why it gets nothing, and what to do.
func Read(s *corev1.Service) (Request, error) {
	if err := checkKind(s); err != nil {
		return Request{}, err
	}
	q := Request{Namespace: s.Namespace}
	text, ok := s.Annotations[AnnotationNetwork]
	if !ok {
		return q, fmt.Errorf("annotation %s has no effect without %s: name the network", AnnotationSelector, AnnotationNetwork)
	}
	namespace, name, long := strings.Cut(strings.TrimSpace(text), "/")
	if long {
		q.Namespace, q.Name = namespace, name
	} else {
		q.Name, q.Short = namespace, true
	}
	if err := cmp.Or(npwg.CheckNamespace(q.Namespace), npwg.CheckName(q.Name)); err != nil {
		return q, fmt.Errorf("annotation %s: %w; want [namespace/]name of a definition, or the name of a PodNetwork", AnnotationNetwork, err)
	}
	text, ok = s.Annotations[AnnotationSelector]
	if !ok || strings.TrimSpace(text) == "" {
		return q, fmt.Errorf("it selects no pods: say which in the annotation %s, such as app=db", AnnotationSelector)
	}
	var err error
	if q.Pods, err = labels.Parse(text); err != nil {
		return q, fmt.Errorf("annotation %s: %w; want a label selector, such as app=db,tier in (front,back)", AnnotationSelector, err)
	}
	return q, nil
}

// checkKind says why a Service of this kind cannot have such addresses.
func checkKind(s *corev1.Service) error {
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return errors.New("it is of type ExternalName, which is a name for another name: make a headless Service, with spec.clusterIP: None")
	case s.Spec.ClusterIP != corev1.ClusterIPNone:
		return errors.New("it has a cluster IP, which nodes would forward to addresses on a network that they need not reach: " +
			"make a headless Service, with spec.clusterIP: None")
	case len(s.Spec.Selector) > 0:
		return fmt.Errorf("it has spec.selector, by which Kubernetes adds the pods' addresses on the cluster's network: "+
			"remove it, and select the pods in the annotation %s", AnnotationSelector)
	}
	return nil
}
