// Package access decides who may use a pool or a PodNetwork: which namespaces, by their labels
// and by the word of the cluster's authorizer. The agent asks it for pods, the controller for
// claims and gated pods, so that both say the same. It asks nobody by itself: what is known of
// namespaces is handed to it. Names of parameters say pool for either.
package access

import (
	"context"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/labels"
)

// A Kind is the kind of the object that a rule is of. The zero Kind is Pool.
type Kind string

// The kinds of objects that have rules.
const (
	Pool       Kind = ""
	PodNetwork Kind = "PodNetwork"
)

// String returns the kind's name in the API.
func (k Kind) String() string {
	if k == Pool {
		return "IPPool"
	}
	return string(k)
}

// Resource returns the name by which roles allow the verb use on objects of the kind.
func (k Kind) Resource() string {
	if k == Pool {
		return "ippools"
	}
	return "podnetworks"
}

// Noun returns what messages say before the name of an object.
func (k Kind) Noun() string {
	if k == Pool {
		return "pool"
	}
	return string(k)
}

// A Rule is what a pool says of who may use it. The zero Rule is of a pool and lets everybody.
// Its JSON form is kept in the agent's store.
type Rule struct {
	// Of is what the rule is of.
	Of Kind `json:"of,omitempty"`
	// Namespaces, if not nil, selects those that may use the pool.
	Namespaces *labels.Selector `json:"namespaces,omitempty"`
	// Asks says that a namespace must be allowed the verb use on the pool as well.
	Asks bool `json:"asks,omitempty"`
}

// Facts is what is known of namespaces. An error means that it is not known now.
type Facts interface {
	// Labels returns a namespace's labels, which the caller does not change.
	Labels(ctx context.Context, namespace string) (map[string]string, error)
	// MayUse reports whether the namespace's service accounts, as a group, are allowed
	// the verb use on the pool.
	MayUse(ctx context.Context, namespace, pool string) (bool, error)
}

// A DeniedError says which rule of a pool keeps a namespace from using it.
type DeniedError struct {
	Of                    Kind
	Namespace, Pool, Rule string
}

func (e *DeniedError) Error() string {
	if e.Namespace == "" {
		return fmt.Sprintf("%s %s may not be used: %s", e.Of.Noun(), e.Pool, e.Rule)
	}
	return fmt.Sprintf("namespace %s may not use %s %s: %s", e.Namespace, e.Of.Noun(), e.Pool, e.Rule)
}

// An UnknownError says why it cannot be told now whether a namespace may use a pool.
type UnknownError struct {
	Of                    Kind
	Namespace, Pool, Rule string
	Cause                 error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("it cannot be told whether namespace %s may use %s %s, by its %s: %v", e.Namespace, e.Of.Noun(), e.Pool, e.Rule, e.Cause)
}

func (e *UnknownError) Unwrap() error { return e.Cause }

// A MissingError says that there is no such pool, so that nobody knows yet who may use it.
type MissingError struct{ Pool string }

func (e *MissingError) Error() string { return fmt.Sprintf("pool %s does not exist", e.Pool) }

// Group returns the group that the service accounts of a namespace belong to. The verb use must
// be allowed to that group.
func Group(namespace string) string { return "system:serviceaccounts:" + namespace }

// Check returns nil if the namespace may use the pool whose rule is r; else a
// [*DeniedError], or an [*UnknownError] where facts does not know. It asks facts for
// nothing that r does not need.
func (r Rule) Check(ctx context.Context, facts Facts, namespace, pool string) error {
	if namespace == "" && (r.Namespaces != nil || r.Asks) {
		return &DeniedError{r.Of, "", pool, fmt.Sprintf(
			"the %v says which namespaces may, and nobody has said for which this is: a runtime tells it by K8S_POD_NAMESPACE in CNI_ARGS", r.Of)}
	}
	if r.Namespaces != nil {
		labels, err := facts.Labels(ctx, namespace)
		if err != nil {
			return &UnknownError{r.Of, namespace, pool, "spec.namespaceSelector", err}
		}
		if !r.Namespaces.Matches(labels) {
			return &DeniedError{r.Of, namespace, pool, fmt.Sprintf(
				"the %v's spec.namespaceSelector (%v) does not select it; give the namespace the labels, or change the selector", r.Of, r.Namespaces)}
		}
	}
	if !r.Asks {
		return nil
	}
	switch ok, err := facts.MayUse(ctx, namespace, pool); {
	case err != nil:
		return &UnknownError{r.Of, namespace, pool, "spec.access RBAC", err}
	case !ok:
		return &DeniedError{r.Of, namespace, pool, fmt.Sprintf(
			"the %v's spec.access is RBAC, and group %s is not allowed the verb use on %s.tenure.dev/%s; bind a ClusterRole that has it to the group",
			r.Of, Group(namespace), r.Of.Resource(), pool)}
	}
	return nil
}
