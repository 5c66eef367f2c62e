// Package access decides who may use a pool: which namespaces, by their labels and by
// the word of the cluster's authorizer. The agent asks it for pods, the controller for
// claims, so that both say the same. It asks nobody by itself: what is known of
// namespaces is handed to it.
package access

import (
	"context"
	"fmt"
)

// A Rule is what a pool says of who may use it. The zero Rule lets everybody. Its JSON
// form is kept in the agent's store.
type Rule struct {
	// Namespaces, if not nil, selects those that may use the pool.
	Namespaces *Selector `json:"namespaces,omitempty"`
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
type DeniedError struct{ Namespace, Pool, Rule string }

func (e *DeniedError) Error() string {
	if e.Namespace == "" {
		return fmt.Sprintf("pool %s may not be used: %s", e.Pool, e.Rule)
	}
	return fmt.Sprintf("namespace %s may not use pool %s: %s", e.Namespace, e.Pool, e.Rule)
}

// An UnknownError says why it cannot be told now whether a namespace may use a pool.
type UnknownError struct {
	Namespace, Pool, Rule string
	Cause                 error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("it cannot be told whether namespace %s may use pool %s, by its %s: %v", e.Namespace, e.Pool, e.Rule, e.Cause)
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
		return &DeniedError{"", pool, "the IPPool says which namespaces may, and nobody has said for which this is: a runtime tells it by K8S_POD_NAMESPACE in CNI_ARGS"}
	}
	if r.Namespaces != nil {
		labels, err := facts.Labels(ctx, namespace)
		if err != nil {
			return &UnknownError{namespace, pool, "spec.namespaceSelector", err}
		}
		if !r.Namespaces.Matches(labels) {
			return &DeniedError{namespace, pool, fmt.Sprintf(
				"the IPPool's spec.namespaceSelector (%v) does not select it; give the namespace the labels, or change the selector", r.Namespaces)}
		}
	}
	if !r.Asks {
		return nil
	}
	switch ok, err := facts.MayUse(ctx, namespace, pool); {
	case err != nil:
		return &UnknownError{namespace, pool, "spec.access RBAC", err}
	case !ok:
		return &DeniedError{namespace, pool, fmt.Sprintf(
			"the IPPool's spec.access is RBAC, and group %s is not allowed the verb use on ippools.tenure.dev/%s; bind a ClusterRole that has it to the group",
			Group(namespace), pool)}
	}
	return nil
}
