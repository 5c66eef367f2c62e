package advertise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// n is a node where pods may be scheduled, which publishes shown; less than 0 is nothing.
func n(name string, asked, shown int64) node {
	return node{name: name, serves: true, asked: asked, shown: max(shown, 0), has: shown >= 0}
}

// with returns o, changed.
func (o node) with(change func(*node)) node {
	change(&o)
	return o
}

func off(o *node)  { o.serves = false }
func busy(o *node) { o.busy = true }

// text writes changes as "node=number", in the order of names.
func text(changes []change) string {
	var all []string
	for _, c := range changes {
		if c.gone {
			all = append(all, c.node+"=gone")
			continue
		}
		all = append(all, fmt.Sprintf("%s=%d", c.node, c.number))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name      string
		free      int64
		nodes     []node
		unsettled bool
		want      string
		waits     bool
	}{
		{"no nodes", 14, nil, false, "", false},
		{"shares sum to what is free", 14, []node{n("a", 0, -1), n("b", 0, -1)}, false, "a=7 b=7", false},
		{"and so with a remainder", 14, []node{n("a", 0, -1), n("b", 0, -1), n("c", 0, -1)}, false, "a=5 b=5 c=4", false},
		{"fewer addresses than nodes", 1, []node{n("a", 0, -1), n("b", 0, -1)}, false, "a=1 b=0", false},
		{"what pods there have asked for is theirs", 4, []node{n("a", 6, -1), n("b", 4, -1)}, false, "a=8 b=6", false},
		{"nothing is left", 0, []node{n("a", 7, 7), n("b", 7, 7)}, false, "", false},
		{"more pods than addresses", -3, []node{n("a", 9, 7), n("b", 8, 8)}, false, "a=9", false},
		{"a pod has come where it was offered", 13, []node{n("a", 1, 7), n("b", 0, 7)}, false, "", false},
		{"the remainder stays where it is", 13, []node{n("a", 0, 6), n("b", 0, 7)}, false, "", false},
		{"within a tenth", 190, []node{n("a", 0, 100), n("b", 0, 100)}, false, "", false},
		{"by more than a tenth", 178, []node{n("a", 0, 100), n("b", 0, 100)}, false, "a=89 b=89", false},
		{"to zero", 0, []node{n("a", 100, 103), n("b", 0, 0)}, false, "a=100", false},
		{"from zero, with room", 15, []node{n("a", 3, 3), n("b", 0, 7)}, false, "a=10 b=8", false},
		{"from zero, without: first the other offers less", 14, []node{n("a", 3, 3), n("b", 0, 14)}, false, "b=7", false},
		{"then this one more", 14, []node{n("a", 3, 3), n("b", 0, 7)}, false, "a=10", false},
		{"but not before the scheduler has seen it", 14, []node{n("a", 3, 3), n("b", 0, 7)}, true, "", false},
		{"less, where pods come", 7, []node{n("a", 5, 7), n("b", 2, 7).with(busy)}, false, "", true},
		{"others have taken addresses", 2, []node{n("a", 0, 7), n("b", 0, 7)}, false, "a=1 b=1", false},
		{"the kubelet has zeroed it", 4, []node{n("a", 5, 0), n("b", 5, 9)}, false, "a=5 b=7", false},
		{"the kubelet has dropped it", 0, []node{n("a", 7, -1), n("b", 7, 7)}, false, "a=7", false},
		{"pods keep what they have, whoever must see it first", 0, []node{n("a", 7, 0), n("b", 7, 7)}, true, "a=7", false},
		{"a node that is off has what its pods have", 8, []node{n("a", 3, 7).with(off), n("b", 0, 4)}, false, "a=3 b=8", false},
		{"and without pods nothing", 8, []node{n("a", 0, 4).with(off), n("b", 0, 4), n("c", 0, -1).with(off)}, false, "a=gone b=8", false},
		{"no node runs so many pods", math.MaxInt64, []node{n("a", 3, -1), n("b", 0, 10000)}, false, "a=10003", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan(tt.free, tt.nodes, !tt.unsettled)
			if got := text(p.changes); got != tt.want || p.waits != tt.waits {
				t.Errorf("got %q, waits %v; want %q, %v", got, p.waits, tt.want, tt.waits)
			}
		})
	}
}

// TestPlanFromZero: a node that offers nothing gets its share also where all others are within a
// tenth of theirs, and alone would keep it.
func TestPlanFromZero(t *testing.T) {
	nodes := []node{n("a", 50, 50)}
	for i := range 11 {
		nodes = append(nodes, n(fmt.Sprintf("n%02d", i), 0, 100))
	}
	if p := plan(1100, slices.Clone(nodes[1:]), true); len(p.changes) > 0 {
		t.Errorf("without it the others change: %s", text(p.changes))
	}
	p := plan(1100, nodes, true)
	if got := text(p.changes); strings.Count(got, "=91")+strings.Count(got, "=92") != 11 || strings.Contains(got, "a=") || !p.lowers {
		t.Errorf("got %q; want the others to offer less first", got)
	}
}

// TestPlanSettles: whatever nodes publish, a few plans after each other end with shares that sum to
// what is free, each within one of the others or a tenth; and at no time more is offered than is
// free, where no more was to begin with.
func TestPlanSettles(t *testing.T) {
	for seed := range int64(2000) {
		free := seed * 7919 % 61
		nodes := make([]node, 1+seed%5)
		left := free
		for i := range nodes {
			asked := seed * int64(i+3) % 11
			offered := min(seed*int64(i+7)%23, left)
			left -= offered
			nodes[i] = n(fmt.Sprint("n", i), asked, asked+offered)
		}
		begun := fmt.Sprintf("%d free, %+v", free, nodes)
		for look := 0; ; look++ {
			p := plan(free, nodes, true)
			if len(p.changes) == 0 {
				break
			}
			if look > 10 {
				t.Fatalf("%s: %+v still changes %s", begun, nodes, text(p.changes))
			}
			for _, c := range p.changes {
				i := slices.IndexFunc(nodes, func(o node) bool { return o.name == c.node })
				nodes[i].shown, nodes[i].has = c.number, true
			}
			if sum := offeredBy(nodes); sum > free {
				t.Fatalf("%s: %d are offered by %+v", begun, sum, nodes)
			}
		}
		low, high := int64(math.MaxInt64), int64(0)
		for _, o := range nodes {
			low, high = min(low, o.offered()), max(high, o.offered())
		}
		if sum := offeredBy(nodes); sum < free-free/10 || high-low > 1+high/5 {
			t.Fatalf("%s: in the end %d are offered, by each from %d to %d", begun, sum, low, high)
		}
	}
}

func offeredBy(nodes []node) (sum int64) {
	for _, o := range nodes {
		sum += o.offered()
	}
	return sum
}
