package scale_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// What a node does, whatever the number of nodes.
const (
	addressesOfNode = 30
	claimsOfNode    = 10
	lastOfNode      = 4 // addresses that the pool that is filled has for each node, on average
)

// growth is how many times as many calls or bytes a node may cost in the largest
// cluster as in the smallest. The aim is within a tenth; what makes the test fail leaves
// room for the chance of small numbers: a call, and its bytes. In some seconds in which nothing
// happens a node may have heard nothing at all.
const (
	growth  = 2.0
	ofACall = 2 << 10
)

// figure is what one node has cost in one phase.
type figure struct{ calls, bytes float64 }

func TestScale(t *testing.T) {
	sizes, idle, err := fromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	figures := map[int]map[string]figure{}
	for _, n := range sizes {
		t.Run(strconv.Itoa(n), func(t *testing.T) { figures[n] = run(t, n, idle) })
	}
	if t.Failed() || len(sizes) < 2 {
		return
	}
	least, most := figures[slices.Min(sizes)], figures[slices.Max(sizes)]
	for _, phase := range []string{phaseIdle, phaseBurst} {
		s, l := least[phase], most[phase]
		figures := fmt.Sprintf("%s: of %d nodes each makes %.1f calls and takes %.0f bytes, of %d each %.1f and %.0f", phase, slices.Max(sizes), l.calls, l.bytes, slices.Min(sizes), s.calls, s.bytes)
		t.Log(figures)
		if l.calls > growth*s.calls+1 || l.bytes > growth*s.bytes+ofACall {
			t.Errorf("%s; want no more than %.1f times as many", figures, growth)
		}
	}
}

func fromEnvironment() (sizes []int, idle time.Duration, err error) {
	for text := range strings.SplitSeq(cmp.Or(os.Getenv("TENURE_SCALE_NODES"), "8,16"), ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, 0, fmt.Errorf("TENURE_SCALE_NODES has %q, must be positive numbers with commas between them", text)
		}
		sizes = append(sizes, n)
	}
	text := cmp.Or(os.Getenv("TENURE_SCALE_IDLE"), "5s")
	if idle, err = time.ParseDuration(text); err != nil || idle <= 0 {
		return nil, 0, fmt.Errorf("TENURE_SCALE_IDLE is %q, must be a positive duration such as 60s", text)
	}
	return sizes, idle, nil
}

// The phases whose figures are compared.
const (
	phaseIdle  = "nothing happens"
	phaseBurst = "a burst of ADDs"
)

// run takes a cluster of so many nodes through its phases, and returns what each has
// cost a node.
func run(t *testing.T, n int, idle time.Duration) map[string]figure {
	c := newNodes(t, n)
	figures := map[string]figure{}
	phase := func(name string, do func() (what string)) { figures[name] = c.spend(name, do) }

	wide, last := c.name+"-wide", c.name+"-last"
	c.network(wide, v1alpha1.Range{CIDR: "10.64.0.0/10"})
	phase("all agents start", func() string { c.launch(); return fmt.Sprintf("%d nodes", n) })
	phase(phaseIdle, func() string {
		time.Sleep(idle) // it is measured what happens meanwhile
		return fmt.Sprintf("%d nodes", n)
	})
	burst := c.sandboxes(wide)
	phase(phaseBurst, func() string { return c.burst(burst, idle) })
	phase("claims", func() string {
		took := c.claims(wide, claimsOfNode*n)
		return fmt.Sprintf("%d claims, %.0f a second,", claimsOfNode*n, float64(claimsOfNode*n)/took.Seconds())
	})
	phase("all agents restart", func() string { c.launch(); return fmt.Sprintf("%d nodes with %d attachments each", n, addressesOfNode) })

	t.Log(sizes(t, wide))

	c.network(last, v1alpha1.Range{CIDR: "10.40.0.0/16", Start: "10.40.0.1", End: lastAddress(lastOfNode * n)})
	all := c.pods(last, spread(n))
	phase("a pool is filled to the last address", func() string { c.each(all, attach); return fmt.Sprintf("%d addresses", len(all)) })
	more := c.pods(last, slices.Repeat([]int{1}, n))
	phase("every node wants one more", func() string {
		c.each(more, exhausted(last, len(all)))
		return fmt.Sprintf("%d refusals", len(more))
	})
	phase("everything ends", func() string {
		c.each(slices.Concat(burst, all, more), detach)
		c.parallel(claimsOfNode*n, func(i int) error { return kc.Delete(t.Context(), c.claim(wide, i)) })
		c.nothingLeft()
		return fmt.Sprintf("%d DELs, and every lease given back,", len(burst)+len(all)+len(more))
	})
	if held := c.fleet.Observer.Held(); held > 0 {
		t.Errorf("the observer counts %d addresses after every DEL", held)
	}
	c.gone()
	return figures
}

// spend takes the nodes through a phase, reports what that has cost, and returns what it has cost
// a node.
func (c *nodes) spend(name string, do func() (what string)) figure {
	t, n := c.t, float64(len(c.all))
	cost, asked, answered := fleet.Spent(t, cp), ofAgents.now(), ofController.now()
	began := time.Now()
	what := do()
	took := time.Since(began)
	byAgents, byController, cores := ofAgents.now().minus(asked), ofController.now().minus(answered), fleet.Spent(t, cp).Minus(cost)
	f := figure{float64(byAgents.total()) / n, float64(byAgents.in) / n}
	t.Logf("%s: %s in %v\n  a node: %.2f calls, %.0f bytes in\n  agents: calls %v\n  controller: %d bytes in; calls %v\n  on the cores: %v; memory of all agents and the controller %d MB",
		name, what, took.Round(time.Millisecond), f.calls, f.bytes, byAgents, byController.in, byController, cores.OnCores().Round(10*time.Millisecond), residentMB(t))
	return f
}

// sandboxes returns interfaces on a network for a burst, as many for each node.
func (c *nodes) sandboxes(network string) (all []place) {
	for range addressesOfNode {
		for _, node := range c.all {
			i, err := c.sandbox(network)
			if err != nil {
				c.t.Fatal(err)
			}
			all = append(all, place{node, i})
		}
	}
	return all
}

// burst attaches all at once. The statuses of the leases follow that, and a large cluster's takes
// longer: the same stretch of time is measured in each.
func (c *nodes) burst(all []place, idle time.Duration) (what string) {
	began := time.Now()
	c.each(all, attach)
	took := time.Since(began)
	time.Sleep(time.Until(began.Add(2 * idle)))
	return fmt.Sprintf("%d addresses in %v, and what follows,", len(all), took.Round(time.Millisecond))
}

// lastAddress returns the n-th address of 10.40.0.0/16, counted from its first host.
func lastAddress(n int) string { return fmt.Sprintf("10.40.%d.%d", n>>8, n&255) }

// spread distributes addresses over n nodes by chance, as pods are.
func spread(n int) []int {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	of := make([]int, n)
	for range lastOfNode * n {
		of[rng.IntN(n)]++
	}
	return of
}

// exhausted wants an ADD to be told that a pool of so many addresses has none left. It
// is heard of when the controller has told it.
func exhausted(pool string, addresses int) func(place) error {
	want := fmt.Sprintf("pool %s is exhausted: %d of %d in use", pool, addresses, addresses)
	return func(p place) error {
		for deadline := time.Now().Add(patience); ; {
			_, err := p.n.Add(p.i)
			switch {
			case later(err) && strings.Contains(err.Error(), want):
				return nil
			case !later(err) || time.Now().After(deadline):
				return fmt.Errorf("%w; want code %d with %q", err, agentapi.CodeTryAgainLater, want)
			}
		}
	}
}

// residentMB is the memory of this process.
func residentMB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}
