package pools

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// dotted are n addresses of 10.0.0.0/24, every second one from that on.
func dotted(from, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"10.0.0.%d"`, from+2*i)
	}
	return strings.Join(all, ",")
}

// ipRanges are ranges of one definition.
func ipRanges(ranges ...string) string {
	return `"ipRanges":[{` + strings.Join(ranges, "},{") + `}]`
}

// others are n CIDRs of one definition, besides its first.
func others(first string, n int) string {
	ranges := []string{first}
	for i := range n {
		ranges = append(ranges, fmt.Sprintf(`"range":"10.1.%d.0/24"`, i))
	}
	return ipRanges(ranges...)
}

// parsed is a pool's shape.
func parsed(t *testing.T, p *v1alpha1.IPPool) *allocator.Shape {
	t.Helper()
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// TestLimitsAreTheAPIs: a pool is full where the API server would refuse more.
func TestLimitsAreTheAPIs(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/crds/tenure.dev_ippools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensions.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	ranges := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["ranges"]
	exclude := ranges.Items.Schema.Properties["exclude"]
	if *ranges.MaxItems != maxRanges || *exclude.MaxItems != maxExclude {
		t.Errorf("the API takes %d ranges and %d exclusions; want %d and %d", *ranges.MaxItems, *exclude.MaxItems, maxRanges, maxExclude)
	}
}

// TestUnionThatIsFullStays: what is edited, or comes, takes nothing from a pool that has no
// room for all.
func TestUnionThatIsFullStays(t *testing.T) {
	low := func(i int) networks.Network { // 40 gaps in one half of a CIDR, and in the other
		return describing(i, `"range":"10.0.0.0/24","range_start":"10.0.0.1","range_end":"10.0.0.100","exclude":[`+dotted(2, 40)+`]`)
	}
	high := func(i int) networks.Network {
		return describing(i, `"range":"10.0.0.0/24","range_start":"10.0.0.101","range_end":"10.0.0.250","exclude":[`+dotted(110, 40)+`]`)
	}
	elsewhere := describing(0, `"range":"10.9.0.0/24"`)
	a := describing(1, `"range":"10.0.0.0/24","gateway":"10.0.0.1"`)
	b := func(n int) networks.Network {
		return describing(2, others(`"range":"10.0.0.0/24","gateway":"10.0.0.254"`, n))
	}
	for _, tt := range []struct {
		name     string
		was, now []networks.Network
		want     string // what the plan says
		never    string // an address that is not given
		gives    string // one that is
	}{
		{"an older one is edited into another's CIDR", []networks.Network{elsewhere, low(1)}, []networks.Network{high(0), low(1)},
			"update 10.0.0.0/24 by ns/def-1, tell ns/def-0 PoolFull", "10.0.0.120", "10.0.0.99"},
		{"one CIDR too many in a definition", []networks.Network{elsewhere, a, b(62)}, []networks.Network{elsewhere, a, b(63)},
			"update 10.0.0.0/24 gateway 10.0.0.1" + cidrsOf("10.1", 62) + " 10.9.0.0/24 by ns/def-0,ns/def-1, tell ns/def-2 PoolFull", "10.0.0.254", "10.1.61.7"},
		{"a definition that is left out has a gateway", []networks.Network{elsewhere, a}, []networks.Network{elsewhere, a, b(63)},
			"update 10.0.0.0/24 gateway 10.0.0.1 10.9.0.0/24 by ns/def-0,ns/def-1, tell ns/def-2 PoolFull", "10.0.0.254", "10.0.0.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := described{name: "lan", by: tt.now, pool: made(t, tt.was...)}
			p, err := decideImplicit(d)
			if err != nil || p.in() != tt.want {
				t.Errorf("got %q, %v; want %q", p.in(), err, tt.want)
			}
			shape := parsed(t, follow(t, d, p).pool)
			if shape.Ordinary(netip.MustParseAddr(tt.never)) || !shape.Ordinary(netip.MustParseAddr(tt.gives)) {
				t.Errorf("%v gives %s, or not %s; want it the other way", shape.Ranges()[0], tt.never, tt.gives)
			}
		})
	}
}

// cidrsOf are the first n CIDRs under a prefix of 16 bits.
func cidrsOf(under string, n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(" %s.%d.0/24", under, i)
	}
	return text
}

// TestUnionSettles: a wide CIDR that swallows narrower ones makes room. It comes to one pool, in
// one step, not to two by turns.
func TestUnionSettles(t *testing.T) {
	all := []networks.Network{describing(0, `"range":"10.0.4.0/24"`), describing(1, `"range":"10.0.5.0/24"`)}
	for i := range 62 {
		all = append(all, describing(2+i, fmt.Sprintf(`"range":"10.1.%d.0/24"`, i)))
	}
	all = append(all, describing(64, `"range":"10.2.0.0/24"`), describing(65, `"range":"10.2.1.0/24"`), describing(66, `"range":"10.0.0.0/16"`))
	d := described{name: "lan", by: all}
	p, err := decideImplicit(d)
	if err != nil || len(p.notices) != 1+2 || p.notices["ns/def-65"].reason != reasonFull {
		t.Fatalf("got %q, %v; want def-65 alone left out, and the two told that theirs lie in a wider one", p.in(), err)
	}
	follow(t, d, p)
}

// TestGatewaysOfOthers: the gateways that others name, whether they are in or left out, keep no
// CIDR out of the pool; as many are kept from pods as there may be exclusions.
func TestGatewaysOfOthers(t *testing.T) {
	naming := func(i, gateways int, ranges string) networks.Network { // in 10.0.5.0/24, which is not its own
		all := make([]string, gateways)
		for g := range all {
			all[g] = fmt.Sprintf(`{"range":"10.%d.%d.0/24","gateway":"10.0.5.%d"}`, i, g, 100*(i%2)+2*g+2)
		}
		return describing(i, `"ipRanges":[`+strings.Join(all, ",")+`]`+ranges)
	}
	var same []networks.Network
	for i := range 70 {
		same = append(same, describing(i, fmt.Sprintf(`"range":"10.0.5.0/24","gateway":"10.0.5.%d"`, 2*i+2)))
	}
	for _, tt := range []struct {
		name     string
		by       []networks.Network
		left     int
		excludes int // of 10.0.5.0/24
	}{
		{"the oldest, and two that name 70 gateways in its CIDR", []networks.Network{describing(0, `"range":"10.0.5.0/24"`), naming(50, 40, ""), naming(51, 40, "")}, 1, 64},
		{"70 that name a gateway each in one CIDR", same, 5, 64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := described{name: "lan", by: tt.by}
			p, err := decideImplicit(d)
			if err != nil || p.create == nil {
				t.Fatalf("got %q, %v; want a pool", p.in(), err)
			}
			left := 0
			for _, n := range p.notices {
				if n.reason == reasonFull {
					left++
				}
			}
			at := slices.IndexFunc(p.create.Spec.Ranges, func(r v1alpha1.Range) bool { return r.CIDR == "10.0.5.0/24" })
			if left != tt.left || at < 0 || len(p.create.Spec.Ranges[at].Exclude) != tt.excludes {
				t.Errorf("%d are left out, ranges %v; want %d, and 10.0.5.0/24 with %d exclusions", left, p.create.Spec.Ranges, tt.left, tt.excludes)
			}
			follow(t, d, p)
		})
	}
}

// TestDisagreementsOfAFullPool: people are told of the pool as it is, not as the definitions
// alone would make it; and who is left out, also if that is everybody.
func TestDisagreementsOfAFullPool(t *testing.T) {
	full := describing(9, others(`"range":"10.5.0.0/24"`, 63))
	plain, younger := describing(0, `"range":"10.0.0.0/24"`), describing(1, `"range":"10.0.0.0/24","gateway":"10.0.0.254"`)
	older := describing(0, `"range":"10.0.0.0/24","gateway":"10.0.0.1"`)
	gaps := func(third, n int) networks.Network { // in a part of a CIDR
		return describing(1, fmt.Sprintf(`"range":"10.0.0.0/16","range_start":"10.0.%d.1","range_end":"10.0.%[1]d.200","exclude":[%s]`, third, strings.ReplaceAll(dotted(2, n), "10.0.0.", fmt.Sprintf("10.0.%d.", third))))
	}
	for _, tt := range []struct {
		name     string
		was, now []networks.Network
		want     []string
	}{
		{"an older gateway comes", []networks.Network{plain, younger}, []networks.Network{older, younger, full},
			[]string{"ns/def-9: pool lan has no room", "ns/def-1: gateway 10.0.0.254 of 10.0.0.0/24, where pool lan has 10.0.0.1"}},
		{"everybody is left out", []networks.Network{gaps(0, 64)}, []networks.Network{gaps(1, 65)}, []string{"ns/def-1: pool lan has no room"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := described{name: "lan", by: tt.now, pool: made(t, tt.was...)}
			p, err := decideImplicit(d)
			if err != nil {
				t.Fatal(err)
			}
			d = follow(t, d, p)
			got := disagreements(d.pool, d.by)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q; want %q", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %q; want %q", got[i], want)
				}
			}
		})
	}
}

// FuzzUnion: whatever definitions come, go and are edited, in whatever order, a pool is one
// that the API takes; one decision settles it; it has all of whoever is not told otherwise;
// what it gave of a definition it gives, unless that is edited itself; and it gives no gateway
// to a pod where one more can be kept out.
func FuzzUnion(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var all []networks.Network
		var d described
		var was *allocator.Shape
		for range 12 {
			edited := meddle(r, &all)
			d.name, d.by = "lan", all
			p, err := decideImplicit(d)
			if err != nil {
				t.Fatal(err)
			}
			if d = follow(t, d, p); d.pool == nil {
				continue
			}
			shape, gateways := parsed(t, d.pool), gatewaysOf(all)
			for gw := range gateways {
				if in, _ := shape.Locate(gw); shape.Ordinary(gw) && len(in.Exclude) < maxExclude {
					t.Fatalf("the pool gives %v, which is a gateway", gw)
				}
			}
			now := newGrower("lan", d.pool, membersOf("lan", all))
			for _, n := range all {
				noticed := p.notices[n.String()].reason == reasonFull
				if again := *now; noticed && again.try(membersOf("lan", []networks.Network{n})[0]) {
					t.Fatalf("%v is left out, and there is room for it", n)
				}
				for _, x := range some(t, n) {
					if !gateways[x] && !shape.Ordinary(x) && (!noticed || was.Ordinary(x) && !edited[n.String()]) {
						t.Fatalf("%v describes %v, which the pool does not give; noticed: %v, given before: %v", n, x, noticed, was.Ordinary(x))
					}
				}
			}
			was = shape
		}
	})
}

func gatewaysOf(all []networks.Network) map[netip.Addr]bool {
	gateways := map[netip.Addr]bool{}
	for _, n := range all {
		for _, gw := range poolspec.MemberOf(n.String(), n.Sources, "lan").Gateways {
			gateways[gw] = true
		}
	}
	return gateways
}

// some returns a few addresses that a definition describes: at both ends of each range.
func some(t *testing.T, n networks.Network) (addrs []netip.Addr) {
	t.Helper()
	own, err := poolspec.ParsePool(n.ImplicitPools()["lan"])
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range own.Ranges() {
		first, last := r.Start, r.End
		if whole := netipx.RangeOfPrefix(r.Prefix); !first.IsValid() {
			first, last = whole.From(), whole.To()
		}
		for _, x := range []netip.Addr{first, first.Next(), first.Next().Next(), last.Prev(), last} {
			if own.Ordinary(x) {
				addrs = append(addrs, x)
			}
		}
	}
	return addrs
}

// meddle adds, removes and edits definitions, some of many ranges or many gaps, and returns
// which it has touched.
func meddle(r *rand.Rand, all *[]networks.Network) map[string]bool {
	touched := map[string]bool{}
	text := func() string {
		switch r.IntN(6) {
		case 0:
			from, n := 1+r.IntN(60), 1+r.IntN(50)
			return fmt.Sprintf(`"range":"10.0.0.0/24","range_start":"10.0.0.%d","range_end":"10.0.0.%d","exclude":[%s]`, from, from+2*n+2, dotted(from+1, n))
		case 1:
			return fmt.Sprintf(`"range":"10.%d.0.0/16","range_start":"10.%[1]d.%d.1"`, r.IntN(2), r.IntN(200))
		case 2:
			return others(fmt.Sprintf(`"range":"10.0.%d.0/24","gateway":"10.0.%[1]d.254"`, r.IntN(4)), r.IntN(64))
		default:
			return fmt.Sprintf(`"range":"10.%d.%d.0/24","gateway":"10.%[1]d.%[2]d.%d"`, r.IntN(3), r.IntN(70), 1+r.IntN(3))
		}
	}
	for range 1 + r.IntN(20) {
		i := r.IntN(40)
		n := describing(i, text())
		at, found := slices.BinarySearchFunc(*all, n, func(a, b networks.Network) int { return a.Created.Compare(b.Created) })
		touched[n.String()] = true
		switch {
		case !found:
			*all = slices.Insert(*all, at, n)
		case r.IntN(3) == 0 && len(*all) > 1:
			*all = slices.Delete(*all, at, at+1)
		default:
			(*all)[at] = n
		}
	}
	return touched
}
