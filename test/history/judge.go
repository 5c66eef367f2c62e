package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// limit is how long porcupine may think about one address or claim: milliseconds are usual.
const limit = 2 * time.Minute

// input is what happens to one address, or to one claim. Of a claim, the owner is its addresses.
type input struct {
	take  bool
	place Place
	owner string
}

// state is who has an address, and the places where, one on each line. It is comparable.
type state struct{ owner, places string }

// model is that an address, or a claim, has at most one owner.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) { return step(s.(state), in.(input)) },
}

// step returns what becomes of s, and whether that may happen.
func step(s state, in input) (bool, state) {
	if in.take {
		if s.owner != "" && s.owner != in.owner {
			return false, s
		}
		return true, stateOf(in.owner, append(s.list(), line(in.place)))
	}
	return true, stateOf(s.owner, slices.DeleteFunc(s.list(), func(there string) bool { return within(there, in.place) }))
}

func (s state) list() []string { return strings.Split(s.places, "\n") }

// stateOf returns the state with these places, of which some may be empty or there twice.
func stateOf(owner string, places []string) state {
	slices.Sort(places)
	places = slices.DeleteFunc(slices.Compact(places), func(p string) bool { return p == "" })
	if len(places) == 0 {
		return state{}
	}
	return state{owner, strings.Join(places, "\n")}
}

// line is a place as states have it.
func line(p Place) string { return p.Node + " " + p.Interface }

// within reports whether a place of a state is p, or on the node p.
func within(there string, p Place) bool {
	return there == line(p) || p.Interface == "" && strings.HasPrefix(there, p.Node+" ")
}

// operation is input as porcupine takes it.
func operation(e event, in input) porcupine.Operation {
	return porcupine.Operation{Input: in, Call: int64(e.from), Return: int64(e.to)}
}

// Faults returns what cannot have been so, one text for each address or claim.
func (h *History) Faults() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := h.parts()
	var said []string
	for _, what := range slices.Sorted(maps.Keys(parts)) {
		switch ops := parts[what]; porcupine.CheckOperationsTimeout(model, ops, limit) {
		case porcupine.Ok:
		case porcupine.Unknown:
			said = append(said, fmt.Sprintf("%s: its %d events could not be judged within %v", what, len(ops), limit))
		case porcupine.Illegal:
			said = append(said, fmt.Sprintf("%s has two owners at one time, in whatever order its events are:\n%s", what, describe(firstFault(ops))))
		}
	}
	return said
}

// Events returns how many events a history has.
func (h *History) Events() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.takes) + len(h.releases) + len(h.open)
}

// parts parts a history by addresses and claims: they do not depend on each other. h.mu must be
// held.
func (h *History) parts() map[string][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	at := map[Place]map[string]bool{} // the addresses that a place has had
	of := map[string]map[string]bool{}
	for _, t := range h.takes {
		if at[t.place] == nil {
			at[t.place] = map[string]bool{}
		}
		if of[t.place.Node] == nil {
			of[t.place.Node] = map[string]bool{}
		}
		for _, a := range t.addrs {
			what := "address " + a
			parts[what] = append(parts[what], operation(t.event, input{take: true, place: t.place, owner: t.owner.Name}))
			at[t.place][what], of[t.place.Node][what] = true, true
		}
		if t.owner.Claim {
			what := "claim " + t.owner.Name
			parts[what] = append(parts[what], operation(t.event, input{take: true, place: OfClaim(t.owner.Name), owner: strings.Join(t.addrs, " ")}))
		}
	}
	releases := slices.Clone(h.releases)
	for p, first := range h.open {
		releases = append(releases, release{event{first, never}, p})
	}
	for _, r := range releases {
		had := at[r.place]
		if r.place.Interface == "" {
			had = of[r.place.Node]
		}
		for what := range had {
			parts[what] = append(parts[what], operation(r.event, input{place: r.place}))
		}
	}
	for claim, events := range h.renewed {
		what := "claim " + claim
		for _, e := range events {
			if parts[what] != nil {
				parts[what] = append(parts[what], operation(e, input{place: OfClaim(claim)}))
			}
		}
	}
	return parts
}

// firstFault returns the shortest beginning of a history that cannot be.
func firstFault(ops []porcupine.Operation) []porcupine.Operation {
	var ends []int64
	for _, o := range ops {
		if o.Input.(input).take {
			ends = append(ends, o.Return)
		}
	}
	slices.Sort(ends)
	// Whatever begins with what cannot be cannot be either.
	n, _ := slices.BinarySearchFunc(ends, porcupine.Illegal, func(end int64, illegal porcupine.CheckResult) int {
		if porcupine.CheckOperationsTimeout(model, until(ops, end), limit) == illegal {
			return 0
		}
		return -1
	})
	return until(ops, ends[min(n, len(ends)-1)])
}

// until returns what had begun at a moment. What takes counts when it has ended.
func until(ops []porcupine.Operation, moment int64) []porcupine.Operation {
	return slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool {
		return o.Call > moment || o.Input.(input).take && o.Return > moment
	})
}

// describe lists the last operations of a history.
func describe(ops []porcupine.Operation) string {
	const most = 20
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(min(max(a.Call-b.Call, -1), 1)) })
	var b strings.Builder
	for _, o := range ops[max(0, len(ops)-most):] {
		in := o.Input.(input)
		end := "never"
		if o.Return != int64(never) {
			end = time.Duration(o.Return).String()
		}
		verb := "leaves it"
		if in.take {
			verb = "has it, for " + in.owner
		}
		fmt.Fprintf(&b, "  %v to %s: %s %s\n", time.Duration(o.Call), end, strings.TrimSpace(line(in.place)), verb)
	}
	return b.String()
}
