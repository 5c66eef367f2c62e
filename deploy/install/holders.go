package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// holders says who has addresses, or networks that only Tenure can take back, and which
// leases and sub-leases there are besides that nobody is known to use. Leases say with
// some delay who uses them: what they say of pods that are gone does not count. Attaches
// says that tenure-attach is installed.
func (c *cluster) holders(ctx context.Context, attaches bool) (held, idle []string, err error) {
	var leases v1alpha1.IPLeaseList
	var subs v1alpha1.IPSubLeaseList
	for _, err := range []error{c.List(ctx, &leases), c.List(ctx, &subs)} {
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("ask who has addresses: %w", err)
		}
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return nil, nil, fmt.Errorf("list the pods: %w", err)
	}
	held, idle = holdersAmong(leases.Items, subs.Items, pods.Items)
	if attaches {
		held = append(held, attached(pods.Items)...)
	}
	slices.Sort(held)
	return slices.Compact(held), idle, nil
}

// holdersAmong says who of the pods has addresses, and what is left besides.
func holdersAmong(leases []v1alpha1.IPLease, subs []v1alpha1.IPSubLease, pods []corev1.Pod) (held, idle []string) {
	there := map[string]bool{}
	for _, p := range pods {
		there[p.Namespace+"/"+p.Name] = true
	}
	for _, l := range leases {
		users := holdersOf(l, there)
		held = append(held, users...)
		if len(users) == 0 && l.Spec.Holder.Kind == v1alpha1.HolderNode {
			idle = append(idle, fmt.Sprintf("lease %s of node %s", l.Name, l.Spec.Holder.Node))
		}
	}
	for _, s := range subs {
		if u := s.Spec.Use; u != nil && there[u.Pod.Namespace+"/"+u.Pod.Name] {
			held = append(held, fmt.Sprintf("pod %s/%s uses claim %s", u.Pod.Namespace, u.Pod.Name, u.Claim.Name))
		} else {
			idle = append(idle, fmt.Sprintf("sub-lease %s of node %s", s.Name, s.Spec.Node))
		}
	}
	return held, idle
}

// holdersOf says who has addresses of a lease, of the pods that are there.
func holdersOf(l v1alpha1.IPLease, there map[string]bool) (held []string) {
	for _, a := range l.Status.Allocations {
		address, who, _ := strings.Cut(a, " ")
		if pod, ifName, _ := strings.Cut(who, " "); there[pod] {
			held = append(held, fmt.Sprintf("pod %s has %s of pool %s (%s)", pod, address, l.Spec.Pool, ifName))
		}
	}
	if used := l.Status.Used; len(l.Status.Allocations) == 0 && used != nil && *used > 0 {
		held = append(held, fmt.Sprintf("pods on node %s have %d addresses of pool %s", l.Spec.Holder.Node, *used, l.Spec.Pool))
	}
	for _, g := range l.Spec.Grants {
		if g.To.Kind == v1alpha1.GranteeClaim {
			held = append(held, fmt.Sprintf("claim %s/%s has %s of pool %s", g.To.Namespace, g.To.Name, g.Address, l.Spec.Pool))
		} else {
			held = append(held, fmt.Sprintf("a pod has %s of pool %s, by sub-lease %s", g.Address, l.Spec.Pool, g.To.Name))
		}
	}
	return held
}

// attached says which pods tenure-attach has given more networks than the default one:
// whoever's addresses they have there, only tenure-attach detaches them.
func attached(pods []corev1.Pod) (held []string) {
	for _, p := range pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if networks := p.Annotations[nad.NetworkAttachmentAnnot]; networks != "" && !p.Spec.HostNetwork && p.Spec.NodeName != "" && !ended {
			held = append(held, fmt.Sprintf("pod %s/%s on node %s is attached to networks of its own", p.Namespace, p.Name, p.Spec.NodeName))
		}
	}
	return held
}
