// Package listing has the verbs that list what the cluster keeps of addresses: pools, leases and
// claims.
package listing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// poolView is a pool as json and yaml show it. docs/reference/kubectl-tenure.md has the fields.
type poolView struct {
	Name     string `json:"name"`
	Domain   string `json:"domain,omitempty"`
	TakeOver string `json:"takeOver"`
	Access   string `json:"access"`
	// ReuseAfter is absent where freed addresses need not rest.
	ReuseAfter string `json:"reuseAfter,omitempty"`
	// NamespaceSelector is absent where every namespace is selected.
	NamespaceSelector *v1alpha1.LabelSelector `json:"namespaceSelector,omitempty"`
	Ranges            []v1alpha1.Range        `json:"ranges"`
	Leasing           string                  `json:"leasing"`
	Pressure          string                  `json:"pressure,omitempty"`
	Counts            *v1alpha1.PoolCounts    `json:"counts,omitempty"`
	// Selectors are there where a range has a nodeSelector.
	Selectors  []v1alpha1.SelectorStatus `json:"selectors,omitempty"`
	Conditions []conditionView           `json:"conditions,omitempty"`
	// Holders are who holds leases, of one pool only.
	Holders []holderView `json:"holders,omitempty"`
}

// conditionView is a condition as json and yaml show it.
type conditionView struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// holderView is what one holder has of a pool.
type holderView struct {
	Node    string `json:"node,omitempty"` // empty: the cluster
	Leases  int    `json:"leases"`
	Used    int    `json:"used"`
	Free    int    `json:"free"`
	Ceded   int    `json:"ceded"`
	Granted int    `json:"granted"`
	// Unreachable is how much of Free nobody can get, and Why that is.
	Unreachable int      `json:"unreachable"`
	Why         []string `json:"why,omitempty"`
}

// NewPools returns the verb pools.
func NewPools(s *session.Session) *cobra.Command {
	var o session.Output
	c := &cobra.Command{
		Use: "pools [NAME...]", Short: "pools: how full, what is wrong, what is out of reach",
		Long: `Prints the cluster's pools as their status has them. Nodes publish twice a minute what
their pods have, and the controller counts that once a minute: what a pod has given back
is FREE up to two minutes later, though another pod may get it at once.
UNREACHABLE addresses are free, but belong to a node that does not answer.

Of one pool it prints all: its ranges, who holds how much of it, and what is out of reach
and why. With -o table that pool is a row of the table, too.`,
		ValidArgsFunction: s.PoolNames,
		RunE: func(c *cobra.Command, names []string) error {
			if err := o.Check("name"); err != nil {
				return err
			}
			return o.Run(c.Context(), s, func(ctx context.Context) error { return pools(ctx, s, o, names) })
		},
	}
	o.AddFlags(c.Flags(), "name")
	o.AddWatch(c.Flags())
	return c
}

func pools(ctx context.Context, s *session.Session, o session.Output, names []string) error {
	if err := s.Connect(); err != nil {
		return err
	}
	all, err := readPools(ctx, s, names)
	if err != nil {
		return err
	}
	if len(names) == 1 && o.Format != "table" && o.Format != "wide" && o.Format != "name" {
		return describePool(ctx, s, o, &all[0])
	}
	l := session.Listing{Table: screen.Table{
		Heads: []string{"NAME", "USAGE", "USED", "CLAIMED", "FREE", "CAPACITY", "UNREACHABLE", "PRESSURE", "READY", "LEASES", "TAKE-OVER", "DOMAIN", "RANGES", "AGE"},
		Wide:  5,
	}}
	views := []poolView{}
	for i := range all {
		p := &all[i]
		views = append(views, viewPool(p))
		l.Names = append(l.Names, "ippool.tenure.dev/"+p.Name)
		l.Table.Row(poolRow(s, p)...)
	}
	l.Value = map[string]any{"pools": views}
	if len(all) > 0 {
		l.Table.Sum = "The numbers are " + countedAt + "."
	}
	return o.Write(s, l)
}

// countedAt says of when a pool's counts are.
const countedAt = "as of two minutes ago, or later"

// readPools reads the pools of these names, or all.
func readPools(ctx context.Context, s *session.Session, names []string) ([]v1alpha1.IPPool, error) {
	if len(names) == 1 {
		p, out, err := s.API.ReadIPPool(ctx, protocol.PoolName(names[0]))
		if out == protocol.NotFound {
			return nil, session.NoneOfName("pool", names[0])
		}
		if err != nil {
			return nil, fmt.Errorf("read pool %s: %w", names[0], err)
		}
		return []v1alpha1.IPPool{*p}, nil
	}
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	if err != nil {
		return nil, err
	}
	return session.Pick(all, "pool", names, func(p *v1alpha1.IPPool) string { return p.Name })
}

func poolRow(s *session.Session, p *v1alpha1.IPPool) []screen.Cell {
	row, pressed := screen.Plain(p.Name), pressure(p)
	if c := p.Status.Counts; c == nil { // never counted
		row = append(row, screen.Plain("", "", "", "", "", "")...)
	} else {
		taken := c.Capacity - c.Free
		row = append(row, screen.Cell{Text: percent(taken, c.Capacity), Look: cmp.Or(pressureCell(pressed).Look, screen.LookGood)})
		row = append(row, screen.Plain(fmt.Sprint(c.Used), fmt.Sprint(c.Claimed), many(c.Free), many(c.Capacity))...)
		row = append(row, count(c.Unreachable, screen.LookWarn))
	}
	row = append(row, poolPressureCell(p), readyCell(p.Status.Conditions))
	leases, ranges := "", make([]string, len(p.Spec.Ranges))
	if p.Status.Counts != nil {
		leases = fmt.Sprint(p.Status.Counts.Leases)
	}
	for i, r := range p.Spec.Ranges {
		ranges[i] = r.CIDR
	}
	return append(row, screen.Plain(leases, takeOver(p), p.Spec.Domain, strings.Join(ranges, ","), s.Age(p.CreationTimestamp.Time))...)
}

// percent writes how much of a whole is taken. 0% is for nothing, and 100% for all of it.
func percent(taken, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	n := int(min(1, float64(taken)/float64(whole)) * 100)
	if n == 0 && taken > 0 {
		n = 1
	}
	return fmt.Sprintf("%d%%", n)
}

// count writes a number, which has a look where it is not 0.
func count(n int64, as screen.Look) screen.Cell {
	if n == 0 {
		as = screen.LookPlain
	}
	return screen.Cell{Text: fmt.Sprint(n), Look: as}
}

func takeOver(p *v1alpha1.IPPool) string {
	return string(cmp.Or(p.Spec.TakeOver, v1alpha1.TakeOverAutomatic))
}

// pressure returns the pressure in the pool's status, with one exception. The status says
// Exhausted where all blocks are leased. If addresses in them are free, the pool is not exhausted
// for the reader, and it is High.
func pressure(p *v1alpha1.IPPool) v1alpha1.Pressure {
	said := p.Status.Pressure
	if said == v1alpha1.PressureExhausted && meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.PoolExhausted) {
		return v1alpha1.PressureHigh
	}
	return said
}

func pressureCell(p v1alpha1.Pressure) screen.Cell {
	switch p {
	case v1alpha1.PressureHigh:
		return screen.Cell{Text: string(p), Look: screen.LookWarn}
	case v1alpha1.PressureExhausted:
		return screen.Cell{Text: string(p), Look: screen.LookBad}
	case v1alpha1.PressureLow:
	}
	return screen.Plain(string(p))[0]
}

// readyCell writes whether a pool is ready, and that it shares addresses with another.
func readyCell(all []metav1.Condition) screen.Cell {
	c := conditionCell(all, v1alpha1.PoolReady)
	if c.Text == string(metav1.ConditionTrue) && meta.IsStatusConditionTrue(all, v1alpha1.PoolOverlapping) {
		return screen.Cell{Text: c.Text + " (" + v1alpha1.PoolOverlapping + ")", Look: screen.LookBad}
	}
	return c
}

// conditionCell writes a condition that should be True: its status, and why it is not.
func conditionCell(all []metav1.Condition, kind string) screen.Cell {
	c := meta.FindStatusCondition(all, kind)
	switch {
	case c == nil:
		return screen.Plain("")[0]
	case c.Status == metav1.ConditionTrue:
		return screen.Cell{Text: "True", Look: screen.LookGood}
	}
	return screen.Cell{Text: fmt.Sprintf("%s (%s)", c.Status, c.Reason), Look: screen.LookBad}
}

func viewPool(p *v1alpha1.IPPool) poolView {
	return poolView{
		Name: p.Name, Domain: p.Spec.Domain, TakeOver: takeOver(p), ReuseAfter: p.Spec.ReuseAfter, Ranges: p.Spec.Ranges,
		Access: string(cmp.Or(p.Spec.Access, v1alpha1.AccessEveryone)), NamespaceSelector: p.Spec.NamespaceSelector,
		Leasing:  string(cmp.Or(p.Status.Leasing, v1alpha1.LeasingClosed)),
		Pressure: string(p.Status.Pressure), Counts: p.Status.Counts, Selectors: p.Status.Selectors, Conditions: viewConditions(p.Status.Conditions),
	}
}

func viewConditions(all []metav1.Condition) (views []conditionView) {
	for _, c := range all {
		views = append(views, conditionView{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return views
}

// describePool writes all of one pool.
func describePool(ctx context.Context, s *session.Session, o session.Output, p *v1alpha1.IPPool) error {
	leases, err := session.ListAll(ctx, s.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn, client.MatchingFields{"spec.pool": p.Name})
	if err != nil {
		return err
	}
	// check tells of those that cannot be read.
	regs, err := state.Registrations(ctx, s, state.NewUnread(s.Client).Of("registration"))
	if err != nil && !session.Forbidden(err) {
		return err
	}
	view := viewPool(p)
	view.Holders = holders(leases, p, state.Known{Registrations: regs, Hidden: err != nil, Now: s.Now()})
	if o.Structured() {
		return o.Encode(s, view)
	}
	writePool(s.Screen(), p, view)
	return nil
}

// holders adds up the leases of a pool by who holds them: nodes by name, and the
// cluster before them.
func holders(leases []v1alpha1.IPLease, p *v1alpha1.IPPool, known state.Known) []holderView {
	shape := state.ShapeOf(p)
	by := map[string]*holderView{}
	for i := range leases {
		l := &leases[i]
		h := by[l.Spec.Holder.Node]
		if h == nil {
			h = &holderView{Node: l.Spec.Holder.Node}
			by[l.Spec.Holder.Node] = h
		}
		n := numbersOf(l, shape)
		h.Leases++
		h.Used += n.used
		h.Free += n.free
		h.Ceded += len(l.Spec.Ceded)
		h.Granted += len(l.Spec.Grants)
		if why := known.OutOfReach(l); why != "" {
			h.Unreachable += n.free
			if !slices.Contains(h.Why, why) {
				h.Why = append(h.Why, why)
			}
		}
	}
	var all []holderView
	for _, node := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[node])
	}
	return all
}

// mayUse says which namespaces may use a pool.
func mayUse(r access.Rule) string {
	text := "every namespace"
	if r.Namespaces != nil {
		text = "namespaces with " + r.Namespaces.String()
	}
	if r.Asks {
		text += ", if RBAC allows it the verb use on the pool"
	}
	return text
}

// many writes a number of addresses; one that the pool's counts have no room for as what it
// is at least.
func many(n int64) string {
	if n == math.MaxInt64 {
		return ">2^63"
	}
	return fmt.Sprint(n)
}

func writePool(to screen.Screen, p *v1alpha1.IPPool, view poolView) {
	to.Fact("Pool", screen.Plain(p.Name)[0])
	if p.Spec.Domain != "" {
		to.Fact("Domain", screen.Plain(p.Spec.Domain)[0])
	}
	if s := p.Spec.Source; s != nil {
		to.Fact("Source", screen.Plain("Neutron, subnets " + strings.Join(s.Neutron.SubnetIDs, ", "))[0])
	}
	to.Fact("Take-over", screen.Plain(view.TakeOver)[0])
	if view.ReuseAfter != "" {
		to.Fact("Reuse after", screen.Plain(view.ReuseAfter)[0])
	}
	to.Fact("Used by", screen.Plain(mayUse(kube.AccessOf(p)))[0])
	if per := p.Spec.PerNode; per != nil {
		to.Fact("Per node", screen.Plain(fmt.Sprintf("a subnet of /%d", per.PrefixLength))[0])
	}
	to.Fact("Leasing", screen.Plain(view.Leasing)[0])
	to.Fact("Pressure", poolPressureCell(p))
	if c := p.Status.Counts; c != nil {
		to.Fact("Usage", screen.Plain(fmt.Sprintf("%s  %d used, %d claimed, %s free, %d unreachable, of %s; %s",
			percent(c.Capacity-c.Free, c.Capacity), c.Used, c.Claimed, many(c.Free), c.Unreachable, many(c.Capacity), countedAt))[0])
	}
	to.Title("Ranges")
	text := kube.SpecText(p)
	ranges := screen.Table{Heads: []string{"CIDR", "START", "END", "GATEWAY", "EXCLUDE", "STATIC-ONLY"}}
	if len(text.Selectors()) > 0 {
		ranges.Heads = append(ranges.Heads, "NODES")
	}
	for _, r := range text.Ranges {
		row := screen.Plain(r.CIDR, r.Start, r.End, r.Gateway, screen.Some(r.Exclude, 4), screen.Some(r.StaticOnly, 4))
		if r.NodeSelector != nil {
			row = append(row, screen.Plain(r.NodeSelector.String())...)
		}
		ranges.Row(row...)
	}
	ranges.Write(to, false)
	writeSelectors(to, view.Selectors)
	to.Title("Conditions")
	conditions := make([]screen.Fact, 0, len(view.Conditions))
	for _, c := range view.Conditions {
		look := screen.LookGood
		if (c.Status == string(metav1.ConditionTrue)) != (c.Type == v1alpha1.PoolReady) {
			look = screen.LookBad
		}
		conditions = append(conditions, screen.Fact{Key: c.Type, Value: screen.Cell{Text: fmt.Sprintf("%s (%s): %s", c.Status, c.Reason, c.Message), Look: look}})
	}
	to.Facts(conditions)
	to.Title("Leases")
	held := screen.Table{Heads: []string{"HOLDER", "LEASES", "USED", "FREE", "CEDED", "GRANTED", "UNREACHABLE", "WHY"}}
	for _, h := range view.Holders {
		row := screen.Plain(cmp.Or(h.Node, "the cluster"), fmt.Sprint(h.Leases), fmt.Sprint(h.Used), fmt.Sprint(h.Free), fmt.Sprint(h.Ceded), fmt.Sprint(h.Granted))
		row = append(row, count(int64(h.Unreachable), screen.LookWarn))
		held.Row(append(row, screen.Plain(strings.Join(h.Why, "; "))...)...)
	}
	held.Write(to, false)
}
