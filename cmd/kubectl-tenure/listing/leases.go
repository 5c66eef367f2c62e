package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
)

// leaseView is a lease as json and yaml show it. docs/reference/kubectl-tenure.md has the fields.
type leaseView struct {
	Name      string     `json:"name"`
	Pool      string     `json:"pool"`
	Block     string     `json:"block"`
	Node      string     `json:"node,omitempty"` // empty: the cluster holds
	Store     string     `json:"store,omitempty"`
	Term      int64      `json:"term,omitempty"`
	Size      int        `json:"size"`
	Used      int        `json:"used"`
	Free      int        `json:"free"`
	Ceded     int        `json:"ceded"`
	Claims    int        `json:"claims"`
	Requests  int        `json:"requests"`
	Published *time.Time `json:"published,omitempty"`
	Created   time.Time  `json:"created"`
}

// leaseQuery is which leases are asked for.
type leaseQuery struct{ pool, node string }

// NewLeases returns the verb leases.
func NewLeases(s *session.Session) *cobra.Command {
	var o session.Output
	var q leaseQuery
	c := &cobra.Command{
		Use: "leases [NAME...]", Short: "leases: who hands out which block, and how much of it is used",
		Long: `Prints the leases of blocks. USED and FREE of a node's lease are what the node has
published, up to half a minute ago; CEDED addresses of it are the cluster's to grant;
CLAIMS and REQUESTS are addresses granted to claims, and to pods of other nodes.`,
		ValidArgsFunction: s.LeaseNames,
		RunE: func(c *cobra.Command, names []string) error {
			if err := o.Check("name"); err != nil {
				return err
			}
			return o.Run(c.Context(), s, func(ctx context.Context) error { return leases(ctx, s, o, q, names) })
		},
	}
	c.Flags().StringVar(&q.pool, "pool", "", "those of this pool")
	c.Flags().StringVar(&q.node, "node", "", "those that this node holds")
	s.CompleteFlag(c, "pool", s.PoolNames)
	s.CompleteFlag(c, "node", s.NodeNames)
	o.AddFlags(c.Flags(), "name")
	o.AddWatch(c.Flags())
	return c
}

func leases(ctx context.Context, s *session.Session, o session.Output, q leaseQuery, names []string) error {
	if err := s.Connect(); err != nil {
		return err
	}
	fields := client.MatchingFields{}
	if q.pool != "" {
		fields["spec.pool"] = q.pool
	}
	if q.node != "" {
		fields["spec.holder.node"] = q.node
	}
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn, fields)
	if err != nil {
		return err
	}
	if len(all) == 0 { // leases outlive a pool or a Node that was deleted
		if err := errors.Join(s.PoolExists(ctx, q.pool), s.NodeExists(ctx, q.node)); err != nil {
			return err
		}
	}
	if all, err = session.Pick(all, "lease", names, func(l *v1alpha1.IPLease) string { return l.Name }); err != nil {
		return err
	}
	shapes, err := shapesOf(ctx, s, q.pool)
	if err != nil {
		return err
	}
	l := session.Listing{Table: screen.Table{
		Heads: []string{"NAME", "POOL", "BLOCK", "HOLDER", "USED", "FREE", "CEDED", "CLAIMS", "REQUESTS", "TERM", "STORE", "PUBLISHED", "AGE"},
		Wide:  4,
	}}
	views := []leaseView{}
	for i := range all {
		v := viewLease(&all[i], shapes[all[i].Spec.Pool])
		views = append(views, v)
		l.Names = append(l.Names, "iplease.tenure.dev/"+v.Name)
		l.Table.Row(leaseRow(s, v)...)
	}
	l.Value = map[string]any{"leases": views}
	if len(all) > 0 {
		l.Table.Sum = "USED and FREE of a node's lease are as of half a minute ago, or later."
	}
	return o.Write(s, l)
}

// shapesOf returns the ranges of the pool of that name, if there is one, or of all.
func shapesOf(ctx context.Context, s *session.Session, pool string) (map[string]*allocator.Shape, error) {
	var only client.MatchingFields
	if pool != "" {
		only = client.MatchingFields{"metadata.name": pool}
	}
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPPoolList{}, session.PoolsIn, only)
	if err != nil {
		return nil, err
	}
	shapes := map[string]*allocator.Shape{}
	for i := range all {
		shapes[all[i].Name] = state.ShapeOf(&all[i])
	}
	return shapes, nil
}

func viewLease(l *v1alpha1.IPLease, shape *allocator.Shape) leaseView {
	n := numbersOf(l, shape)
	v := leaseView{
		Name: l.Name, Pool: l.Spec.Pool, Block: l.Spec.Block, Node: l.Spec.Holder.Node, Store: l.Spec.Store, Term: l.Spec.Term,
		Size: n.size, Used: n.used, Free: n.free, Ceded: len(l.Spec.Ceded),
		Claims: grantsTo(l, v1alpha1.GranteeClaim), Requests: grantsTo(l, v1alpha1.GranteeSubLease), Created: l.CreationTimestamp.Time,
	}
	if l.Status.Published != nil {
		v.Published = &l.Status.Published.Time
	}
	return v
}

func leaseRow(s *session.Session, v leaseView) []screen.Cell {
	var published time.Time
	if v.Published != nil {
		published = *v.Published
	}
	term := ""
	if v.Term > 0 {
		term = fmt.Sprint(v.Term)
	}
	return screen.Plain(v.Name, v.Pool, v.Block, cmp.Or(v.Node, "the cluster"), fmt.Sprint(v.Used), fmt.Sprint(v.Free), fmt.Sprint(v.Ceded),
		fmt.Sprint(v.Claims), fmt.Sprint(v.Requests), term, strings.TrimSpace(v.Store), s.Age(published), s.Age(v.Created))
}
