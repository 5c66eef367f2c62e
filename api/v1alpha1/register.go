package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind in this package.
const GroupName = "tenure.dev"

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers the kinds of this package with a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&IPPool{}, &IPPoolList{},
		&IPLease{}, &IPLeaseList{},
		&IPSubLease{}, &IPSubLeaseList{},
		&IPReservation{}, &IPReservationList{},
		&PodNetwork{}, &PodNetworkList{},
		&PodNetworkAttachment{}, &PodNetworkAttachmentList{},
		&InterfaceParameters{}, &InterfaceParametersList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
