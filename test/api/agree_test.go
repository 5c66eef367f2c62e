package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestAPIAndParserAgree shows that the API server accepts a pool exactly if the
// programs can use it: random pools, most of them nearly right.
func TestAPIAndParserAgree(t *testing.T) {
	const seed, rounds = 7, 1000
	rng := rand.New(rand.NewPCG(seed, 0))
	accepted := 0
	for i := range rounds {
		spec := randomPool(rng)
		_, parseErr := poolspec.ParsePool(textOf(spec))
		_, apiErr := cluster.Resource(pools).Create(t.Context(), poolObject(t, spec), dryOptions)
		if apiErr != nil && !apierrors.IsInvalid(apiErr) {
			t.Fatalf("seed %d, round %d: %v", seed, i, apiErr)
		}
		if (parseErr == nil) != (apiErr == nil) {
			t.Errorf("seed %d, round %d: %+v\nAPI server: %v\nparser: %v\nwant both to accept it or both to refuse", seed, i, spec.Ranges, apiErr, parseErr)
		}
		if apiErr == nil {
			accepted++
		}
	}
	if accepted < rounds/10 || accepted > rounds*9/10 {
		t.Errorf("%d of %d random pools are accepted; want the generator to make both kinds", accepted, rounds)
	}
}

func poolObject(t *testing.T, spec v1alpha1.IPPoolSpec) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "tenure.dev/v1alpha1", "kind": "IPPool", "metadata": map[string]any{"name": "lan"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, string(text))
}

func textOf(spec v1alpha1.IPPoolSpec) poolspec.PoolText {
	var t poolspec.PoolText
	for _, r := range spec.Ranges {
		t.Ranges = append(t.Ranges, poolspec.RangeText{CIDR: r.CIDR, Start: r.Start, End: r.End, Exclude: r.Exclude, StaticOnly: r.StaticOnly, Gateway: r.Gateway})
	}
	return t
}

// randomPool returns a pool of one to three ranges from a small world of
// addresses, so that they often meet.
func randomPool(rng *rand.Rand) v1alpha1.IPPoolSpec {
	var spec v1alpha1.IPPoolSpec
	for range 1 + rng.IntN(3) {
		spec.Ranges = append(spec.Ranges, randomRange(rng))
	}
	return spec
}

func randomRange(rng *rand.Rand) v1alpha1.Range {
	addr := func(host int) string { return fmt.Sprintf("10.0.%d.%d", host/256, host%256) }
	cidrs := []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/25", "10.0.1.128/25", "10.0.0.0/23", "10.0.0.8/30", "10.0.0.9/32"}
	if rng.IntN(2) == 0 {
		spellings := []string{"fd00::%x", "fd00:0::%04x", "FD00::0:%X", "fd00:0:0:0:0:0:0:%x"}
		addr = func(host int) string { return fmt.Sprintf(spellings[rng.IntN(len(spellings))], host) }
		cidrs = []string{"fd00::/120", "fd00::100/120", "fd00::/121", "fd00:0::180/121", "fd00::/119", "FD00::8/126", "fd00::9/128"}
	}
	cidr := cidrs[rng.IntN(len(cidrs))]
	// Few ranges are right by chance, so most fields are mostly absent.
	host := func() int { return rng.IntN(512) }
	maybe := func(odds int) string {
		if rng.IntN(odds) > 0 {
			return ""
		}
		return addr(host())
	}
	list := func() (l []string) {
		for rng.IntN(4) == 0 {
			a := host()
			switch rng.IntN(4) {
			case 0:
				l = append(l, addr(a))
			case 1:
				l = append(l, addr(a)+"-"+addr(min(a+rng.IntN(40)-2, 511)&^(1<<63-1<<9)))
			case 2:
				l = append(l, fmt.Sprintf("%s/%d", addr(a&^15), map[bool]int{true: 28, false: 124}[addr(0)[0] == '1']))
			case 3:
				l = append(l, []string{"x", addr(a) + "-", addr(a) + "/129", "10.0.0.1-fd00::1"}[rng.IntN(4)])
			}
		}
		return slices.DeleteFunc(l, func(e string) bool { return swallows(e, cidr) })
	}
	return v1alpha1.Range{CIDR: cidr, Start: maybe(3), End: maybe(3), Gateway: maybe(6), Exclude: list(), StaticOnly: list()}
}

// swallows reports whether element, a "first-last", reaches beyond both ends of
// cidr. That is the one thing that the API server refuses and the parser does
// not: the range would have no address left.
func swallows(element, cidr string) bool {
	r, err := netipx.ParseIPRange(element)
	if err != nil {
		return false
	}
	whole := netipx.RangeOfPrefix(netip.MustParsePrefix(cidr))
	return r.From().Less(whole.From()) && whole.To().Less(r.To())
}
