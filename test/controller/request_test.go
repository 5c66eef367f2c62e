package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// standIn is an agent as far as the controller meets it: it has its node's registration,
// cedes what it is asked for and nobody uses, and says who uses the rest.
type standIn struct {
	t    testing.TB
	node protocol.NodeName

	mu      sync.Mutex
	used    map[netip.Addr]string // guarded by mu
	recalls []protocol.Recall     // guarded by mu; every one that it has seen
}

// register registers a stand-in that answers until the test ends.
func register(t testing.TB, used map[string]string) *standIn {
	t.Helper()
	a := silent(t)
	for addr, pod := range used {
		a.used[netip.MustParseAddr(addr)] = pod
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			a.look(ctx)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return a
}

// silent registers one that answers nothing.
func silent(t testing.TB) *standIn {
	t.Helper()
	a := &standIn{t: t, node: protocol.NodeName(fleet.Unique("node")), used: map[netip.Addr]string{}}
	_, _, err := api.CreateRegistration(t.Context(), protocol.Registration{
		Node: a.node, NodeUID: "uid-of-" + protocol.UID(a.node), Store: "store-of-" + protocol.StoreID(a.node),
		Machine: "m", Boot: "b", Term: 1, Beat: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// look answers the recalls on the registration that have not been answered.
func (a *standIn) look(ctx context.Context) {
	reg, out, _ := api.ReadRegistration(ctx, a.node)
	if out != protocol.Done {
		return
	}
	for _, rec := range reg.Recalls {
		a.mu.Lock()
		known := slices.ContainsFunc(a.recalls, func(r protocol.Recall) bool { return r.ID == rec.ID })
		a.mu.Unlock()
		if !known && a.answer(ctx, rec) {
			a.mu.Lock()
			a.recalls = append(a.recalls, rec)
			a.mu.Unlock()
		}
	}
}

func (a *standIn) answer(ctx context.Context, rec protocol.Recall) bool {
	l, out, _ := api.ReadLease(ctx, rec.Lease)
	if out != protocol.Done || l.Holder.Node != a.node {
		return out == protocol.NotFound || out == protocol.Done
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	next, who := l.Clone(), []string(nil)
	for addr := l.Block.Addr(); l.Block.Contains(addr); addr = addr.Next() {
		switch {
		case a.used[addr] != "":
			who = append(who, fmt.Sprintf("%v %s net1", addr, a.used[addr]))
		case within(rec.Ranges, addr) && !slices.Contains(next.Ceded, addr):
			next.Ceded = append(next.Ceded, addr)
		}
	}
	if len(next.Ceded) > len(l.Ceded) {
		next.Writes++
		if _, out, _ = api.UpdateLease(ctx, l, next); out != protocol.Done {
			return false
		}
	}
	out, _ = api.PublishLease(ctx, l.Name, l.UID, protocol.Publication{Used: len(who), Allocations: who, At: time.Now(), Answered: rec.ID})
	return out == protocol.Done
}

func within(ranges []string, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		r, err := netipx.ParseIPRange(text)
		return err == nil && r.Contains(addr)
	})
}

// asked returns how many recalls a has answered.
func (a *standIn) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.recalls)
}

// want is one address of a pool's ranges.
func want(p *v1alpha1.IPPool, ranges ...string) protocol.Wanted {
	return protocol.Wanted{Pool: protocol.PoolName(p.Name), Ranges: ranges}
}

// request makes a node ask for addresses.
func request(t testing.TB, wants ...protocol.Wanted) protocol.SubLease {
	t.Helper()
	s, err := newRequest(t.Context(), wants...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answered waits until a request has its answer.
func answered(t testing.TB, s protocol.SubLease) protocol.SubLease {
	t.Helper()
	var got protocol.SubLease
	eventually(t, 20*time.Second, func() (err error) {
		if got, _, err = api.ReadSubLease(t.Context(), s.Name); err == nil && !got.Answered() {
			err = fmt.Errorf("request %s has no answer", s.Name)
		}
		return err
	})
	return got
}

// served waits until a request is granted, and checks that the leases say so.
func served(t testing.TB, s protocol.SubLease) protocol.SubLease {
	t.Helper()
	got := answered(t, s)
	if got.Refused != nil {
		t.Fatalf("request %s is refused: %+v", s.Name, got.Refused)
	}
	for _, g := range got.Granted {
		var l protocol.Lease
		eventually(t, 5*time.Second, func() (err error) {
			l, _, err = api.ReadLease(t.Context(), g.Lease)
			return err
		})
		if on, ok := l.GrantOf(g.Addr); !ok || on.To.UID != s.UID {
			t.Errorf("the status names %v, lease %s grants it to %+v", g.Addr, g.Lease, on.To)
		}
	}
	return got
}

// denied waits until a request is refused.
func denied(t testing.TB, s protocol.SubLease, reason string, words ...string) {
	t.Helper()
	got := answered(t, s)
	if got.Refused == nil || got.Refused.Reason != reason {
		t.Fatalf("request %s: granted %v, refused %+v; want %s", s.Name, got.Granted, got.Refused, reason)
	}
	for _, w := range words {
		if !strings.Contains(got.Refused.Message, w) {
			t.Errorf("refused with %q; want %q in it", got.Refused.Message, w)
		}
	}
	freed(t, s.UID, 5*time.Second)
}

// forsake deletes a request, as the node does that does not need it any more.
func forsake(t testing.TB, s protocol.SubLease) {
	t.Helper()
	parallel(t, 1, func(int) error { return forsaken(t.Context(), s.Name) })
}

// waits fails the test if a request is answered within a while.
func waits(t testing.TB, s protocol.SubLease, during time.Duration) {
	t.Helper()
	always(t, during, func() error {
		got, _, err := api.ReadSubLease(t.Context(), s.Name)
		if err == nil && got.Answered() {
			return fmt.Errorf("request %s is answered: %v, %+v", s.Name, got.Granted, got.Refused)
		}
		return err
	})
}

// poolOf makes a pool with blocks of so many addresses, and waits until it is open.
func poolOf(t testing.TB, blockSize int32, cidrs ...string) *v1alpha1.IPPool {
	t.Helper()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}}
	for _, c := range cidrs {
		p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: c})
	}
	p.Spec.Domain = p.Name
	p.Spec.BlockSize = &blockSize
	fleet.Create(t, kc, p)
	opened(t, p)
	return p
}

// TestRequestOfAFreeBlock: both families of one request, IPv4 first, in the ranges
// that it names; the grants go when the sub-lease is gone.
func TestRequestOfAFreeBlock(t *testing.T) {
	start(t)
	p := pool(t, "10.0.0.0/24", "fd00::/120")
	opened(t, p)
	s := served(t, request(t, want(p, "fd00::10-fd00::1f"), want(p, "10.0.0.8-10.0.0.9")))
	if len(s.Granted) != 2 || !s.Granted[0].Addr.Is6() || !within([]string{"10.0.0.8-10.0.0.9"}, s.Granted[1].Addr) {
		t.Errorf("granted %v; want an address of each want, in their order", s.Granted)
	}
	if l, _, err := api.ReadLease(t.Context(), s.Granted[1].Lease); err != nil || !l.Holder.Cluster {
		t.Errorf("lease %+v, %v; want one of the cluster's", l, err)
	}
	forsake(t, s)
	freed(t, s.UID, 5*time.Second)
}

// holds leases a block for a node that has ceded these addresses of it.
func holds(t testing.TB, p *v1alpha1.IPPool, a *standIn, block string, ceded ...string) protocol.Lease {
	t.Helper()
	l := nodeLease(t, p, uidOf(p), block, string(a.node))
	if len(ceded) == 0 {
		return l
	}
	next := l.Clone()
	for _, c := range ceded {
		next.Ceded = append(next.Ceded, netip.MustParseAddr(c))
	}
	next.Writes++
	l, _, err := api.UpdateLease(t.Context(), l, next)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRequestOfACededAddress: what a node has ceded is granted on the node's own
// lease, and nothing else of it.
func TestRequestOfACededAddress(t *testing.T) {
	start(t)
	p := poolOf(t, 4, "10.0.0.0/29")
	a := silent(t)
	before := holds(t, p, a, "10.0.0.0/30", "10.0.0.2")
	holds(t, p, a, "10.0.0.4/30", "10.0.0.5")
	s := served(t, request(t, want(p, "10.0.0.1-10.0.0.3")))
	if s.Granted[0].Addr != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("granted %v; want the one that is ceded", s.Granted)
	}
	l, _, err := api.ReadLease(t.Context(), before.Name)
	if err != nil || l.Holder.Node != a.node || l.Store != before.Store || l.Writes != before.Writes || len(l.Ceded) != 1 {
		t.Errorf("lease %+v, %v; want it as it was, but for the grant", l, err)
	}

	ns := namespace(t)
	definition(t, ns, "lan", "lan", ofPool(p.Name))
	c := claim(t, ns, "vm.lan", "lan")
	if ips := allocated(t, c); len(ips) != 1 || ips[0] != "10.0.0.5/29" {
		t.Errorf("the claim has %v; want 10.0.0.5, which is ceded", ips)
	}
	waits(t, request(t, want(p, "10.0.0.1-10.0.0.6")), 3*time.Second)
}

// TestRequestOfAnIdleBlock: of a block that is ceded whole the cluster becomes the
// holder, in the write that grants.
func TestRequestOfAnIdleBlock(t *testing.T) {
	start(t)
	p := poolOf(t, 4, "10.0.0.0/30")
	before := holds(t, p, silent(t), "10.0.0.0/30", "10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	s := served(t, request(t, want(p, "10.0.0.1-10.0.0.2")))
	l, _, err := api.ReadLease(t.Context(), before.Name)
	if err != nil || !l.Holder.Cluster || l.Holder.Node != "" || l.Store != "" || l.Term != 0 || l.Writes != before.Writes+1 || len(l.Ceded) != 0 || l.UID != before.UID {
		t.Errorf("lease %+v, %v; want it the cluster's, one turn on", l, err)
	}
	forsake(t, s)
	fleet.Gone(t, kc, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: l.Name}}, 20*time.Second)
}

// TestRecall: a request that finds nothing has the holders asked, those that do not
// answer are passed over, and answered recalls go from the registrations.
func TestRecall(t *testing.T) {
	start(t)
	p := poolOf(t, 4, "10.0.0.0/28")
	full := register(t, map[string]string{"10.0.0.1": "ns/a", "10.0.0.2": "ns/b", "10.0.0.3": "ns/c"})
	holds(t, p, full, "10.0.0.0/30")
	mute := silent(t)
	holds(t, p, mute, "10.0.0.4/30")
	free := register(t, map[string]string{"10.0.0.8": "ns/d", "10.0.0.9": "ns/e", "10.0.0.11": "ns/f"})
	holds(t, p, free, "10.0.0.8/30")
	holds(t, p, full, "10.0.0.12/30", "10.0.0.12", "10.0.0.13", "10.0.0.14", "10.0.0.15")

	any := "10.0.0.1-10.0.0.14"
	for range 3 {
		served(t, request(t, want(p, any))) // of the block that is ceded whole
	}
	if n := full.asked() + free.asked(); n > 0 {
		t.Errorf("%d recalls while addresses are free; want none", n)
	}
	begun := time.Now()
	s := served(t, request(t, want(p, any)))
	if s.Granted[0].Addr != netip.MustParseAddr("10.0.0.10") {
		t.Errorf("granted %v; want the address that a node had free", s.Granted)
	}
	t.Logf("granted after a recall in %v", time.Since(begun))
	last := request(t, want(p, any))
	eventually(t, 20*time.Second, func() error {
		p, err := read(p)
		if err != nil {
			return err
		}
		return condition(p.Status.Conditions, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, p.Name+" is exhausted")
	})
	waits(t, last, time.Second)
	eventually(t, 20*time.Second, func() error {
		for _, a := range []*standIn{full, free, mute} {
			if reg, _, err := api.ReadRegistration(t.Context(), a.node); err != nil || len(reg.Recalls) > 0 && a != mute {
				return fmt.Errorf("registration of %s has %v, %v; want no recalls", a.node, reg.Recalls, err)
			}
		}
		return nil
	})
	forsake(t, s)
	if got := served(t, last); got.Granted[0].Addr != s.Granted[0].Addr {
		t.Errorf("granted %v; want the address that was given back", got.Granted)
	}
}

// TestRequestOfOneAddress: it is granted wherever it is free, and refused with who
// has it where it is not.
func TestRequestOfOneAddress(t *testing.T) {
	start(t)
	p := poolOf(t, 4, "10.0.0.0/27")
	a := register(t, map[string]string{"10.0.0.9": "ns/mary"})
	holds(t, p, a, "10.0.0.8/30")
	holds(t, p, silent(t), "10.0.0.16/30")

	first := served(t, request(t, want(p, "10.0.0.5-10.0.0.5")))
	denied(t, request(t, want(p, "10.0.0.5-10.0.0.5")), v1alpha1.RefusedInUse, "10.0.0.5", first.Request.Pod.Name)
	denied(t, request(t, want(p, "10.0.0.9-10.0.0.9")), v1alpha1.RefusedInUse, "10.0.0.9", "ns/mary", string(a.node))
	if s := served(t, request(t, want(p, "10.0.0.10-10.0.0.10"))); s.Granted[0].Addr != netip.MustParseAddr("10.0.0.10") {
		t.Errorf("granted %v; want 10.0.0.10, which its node had free", s.Granted)
	}
	denied(t, request(t, want(p, "10.0.1.1-10.0.1.1")), v1alpha1.RefusedNotAssignable, "10.0.1.1", p.Name)
	waits(t, request(t, want(p, "10.0.0.17-10.0.0.17")), 3*time.Second)

	ns := namespace(t)
	small := pool(t, "10.0.2.1/32")
	definition(t, ns, "lan", "lan", ofPool(small.Name))
	allocated(t, claim(t, ns, "vm.lan", "lan"))
	denied(t, request(t, want(small, "10.0.2.1-10.0.2.1")), v1alpha1.RefusedInUse, "claim "+ns+"/vm.lan")
	remove(t, small)
	denied(t, request(t, want(small, "10.0.2.1-10.0.2.2")), v1alpha1.RefusedPoolNotReady, "being deleted")
}

// TestRequestsInOrder: what becomes free goes to who has waited longest, also when
// another controller takes over.
func TestRequestsInOrder(t *testing.T) {
	stop := start(t)
	p := poolOf(t, 1, "10.0.0.0/30")
	any := want(p, "10.0.0.1-10.0.0.2")
	has := []protocol.SubLease{served(t, request(t, any)), served(t, request(t, any))}
	var line []protocol.SubLease
	for range 6 {
		line = append(line, request(t, any))
		time.Sleep(1100 * time.Millisecond) // creation times are whole seconds
	}
	for i, next := range line {
		if i == 3 {
			stop()
			start(t)
		}
		forsake(t, has[i])
		has = append(has, served(t, next))
		for _, later := range line[i+1:] {
			if s, _, err := api.ReadSubLease(t.Context(), later.Name); err != nil || s.Answered() {
				t.Fatalf("the %d. in line is served, and a later one too: %+v, %v", i, s, err)
			}
		}
	}
}
