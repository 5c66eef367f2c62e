package nodes_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

// A GC that lists nothing to keep, and the agent's own sweeper, run without a pause
// while pods come and go: whatever step an ADD is at, what is alive stays.
func TestGarbageCollectionDuringADD(t *testing.T) {
	const workers, rounds = 6, 60
	w := newNetwork(t, "garbage", 0, cidr("10.30.0.0/20"))
	w.fleet.Change = func(c *daemon.Config) { quick(c); c.Agent.SweepEvery = 20 * time.Millisecond }
	w.start(1)
	n := w.nodes[0]
	probe := w.sandbox()

	stop := make(chan struct{})
	var collectors, pods sync.WaitGroup
	passes := make([]int, 2)
	for c := range passes {
		collectors.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := n.GC(probe); err != nil {
					t.Errorf("GC: %v", err)
					return
				}
				passes[c]++
			}
		})
	}
	for worker := range workers {
		pods.Go(func() {
			for round := range rounds {
				p := w.run(n, fmt.Sprintf("garbage-%d-%d", worker, round))
				if err := p.attach(); err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if err := n.CheckAdd(p.With(p.addrs)); err != nil {
						t.Errorf("a live attachment was freed: %v", err)
					}
				}
				p.end(t)
			}
		})
	}
	pods.Wait()
	close(stop)
	collectors.Wait()
	t.Logf("%v passes over %d ADDs", passes, w.fleet.Observer.Answers())
	if passes[0]+passes[1] < workers*rounds {
		t.Errorf("%v passes; want as many as ADDs, or more", passes)
	}
}

// Whoever operates the cluster sees the cleaner at work: the metric counts what it
// has freed.
func TestTheCleanerIsSeenToBeAlive(t *testing.T) {
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	w := newNetwork(t, "cleaned", 0, cidr("10.31.0.0/24"))
	w.fleet.Change = func(c *daemon.Config) { quick(c); c.Agent.SweepEvery, c.Listen = 500*time.Millisecond, address }
	w.start(1)
	const metric = "tenure_agent_garbage_freed_total "
	if body, err := metrics(address); !strings.Contains(body, metric+"0\n") {
		t.Errorf("before any garbage, the metrics do not have %q: %v", metric+"0", err)
	}
	// One after the other: a new pool waits for pods whose ADD has not come yet.
	orphan := w.attached(w.nodes[0], "cleaned-orphan")
	alive := w.attached(w.nodes[0], "cleaned-alive")
	w.consistent([]*pod{orphan, alive})
	orphan.delete(t)
	w.nodes[0].Vanish(orphan.Interface)
	must(t, os.Remove(orphan.Netns))
	w.consistent([]*pod{alive})
	eventually(t, 10*time.Second, func() error {
		if body, err := metrics(address); !strings.Contains(body, metric+"1\n") {
			return fmt.Errorf("the metrics do not have %q: %v", metric+"1", err)
		}
		return nil
	})
}

// metrics returns what an agent says of itself at an address.
func metrics(address string) (string, error) {
	c := http.Client{Timeout: time.Minute} // the machine may be busy
	resp, err := c.Get("http://" + address + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
