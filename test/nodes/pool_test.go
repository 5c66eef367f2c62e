package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// heard waits until a node's agent knows whether an address may be asked for.
func heard(t *testing.T, n *fleet.Node, pool, ip string, may bool) {
	t.Helper()
	probe := static(pool, "probe-"+n.Name, ip)
	eventually(t, 20*time.Second, func() error {
		_, err := n.Add(probe)
		if err := n.Del(probe); err != nil { // also one that failed is deleted, as a runtime does
			return err
		}
		e, ok := errors.AsType[*agentapi.Error](err)
		refused := ok && e.Code == agentapi.CodeInvalidConfig
		others := ok && strings.Contains(e.Msg, "address "+ip) && (strings.Contains(e.Msg, "is in a block that") || strings.Contains(e.Msg, "belongs to") || strings.Contains(e.Msg, "is held by"))
		switch {
		case refused && may:
			return fmt.Errorf("%s has not heard that %s may be asked for: %w", n.Name, ip, err)
		case err != nil && !refused && !(others && may): // also of a node that only knows that there is a newer pool
			return err
		case err == nil && !may:
			return fmt.Errorf("%s has not heard that %s may not be asked for", n.Name, ip)
		}
		return nil
	})
}

// shapes are those that a pool has had, the newest last.
type shapes struct {
	mu  sync.Mutex
	all []*allocator.Shape // guarded by mu
}

func (s *shapes) add(t *testing.T, spec v1alpha1.IPPoolSpec) {
	t.Helper()
	shape, err := poolspec.ParsePool(kube.PoolText(&v1alpha1.IPPool{Spec: spec}))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, shape)
}

// allow reports whether one of the shapes from the from'th on gives a unasked.
func (s *shapes) allow(from int, a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shape := range s.all[from:] {
		if shape.Ordinary(a) {
			return true
		}
	}
	return false
}

// load adds and deletes interfaces on nodes until ctx ends. An address must be one
// of a shape that the node may have known when it was asked.
type load struct {
	t       *testing.T
	pool    string
	shapes  *shapes
	settled atomic.Int64 // the shape that every node has heard of
	served  atomic.Int64
}

func (l *load) run(ctx context.Context, n *fleet.Node, worker int) {
	rng := rand.New(rand.NewPCG(uint64(worker), 1))
	var up []fleet.Interface
	for i := 0; ctx.Err() == nil; i++ {
		if len(up) > 6 || len(up) > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(len(up))
			if err := n.Del(up[k]); err != nil {
				l.t.Errorf("DEL on %s: %v", n.Name, err)
			}
			up = append(up[:k], up[k+1:]...)
			continue
		}
		from, in := int(l.settled.Load()), onPool(l.pool, fmt.Sprintf("load-%d-%d", worker, i), "net1")
		res, err := n.Add(in)
		up = append(up, in) // also one that failed is deleted, as a runtime does
		if e, ok := errors.AsType[*agentapi.Error](err); ok && e.Code == agentapi.CodeTryAgainLater {
			continue
		} else if err != nil {
			l.t.Errorf("ADD on %s: %v", n.Name, err)
			continue
		}
		l.served.Add(1)
		if a := res.IPs[0].Address.Addr(); !l.shapes.allow(from, a) {
			l.t.Errorf("%s answers %v, which no shape has had since the %dth", n.Name, a, from)
		}
	}
	for _, in := range up {
		if err := n.Del(in); err != nil {
			l.t.Errorf("DEL on %s: %v", n.Name, err)
		}
	}
}

// TestReshapedUnderLoad: a pool grows, loses addresses, is split, keeps some
// for who asks, and shrinks, while three nodes add and delete. What a pod has it
// keeps; what is outside is told, and not given again.
func TestReshapedUnderLoad(t *testing.T) {
	const pool = "reshaped"
	p := newPool(t, pool, pool, v1alpha1.Range{CIDR: "10.60.0.0/23", End: "10.60.0.255"})
	says(t, p, v1alpha1.PoolReady, metav1.ConditionTrue)
	f := newFleet(t, quick)
	nodes := []*fleet.Node{f.Start("reshaped-a"), f.Start("reshaped-b"), f.Start("reshaped-c")}
	had := &shapes{}
	had.add(t, p.Spec)
	l := &load{t: t, pool: pool, shapes: had}

	kept := static(pool, "kept", "10.60.0.40")
	its := mustAdd(t, nodes[0], kept)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 2 * len(nodes) {
		wg.Go(func() { l.run(ctx, nodes[i%len(nodes)], i) })
	}
	busy := func() { // until every worker has been served some more
		t.Helper()
		target := l.served.Load() + 60
		eventually(t, 30*time.Second, func() error {
			if n := l.served.Load(); n < target {
				return fmt.Errorf("%d served; want %d", n, target)
			}
			return nil
		})
	}
	for i, step := range []struct {
		name  string
		to    v1alpha1.Range
		more  []v1alpha1.Range
		probe string // tells this shape from the last
		may   bool
	}{
		{name: "grown", to: v1alpha1.Range{CIDR: "10.60.0.0/23"}, probe: "10.60.1.200", may: true},
		{name: "excluded", to: v1alpha1.Range{CIDR: "10.60.0.0/23", Exclude: []string{"10.60.0.32-10.60.0.63"}}, probe: "10.60.0.40"},
		{name: "split", to: v1alpha1.Range{CIDR: "10.60.0.0/23", End: "10.60.0.31"},
			more: []v1alpha1.Range{{CIDR: "10.60.0.0/23", Start: "10.60.0.128", End: "10.60.1.127"}}, probe: "10.60.1.200"},
		{name: "static only", to: v1alpha1.Range{CIDR: "10.60.0.0/23", StaticOnly: []string{"10.60.0.0/24"}, Exclude: []string{"10.60.0.40"}}, probe: "10.60.0.64", may: true},
		{name: "shrunk", to: v1alpha1.Range{CIDR: "10.60.0.0/23", Start: "10.60.1.0", End: "10.60.1.63"}, probe: "10.60.0.64"},
	} {
		busy()
		spec := v1alpha1.IPPoolSpec{Ranges: append([]v1alpha1.Range{step.to}, step.more...)}
		had.add(t, spec) // from now on a node may know it
		fleet.Edit(t, kc, p, func() { p.Spec.Ranges = spec.Ranges })
		for _, n := range nodes {
			heard(t, n, pool, step.probe, step.may)
		}
		l.settled.Store(int64(i + 1))
		if step.name == "grown" {
			continue
		}
		says(t, p, "Draining", metav1.ConditionTrue, "will not be given again")
		same(t, nodes[0], kept, its)
	}
	busy()
	stop()
	wg.Wait()
	t.Logf("%d served", l.served.Load())
	says(t, p, "Draining", metav1.ConditionTrue, "addresses in use, or granted, that the ranges do not have: 1")
	same(t, nodes[0], kept, its)
	mustDel(t, nodes[0], kept)
	await(t, 60*time.Second, p, func() error {
		c := p.Status.Counts
		if c == nil || c.Leases != 0 || c.Used != 0 || c.Free != 64 || meta.FindStatusCondition(p.Status.Conditions, "Draining") != nil {
			return fmt.Errorf("counts %+v, conditions %+v; want 64 free, and nothing else", c, p.Status.Conditions)
		}
		return nil
	})
}

// TestRangeMovedBetweenPools: a range goes from one pool of a domain to
// another while a pod has an address of it. The other opens when that is given
// back, not before.
func TestRangeMovedBetweenPools(t *testing.T) {
	const domain = "moved"
	from := newPool(t, "moved-from", domain, v1alpha1.Range{CIDR: "10.61.0.0/24"})
	says(t, from, v1alpha1.PoolReady, metav1.ConditionTrue)
	f := newFleet(t, quick)
	a, b := f.Start("moved-a"), f.Start("moved-b")
	pod := static(from.Name, "pod", "10.61.0.200")
	its := mustAdd(t, a, pod)

	fleet.Edit(t, kc, from, func() { from.Spec.Ranges[0].End = "10.61.0.127" })
	to := newPool(t, "moved-to", domain, v1alpha1.Range{CIDR: "10.61.0.0/24", Start: "10.61.0.128"})
	says(t, to, v1alpha1.PoolReady, metav1.ConditionFalse, "leases of pool moved-from", "node moved-a")
	b.Refused(t, static(to.Name, "early", "10.61.0.200"), to.Name)
	same(t, a, pod, its)
	says(t, from, v1alpha1.PoolReady, metav1.ConditionTrue)
	mustDel(t, a, pod)
	says(t, to, v1alpha1.PoolReady, metav1.ConditionTrue)
	mustAdd(t, b, static(to.Name, "late", "10.61.0.200"))

	// Nor does a pool that names no domain.
	free := newPool(t, "moved-free", "", v1alpha1.Range{CIDR: "10.62.0.0/24"})
	says(t, free, v1alpha1.PoolReady, metav1.ConditionTrue)
	taken := static(free.Name, "free", "10.62.0.200")
	mustAdd(t, a, taken)
	fleet.Edit(t, kc, free, func() { free.Spec.Ranges[0].End = "10.62.0.127" })
	next := newPool(t, "moved-next", "", v1alpha1.Range{CIDR: "10.62.0.0/24", Start: "10.62.0.128"})
	says(t, next, v1alpha1.PoolReady, metav1.ConditionFalse, "pool moved-free still keeps addresses", "node moved-a", "spec.domain")
	mustDel(t, a, taken)
	says(t, next, v1alpha1.PoolReady, metav1.ConditionTrue)
}

// TestDeletedInUseAndMadeAgain: a pool that is deleted while pods have
// addresses of it waits for them. If somebody takes its finalizer away and makes a
// pool of that name anew, that one waits for the leases of the earlier.
func TestDeletedInUseAndMadeAgain(t *testing.T) {
	spec := v1alpha1.Range{CIDR: "10.63.0.0/24"}
	p := newPool(t, "made-again", "", spec)
	says(t, p, v1alpha1.PoolReady, metav1.ConditionTrue)
	f := newFleet(t, quick)
	a, b := f.Start("made-a"), f.Start("made-b")
	pod := onPool(p.Name, "pod", "net1")
	its := mustAdd(t, a, pod)

	fleet.Delete(t, kc, p)
	says(t, p, v1alpha1.PoolReady, metav1.ConditionFalse, "node made-a (")
	keeps := func() {
		t.Helper()
		if err := a.CheckAdd(pod.With(its)); err != nil {
			t.Errorf("CHECK of a pod whose pool was deleted: %v", err)
		}
	}
	keeps()
	b.Refused(t, onPool(p.Name, "late", "net1"), "deleted")
	fleet.Patch(t, kc, p, `{"metadata":{"finalizers":null}}`)
	fleet.Gone(t, kc, p, 10*time.Second)
	second := newPool(t, "made-again", "", spec)
	says(t, second, v1alpha1.PoolReady, metav1.ConditionFalse, "of an earlier pool of this name", "node made-a")
	b.Refused(t, static(second.Name, "thief", its[0].Addr().String()), second.Name)
	keeps()
	mustDel(t, a, pod)
	says(t, second, v1alpha1.PoolReady, metav1.ConditionTrue)
	mustAdd(t, b, static(second.Name, "heir", its[0].Addr().String()))
}

// TestBlockSizeChangedInUse: blocks get another size when the last lease is
// given back; until then the old one goes on.
func TestBlockSizeChangedInUse(t *testing.T) {
	p := newPool(t, "resized", "", v1alpha1.Range{CIDR: "10.64.0.0/22"}) // blocks of four
	says(t, p, v1alpha1.PoolReady, metav1.ConditionTrue)
	f := newFleet(t, quick)
	a, b := f.Start("resized-a"), f.Start("resized-b")
	pod := onPool(p.Name, "pod", "net1")
	its := mustAdd(t, a, pod)
	fleet.Edit(t, kc, p, func() { p.Spec.BlockSize = new(int32(16)) })
	says(t, p, "BlockSizePending", metav1.ConditionTrue, "16 IPv4")
	other := onPool(p.Name, "other", "net1")
	mustAdd(t, b, other) // the pool works on
	same(t, a, pod, its)
	opening := p.Status.Opening
	for n, i := range map[*fleet.Node]fleet.Interface{a: pod, b: other} {
		mustDel(t, n, i)
	}
	await(t, 30*time.Second, p, func() error {
		if b := p.Status.BlockPrefixLengths; p.Status.Leasing != v1alpha1.LeasingOpen || *b.IPv4 != 28 {
			return fmt.Errorf("leasing %s, blocks %+v; want Open, /28", p.Status.Leasing, b)
		}
		return nil
	})
	if p.Status.Opening <= opening {
		t.Errorf("opened by %q, before by %q; want a greater word", p.Status.Opening, opening)
	}
	retried(t, 30*time.Second, a, pod) // the agent's watch tells it, too, a moment later
	for _, l := range leasesOf(t, p.Name) {
		if l.Block.Bits() != 28 {
			t.Errorf("lease %s; want blocks of 16", l.Name)
		}
	}
}

// TestClaimsGetWhatNodesCede: in a pool that nodes have leased and used to the
// last address, claims get what comes free, on whatever node, in the order in which
// they came; and the pool says how full it is.
func TestClaimsGetWhatNodesCede(t *testing.T) {
	w := newWorld(t, "ceded", "default", "10.65.0.0/28")
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	fleet.Edit(t, kc, p, func() { p.Spec.BlockSize = new(int32(4)) })
	await(t, 20*time.Second, p, func() error {
		if b := p.Status.BlockPrefixLengths; p.Status.Leasing != v1alpha1.LeasingOpen || b == nil || *b.IPv4 != 30 {
			return fmt.Errorf("leasing %s, blocks %+v; want Open, /30", p.Status.Leasing, b)
		}
		return nil
	})
	const size = 14
	nodes := []*fleet.Node{w.a, w.b}
	had := make([]netip.Prefix, size)
	pods := make([]fleet.Interface, size)
	for i := range size {
		pods[i] = w.pod(nodes[i%2], fmt.Sprint("ceded-pod-", i), "", "")
		had[i] = retried(t, 30*time.Second, nodes[i%2], pods[i])[0] // the last ones are ceded by the other node
	}
	var claims []*ipamclaims.IPAMClaim
	for i := range 3 {
		c := w.claim(fmt.Sprint("ceded-", i))
		claims = append(claims, c)
		claimSays(t, c, metav1.ConditionFalse, "SubnetExhausted") // it stands in the queue
	}
	says(t, p, v1alpha1.PoolExhausted, metav1.ConditionTrue, "pool ceded is exhausted: 14 of 14 in use")
	if p.Status.Pressure != v1alpha1.PressureExhausted {
		t.Errorf("pressure %s; want Exhausted", p.Status.Pressure)
	}
	for i, pod := range []int{3, 8} { // one of each node
		mustDel(t, nodes[pod%2], pods[pod])
		if got := allocated(t, claims[i]); got[0] != had[pod] {
			t.Errorf("claim %d has %v; want %v, which was given back", i, got, had[pod])
		}
	}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(claims[2]), claims[2]); err != nil || len(claims[2].Status.IPs) > 0 {
		t.Errorf("the last in the queue has %v, %v; want nothing", claims[2].Status.IPs, err)
	}
}
