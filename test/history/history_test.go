package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

var (
	podA, podB = Place{"a", "net1 of pod-a"}, Place{"b", "net1 of pod-b"}
	x          = []string{"10.0.0.1 of lan"}
	y          = []string{"10.0.0.2 of lan"}
)

func pod(p Place) Owner { return Owner{Name: p.Interface} }

func got(from, to Moment, p Place, o Owner, addrs []string) take {
	return take{event{from, to}, p, o, addrs}
}

func left(from, to Moment, p Place) release { return release{event{from, to}, p} }

func TestFaults(t *testing.T) {
	db := Owner{Name: "db", Claim: true}
	tests := []struct {
		name     string
		takes    []take
		releases []release
		renewed  Moment // when the claim db was undone; 0: never
		want     string // empty: it can have been so
	}{
		{"one after the other", []take{got(1, 2, podA, pod(podA), x), got(5, 6, podB, pod(podB), x)}, []release{left(3, 4, podA)}, 0, ""},
		{"two at one time", []take{got(1, 2, podA, pod(podA), x), got(3, 4, podB, pod(podB), x)}, []release{left(5, 6, podA)}, 0, "10.0.0.1 of lan"},
		{"an ADD and a DEL overlap", []take{got(1, 2, podA, pod(podA), x), got(3, 5, podB, pod(podB), x)}, []release{left(4, 6, podA)}, 0, ""},
		{"a DEL between two ADDs of one moment", []take{got(1, 9, podA, pod(podA), x), got(2, 8, podB, pod(podB), x)}, []release{left(3, 4, podA)}, 0, ""},
		{"one DEL, two new owners", []take{
			got(1, 2, podA, pod(podA), x), got(4, 5, podB, pod(podB), x), got(6, 7, Place{"c", "net1"}, Owner{Name: "c"}, x),
		}, []release{left(3, 9, podA)}, 0, "10.0.0.1 of lan"},
		{"a DEL without an answer is done late", []take{got(1, 2, podA, pod(podA), x), got(50, 60, podB, pod(podB), x)}, []release{left(3, never, podA)}, 0, ""},
		{"a DEL without an answer is not done before it begins", []take{got(1, 2, podA, pod(podA), x), got(3, 4, podB, pod(podB), x)}, []release{left(5, never, podA)}, 0, "10.0.0.1"},
		{"a node is off", []take{got(1, 2, podA, pod(podA), x), got(4, 5, podB, pod(podB), x)}, []release{left(3, 3, Place{Node: "a"})}, 0, ""},
		{"another node is off", []take{got(1, 2, podA, pod(podA), x), got(4, 5, podB, pod(podB), x)}, []release{left(3, 3, Place{Node: "b"})}, 0, "10.0.0.1"},
		{"two pods of one claim", []take{got(1, 1, OfClaim("db"), db, x), got(2, 3, podA, db, x), got(2, 3, podB, db, x)}, nil, 0, ""},
		{"a claim without a pod keeps its address", []take{got(1, 1, OfClaim("db"), db, x), got(2, 3, podA, pod(podA), x)}, nil, 0, "10.0.0.1"},
		{"a claim gets another address", []take{got(1, 1, OfClaim("db"), db, x), got(2, 3, podA, db, y)}, nil, 0, "claim db"},
		{"a freed claim leaves its address to its pod", []take{
			got(1, 1, OfClaim("db"), db, x), got(2, 3, podA, db, x), got(6, 7, podB, pod(podB), x),
		}, []release{left(4, never, OfClaim("db"))}, 0, "10.0.0.1"},
		{"a freed claim and its pod leave the address", []take{
			got(1, 1, OfClaim("db"), db, x), got(2, 3, podA, db, x), got(6, 7, podB, pod(podB), x),
		}, []release{left(4, never, OfClaim("db")), left(5, 5, podA)}, 0, ""},
		{"a claim whose grant was undone gets another address", []take{got(1, 1, OfClaim("db"), db, x), got(8, 9, OfClaim("db"), db, y)}, []release{left(5, 5, OfClaim("db"))}, 5, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := New()
			h.takes, h.releases = tt.takes, tt.releases
			if tt.renewed != 0 {
				h.renewed["db"] = []event{{tt.renewed, tt.renewed}}
			}
			said := strings.Join(h.Faults(), "\n")
			if (tt.want == "") != (said == "") || !strings.Contains(said, tt.want) {
				t.Errorf("faults %q; want %q in them", said, tt.want)
			}
		})
	}
}

// TestRepeatedDELs: those without an answer and the one that has it are one call, unless the place
// has got something between them.
func TestRepeatedDELs(t *testing.T) {
	h := New()
	h.Got(h.Now(), podA, pod(podA), x)
	began := h.Now()
	h.Left(began, podA, false)
	h.Left(h.Now(), podA, true)
	if len(h.releases) != 1 || h.releases[0].from != began || h.releases[0].to == never {
		t.Errorf("releases %v; want one from %v", h.releases, began)
	}
	h.Left(h.Now(), podA, false)
	h.Got(h.Now(), podA, pod(podA), x)
	h.Left(h.Now(), podA, true)
	if len(h.releases) != 3 || h.releases[1].to != never {
		t.Errorf("releases %v; want three, the second without an end", h.releases)
	}
	if faults := h.Faults(); len(faults) > 0 {
		t.Errorf("faults: %v", faults)
	}
}

// TestSpoiled plays many owners of few addresses, whose calls overlap as they like. What they see
// can have been so. Then one more owner is given an address that somebody has: it is found.
func TestSpoiled(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		h := played(rng)
		if faults := h.Faults(); len(faults) > 0 {
			t.Fatalf("seed %d: a history that was played has faults: %v", seed, faults)
		}
		what, spoiled := spoil(rng, h)
		if !spoiled {
			continue // nobody has an address for long enough
		}
		found++
		said := strings.Join(h.Faults(), "\n")
		if !strings.Contains(said, what) || !strings.Contains(said, "stranger") {
			t.Fatalf("seed %d: a stranger has %s; the faults are %q", seed, what, said)
		}
	}
	if found < 100 {
		t.Errorf("%d histories could be spoiled, want most of 200", found)
	}
}

// played returns what owners saw of one allocator, whose steps are its order. Each call began
// before its step and ended after it.
func played(rng *rand.Rand) *History {
	const addresses, owners, steps = 4, 8, 120
	h := New()
	has := map[int]int{} // the address of an owner
	for i := range steps {
		at := Moment(100 * (i + 1))
		e := event{at - Moment(rng.IntN(150)), at + Moment(rng.IntN(150))}
		who := rng.IntN(owners)
		p := Place{"node", fmt.Sprintf("pod-%d", who)}
		if _, ok := has[who]; ok {
			if rng.IntN(10) == 0 {
				e.to = never
			}
			h.releases = append(h.releases, release{e, p})
			delete(has, who)
			continue
		}
		a := rng.IntN(addresses)
		taken := false
		for _, b := range has {
			taken = taken || a == b
		}
		if !taken {
			has[who] = a
			h.takes = append(h.takes, take{e, p, pod(p), []string{fmt.Sprint("address-", a)}})
		}
	}
	return h
}

// spoil gives an address to a stranger while somebody certainly has it: after the ADD has ended,
// and before the owner's next DEL begins.
func spoil(rng *rand.Rand, h *History) (what string, ok bool) {
	for _, i := range rng.Perm(len(h.takes)) {
		t := h.takes[i]
		next := never
		for _, r := range h.releases {
			// A DEL that may be done after the ADD's beginning may be the one.
			if r.place == t.place && r.to >= t.from {
				next = min(next, r.from)
			}
		}
		if next != never && next > t.to+2 {
			p := Place{"node", "stranger"}
			h.takes = append(h.takes, take{event{t.to + 1, next - 1}, p, pod(p), t.addrs})
			return t.addrs[0], true
		}
	}
	return "", false
}

// TestFirstFault: a long history is told from its end to where it went wrong, and no further.
func TestFirstFault(t *testing.T) {
	h := New()
	for i := range Moment(50) {
		h.takes = append(h.takes, got(10*i, 10*i+1, podA, pod(podA), x))
		h.releases = append(h.releases, left(10*i+5, 10*i+6, podA))
	}
	h.takes = append(h.takes, got(202, 203, podB, pod(podB), x))
	faults := h.Faults()
	if len(faults) != 1 || !strings.Contains(faults[0], "203ns") || strings.Contains(faults[0], "211ns") {
		t.Errorf("faults %q; want one that ends at 203ns", faults)
	}
}

// TestManyEvents: an address that thousands have had, while many DELs were under way, is judged.
func TestManyEvents(t *testing.T) {
	h := New()
	for i := range Moment(3000) {
		p := Place{"n", fmt.Sprint(i)}
		h.takes = append(h.takes, got(10*i-8, 10*i+1, p, pod(p), x))
		to := 10*i + 70
		if i%50 == 0 {
			to = never
		}
		h.releases = append(h.releases, left(10*i+2, to, p))
	}
	if faults := h.Faults(); len(faults) > 0 {
		t.Errorf("faults: %v", faults)
	}
}
