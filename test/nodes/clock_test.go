package nodes_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// A clock that jumps ahead, by either of its hands, makes an agent believe that F
// has passed: it gives out nothing new before a heartbeat. One that jumps back
// changes nothing.
func TestClockJumps(t *testing.T) {
	const hour = time.Hour
	w := newNetwork(t, "clocks", 0, cidr("10.50.0.0/20"))
	clock := &fleet.Clock{}
	w.fleet.Change = func(c *daemon.Config) { quick(c); c.Clock, c.Agent.Fence = clock, 15*time.Minute }
	w.start(1)
	n := w.nodes[0]
	known := &pod{Interface: w.sandbox(), node: n}
	must(t, known.attach())
	for _, tt := range []struct {
		name string
		move func(d time.Duration)
	}{
		{"wall clock", func(d time.Duration) { clock.Wall.Add(int64(d)) }},
		{"boot clock", func(d time.Duration) { clock.Boot.Add(int64(d)) }},
	} {
		t.Run(tt.name+" ahead", func(t *testing.T) {
			must(t, cp.PauseAPIServer())
			tt.move(hour)
			_, err := n.Add(w.sandbox())
			if resumed := cp.ResumeAPIServer(); resumed != nil {
				t.Fatal(resumed)
			}
			fleet.WantCode(t, err, agentapi.CodeTryAgainLater, "gives out no new addresses")
			was := known.addrs
			if err := known.attach(); err != nil || known.addrs[0] != was[0] {
				t.Errorf("what was answered before: %v, %v; want %v again", known.addrs, err, was)
			}
			fresh := &pod{Interface: w.sandbox(), node: n}
			if err := fresh.attach(); err != nil {
				t.Errorf("with the API server back: %v", err)
			}
		})
	}
	t.Run("wall clock back", func(t *testing.T) {
		clock.Wall.Add(int64(-3 * hour))
		if _, err := n.Insist(w.sandbox()); err != nil {
			t.Error(err)
		}
		n.Stop()
		w.fleet.Start(n.Name)
		if _, err := n.Insist(w.sandbox()); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	})
}

// Clocks of many nodes jump about while their pods come and go: nothing depends on
// whose clock is right.
func TestClocksDisagree(t *testing.T) {
	const nodes, rounds = 4, 40
	w := newNetwork(t, "clocks-many", 0, cidr("10.51.0.0/26"))
	clocks := map[string]*fleet.Clock{}
	w.fleet.Change = func(c *daemon.Config) {
		clock := &fleet.Clock{}
		clocks[string(c.Agent.Node)] = clock
		quick(c)
		c.Clock, c.Agent.Fence = clock, time.Minute
	}
	w.start(nodes)
	var wg sync.WaitGroup
	for j, n := range w.nodes {
		clock, rng := clocks[n.Name], rand.New(rand.NewPCG(1, uint64(j)))
		wg.Go(func() {
			var held []*pod
			for range rounds {
				switch rng.IntN(8) {
				case 0:
					clock.Wall.Add(int64(rng.IntN(7200)-3600) * int64(time.Second))
				case 1:
					clock.Boot.Add(int64(rng.IntN(40)) * int64(time.Second)) // it never goes back
				}
				p := &pod{Interface: w.sandbox(), node: n}
				if err := p.attach(); err != nil {
					t.Error(err)
				}
				if held = append(held, p); len(held) > 12 {
					if err := n.Del(held[0].Interface); err != nil {
						t.Error(err)
					}
					held = held[1:]
				}
			}
			for _, p := range held {
				if err := n.Del(p.Interface); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := w.fleet.Observer.Answers(); got < nodes*rounds {
		t.Errorf("%d ADDs were answered; want %d", got, nodes*rounds)
	}
	for _, clock := range clocks { // idle leases go back when their clocks say so
		clock.Boot.Add(int64(time.Minute))
	}
	w.nothingLeft(time.Minute)

}
