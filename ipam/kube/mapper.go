package kube

import (
	"fmt"
	"net/http"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// ClientOptions returns those of a client for cfg that knows the kinds of [Scheme]. It
// makes no call.
func ClientOptions(cfg *rest.Config) (client.Options, error) {
	scheme, err := Scheme()
	if err != nil {
		return client.Options{}, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return createOnce{next} })
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return client.Options{}, fmt.Errorf("make a client: %w", err)
	}
	mapper, err := newMapper(cfg, hc)
	if err != nil {
		return client.Options{}, err
	}
	return client.Options{Scheme: scheme, HTTPClient: hc, Mapper: mapper}, nil
}

// newMapper returns what tells the resources of kinds. Those that a node's agent uses
// it knows by heart: asking the API server for them takes calls that have no deadline
// and hold up all others, and an agent that starts while the API server is away would
// answer nobody.
func newMapper(cfg *rest.Config, hc *http.Client) (meta.RESTMapper, error) {
	known := meta.NewDefaultRESTMapper(nil)
	for _, k := range []struct {
		group    schema.GroupVersion
		kind     string
		resource string
		scope    meta.RESTScope
	}{
		{corev1.SchemeGroupVersion, "Node", "nodes", meta.RESTScopeRoot},
		{corev1.SchemeGroupVersion, "Pod", "pods", meta.RESTScopeNamespace},
		{corev1.SchemeGroupVersion, "Namespace", "namespaces", meta.RESTScopeRoot},
		{corev1.SchemeGroupVersion, "Event", "events", meta.RESTScopeNamespace},
		{resource.SchemeGroupVersion, "ResourceClaim", "resourceclaims", meta.RESTScopeNamespace},
		{coordination.SchemeGroupVersion, "Lease", "leases", meta.RESTScopeNamespace},
		{authorization.SchemeGroupVersion, "SubjectAccessReview", "subjectaccessreviews", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "IPPool", "ippools", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "IPLease", "ipleases", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "IPSubLease", "ipsubleases", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "IPReservation", "ipreservations", meta.RESTScopeRoot},
		{ipamclaims.SchemeGroupVersion, "IPAMClaim", "ipamclaims", meta.RESTScopeNamespace},
		{nad.SchemeGroupVersion, "NetworkAttachmentDefinition", "network-attachment-definitions", meta.RESTScopeNamespace},
	} {
		resource := k.group.WithResource(k.resource)
		known.AddSpecific(k.group.WithKind(k.kind), resource, resource, k.scope)
	}
	others, err := apiutil.NewDynamicRESTMapper(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("make a REST mapper: %w", err)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, others}}, nil
}
