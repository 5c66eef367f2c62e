package pools

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// whereabouts is a definition of the other IPAM.
var whereabouts = foreign.Definition{Namespace: "ns", Name: "old", IPAM: foreign.TypeWhereabouts}

// decideOn has a controller look at p, which has just begun to run and knows of no edit, and p have
// the status that it writes. The looker has found definitions of these other IPAMs, and nothing
// that pods have; known says that it has looked at p as it is.
func decideOn(t *testing.T, p *v1alpha1.IPPool, known bool, others ...foreign.Definition) {
	t.Helper()
	decideBy(t, p, known, foreign.Verdict{Others: others, Blocked: new(netipx.IPSet)})
}

// decideBy is as decideOn, where the looker has found v.
func decideBy(t *testing.T, p *v1alpha1.IPPool, known bool, v foreign.Verdict) {
	t.Helper()
	v.Stage = foreign.StageClear
	if p.Status.FencedSince == nil {
		v.Stage = foreign.StageFence
	}
	if known {
		v.Of = foreign.StateOf(p)
	}
	s := seen{pool: p, now: noon, foreign: &v, live: &live{pool: p}}
	var err error
	if s.shape, err = poolspec.ParsePool(kube.PoolText(p)); err != nil {
		t.Fatal(err)
	}
	if s.whole, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
		t.Fatal(err)
	}
	if st := decide(s).status; st != nil {
		p.Status = *st
	}
}

// stoppedPool is a pool that was open, and is stopped.
func stoppedPool(t *testing.T) *v1alpha1.IPPool {
	t.Helper()
	p := with(pool("10.0.0.0/24"), open(30), func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation })
	p.Status.Fenced, p.Status.FencedSince = []string{"10.0.0.0-24"}, new(metav1.NewTime(noon))
	p.Spec.Allocation = v1alpha1.AllocationStopped
	p.Generation++
	decideOn(t, p, false)
	if p.Status.Leasing != v1alpha1.LeasingClosed || p.Status.FencedSince != nil || len(p.Status.Fenced) > 0 {
		t.Fatalf("a pool that is stopped: %+v; want it closed, and nothing fenced", p.Status)
	}
	return p
}

// restart has a stopped pool give addresses again.
func restart(p *v1alpha1.IPPool) {
	p.Spec.Allocation = v1alpha1.AllocationAutomatic
	p.Generation++
}

// TestStoppedPoolIsGivenAway (I1): of a pool that was stopped everybody hears, from the same event
// by which it is started again until it is open, that another IPAM may have given what is free.
// Whatever else closes it meanwhile, it does not open while another IPAM may give its addresses.
func TestStoppedPoolIsGivenAway(t *testing.T) {
	for name, meanwhile := range map[string]func(*testing.T, *v1alpha1.IPPool){
		"nothing": func(*testing.T, *v1alpha1.IPPool) {},
		"another block size": func(t *testing.T, p *v1alpha1.IPPool) {
			blockSize(8)(p)
			p.Generation++
			decideOn(t, p, true, whereabouts)
		},
		"a wider range": func(t *testing.T, p *v1alpha1.IPPool) {
			p.Spec.Ranges[0].CIDR = "10.0.0.0/23"
			p.Generation++
			decideOn(t, p, true, whereabouts)
		},
		"a faulty spec": func(t *testing.T, p *v1alpha1.IPPool) {
			s := seen{pool: p, now: noon, foreign: &foreign.Verdict{}, fault: "its spec is faulty"}
			p.Status = *decide(s).status
		},
		"a lease that cannot be read": func(_ *testing.T, p *v1alpha1.IPPool) {
			garbled := []*kube.LeaseError{{Name: "lan.0a000000.30", Pool: "lan", Err: errors.New("it has no block")}}
			s := seen{pool: p, now: noon, foreign: &foreign.Verdict{}, shape: &allocator.Shape{}, live: &live{pool: p, garbled: garbled}}
			p.Status = *decide(s).status
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := stoppedPool(t)
			restart(p)
			if !kube.GivenAway(p) {
				t.Error("the event that starts it does not say that its addresses are given away")
			}
			meanwhile(t, p)
			for _, known := range []bool{false, true, true, true} {
				decideOn(t, p, known, whereabouts)
				if p.Status.Leasing == v1alpha1.LeasingOpen || !kube.GivenAway(p) || len(p.Status.Withheld) > 0 {
					t.Fatalf("while another IPAM gives its addresses: leasing %s, given away %v, withheld %q; want it closed and given away as a whole", p.Status.Leasing, kube.GivenAway(p), p.Status.Withheld)
				}
			}
			decideOn(t, p, true) // the definition is switched: it takes over
			if p.Status.Leasing == v1alpha1.LeasingOpen || !kube.GivenAway(p) {
				t.Errorf("before the look: leasing %s, given away %v", p.Status.Leasing, kube.GivenAway(p))
			}
			decideOn(t, p, true)
			if p.Status.Leasing != v1alpha1.LeasingOpen || kube.GivenAway(p) || p.Status.FencedSince == nil {
				t.Errorf("after the look: %+v; want it open, and taken over", p.Status)
			}
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolWithheld); c != nil || len(p.Status.Withheld) > 0 {
				t.Errorf("it is open, and withholds %q: %+v", p.Status.Withheld, c)
			}
		})
	}
}

// TestStoppedForAWhile: a pool that was stopped, and that no other IPAM has to do with, opens by
// the first look, with all of its addresses.
func TestStoppedForAWhile(t *testing.T) {
	p := stoppedPool(t)
	restart(p)
	for range 3 { // it is closed as it is now, taken over, and looked at
		decideOn(t, p, true)
	}
	if p.Status.Leasing != v1alpha1.LeasingOpen || len(p.Status.Withheld) > 0 || kube.GivenAway(p) {
		t.Errorf("%+v; want it open as a whole", p.Status)
	}
}

// TestStartedBesideASilentNode (I1): of a pool that was stopped a pod of another IPAM has an
// address by now that lies in the block of a node which does not answer. The pool opens without
// it.
func TestStartedBesideASilentNode(t *testing.T) {
	p := stoppedPool(t)
	restart(p)
	a := netip.MustParseAddr("10.0.0.5")
	var b netipx.IPSetBuilder
	b.Add(a)
	silent, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		decideBy(t, p, true, foreign.Verdict{Blocked: silent, Conflicts: []foreign.Conflict{{Addr: a, Owners: []string{"a", "b"}}}})
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolWithheld)
	if p.Status.Leasing != v1alpha1.LeasingOpen || !slices.Equal(p.Status.Withheld, []string{"10.0.0.5-10.0.0.5"}) || c == nil || !strings.Contains(c.Message, "TwoOwners") {
		t.Fatalf("leasing %s, withheld %q, %+v; want it open without the address", p.Status.Leasing, p.Status.Withheld, c)
	}
	if decideOn(t, p, true); len(p.Status.Withheld) > 0 {
		t.Errorf("it is kept: withheld %q", p.Status.Withheld)
	}
}

// TestStoppedByAnEarlierController (I1): a controller that knew no condition for it has stopped a
// pool, or started it again. The pool is given away all the same.
func TestStoppedByAnEarlierController(t *testing.T) {
	for _, reason := range []string{v1alpha1.ReasonStopped, v1alpha1.ReasonForeignIPAM} {
		p := stoppedPool(t)
		restart(p)
		meta.RemoveStatusCondition(&p.Status.Conditions, v1alpha1.PoolWithheld)
		meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolReady).Reason = reason
		for range 3 {
			decideOn(t, p, true, whereabouts)
			if p.Status.Leasing == v1alpha1.LeasingOpen || !kube.GivenAway(p) {
				t.Fatalf("%s: leasing %s, given away %v; want it closed and given away", reason, p.Status.Leasing, kube.GivenAway(p))
			}
		}
	}
	p := stoppedPool(t)
	meta.RemoveStatusCondition(&p.Status.Conditions, v1alpha1.PoolWithheld)
	if decideOn(t, p, true); !kube.GivenAway(p) {
		t.Error("stopped before the upgrade: it is not given away")
	}
}

// TestClosedButNeverStopped: a pool that is closed for another block size alone is not given away,
// nor is one that was never open and waits for another IPAM.
func TestClosedButNeverStopped(t *testing.T) {
	changing, fresh := with(pool("10.0.0.0/24"), open(30), blockSize(8)), pool("10.0.0.0/24")
	for _, p := range []*v1alpha1.IPPool{changing, fresh, fresh, fresh} {
		if decideOn(t, p, true, whereabouts); p.Status.Leasing == v1alpha1.LeasingOpen || kube.GivenAway(p) {
			t.Errorf("leasing %s, given away %v: %+v", p.Status.Leasing, kube.GivenAway(p), p.Status.Conditions)
		}
	}
}
