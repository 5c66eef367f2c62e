package nodes_test

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"
)

// patience is how long a pod may try before a test fails.
const patience = 3 * time.Minute

// scaled is a workload of pods that are spread over the network's nodes.
type scaled struct {
	w     *network
	name  func(i int) string
	pods  []*pod
	begun int
}

// replicas names pods as a ReplicaSet does: never the same name twice.
func replicas(w *network) *scaled {
	s := &scaled{w: w}
	s.name = func(int) string { return fmt.Sprintf("%s-rs-%d", w.name, s.begun) }
	return s
}

// ordinals names pods as a StatefulSet does.
func ordinals(w *network) *scaled {
	return &scaled{w: w, name: func(i int) string { return fmt.Sprintf("%s-sts-%d", w.name, i) }}
}

// scale makes it n pods, all changes at once, and waits until all have addresses.
func (s *scaled) scale(n int) {
	s.w.t.Helper()
	var wg sync.WaitGroup
	for len(s.pods) > n {
		last := s.pods[len(s.pods)-1]
		s.pods = s.pods[:len(s.pods)-1]
		wg.Go(func() { last.end(s.w.t) })
	}
	for len(s.pods) < n {
		p := s.w.run(s.w.nodes[s.begun%len(s.w.nodes)], s.name(len(s.pods)))
		s.begun++
		s.pods = append(s.pods, p)
		wg.Go(func() {
			if err := p.attach(); err != nil {
				s.w.t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestReplicaSetToCapacityAndToZero(t *testing.T) {
	w := newNetwork(t, "filled", 3, cidr("10.10.0.0/27"))
	s := replicas(w)
	s.scale(30)
	w.consistent(s.pods)
	s.scale(0)
	w.consistent(nil)
	w.nothingLeft(30 * time.Second)
}

func TestStatefulSetIsRecordedByOrdinal(t *testing.T) {
	w := newNetwork(t, "stateful", 2, cidr("10.11.0.0/24"))
	s := ordinals(w)
	s.scale(5)
	w.consistent(s.pods)
	records, err := w.records()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]netip.Addr{}
	for addr, pod := range records {
		of[pod] = addr
	}
	for i, p := range s.pods {
		if name := fmt.Sprintf("default/stateful-sts-%d", i); of[name] != p.addrs[0].Addr() {
			t.Errorf("%s is recorded with %v; it was answered %v", name, of[name], p.addrs)
		}
	}
	s.scale(0)
	w.nothingLeft(30 * time.Second)
}

func TestScaleUpAndDown(t *testing.T) {
	w := newNetwork(t, "scaled", 3, cidr("10.12.0.0/20"))
	s := replicas(w)
	for _, step := range []int{5, 10, 20} {
		s.scale(step)
		w.consistent(s.pods)
		s.scale(1)
		w.consistent(s.pods)
		s.scale(1 + step)
		w.consistent(s.pods)
		s.scale(0)
		w.consistent(nil)
	}
	w.nothingLeft(30 * time.Second)
}

// The extra pod waits with the reason, on another node than the one that frees an
// address for it.
func TestTinyPoolFromTwoNodes(t *testing.T) {
	w := newNetwork(t, "exhausted", 2, cidr("10.13.0.0/30"))
	// One after the other: a new pool waits for pods whose ADD has not come yet.
	first := w.attached(w.nodes[0], "exhausted-1")
	second := w.attached(w.nodes[0], "exhausted-2")
	extra := w.run(w.nodes[1], "exhausted-extra")
	w.nodes[1].Refused(t, extra.Interface, "pool exhausted is exhausted")
	first.end(t)
	if err := extra.attach(); err != nil {
		t.Error(err)
	}
	w.consistent([]*pod{second, extra})
}

// A pod's sandbox is killed with the pool full: its next sandbox gets an address,
// and a pod that is killed and replaced leaves its own to the successor.
func TestKilledWithThePoolFull(t *testing.T) {
	w := newNetwork(t, "replaced", 1, cidr("10.14.0.0/29"))
	n := w.nodes[0]
	n.Stop()
	n.Config().Agent.SweepEvery = time.Second
	w.fleet.Start(n.Name)
	s := replicas(w)
	s.scale(6)
	victim := s.pods[2]
	must(t, os.Remove(victim.Netns))
	victim.Interface = w.renewed(victim.Interface)
	was := victim.addrs
	must(t, victim.attach())
	if victim.addrs[0] != was[0] {
		t.Errorf("the new sandbox got %v; want %v, the only one that nobody uses", victim.addrs, was)
	}
	w.consistent(s.pods)

	// Killed for good, without a DEL: the sweeper finds it.
	killed := s.pods[4]
	killed.delete(t)
	n.Vanish(killed.Interface)
	must(t, os.Remove(killed.Netns))
	s.pods[4] = w.run(n, "replaced-successor")
	must(t, s.pods[4].attach())
	w.consistent(s.pods)
}

// Pods are deleted and made again under the same names a thousand times, and no
// address is ever answered to two.
func TestThousandTimesTheSameNames(t *testing.T) {
	const names, rounds = 10, 100
	w := newNetwork(t, "recreated", 3, cidr("10.15.0.0/27"))
	var wg sync.WaitGroup
	for name := range names {
		wg.Go(func() {
			for round := range rounds {
				p := w.run(w.nodes[(name+round)%len(w.nodes)], fmt.Sprintf("recreated-%d", name))
				if err := p.attach(); err != nil {
					t.Error(err)
				}
				p.end(t)
			}
		})
	}
	wg.Wait()
	if got := w.fleet.Observer.Answers(); got != names*rounds {
		t.Errorf("%d pods had an address; want %d", got, names*rounds)
	}
	w.nothingLeft(30 * time.Second)
}
