package pools

import (
	"slices"
	"testing"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
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
		v := foreign.Verdict{Of: foreign.StateOf(p), Clear: true, Blocked: set}
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
