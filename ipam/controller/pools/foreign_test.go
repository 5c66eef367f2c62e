package pools

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestWithheldThroughAClosure (I1): a pool that was open, and is closed for a while, as for
// another block size, does not give after that what it withheld because another IPAM may
// give it. What has come free of the other IPAM by then it gives.
func TestWithheldThroughAClosure(t *testing.T) {
	both := []string{"10.0.0.8-10.0.0.11", "10.0.0.64-10.0.0.95"}
	for _, c := range []struct {
		name    string
		blocked []string
		want    []string
	}{
		{"another IPAM may give all of it", both, both},
		{"it may give a part", both[:1], both[:1]},
		{"it gives none any more", nil, nil},
	} {
		p := with(pool("10.0.0.0/24"), closed(30))
		p.Status.ObservedGeneration, p.Status.Withheld, p.Status.FencedSince = p.Generation, both, new(metav1.NewTime(noon))
		var blocked netipx.IPSetBuilder
		for _, r := range c.blocked {
			blocked.AddRange(netipx.MustParseIPRange(r))
		}
		set, err := blocked.IPSet()
		if err != nil {
			t.Fatal(err)
		}
		v := foreign.Verdict{Of: foreign.StateOf(p), Stage: foreign.StageClear, Blocked: set}
		if len(c.blocked) > 0 {
			v.Others = []foreign.Definition{{Namespace: "ns", Name: "old", IPAM: foreign.TypeWhereabouts}}
		}
		s := seen{pool: p, now: noon, foreign: &v, live: &live{pool: p}}
		if s.shape, err = poolspec.ParsePool(kube.PoolText(p)); err != nil {
			t.Fatal(err)
		}
		if s.whole, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
			t.Fatal(err)
		}
		st := decide(s).status
		if st == nil || st.Leasing != v1alpha1.LeasingOpen {
			t.Errorf("%s: status %+v; want it to be opened", c.name, st)
			continue
		}
		if !slices.Equal(st.Withheld, c.want) {
			t.Errorf("%s: opened, and withholds %q; want %q", c.name, st.Withheld, c.want)
		}
	}
}

// TestTakesOverWhenTheOtherIPAMHasGone (I1): a pool that was made before the last definition
// was switched begins to take over when that is switched. From then on the look waits for pods
// whose ADD by the other IPAM is under way, also where there is nothing to fence, as of
// host-local.
func TestTakesOverWhenTheOtherIPAMHasGone(t *testing.T) {
	old := []foreign.Definition{{Namespace: "ns", Name: "old", IPAM: foreign.TypeHostLocal}}
	p := pool("10.0.0.0/24")
	look := func(known bool, others ...foreign.Definition) *metav1.Time {
		t.Helper()
		v := foreign.Verdict{Others: others, Why: "wait"}
		if known {
			v.Of = foreign.StateOf(p)
		}
		s := seen{pool: p, now: noon, foreign: &v, live: &live{pool: p}}
		var err error
		if s.shape, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
			t.Fatal(err)
		}
		s.whole = s.shape
		if st := decide(s).status; st != nil {
			p.Status = *st
		}
		if p.Status.Leasing != v1alpha1.LeasingClosed {
			t.Fatalf("leasing is %s; want it closed", p.Status.Leasing)
		}
		return p.Status.FencedSince
	}
	look(false)        // its sizes are written first
	look(false)        // nothing is known yet
	look(true, old...) // another IPAM gives its addresses
	if since := look(true, old...); since != nil {
		t.Errorf("it takes over since %v, while another IPAM gives its addresses", since)
	}
	if since := look(true); since == nil || !since.Time.Equal(noon) {
		t.Errorf("after the last definition was switched it takes over since %v; want %v", since, noon)
	}
}

// TestStoppedWhileAnotherIPAMGives (I1): a pool that was open, and was stopped so that another
// IPAM gives its addresses, is not opened by the word Automatic alone: first the other IPAM's
// definitions have to go.
func TestStoppedWhileAnotherIPAMGives(t *testing.T) {
	old := []foreign.Definition{{Namespace: "ns", Name: "old", IPAM: foreign.TypeWhereabouts}}
	p := with(pool("10.0.0.0/24"), closed(30), func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation })
	p.Spec.Allocation = v1alpha1.AllocationStopped
	look := func(known bool, others ...foreign.Definition) *v1alpha1.IPPoolStatus {
		t.Helper()
		v := foreign.Verdict{Others: others, Stage: foreign.StageClear}
		if known {
			v.Of = foreign.StateOf(p)
		}
		s := seen{pool: p, now: noon, foreign: &v, live: &live{pool: p}}
		var err error
		if s.shape, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
			t.Fatal(err)
		}
		s.whole, s.before = s.shape, s.shape
		if st := decide(s).status; st != nil {
			p.Status = *st
		}
		return &p.Status
	}
	if st := look(true); st.Leasing != v1alpha1.LeasingClosed || st.FencedSince != nil {
		t.Fatalf("a pool that is stopped: %+v; want it closed, and nothing fenced", st)
	}
	p.Spec.Allocation = v1alpha1.AllocationAutomatic
	p.Generation++
	for range 3 {
		if st := look(false, old...); st.Leasing != v1alpha1.LeasingClosed {
			t.Fatal("it was opened before it was known what another IPAM gives")
		}
	}
	for range 3 {
		if st := look(true, old...); st.Leasing != v1alpha1.LeasingClosed {
			t.Fatal("it was opened while another IPAM gives its addresses")
		}
	}
	look(true) // the definition is switched: it takes over
	if st := look(true); st.Leasing != v1alpha1.LeasingOpen || st.FencedSince == nil {
		t.Errorf("after the last definition was switched: %+v; want it open", st)
	}
}

// TestSwitchedUnderAnOpenPool (I1): where an open pool withholds what another IPAM may give, it
// takes that over when the definition is switched, and gives it after a look that has seen pods
// whose ADDs were under way then.
func TestSwitchedUnderAnOpenPool(t *testing.T) {
	old := foreign.Definition{Namespace: "ns", Name: "old", IPAM: foreign.TypeHostLocal}
	blocked := netipx.MustParseIPRange("10.0.0.8-10.0.0.11")
	set := new(netipx.IPSetBuilder)
	set.AddRange(blocked)
	theirs, err := set.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	p := pool("10.0.0.0/24")
	p.Status.Leasing, p.Status.Opening, p.Status.ObservedGeneration = v1alpha1.LeasingOpen, "1", p.Generation
	p.Status.Withheld, p.Status.FencedSince = []string{blocked.String()}, new(metav1.NewTime(noon.Add(-time.Hour)))
	look := func(v foreign.Verdict) v1alpha1.IPPoolStatus {
		t.Helper()
		v.Of, v.Stage = foreign.StateOf(p), foreign.StageClear
		s := seen{pool: p, now: noon, foreign: &v}
		if s.whole, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
			t.Fatal(err)
		}
		if s.shape, err = poolspec.ParsePool(kube.PoolText(p)); err != nil {
			t.Fatal(err)
		}
		st := p.Status.DeepCopy()
		s.withhold(st)
		s.tellForeign(st)
		p.Status = *st
		return *st
	}
	none := new(netipx.IPSet)
	for range 2 {
		if st := look(foreign.Verdict{Others: []foreign.Definition{old}, Blocked: theirs}); len(st.Withheld) != 1 || !st.FencedSince.Time.Before(noon) {
			t.Fatalf("while the other IPAM gives: withholds %q since %v", st.Withheld, st.FencedSince)
		}
	}
	if st := look(foreign.Verdict{Blocked: none}); len(st.Withheld) != 1 || !st.FencedSince.Time.Equal(noon) {
		t.Errorf("when the definition is switched: withholds %q since %v; want the look of now", st.Withheld, st.FencedSince)
	}
	if st := look(foreign.Verdict{Blocked: none}); len(st.Withheld) != 0 {
		t.Errorf("after that look: withholds %q; want nothing", st.Withheld)
	}
	// Where it withholds nothing, what pods have got by then is still to be found.
	p.Status.FencedSince = new(metav1.NewTime(noon.Add(-time.Hour)))
	look(foreign.Verdict{Others: []foreign.Definition{old}, Blocked: theirs})
	s := seen{pool: p, now: noon, foreign: new(foreign.Verdict)} // the controller has just begun
	s.withhold(&p.Status)
	s.tellForeign(&p.Status)
	if st := look(foreign.Verdict{Blocked: none}); len(st.Withheld) != 0 || !st.FencedSince.Time.Equal(noon) {
		t.Errorf("of an open pool that withholds nothing: withholds %q since %v; want a look of now", st.Withheld, st.FencedSince)
	}
	p.Status.FencedSince = new(metav1.NewTime(noon.Add(-time.Hour)))
	if st := look(foreign.Verdict{Blocked: none}); !st.FencedSince.Time.Before(noon) {
		t.Errorf("later: since %v; want that nothing changes", st.FencedSince)
	}
	// The look that finds the switch has read the pool before an edit, or the edit is of now.
	for _, of := range []string{"an earlier state", foreign.StateOf(p)} {
		p.Status.FencedSince = new(metav1.NewTime(noon.Add(-time.Hour)))
		look(foreign.Verdict{Others: []foreign.Definition{old}, Blocked: theirs})
		s := seen{pool: p, now: noon, foreign: &foreign.Verdict{Of: of, Stage: foreign.StageClear, Blocked: none}}
		if s.whole, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
			t.Fatal(err)
		}
		p.Generation++
		s.withhold(&p.Status)
		s.tellForeign(&p.Status)
		if !p.Status.FencedSince.Time.Equal(noon) {
			t.Errorf("by a look at %q: since %v; want a look of now", of, p.Status.FencedSince)
		}
		p.Generation--
	}
	// The fence grows: pods that were bound before count anew only where they may have something.
	for _, isNew := range []bool{false, true} {
		p.Status.Withheld, p.Status.FencedSince = []string{blocked.String()}, new(metav1.NewTime(noon.Add(-time.Hour)))
		fence := append(slices.Clone(p.Status.Fenced), fmt.Sprint("object-", isNew))
		if st := look(foreign.Verdict{Blocked: none, Fence: fence, FenceIsNew: isNew}); !slices.Equal(st.Fenced, fence) || st.FencedSince.Time.Equal(noon) != isNew {
			t.Errorf("new to whereabouts: %v: it fences %q since %v", isNew, st.Fenced, st.FencedSince)
		}
	}
}

// TestSaysWhatHoldsUpAnEnd: what stays kept since a node cannot tell, and what may be given twice
// since one did not answer, is no matter of old pods alone: the condition names the node, and says
// what to do.
func TestSaysWhatHoldsUpAnEnd(t *testing.T) {
	for _, tt := range []struct {
		verdict foreign.Verdict
		reason  string
		says    []string
	}{
		{foreign.Verdict{Held: []string{"node n1: /results/net-c-net1 is damaged"}}, "NodesCannotTell", []string{"node n1: /results/net-c-net1 is damaged. ", "remove a damaged file"}},
		{foreign.Verdict{NoAgent: []protocol.NodeName{"n2"}}, "NodesCannotTell", []string{"no agent answers on nodes n2. Have tenured run there"}},
		{foreign.Verdict{PassedOver: []protocol.NodeName{"n3"}}, "NodesPassedOver", []string{"nodes n3 were not waited for", "may be given to others. See what tenured logs there"}},
	} {
		s := seen{pool: pool("10.0.0.0/24"), now: noon, foreign: &tt.verdict, tally: tally{foreign: 1}}
		var st v1alpha1.IPPoolStatus
		s.tellForeign(&st)
		c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolForeignAddresses)
		if c.Reason != tt.reason || slices.ContainsFunc(tt.says, func(text string) bool { return !strings.Contains(c.Message, text) }) {
			t.Errorf("reason %s, %q; want reason %s, and %q", c.Reason, c.Message, tt.reason, tt.says)
		}
	}
}

// TestWiderPoolTakesOverNothingTwice: what an edit adds is withheld until the look, and that look
// goes by when the pool took its addresses over, not by the edit: pods that were bound before the
// edit hold nothing up.
func TestWiderPoolTakesOverNothingTwice(t *testing.T) {
	p := pool("10.0.0.0/16")
	p.Status.Leasing, p.Status.Opening, p.Status.ObservedGeneration = v1alpha1.LeasingOpen, "1", p.Generation
	p.Generation++
	since := metav1.NewTime(noon.Add(-time.Hour))
	p.Status.FencedSince = &since
	s := seen{pool: p, now: noon, foreign: &foreign.Verdict{}}
	var err error
	if s.whole, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
		t.Fatal(err)
	}
	if s.before, err = poolspec.ParsePool(kube.SpecText(pool("10.0.0.0/24"))); err != nil {
		t.Fatal(err)
	}
	st := p.Status.DeepCopy()
	s.withhold(st)
	if len(st.Withheld) == 0 || !st.FencedSince.Equal(&since) {
		t.Errorf("withholds %q, taken over since %v; want the added addresses, and still %v", st.Withheld, st.FencedSince, since)
	}
}

// TestFenceOfAnOpenPool: a pool that was opened by a version that fenced no reservations fences
// them as soon as the look says which, and stays open. It takes nothing over anew.
func TestFenceOfAnOpenPool(t *testing.T) {
	p := pool("10.0.0.0/16")
	p.Status.Leasing, p.Status.Opening, p.Status.ObservedGeneration = v1alpha1.LeasingOpen, "1", p.Generation
	since := metav1.NewTime(noon.Add(-time.Hour))
	p.Status.FencedSince, p.Status.Fenced = &since, []string{"10.0.0.0-16"}
	ranges := []string{"10.0.0.0-16", "10.0.0.0/16"}
	for _, of := range []string{foreign.StateOf(p), "an earlier state"} {
		s := seen{pool: p, now: noon, foreign: &foreign.Verdict{Of: of, Stage: foreign.StageClear, Fence: ranges}}
		var err error
		if s.whole, err = poolspec.ParsePool(kube.SpecText(p)); err != nil {
			t.Fatal(err)
		}
		st := p.Status.DeepCopy()
		s.withhold(st)
		if slices.Equal(st.Fenced, ranges) != (of == foreign.StateOf(p)) || len(st.Withheld) > 0 || !st.FencedSince.Equal(&since) {
			t.Errorf("a verdict on %s: it fences %q, withholds %q, taken over since %v", of, st.Fenced, st.Withheld, st.FencedSince)
		}
	}
}

// A controller that has just begun to lead has heard of no registration that it reads: it does not
// take the agents for dead, whose word pools wait for. One of which it hears for F/2 no more is.
func TestNodesBeatUntilTheyAreHeardOfNoMore(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := &Reconciler{Now: func() time.Time { return now }}
	if !r.Beats("n1") {
		t.Error("before anything is heard: it does not beat")
	}
	r.Hear(protocol.Registration{Meta: protocol.Meta{Name: "n1", UID: "u"}, Node: "n1", Store: "s", Fence: time.Minute})
	if !r.Beats("n1") {
		t.Error("once it is heard: it does not beat")
	}
	if now = now.Add(30 * time.Second); r.Beats("n1") {
		t.Error("F/2 later: it beats")
	}
}

// TestOthersAreToNameThePool (I1): a definition that would get another pool with the one word
// changed has to name this one: the condition ForeignIPAM says how.
func TestOthersAreToNameThePool(t *testing.T) {
	read := func(ipam string) foreign.Definition {
		return foreign.ReadDefinition("ns", "old", `{"name":"old","type":"macvlan","ipam":`+ipam+`}`, nil)
	}
	const wb, hl = `{"type":"whereabouts","range":"10.0.0.0/24"}`, `{"type":"host-local","subnet":"10.0.0.0/24"}`
	for _, tt := range []struct {
		pool, domain, ipam string
		byHand             bool
	}{
		{"lan", "", wb, true}, {"lan", "vlan10", wb, true}, {"lan", "default-domain", wb, false},
		{"lan", "", hl, true}, {"old", "old", hl, false},
		{"lan", "", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, true},
		{"blue", "blue", `{"type":"whereabouts","range":"10.0.0.0/24","network_name":"blue"}`, false}, {"blue", "blue", wb, true},
	} {
		p := pool("10.0.0.0/24")
		p.Name, p.Spec.Domain = tt.pool, tt.domain
		got := othersText(p, foreign.Verdict{Others: []foreign.Definition{read(tt.ipam)}}, "")
		want := `write the ipam section of ns/old by hand as {"type": "tenure", "pool": "` + tt.pool + `"}`
		if !strings.Contains(got, "Switch them to Tenure") || strings.Contains(got, want) != tt.byHand {
			t.Errorf("pool %s of domain %q, %s: says %q; that it is to be written by hand, %v", tt.pool, tt.domain, tt.ipam, got, tt.byHand)
		}
	}
}
