package listing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// claimView is a claim as json and yaml show it. docs/reference/kubectl-tenure.md has the fields.
type claimView struct {
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Network    string          `json:"network"`
	Interface  string          `json:"interface,omitempty"`
	IPs        []string        `json:"ips,omitempty"`
	OwnerPod   string          `json:"ownerPod,omitempty"`
	Owner      string          `json:"owner,omitempty"` // Kind/name
	Conditions []conditionView `json:"conditions,omitempty"`
	Deleting   bool            `json:"deleting,omitempty"`
	// Pools and Uses are what the leases and sub-leases say; with -o wide, json and
	// yaml only.
	Pools   []string    `json:"pools,omitempty"`
	Uses    []state.Use `json:"uses,omitempty"`
	Created time.Time   `json:"created"`
}

// claimQuery is which claims are asked for.
type claimQuery struct {
	everywhere, save, unused bool
	pool                     string
}

// NewClaims returns the verb claims.
func NewClaims(s *session.Session) *cobra.Command {
	var o session.Output
	var q claimQuery
	c := &cobra.Command{
		Use: "claims [NAME...]", Short: "claims: their addresses, who has them, and why they have none",
		Long: `Prints the IPAMClaims of a namespace, or of all, as their status has them. -o wide says
also of which pool the addresses are, who owns the claim, and which nodes use it.

--save prints them as kubectl apply takes them, without owners, UIDs, ports and status, and with
the annotation tenure.dev/requested-ips set to the addresses that they have: before a
backup, or into Git. Applied where they are gone, they get the same addresses again.`,
		Example: `  kubectl tenure claims -n shop
  kubectl tenure claims -A --save > claims.yaml && kubectl apply -f claims.yaml`,
		ValidArgsFunction: s.ClaimNames,
		RunE: func(c *cobra.Command, names []string) error {
			if err := o.Check("name"); err != nil {
				return err
			}
			if q.save {
				if err := session.OneOf("output", o.Format, "", "json", "yaml"); err != nil {
					return fmt.Errorf("with --save: %w", err)
				}
				if o.Watch {
					return session.Usagef("--save and --watch do not go together")
				}
			}
			return o.Run(c.Context(), s, func(ctx context.Context) error { return claims(ctx, s, o, q, names) })
		},
	}
	c.Flags().BoolVarP(&q.everywhere, "all-namespaces", "A", false, "those of all namespaces")
	c.Flags().StringVar(&q.pool, "pool", "", "those with an address of this pool")
	c.Flags().BoolVar(&q.save, "save", false, "print them for kubectl apply, asking for the addresses that they have")
	c.Flags().BoolVar(&q.unused, "unused", false, "those that were kept for StatefulSets, and that no pod uses or is to use")
	s.CompleteFlag(c, "pool", s.PoolNames)
	o.AddFlags(c.Flags(), "name")
	o.AddWatch(c.Flags())
	return c
}

func claims(ctx context.Context, s *session.Session, o session.Output, q claimQuery, names []string) error {
	namespace := metav1.NamespaceAll
	if !q.everywhere {
		var err error
		if namespace, err = s.Namespace(); err != nil {
			return err
		}
	}
	if err := s.Connect(); err != nil {
		return err
	}
	all, err := session.ListAll(ctx, s.Client, &ipamclaims.IPAMClaimList{}, session.ClaimsIn, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if err := s.NamespaceExists(ctx, namespace); err != nil {
			return err
		}
	}
	if all, err = session.Pick(all, "claim", names, func(c *ipamclaims.IPAMClaim) string { return c.Name }); err != nil {
		return err
	}
	var facts claimFacts
	if q.pool != "" || q.unused || o.Format == "wide" || o.Structured() {
		if facts, err = readClaimFacts(ctx, s, q.pool); err != nil {
			return err
		}
	}
	if q.pool != "" {
		if len(facts.pools) == 0 { // nothing was granted of it, if it is there
			if err := s.PoolExists(ctx, q.pool); err != nil {
				return err
			}
		}
		all = slices.DeleteFunc(all, func(c ipamclaims.IPAMClaim) bool { return len(facts.pools[c.UID]) == 0 })
	}
	if q.unused {
		if all, err = unusedOnly(ctx, s, namespace, all, facts); err != nil {
			return err
		}
	}
	if q.save {
		return save(o, s, all)
	}
	l := session.Listing{Table: screen.Table{
		Heads: []string{"NAMESPACE", "NAME", "NETWORK", "INTERFACE", "IPS", "POD", "ALLOCATED", "POOL", "OWNER", "USED-BY", "MESSAGE", "AGE"},
		Wide:  5,
	}}
	views := []claimView{}
	for i := range all {
		c := &all[i]
		v := viewClaim(c, facts)
		views = append(views, v)
		l.Names = append(l.Names, "ipamclaim.k8s.cni.cncf.io/"+v.Name)
		l.Table.Row(claimRow(s, c, v)...)
	}
	l.Value = map[string]any{"claims": views}
	if len(all) == 0 && len(names) == 0 && !q.everywhere && q.pool == "" && !q.unused {
		l.Table.None = elsewhere(ctx, s, namespace)
	}
	if q.unused && len(all) > 0 {
		l.Table.Sum = sumUnused(all)
	}
	return o.Write(s, l)
}

// elsewhere says that a namespace has no claims, and, as far as one may see, whether others have
// some.
func elsewhere(ctx context.Context, s *session.Session, namespace string) string {
	none := fmt.Sprintf("There are none in namespace %s.", namespace)
	var some ipamclaims.IPAMClaimList
	if err := s.Client.List(ctx, &some, client.Limit(1)); err == nil && len(some.Items) > 0 {
		none += " Other namespaces have some: -A shows them."
	}
	return none
}

// claimFacts are what leases and sub-leases say of claims, by UID.
type claimFacts struct {
	pools map[types.UID][]string
	uses  map[types.UID][]state.Use
}

// readClaimFacts reads the leases of a pool, or of all, and the sub-leases.
func readClaimFacts(ctx context.Context, s *session.Session, pool string) (claimFacts, error) {
	f := claimFacts{pools: map[types.UID][]string{}, uses: map[types.UID][]state.Use{}}
	fields := client.MatchingFields{}
	if pool != "" {
		fields["spec.pool"] = pool
	}
	leases, err := session.ListAll(ctx, s.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn, fields)
	if err != nil {
		return f, err
	}
	for i := range leases {
		for _, g := range leases[i].Spec.Grants {
			if uid := types.UID(g.To.UID); !slices.Contains(f.pools[uid], leases[i].Spec.Pool) {
				f.pools[uid] = append(f.pools[uid], leases[i].Spec.Pool)
			}
		}
	}
	subs, err := session.ListAll(ctx, s.Client, &v1alpha1.IPSubLeaseList{}, session.SubLeasesIn)
	if err != nil {
		return f, err
	}
	for i := range subs {
		if u := subs[i].Spec.Use; u != nil {
			uid := types.UID(u.Claim.UID)
			f.uses[uid] = append(f.uses[uid], state.UseOf(&subs[i]))
		}
	}
	return f, nil
}

func viewClaim(c *ipamclaims.IPAMClaim, f claimFacts) claimView {
	v := claimView{
		Namespace: c.Namespace, Name: c.Name, Network: c.Spec.Network, Interface: c.Spec.Interface, IPs: c.Status.IPs,
		Conditions: viewConditions(c.Status.Conditions), Deleting: c.DeletionTimestamp != nil, Created: c.CreationTimestamp.Time,
		Pools: f.pools[c.UID], Uses: f.uses[c.UID],
	}
	if c.Status.OwnerPod != nil {
		v.OwnerPod = c.Status.OwnerPod.Name
	}
	if owner := kube.OwnerOf(c); owner.Kind != "" {
		v.Owner = owner.Kind + "/" + owner.Name
	}
	return v
}

func claimRow(s *session.Session, c *ipamclaims.IPAMClaim, v claimView) []screen.Cell {
	row := screen.Plain(v.Namespace, v.Name, v.Network, v.Interface, strings.Join(v.IPs, ","), v.OwnerPod)
	row = append(row, conditionCell(c.Status.Conditions, kube.ConditionIPsAllocated))
	var uses []string
	for _, u := range v.Uses {
		uses = append(uses, fmt.Sprintf("%s on %s", u.Pod, u.Node))
	}
	message := ""
	if cond := meta.FindStatusCondition(c.Status.Conditions, kube.ConditionIPsAllocated); cond != nil && cond.Status != metav1.ConditionTrue {
		message = cond.Message
	}
	if v.Deleting {
		message = cmp.Or(message, "is being deleted")
	}
	return append(row, screen.Plain(strings.Join(v.Pools, ","), v.Owner, strings.Join(uses, ","), message, s.Age(v.Created))...)
}
