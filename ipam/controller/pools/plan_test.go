package pools

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pool is an IPPool with our finalizer, of these CIDRs.
func pool(cidrs ...string) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{
		Name: "lan", UID: "p1", ResourceVersion: "7", Generation: 3, Finalizers: []string{v1alpha1.LeasesFinalizer},
	}}
	for _, c := range cidrs {
		p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: c})
	}
	return p
}

type change func(*v1alpha1.IPPool)

func with(p *v1alpha1.IPPool, changes ...change) *v1alpha1.IPPool {
	for _, c := range changes {
		c(p)
	}
	return p
}

func open(v4 int32) change {
	return func(p *v1alpha1.IPPool) {
		p.Status.Leasing, p.Status.Opening = v1alpha1.LeasingOpen, "1"
		p.Status.BlockPrefixLengths = &v1alpha1.BlockPrefixLengths{IPv4: &v4}
	}
}

func closed(v4 int32) change {
	return func(p *v1alpha1.IPPool) {
		open(v4)(p)
		p.Status.Leasing = v1alpha1.LeasingClosed
	}
}

// undecided: the pool was closed, and its block size is about to change.
func undecided(p *v1alpha1.IPPool) {
	closed(32)(p)
	p.Status.BlockPrefixLengths = &v1alpha1.BlockPrefixLengths{}
}

func blockSize(n int32) change            { return func(p *v1alpha1.IPPool) { p.Spec.BlockSize = &n } }
func inDomain(d string) change            { return func(p *v1alpha1.IPPool) { p.Spec.Domain = d } }
func deleted(p *v1alpha1.IPPool)          { p.DeletionTimestamp = &metav1.Time{Time: noon} }
func withoutFinalizer(p *v1alpha1.IPPool) { p.Finalizers = nil }

func lease(block string, uid protocol.UID) protocol.Lease {
	b := netip.MustParsePrefix(block)
	return protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName("lan", b)}, Pool: "lan", PoolUID: uid, Block: b, Holder: protocol.Holder{Node: "n1"},
	}
}

// kept is a lease of the cluster, which keeps addresses for pods of another IPAM.
func kept(block string) protocol.Lease {
	l := lease(block, "p1")
	l.Holder = protocol.Holder{Cluster: true}
	return l
}

// in tells a plan in a few words.
func (p plan) in() string {
	var lines []string
	say := func(on bool, format string, args ...any) {
		if on {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	say(p.readLive, "read live")
	say(p.addFinalizer, "add finalizer")
	say(p.removeFinalizer, "remove finalizer")
	if st := p.status; st != nil {
		ready := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolReady)
		say(true, "%s %s", st.Leasing, ready.Reason)
		if b := st.BlockPrefixLengths; b != nil && b.IPv4 != nil {
			say(true, "/%d", *b.IPv4)
		}
		say(meta.IsStatusConditionTrue(st.Conditions, ConditionBlockSizePending), "pending")
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, ", ")
}

func TestDecide(t *testing.T) {
	tests := []struct {
		name     string
		pool     *v1alpha1.IPPool
		leases   int              // in the cache, all of IPv4
		live     []protocol.Lease // read, if not nil
		overlaps overlaps
		gone     *restoration // the API server went back, and the pool has been closed for an hour
		want     string
	}{
		{name: "new", pool: with(pool("10.0.0.0/24"), withoutFinalizer), want: "add finalizer"},
		{name: "not open yet", pool: pool("10.0.0.0/24"), want: "read live"},
		{name: "no leases", pool: pool("10.0.0.0/24"), live: []protocol.Lease{}, want: "Open Open, /32"},
		{name: "leases of this size", pool: pool("10.0.0.0/24"), live: []protocol.Lease{lease("10.0.0.1/32", "p1")}, want: "Open Open, /32"},
		{name: "leases of two sizes", pool: pool("10.0.0.0/24"),
			live: []protocol.Lease{lease("10.0.0.0/28", "p1"), lease("10.0.0.16/32", "p1")}, want: "Closed BlockSizeChanging"},
		{name: "a node decides no size by what it leases", pool: pool("10.0.0.0/24"), live: []protocol.Lease{lease("10.0.0.0/29", "p1")}, want: "Closed BlockSizeChanging"},
		{name: "nor another one, while the pool waits", pool: with(pool("10.0.0.0/24"), closed(32)), live: []protocol.Lease{lease("10.0.0.0/29", "p1")}, want: "Closed BlockSizeChanging, /32"},
		{name: "a lease of an earlier pool", pool: pool("10.0.0.0/24"), live: []protocol.Lease{lease("10.0.0.1/32", "p0")}, want: "Closed EarlierPool"},
		{name: "the size stays when the range grows", pool: with(pool("10.0.0.0/16"), closed(32)), live: []protocol.Lease{}, want: "Open Open, /32"},
		{name: "override", pool: with(pool("10.0.0.0/24"), blockSize(8)), live: []protocol.Lease{}, want: "Open Open, /29"},

		{name: "another size is wanted, no leases: close first", pool: with(pool("10.0.0.0/24"), open(32), blockSize(8)), want: "Closed BlockSizeChanging, /32"},
		{name: "then look", pool: with(pool("10.0.0.0/24"), closed(32), blockSize(8)), want: "read live"},
		{name: "then decide nothing", pool: with(pool("10.0.0.0/24"), closed(32), blockSize(8)), live: []protocol.Lease{}, want: "Closed BlockSizeChanging"},
		{name: "then look again", pool: with(pool("10.0.0.0/24"), undecided, blockSize(8)), want: "read live"},
		{name: "then open", pool: with(pool("10.0.0.0/24"), undecided, blockSize(8)), live: []protocol.Lease{}, want: "Open Open, /29"},
		{name: "a lease came before it was closed: open as before", pool: with(pool("10.0.0.0/24"), closed(32), blockSize(8)),
			live: []protocol.Lease{lease("10.0.0.1/32", "p1")}, want: "Open Open, /32, pending"},
		{name: "the cluster kept an address before nothing was decided: open as before", pool: with(pool("10.0.0.0/24"), undecided, blockSize(8)),
			live: []protocol.Lease{kept("10.0.0.1/32")}, want: "Open Open, /32, pending"},
		{name: "a node's create came late: open as before", pool: with(pool("10.0.0.0/24"), undecided, blockSize(8)),
			live: []protocol.Lease{lease("10.0.0.1/32", "p1")}, want: "Open Open, /32, pending"},
		{name: "another size is wanted, leases", pool: with(pool("10.0.0.0/24"), open(32), blockSize(8)), leases: 1, want: "Open Open, /32, pending"},
		{name: "a family is new: close, whatever is leased of the other", pool: with(pool("10.0.0.0/24", "fd00::/64"), open(32)), leases: 1, want: "Closed BlockSizeChanging, /32"},
		{name: "and open, also where another size is wanted of the other", pool: with(pool("10.0.0.0/24", "fd00::/64"), closed(32), blockSize(8)),
			live: []protocol.Lease{lease("10.0.0.1/32", "p1")}, want: "Open Open, /32, pending"},

		{name: "faulty", pool: with(pool("10.0.0.0/99"), open(32)), want: "Closed InvalidSpec, /32"},
		{name: "shares addresses with an older pool of its domain", pool: with(pool("10.0.0.0/24"), inDomain("d")), overlaps: overlaps{siblings: []string{"other"}, older: []string{"other"}}, want: "Closed Overlap"},

		{name: "deleted: closed at once", pool: with(pool("10.0.0.0/24"), open(32), deleted), leases: 1, want: "Closed Deleting, /32"},
		{name: "deleted, nobody holds anything", pool: with(pool("10.0.0.0/24"), closed(32), deleted, saidDeleting), want: "read live"},
		{name: "deleted, but a lease is there live", pool: with(pool("10.0.0.0/24"), closed(32), deleted, saidDeleting),
			live: []protocol.Lease{lease("10.0.0.1/32", "p1")}, want: "nothing"},
		{name: "deleted and empty", pool: with(pool("10.0.0.0/24"), closed(32), deleted, saidDeleting), live: []protocol.Lease{}, want: "remove finalizer"},
		{name: "the API server went back: closed", pool: with(pool("10.0.0.0/24"), open(32)), gone: &restoration{missing: []absent{{node: "n1", never: true}}},
			want: "Closed Restored, /32"},
		{name: "not looked at before the nodes are back", pool: with(pool("10.0.0.0/24"), closed(32)), gone: &restoration{missing: []absent{{node: "n1", never: true}}},
			want: "Closed Restored, /32"},
		{name: "the nodes are back: looked at", pool: with(pool("10.0.0.0/24"), closed(32)), gone: &restoration{}, want: "read live"},
		{name: "then opened", pool: with(pool("10.0.0.0/24"), closed(32)), gone: &restoration{}, live: []protocol.Lease{lease("10.0.0.1/32", "p1")},
			want: "Open Open, /32"},
		{name: "what is leased has a size that was decided after the backup", pool: with(pool("10.0.0.0/24"), closed(32)), gone: &restoration{},
			live: []protocol.Lease{lease("10.0.0.0/29", "p1"), lease("10.0.0.16/29", "p1")}, want: "Closed BlockSizeChanging"},
		{name: "and is taken when the earlier one has been taken away", pool: with(pool("10.0.0.0/24"), undecided), gone: &restoration{},
			live: []protocol.Lease{lease("10.0.0.0/29", "p1"), lease("10.0.0.16/29", "p1")}, want: "Closed BlockSizeChanging, /29"},
		{name: "and has one of the pool's families alone", pool: with(pool("10.0.0.0/24", "fd00::/64"), undecided, blockSize(8)), gone: &restoration{},
			live: []protocol.Lease{lease("10.0.0.0/28", "p1")}, want: "Closed BlockSizeChanging, /28"},
		{name: "and the spec asks for the earlier one", pool: with(pool("10.0.0.0/24"), closed(29), blockSize(1)), gone: &restoration{},
			live: []protocol.Lease{lease("10.0.0.0/29", "p1")}, want: "Open Open, /29, pending"},
		{name: "what is leased has two sizes", pool: with(pool("10.0.0.0/24"), closed(32)), gone: &restoration{},
			live: []protocol.Lease{lease("10.0.0.0/29", "p1"), lease("10.0.0.16/32", "p1")}, want: "Closed BlockSizeChanging, /32"},
		{name: "what is leased is an earlier pool's", pool: with(pool("10.0.0.0/24"), closed(32)), gone: &restoration{},
			live: []protocol.Lease{lease("10.0.0.0/29", "p0")}, want: "Closed EarlierPool, /32"},
		{name: "deleted, and leases may come back", pool: with(pool("10.0.0.0/24"), closed(32), deleted, saidDeleting),
			gone: &restoration{missing: []absent{{node: "n1", never: true}}}, want: "Closed Restored, /32"},
		{name: "deleted, another's finalizer", pool: with(pool("10.0.0.0/24"), deleted, withoutFinalizer), want: "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := seen{pool: tt.pool, now: noon, overlaps: tt.overlaps, restored: tt.gone, closedFor: time.Hour, lastEpoch: "1"}
			s.shape, s.fault = shapeOf(tt.pool)
			s.tally = tally{leases: tt.leases, blocks: map[allocator.Family]int{allocator.IPv4: tt.leases}, nodes: map[string]int{"n1": tt.leases}}
			if tt.live != nil {
				s.live = &live{pool: tt.pool, leases: tt.live}
			}
			got := decide(s)
			if got.in() != tt.want {
				t.Errorf("got %s; want %s", got.in(), tt.want)
			}
			if st := got.status; st != nil && (st.Opening != tt.pool.Status.Opening) != (st.Leasing == v1alpha1.LeasingOpen && tt.pool.Status.Leasing != v1alpha1.LeasingOpen) {
				t.Errorf("opening %q, was %q, leasing %s; want another at every opening, and only then", st.Opening, tt.pool.Status.Opening, st.Leasing)
			}
			if (got.status != nil || got.addFinalizer || got.removeFinalizer) && got.base != tt.pool {
				t.Error("the plan does not say upon which version it writes")
			}
		})
	}
}

func shapeOf(p *v1alpha1.IPPool) (*allocator.Shape, string) {
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil {
		return nil, oneLine(err)
	}
	return shape, ""
}

// saidDeleting has the condition that a deleted pool without leases gets.
func saidDeleting(p *v1alpha1.IPPool) {
	s := seen{pool: p, now: noon}
	if plan := s.retire(); plan.status != nil {
		p.Status = *plan.status
	}
}

// TestDecideSettles: what decide has written is what it wants.
func TestDecideSettles(t *testing.T) {
	p := pool("10.0.0.0/24")
	s := seen{pool: p, now: noon, countsDue: true}
	s.shape, s.fault = shapeOf(p)
	s.tally = count(nil, s.shape, near)
	s.live = &live{pool: p}
	first := decide(s)
	p.Status = *first.status
	s.live, s.now = nil, noon.Add(time.Hour)
	if second := decide(s); second.in() != "nothing" {
		t.Errorf("a look at what was just written: %s; want nothing", second.in())
	}
	if p.Status.Counts == nil || p.Status.Counts.Free != 254 || !first.counted {
		t.Errorf("counts %+v; want 254 free", p.Status.Counts)
	}
}

// near are surroundings in which every holder answers.
var near = surroundings{reaches: func(*v1alpha1.IPLease) bool { return true }}

func TestTally(t *testing.T) {
	shape, _ := shapeOf(pool("10.0.0.0/26"))
	node := func(block, node string, used, free int32) v1alpha1.IPLease {
		return v1alpha1.IPLease{
			Spec:   v1alpha1.IPLeaseSpec{Block: block, Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}},
			Status: v1alpha1.IPLeaseStatus{Used: &used, Free: &free},
		}
	}
	ofCluster := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{
		Block: "10.0.0.32/28", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderCluster},
		Grants: []v1alpha1.Grant{
			{Address: "10.0.0.33", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: "used", Namespace: "ns", Name: "a"}},
			{Address: "10.0.0.34", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: "idle", Namespace: "ns", Name: "b"}},
			{Address: "10.0.0.35", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: "sub", Name: "s"}},
			{Address: "10.9.0.1", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, UID: "old", Namespace: "ns", Name: "c"}},
		},
	}}
	unpublished := node("10.0.0.48/28", "n3", 0, 0)
	unpublished.Status = v1alpha1.IPLeaseStatus{}
	unpublished.Spec.Ceded = []string{"10.0.0.50", "10.0.0.51", "10.0.0.63"} // the last is none that is given
	leases := []v1alpha1.IPLease{node("10.0.0.0/28", "n1", 5, 10), node("10.0.0.16/28", "n2", 6, 10), ofCluster, unpublished}
	got := count(leases, shape, surroundings{
		inUse: map[protocol.UID]bool{"used": true}, reaches: func(l *v1alpha1.IPLease) bool { return l.Spec.Holder.Node == "n1" },
	})
	want := v1alpha1.PoolCounts{Capacity: 62, Used: 5 + 6 + 1 + 1, Claimed: 3, Free: 62 - 11 - 4 - 10 - 13, Unreachable: 10 + 13, Leases: 4, FreeText: "24", CapacityText: "62"}
	if c := got.counts(shape); c != want {
		t.Errorf("counts %+v; want %+v", c, want)
	}
	if got.outside != 1 {
		t.Errorf("%d addresses outside the ranges; want 1", got.outside)
	}
	if p := got.pressure(v1alpha1.PressureLow, shape); p != v1alpha1.PressureExhausted {
		t.Errorf("pressure %s with every block leased; want Exhausted", p)
	}
	if p := count(leases[:1], shape, near).pressure("", shape); p != v1alpha1.PressureLow {
		t.Errorf("pressure %s with one of four blocks leased; want Low", p)
	}
	if h, want := got.holders(), "node n1 (1), node n2 (1), node n3 (1), the cluster (1) for claims ns/a, ns/b, ns/c"; h != want {
		t.Errorf("holders %q; want %q", h, want)
	}
}

// TestAddressesOutside: what attachments have and the ranges have no more, by what
// the holder has published.
func TestAddressesOutside(t *testing.T) {
	before, _ := shapeOf(pool("10.0.0.0/24"))
	shrunk := pool("10.0.0.0/24")
	shrunk.Spec.Ranges[0].Start, shrunk.Spec.Ranges[0].Exclude = "10.0.0.18", []string{"10.0.0.20", "10.0.0.40-10.0.0.49"}
	after, _ := shapeOf(shrunk)
	l := v1alpha1.IPLease{
		Spec:   v1alpha1.IPLeaseSpec{Block: "10.0.0.16/28", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "n1"}},
		Status: v1alpha1.IPLeaseStatus{Used: new(int32(4)), Free: new(int32(12))},
	}
	for _, a := range []string{"16", "17", "19", "20"} {
		l.Status.Allocations = append(l.Status.Allocations, "10.0.0."+a+" ns/pod net1")
	}
	l.Status.Allocations = append(l.Status.Allocations, "10.0.1.16 a/hand net1", "")
	Condense(&l)
	once := l.Status.Allocations
	Condense(&l)
	if len(l.Status.Allocations) != 1 || l.Status.Allocations[0] != once[0] || len(once[0]) > 80 {
		t.Errorf("condensed to %q, then %q; want the same, and short", once, l.Status.Allocations)
	}
	if n := count([]v1alpha1.IPLease{l}, before, near).outside; n != 0 {
		t.Errorf("%d outside before the pool was shrunk; want none", n)
	}
	if n := count([]v1alpha1.IPLease{l}, after, near).outside; n != 3 {
		t.Errorf("%d outside; want .16, .17 and .20", n)
	}
}

// TestExhausted: the condition counts what anybody could get, of the family that is
// worse off, and stays while somebody waits.
func TestExhausted(t *testing.T) {
	four := func(block, node string, used int32) v1alpha1.IPLease {
		return v1alpha1.IPLease{
			Spec:   v1alpha1.IPLeaseSpec{Block: block, Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}},
			Status: v1alpha1.IPLeaseStatus{Used: &used, Free: new(4 - used)},
		}
	}
	const waiting = "addresses are free, but somebody asked for one lately whom none of them would do, or had reached"
	static := pool("10.0.0.0/28")
	static.Spec.Ranges[0].StaticOnly = []string{"10.0.0.8/29"}
	full := []v1alpha1.IPLease{four("10.0.0.0/30", "n1", 3), four("10.0.0.4/30", "n1", 4), four("10.0.0.8/30", "n1", 4), four("10.0.0.12/30", "n1", 3)}
	tests := []struct {
		name    string
		pool    *v1alpha1.IPPool
		leases  []v1alpha1.IPLease
		starved bool
		was     string // the condition's message
		want    string // empty: not exhausted
		free    string // what is said then, if not that addresses are free
	}{
		{name: "full", pool: pool("10.0.0.0/28"), leases: full, want: "pool lan is exhausted: 14 of 14 in use"},
		{name: "one is free", pool: pool("10.0.0.0/28"), leases: append([]v1alpha1.IPLease{four("10.0.0.0/30", "n1", 2)}, full[1:]...)},
		{name: "one is free, somebody waits", pool: pool("10.0.0.0/28"), starved: true, free: waiting,
			leases: append([]v1alpha1.IPLease{four("10.0.0.0/30", "n1", 2)}, full[1:]...)},
		{name: "one has become free, somebody waits", pool: pool("10.0.0.0/28"), starved: true, was: "as it was", want: "as it was",
			leases: append([]v1alpha1.IPLease{four("10.0.0.0/30", "n1", 2)}, full[1:]...)},
		{name: "one has become free, nobody waits", pool: pool("10.0.0.0/28"), was: "as it was",
			leases: append([]v1alpha1.IPLease{four("10.0.0.0/30", "n1", 2)}, full[1:]...)},
		{name: "the rest is out of reach", pool: pool("10.0.0.0/28"), leases: append([]v1alpha1.IPLease{four("10.0.0.0/30", "lost", 1)}, full[1:]...),
			want: "pool lan is exhausted: 12 of 14 in use, 2 unreachable"},
		{name: "what is left is static-only", pool: static, leases: full[:2], want: "pool lan is exhausted: 7 of 7 in use"},
		{name: "one family", pool: pool("10.0.0.0/28", "fd00::/64"), leases: full, want: "pool lan is exhausted: 14 of 14 in use"},
		{name: "it has none", pool: with(pool("10.0.0.0/30"), func(p *v1alpha1.IPPool) { p.Spec.Ranges[0].Exclude = []string{"10.0.0.1-10.0.0.2"} }),
			want: "pool lan has no address to give: its ranges have none but those that are excluded, gateways, or the network's own"},
		{name: "all are static-only", pool: with(pool("10.0.0.0/28"), func(p *v1alpha1.IPPool) { p.Spec.Ranges[0].StaticOnly = []string{"10.0.0.0/28"} }),
			free: "addresses are free, to whom asks for them by name: all of them, or all of one family, are static-only"},
		{name: "somebody waits for one within a view", pool: pool("10.0.0.0/28"), leases: full[:1], starved: true, free: waiting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := seen{pool: tt.pool, now: noon, starved: tt.starved}
			s.shape, _ = shapeOf(tt.pool)
			s.tally = count(tt.leases, s.shape, surroundings{reaches: func(l *v1alpha1.IPLease) bool { return l.Spec.Holder.Node != "lost" }})
			st := tt.pool.Status.DeepCopy()
			if tt.was != "" {
				s.set(st, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, tt.was)
			}
			s.describe(st)
			c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolExhausted)
			if got := c.Message; c.Status == metav1.ConditionTrue && got != tt.want || c.Status == metav1.ConditionFalse && tt.want != "" {
				t.Errorf("%s, %q; want %q", c.Status, got, tt.want)
			}
			if free := cmp.Or(tt.free, "addresses are free"); c.Status == metav1.ConditionFalse && c.Message != free {
				t.Errorf("%s, %q; want %q", c.Status, c.Message, free)
			}
			if tt.starved && st.Pressure != v1alpha1.PressureExhausted {
				t.Errorf("pressure %s while somebody starves; want Exhausted", st.Pressure)
			}
		})
	}
}

// TestStarves: an exhausted pool stays so until nobody has starved for a while.
func TestStarves(t *testing.T) {
	starving := false
	r := &Reconciler{Starving: func(protocol.PoolName, *allocator.Shape) bool { return starving }}
	exhausted, low := pool("10.0.0.0/24"), with(pool("10.0.0.0/24"), func(p *v1alpha1.IPPool) { p.UID = "p2" })
	exhausted.Status.Pressure = v1alpha1.PressureExhausted
	for _, tt := range []struct {
		name     string
		pool     *v1alpha1.IPPool
		starving bool
		after    time.Duration
		want     bool
	}{
		{"nobody ever", low, false, 0, false},
		{"somebody", low, true, time.Second, true},
		{"not any more", low, false, 2 * time.Second, true},
		{"still remembered", low, false, time.Second + calm - 1, true},
		{"calm", low, false, time.Second + calm, false},
		{"a new controller, an exhausted pool", exhausted, false, 0, true},
		{"still", exhausted, false, calm - 1, true},
		{"calm at last", exhausted, false, calm, false},
		{"and remains so", exhausted, false, 2 * calm, false},
	} {
		starving = tt.starving
		if got := r.starves(tt.pool, wholePool, nil, tt.pool.Status.Pressure, noon.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestPressureIsTheWorseFamilys: an interface gets an address of each.
func TestPressureIsTheWorseFamilys(t *testing.T) {
	shape, _ := shapeOf(pool("10.0.0.0/30", "fd00::/64"))
	full := count([]v1alpha1.IPLease{
		{Spec: v1alpha1.IPLeaseSpec{Block: "10.0.0.0/30", Holder: v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: "n1"}}},
	}, shape, near)
	if p := full.pressure("", shape); p != v1alpha1.PressureExhausted {
		t.Errorf("pressure %s with IPv4 exhausted; want Exhausted", p)
	}
}

func TestOverlaps(t *testing.T) {
	at := func(name, domain string, age int, cidrs ...string) v1alpha1.IPPool {
		p := pool(cidrs...)
		p.Name, p.Spec.Domain = name, domain
		p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Duration(age) * time.Hour))
		return *p
	}
	others := []v1alpha1.IPPool{
		at("lan", "", 5, "10.0.0.0/24"), at("old", "", 9, "10.0.0.0/16"), at("new", "", 1, "10.0.0.128/25", "fd00::/64"),
		at("apart", "", 9, "10.0.1.0/24"), at("elsewhere", "dc-2", 9, "10.0.0.0/24"),
	}
	me := others[0]
	shape, _ := shapeOf(&me)
	shapes := func(p *v1alpha1.IPPool) *allocator.Shape { s, _ := shapeOf(p); return s }
	if got := overlapping(&me, shape, others, shapes); fmt.Sprint(got) != "{[] []}" {
		t.Errorf("without a domain: %+v; want none", got)
	}
	for i := range others {
		if others[i].Spec.Domain == "" {
			others[i].Spec.Domain = poolspec.DefaultDomain
		}
	}
	others = append(others, at("nameless", "", 9, "10.0.0.64/26"))
	others[1].Labels = map[string]string{v1alpha1.LabelImplicit: "true"}
	open(30)(&others[0])
	if got := overlapping(&others[0], shape, others, shapes); fmt.Sprint(got) != "{[new old] []}" {
		t.Errorf("a person's pool is open, and the older one is of definitions: %+v; want no older one", got)
	}
	closed(30)(&others[0])
	if got := overlapping(&others[0], shape, others, shapes); fmt.Sprint(got) != "{[new old] []}" {
		t.Errorf("a person's pool was open, and the older one of definitions is not: %+v; want no older one", got)
	}
	others[1].Spec.Allocation = v1alpha1.AllocationStopped // which does not say that it waits
	if got := overlapping(&others[0], shape, others, shapes); fmt.Sprint(got) != "{[new old] [old]}" {
		t.Errorf("a person's pool was open, and the older one of definitions is stopped: %+v; want old older", got)
	}
	others[1].Spec.Allocation, others[1].Status.Leasing = "", v1alpha1.LeasingOpen
	if got := overlapping(&others[0], shape, others, shapes); fmt.Sprint(got) != "{[new old] [old]}" {
		t.Errorf("a person's pool was open, and the older one of definitions is: %+v; want old older", got)
	}
	others[1].Status.Leasing = ""
	others[1].Labels, others[0].Status = nil, v1alpha1.IPPoolStatus{}
	if got := overlapping(&others[0], shape, others, shapes); fmt.Sprint(got) != "{[new old] [old]}" {
		t.Errorf("of the default domain: %+v; want siblings new and old, old older", got)
	}
}

// A message that is cut to what the schema admits stays text, or it would be written again and
// again.
func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	var st v1alpha1.IPPoolStatus
	s := seen{pool: &v1alpha1.IPPool{}}
	s.set(&st, v1alpha1.PoolReady, metav1.ConditionFalse, "Reason", "x"+strings.Repeat("é", 20000))
	if !utf8.ValidString(st.Conditions[0].Message) {
		t.Error("it ends in the middle of a character")
	}
}
