package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

var whoCommand = command{
	name: "who", args: "ADDRESS", summary: "who has an address: a pod, a claim, a node",
	help: `Prints, for each pool that has the address, the lease of its block: which node or
whether the cluster hands it out, and whom it was granted or given to. Grants are the
truth; which pod has an address of a node's is what that node has published, up to half
a minute ago. Two pools may have the same address: they are two networks.`,
	flags: func(_ *pflag.FlagSet, s *session) func(context.Context, []string) error {
		return func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("who: give one address")
			}
			addr, err := netip.ParseAddr(args[0])
			if err != nil {
				return usagef("who: %v", err)
			}
			return who(ctx, s, addr.Unmap())
		}
	},
}

func who(ctx context.Context, s *session, addr netip.Addr) error {
	if err := s.connect(); err != nil {
		return err
	}
	all, err := s.api.IPPools(ctx)
	if err != nil {
		return err
	}
	var leases v1alpha1.IPLeaseList
	if err := s.client.List(ctx, &leases); err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	answers := 0
	for _, p := range all {
		if !hasAddress(p, addr) {
			continue
		}
		lease, ok := leaseOf(leases.Items, p.Name, addr)
		if !ok {
			fmt.Fprintf(s.stdout, "pool %s: nobody; its block is not leased\n", p.Name)
			continue
		}
		text, owned := owner(ctx, s, lease, addr)
		fmt.Fprintf(s.stdout, "pool %s: %s\n", p.Name, text)
		if owned {
			answers++
		}
	}
	if answers == 0 {
		fmt.Fprintf(s.stdout, "%s: nobody has it\n", addr)
		return errNo
	}
	return nil
}

// hasAddress reports whether one of a pool's ranges covers addr.
func hasAddress(p v1alpha1.IPPool, addr netip.Addr) bool {
	for _, r := range p.Spec.Ranges {
		// Admission has refused what does not parse.
		if prefix, err := netip.ParsePrefix(r.CIDR); err == nil && prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// leaseOf returns the lease of the pool's block that has addr.
func leaseOf(leases []v1alpha1.IPLease, pool string, addr netip.Addr) (v1alpha1.IPLease, bool) {
	for _, l := range leases {
		if block, err := netip.ParsePrefix(l.Spec.Block); err == nil && l.Spec.Pool == pool && block.Contains(addr) {
			return l, true
		}
	}
	return v1alpha1.IPLease{}, false
}

// owner says in words who has addr by a lease, and whether somebody does.
func owner(ctx context.Context, s *session, l v1alpha1.IPLease, addr netip.Addr) (text string, owned bool) {
	holder := "the cluster, lease " + l.Name
	if l.Spec.Holder.Kind == v1alpha1.HolderNode {
		holder = fmt.Sprintf("node %s, lease %s", l.Spec.Holder.Node, l.Name)
	}
	for _, g := range l.Spec.Grants {
		if granted, err := netip.ParseAddr(g.Address); err == nil && granted == addr {
			return fmt.Sprintf("%s, by a grant of %s", grantee(ctx, s, g), holder), true
		}
	}
	for _, a := range l.Status.Allocations {
		given, who, _ := strings.Cut(a, " ")
		if got, err := netip.ParseAddr(given); err == nil && got == addr {
			return fmt.Sprintf("pod and interface %s, given by %s", who, holder), true
		}
	}
	if l.Spec.Holder.Kind == v1alpha1.HolderNode && l.Status.Published == nil {
		return fmt.Sprintf("not known: %s has published nothing yet", holder), false
	}
	return fmt.Sprintf("nobody; free with %s", holder), false
}

// grantee names whom an address was granted to; of a request, the pod that it is for.
func grantee(ctx context.Context, s *session, g v1alpha1.Grant) string {
	text := fmt.Sprintf("claim %s/%s", g.To.Namespace, g.To.Name)
	if g.To.Kind == v1alpha1.GranteeSubLease {
		text = "sub-lease " + g.To.Name
		var sub v1alpha1.IPSubLease
		if err := s.client.Get(ctx, client.ObjectKey{Name: g.To.Name}, &sub); err == nil && sub.Spec.Request != nil {
			r := sub.Spec.Request
			text = fmt.Sprintf("pod %s/%s on node %s, interface %s, sub-lease %s", r.Pod.Namespace, r.Pod.Name, sub.Spec.Node, r.Interface, g.To.Name)
		}
	}
	if g.Freeing {
		text += ", which is being deleted"
	}
	return text
}
