package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/cluster"
)

var poolsCommand = command{
	name: "pools", args: "[NAME...]", summary: "pools, how full they are, and what is wrong with them",
	help: `Prints the cluster's pools as their status has them: the numbers are up to a minute old.
UNREACHABLE addresses are free, but sit with a node that does not answer.`,
	flags: func(_ *pflag.FlagSet, s *session) func(context.Context, []string) error {
		return func(ctx context.Context, names []string) error { return pools(ctx, s, names) }
	},
}

func pools(ctx context.Context, s *session, names []string) error {
	if err := s.connect(); err != nil {
		return err
	}
	all, err := named(ctx, names, s.api.IPPools, func(o v1alpha1.IPPool) string { return o.Name })
	if err != nil {
		return err
	}
	t := newTable(s.stdout, "NAME", "CAPACITY", "USED", "CLAIMED", "FREE", "UNREACHABLE", "LEASES", "PRESSURE", "READY", "RANGES")
	for _, p := range all {
		c, ranges := counts(p.Status.Counts), make([]string, len(p.Spec.Ranges))
		for i, r := range p.Spec.Ranges {
			ranges[i] = r.CIDR
		}
		row := append([]string{p.Name}, c...)
		t.row(append(row, orDash(string(p.Status.Pressure)), condition(p.Status.Conditions, v1alpha1.PoolReady), strings.Join(ranges, ","))...)
	}
	return t.flush()
}

// counts writes a pool's numbers; a pool that was never counted has none.
func counts(c *v1alpha1.PoolCounts) []string {
	if c == nil {
		return []string{"-", "-", "-", "-", "-", "-"}
	}
	return []string{
		fmt.Sprint(c.Capacity), fmt.Sprint(c.Used), fmt.Sprint(c.Claimed), fmt.Sprint(c.Free), fmt.Sprint(c.Unreachable), fmt.Sprint(c.Leases),
	}
}

var claimsCommand = command{
	name: "claims", args: "[NAME...]", summary: "claims, their addresses, and why they have none",
	help: `Prints the IPAMClaims of a namespace, or of all, as their status has them.`,
	flags: func(flags *pflag.FlagSet, s *session) func(context.Context, []string) error {
		everywhere := false
		flags.BoolVarP(&everywhere, "all-namespaces", "A", false, "those of all namespaces")
		return func(ctx context.Context, names []string) error { return claims(ctx, s, names, everywhere) }
	},
}

func claims(ctx context.Context, s *session, names []string, everywhere bool) error {
	namespace := metav1.NamespaceAll
	if !everywhere {
		var err error
		if namespace, err = s.space(); err != nil {
			return err
		}
	}
	if err := s.connect(); err != nil {
		return err
	}
	list := func(ctx context.Context) ([]ipamclaims.IPAMClaim, error) {
		var l ipamclaims.IPAMClaimList
		err := s.client.List(ctx, &l, client.InNamespace(namespace))
		return l.Items, err
	}
	all, err := named(ctx, names, list, func(o ipamclaims.IPAMClaim) string { return o.Name })
	if err != nil {
		return err
	}
	t := newTable(s.stdout, "NAMESPACE", "NAME", "NETWORK", "INTERFACE", "IPS", "POD", "ALLOCATED")
	for _, c := range all {
		pod := ""
		if c.Status.OwnerPod != nil {
			pod = c.Status.OwnerPod.Name
		}
		t.row(c.Namespace, c.Name, c.Spec.Network, orDash(c.Spec.Interface), orDash(strings.Join(c.Status.IPs, ",")), orDash(pod),
			condition(c.Status.Conditions, cluster.ConditionIPsAllocated))
	}
	return t.flush()
}

// named lists objects and keeps those of the names, in their order; without names, all.
func named[O any](ctx context.Context, names []string, list func(context.Context) ([]O, error), nameOf func(O) string) ([]O, error) {
	all, err := list(ctx)
	if err != nil || len(names) == 0 {
		return all, err
	}
	var few []O
	for _, name := range names {
		before := len(few)
		for _, o := range all {
			if nameOf(o) == name {
				few = append(few, o)
			}
		}
		if len(few) == before {
			return nil, fmt.Errorf("%s: there is none of that name", name)
		}
	}
	return few, nil
}

// condition writes a condition: its status, and why it is not True.
func condition(all []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(all, kind)
	switch {
	case c == nil:
		return "-"
	case c.Status == metav1.ConditionTrue:
		return "True"
	}
	return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// table writes rows in columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(heads...)
	return t
}

func (t table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t table) flush() error { return t.w.Flush() }
