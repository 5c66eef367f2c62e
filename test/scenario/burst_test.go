package scenario_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	burstAgents    = 50
	burstAddresses = 1000

	// The time of a burst, as a multiple of that of the raw creates: what is aimed at
	// on a machine that does nothing else, and what fails the test on one that
	// compiles and tests beside it.
	burstAim, burstMost = 3.0, 20.0
)

// A thousand ADDs at once from fifty agents, into a pool of exactly a thousand
// addresses: none twice, none missing. How long it takes is measured in what the API
// server would take to create the leases and sub-leases alone.
func TestX18ThousandAddressesFiftyAgents(t *testing.T) {
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
			// The machine is shared with whatever else is tested: one bad try says
			// nothing, the median of three does.
			var ratios []float64
			for try := range 3 {
				r := burst(t, fmt.Sprintf("x18-%s-%d", tt.name, try), tt.demand)
				ratios = append(ratios, r)
				if try == 0 && r <= burstMost || t.Failed() {
					return
				}
			}
			slices.Sort(ratios)
			if ratios[1] > burstMost {
				t.Errorf("ratios %.2f; want the median to be %.1f or less", ratios, burstMost)
			}
		})
	}
}

// burst has every agent ask for all its addresses at once, and returns how many
// times longer that took than the raw creates of the objects that were made.
func burst(t *testing.T, name string, demand []int) float64 {
	t.Helper()
	w := newNetwork(t, name, 0, v1alpha1.Range{CIDR: "10.40.0.0/22", Start: "10.40.0.1", End: "10.40.3.232"})
	w.fleet.Change = func(c *daemon.Config) {
		quick(c)
		c.Agent.Wait = 5 * time.Second
		c.Agent.PublishEvery = 30 * time.Second
	}
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
	rate := rawRate(t, name+"-raw")
	made := countObjects(t, name)
	took := make([]time.Duration, len(asks))
	began := time.Now()
	for j, p := range asks {
		wg.Go(func() {
			if err := p.attach(patience); err != nil {
				t.Error(err)
			}
			took[j] = time.Since(began)
		})
	}
	wg.Wait()
	elapsed := slices.Max(took)
	leases, subs := made()
	slices.Sort(took)

	if len(asks) != burstAddresses {
		t.Fatalf("%d ADDs are no burst of %d", len(asks), burstAddresses)
	}
	if got := w.fleet.Observer.Held(); got != burstAddresses {
		t.Errorf("%d addresses are held; want %d, none twice and none missing", got, burstAddresses)
	}
	raw := time.Duration(float64(leases+subs) / rate * float64(time.Second))
	ratio := elapsed.Seconds() / raw.Seconds()
	t.Logf("%d ADDs from %d agents in %v (median %v); %d leases and %d sub-leases were created; at the %.0f creates/s of this API server now, that takes %v: ratio %.2f (aim: %.1f)",
		burstAddresses, len(w.nodes), elapsed.Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), leases, subs, rate, raw.Round(time.Millisecond), ratio, burstAim)
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
	return ratio
}

// rawRate returns how many leases a second the API server creates now, for sixteen
// writers at once.
func rawRate(t *testing.T, pool string) float64 {
	t.Helper()
	const writers, each = 16, 25
	var wg sync.WaitGroup
	began := time.Now()
	for writer := range writers {
		wg.Go(func() {
			for j := range each {
				block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 250, byte(writer), byte(j)}), 32)
				_, out, err := api.CreateLease(t.Context(), protocol.Lease{
					Meta: protocol.Meta{Name: protocol.LeaseName(protocol.PoolName(pool), block)}, Protocol: protocol.Version,
					Pool: protocol.PoolName(pool), PoolUID: "raw", Block: block, Holder: protocol.Holder{Node: "raw"}, Store: "raw", Term: 1, Turn: 1,
				})
				if out != protocol.Done {
					t.Errorf("create: %v %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	rate := writers * each / time.Since(began).Seconds()
	if err := kc.DeleteAllOf(t.Context(), &v1alpha1.IPLease{}, client.MatchingFields{"spec.pool": pool}); err != nil {
		t.Fatal(err)
	}
	return rate
}

// countObjects counts the leases and requests of a pool that are created until the
// returned function is called.
func countObjects(t *testing.T, pool string) func() (leases, requests int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	scheme, err := cluster.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cp.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	follow := func(list client.ObjectList, ours func(client.Object) bool) func() int {
		if err := c.List(ctx, list); err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			t.Fatal(err)
		}
		counted := make(chan int, 1)
		go func() {
			n := 0
			for ev := range w.ResultChan() {
				if o, ok := ev.Object.(client.Object); ok && ev.Type == watch.Added && ours(o) {
					n++
				}
			}
			counted <- n
		}()
		return func() int { return <-counted }
	}
	leases := follow(&v1alpha1.IPLeaseList{}, func(o client.Object) bool {
		l, ok := o.(*v1alpha1.IPLease)
		return ok && l.Spec.Pool == pool
	})
	requests := follow(&v1alpha1.IPSubLeaseList{}, func(o client.Object) bool {
		s, ok := o.(*v1alpha1.IPSubLease)
		return ok && s.Spec.Request != nil && slices.ContainsFunc(s.Spec.Request.Wants, func(w v1alpha1.Want) bool { return w.Pool == pool })
	})
	return func() (int, int) {
		time.Sleep(500 * time.Millisecond) // for what the API server has still to send; the count is a measurement
		stop()
		return leases(), requests()
	}
}
