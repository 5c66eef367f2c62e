package kube

import (
	"context"
	"fmt"

	authorization "k8s.io/api/authorization/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/labels"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// AccessOf reads who may use an IPPool.
func AccessOf(o *v1alpha1.IPPool) access.Rule {
	return RuleOf(access.Pool, o.Spec.Access, o.Spec.NamespaceSelector)
}

// RuleOf reads who may use an object of a kind, from the spec's access and namespaceSelector.
func RuleOf(of access.Kind, word v1alpha1.Access, s *v1alpha1.LabelSelector) access.Rule {
	// A word that this program does not know is a rule of a later one: it lets nobody in
	// who is not allowed the verb.
	return access.Rule{Of: of, Namespaces: selectorOf(s), Asks: word != "" && word != v1alpha1.AccessEveryone}
}

// selectorOf reads a label selector; nil if there is none.
func selectorOf(s *v1alpha1.LabelSelector) *labels.Selector {
	if s == nil {
		return nil
	}
	out := &labels.Selector{}
	if len(s.MatchLabels) > 0 {
		out.Labels = make(map[string]string, len(s.MatchLabels))
		for key, value := range s.MatchLabels {
			out.Labels[key] = string(value)
		}
	}
	for _, e := range s.MatchExpressions {
		r := labels.Requirement{Key: e.Key, Operator: labels.Operator(e.Operator)}
		for _, value := range e.Values {
			r.Values = append(r.Values, string(value))
		}
		out.Requirements = append(out.Requirements, r)
	}
	return out
}

// MayUse returns what asks the authorizer whether the service accounts of a namespace, as a
// group, are allowed the verb use on an object of a kind. These objects have no namespace: only
// what is bound in the whole cluster counts, which who rules over a namespace cannot bind.
func (a *API) MayUse(of access.Kind) func(ctx context.Context, namespace, name string) (bool, error) {
	return func(ctx context.Context, namespace, name string) (bool, error) {
		review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			Groups: []string{access.Group(namespace), "system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorization.ResourceAttributes{
				Verb: "use", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: of.Resource(), Name: name,
			},
		}}
		if out, err := a.create(ctx, review); out != protocol.Done {
			return false, fmt.Errorf("ask the API server who may use %s %s: %w", of.Noun(), name, err)
		}
		if s := review.Status; s.EvaluationError != "" && !s.Allowed {
			return false, fmt.Errorf("ask the API server who may use %s %s: %s", of.Noun(), name, s.EvaluationError)
		}
		return review.Status.Allowed, nil
	}
}

// MayList asks the authorizer whether who asks may list a resource in all namespaces.
func (a *API) MayList(ctx context.Context, group, resource string) (bool, error) {
	review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorization.ResourceAttributes{Verb: "list", Group: group, Resource: resource},
	}}
	if out, err := a.create(ctx, review); out != protocol.Done {
		return false, fmt.Errorf("ask the API server whether %s may be listed: %w", resource, err)
	}
	return review.Status.Allowed, nil
}
