package nodes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

const (
	burstAgents    = 50
	burstAddresses = 1000

	// burstAim is what a burst may take on a machine that does nothing else, as a multiple
	// of what the raw creates alone take. The test reports how long it took, and does not
	// fail by it: the machine may be slow, or busy.
	burstAim = 6.0
)

// A thousand ADDs at once from fifty agents, into a pool of exactly a thousand
// addresses: none twice, none missing. How long it takes is measured in what the API
// server takes to create the leases and sub-leases alone.
func TestThousandAddressesFiftyAgents(t *testing.T) {
	proof.Only(t)
	uneven := slices.Repeat([]int{14}, burstAgents)
	uneven[0] = 300
	for i := range 14 {
		uneven[1+i]++
	}
	for _, tt := range []struct {
		name   string
		demand []int // of each agent
	}{
		{"even", slices.Repeat([]int{burstAddresses / burstAgents}, burstAgents)},
		{"uneven", uneven},
	} {
		t.Run(tt.name, func(t *testing.T) {
			burst(t, "many-"+tt.name, tt.demand)
		})
	}
}

// burst has every agent ask for all its addresses at once, and reports how many times
// longer that took than the raw creates of the objects that were made, and how many times
// as long on the cores: that depends less on what else they do.
func burst(t *testing.T, name string, demand []int) {
	t.Helper()
	w := newNetwork(t, name, 0, v1alpha1.Range{CIDR: "10.40.0.0/22", Start: "10.40.0.1", End: "10.40.3.232"})
	w.fleet.Change = func(c *daemon.Config) {
		quick(c)
		c.Agent.Wait = 5 * time.Second
		c.Agent.PublishEvery = 30 * time.Second
	}
	w.fleet.Between = fleet.Apart
	w.start(len(demand))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var asks []*pod // guarded by mu while they are made
	for j, n := range w.nodes {
		wg.Go(func() {
			for k := range demand[j] {
				p := w.run(n, fmt.Sprintf("%s-%d", n.Name, k))
				mu.Lock()
				asks = append(asks, p)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	raws := rawRounds(t, name+"-before")
	waits := make([]time.Duration, len(asks))
	before := fleet.Spent(t, cp)
	began := time.Now()
	for j, p := range asks {
		wg.Go(func() {
			if err := p.attach(); err != nil {
				t.Error(err)
			}
			waits[j] = time.Since(began)
		})
	}
	wg.Wait()
	elapsed := slices.Max(waits)
	c := fleet.Spent(t, cp).Minus(before)
	created := func(resource string) float64 {
		return c.Requests[controlplane.Request{Verb: "POST", Resource: resource, Code: "201"}]
	}
	leases, subs := created("ipleases"), created("ipsubleases")
	slices.Sort(waits)
	part := func(percent int) time.Duration { return waits[(len(waits)-1)*percent/100].Round(time.Millisecond) }

	if len(asks) != burstAddresses {
		t.Fatalf("%d ADDs are no burst of %d", len(asks), burstAddresses)
	}
	if got := w.fleet.Observer.Held(); got != burstAddresses {
		t.Errorf("%d addresses are held; want %d, none twice and none missing", got, burstAddresses)
	}
	raws = append(raws, rawRounds(t, name+"-after")...)
	rate, each := median(raws, func(r rawRound) float64 { return r.rate }), time.Duration(median(raws, func(r rawRound) float64 { return float64(r.onCores) }))
	raw := (leases + subs) / rate
	took, onCores := elapsed.Seconds()/raw, c.OnCores().Seconds()/((leases+subs)*each.Seconds())
	t.Logf("%d ADDs from %d agents in %v (half of them in %v, 99 %% in %v); %.0f leases and %.0f sub-leases were created.\n"+
		"At the %.0f creates/s of this API server before and after (%v), and %v on the cores for each, the creates alone take %.2f s: the time is %.2f times that, the time on the cores %.2f (aim: %.1f).\n%v\nload average %s",
		burstAddresses, len(w.nodes), elapsed.Round(time.Millisecond), part(50), part(99), leases, subs,
		rate, raws, each.Round(10*time.Microsecond), raw, took, onCores, burstAim, c, fleet.LoadAverage(t))
	for _, p := range asks {
		wg.Go(func() {
			if err := p.node.Del(p.Interface); err != nil {
				t.Errorf("DEL of %s on %s: %v", p.Sandbox, p.node.Name, err)
			}
		})
	}
	wg.Wait()
	if err := kc.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
	w.nothingLeft(time.Minute)
	for _, n := range w.nodes {
		n.Stop()
	}
}

// rawRound is what creates of leases alone take: how many a second there were, and how
// long each took on the cores.
type rawRound struct {
	rate    float64
	onCores time.Duration
}

// String returns the rate.
func (r rawRound) String() string { return fmt.Sprintf("%.0f", r.rate) }

// rawRounds measures several times what raw creates take: a single round is so short that
// what else the machine does halves it, or does not. So the burst is measured between
// rounds, and compared with the median of all.
func rawRounds(t *testing.T, pool string) []rawRound {
	t.Helper()
	var rounds []rawRound
	for i := range 3 {
		rounds = append(rounds, rawCreates(t, fmt.Sprintf("%s-%d", pool, i)))
	}
	return rounds
}

// median returns the median of what of has for each of rounds.
func median(rounds []rawRound, of func(rawRound) float64) float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// rawCreates has sixteen writers at once create leases, which it deletes then.
func rawCreates(t *testing.T, pool string) (r rawRound) {
	t.Helper()
	const writers, each = 16, 25
	var wg sync.WaitGroup
	before, began := fleet.Spent(t, cp), time.Now()
	for writer := range writers {
		wg.Go(func() {
			for j := range each {
				block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 250, byte(writer), byte(j)}), 32)
				_, out, err := api.CreateLease(t.Context(), protocol.Lease{
					Meta: protocol.Meta{Name: protocol.LeaseName(protocol.PoolName(pool), block)}, Protocol: protocol.Version,
					Pool: protocol.PoolName(pool), PoolUID: "raw", Block: block, Holder: protocol.Holder{Node: "raw"}, Store: "raw", Term: 1, Writes: 1,
				})
				if out != protocol.Done {
					t.Errorf("create: %v %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	r.rate = writers * each / time.Since(began).Seconds()
	r.onCores = fleet.Spent(t, cp).Minus(before).OnCores() / (writers * each)
	must(t, kc.DeleteAllOf(t.Context(), &v1alpha1.IPLease{}, client.MatchingFields{"spec.pool": pool}))
	return r
}
