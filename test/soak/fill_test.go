package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// placed is an interface on a node.
type placed struct {
	n *node
	i fleet.Interface
}

// fill takes every address of a pool, each from a node that is drawn, and wants
// every one to be served there; then the next freed address wherever it is asked
// for; then a clear error everywhere (I5).
func (w *world) fill(s subject) {
	w.t.Helper()
	rng := rand.New(rand.NewPCG(w.set.seed, 7))
	all := w.place(rng, s, s.capacity)
	began := time.Now()
	w.each(all, func(p placed) error {
		err := patiently(w.t.Context(), 3*time.Minute, func(context.Context) error { _, err := p.n.Add(p.i); return err })
		if err != nil {
			return fmt.Errorf("I5: %s of %d addresses has none for %s: %w", s.name, s.capacity, p.n.Name, err)
		}
		return nil
	})
	w.t.Logf("I5: %s: %d addresses in %v", s.name, s.capacity, time.Since(began).Round(time.Millisecond))
	// In this order: who is refused stays in line for what is freed next.
	w.freedElsewhere(rng, s, all)
	w.oneMore(rng, s)
	w.each(all, func(p placed) error { return p.n.Del(p.i) })
}

// place draws a node for each of n interfaces, and makes pods of them.
func (w *world) place(rng *rand.Rand, s subject, n int) []placed {
	const interfaces = 16 // of one pod, to make fewer pods
	ofNode := make([]int, len(w.nodes))
	for range n {
		ofNode[rng.IntN(len(ofNode))]++
	}
	var mu sync.Mutex
	var all []placed // guarded by mu
	var wg sync.WaitGroup
	for j, count := range ofNode {
		wg.Go(func() {
			for ; count > 0; count -= interfaces {
				made := w.podWith(w.nodes[j], s, min(count, interfaces))
				mu.Lock()
				all = append(all, made...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return all
}

// podWith makes a pod with so many interfaces on a pool.
func (w *world) podWith(n *node, s subject, interfaces int) []placed {
	var made []placed
	w.insist("make a pod", func(ctx context.Context) error {
		i, err := w.sandbox(n, s)
		if err != nil {
			return err
		}
		selections := make([]string, interfaces)
		for j := range selections {
			selections[j] = fmt.Sprintf(`{"name":%q,"interface":"net%d"}`, s.name, j+1)
		}
		if i, err = w.podOf(ctx, fmt.Sprintf("p%d", w.serial.Add(1)), n.Name, selections, i); err != nil {
			w.scrap(i)
			return err
		}
		for j := range selections {
			i.IfName = fmt.Sprintf("net%d", j+1)
			made = append(made, placed{n, i})
		}
		return nil
	})
	return made
}

// each calls do for all, dozens at once, and reports what fails. After many failures it
// leaves out the rest: each takes minutes.
func (w *world) each(all []placed, do func(placed) error) {
	const enough = 20
	var failed atomic.Int64
	next := make(chan placed)
	var wg sync.WaitGroup
	for range 48 {
		wg.Go(func() {
			for p := range next {
				if failed.Load() >= enough {
					continue
				}
				if err := do(p); err != nil {
					failed.Add(1)
					w.t.Errorf("%s of %s on %s: %v", p.i.IfName, p.i.Sandbox, p.n.Name, err)
				}
			}
		})
	}
	for _, p := range all {
		next <- p
	}
	close(next)
	wg.Wait()
}

// oneMore wants every node to say that a pool is exhausted, and how.
func (w *world) oneMore(rng *rand.Rand, s subject) {
	w.t.Helper()
	want := fmt.Sprintf("pool %s is exhausted: %d of %d in use", s.name, s.capacity, s.capacity)
	w.each(w.place(rng, s, 2*len(w.nodes)), func(p placed) error {
		// The agent has heard of it when the controller has told it.
		err := patiently(w.t.Context(), time.Minute, func(context.Context) error {
			_, err := p.n.Add(p.i)
			if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeTryAgainLater || !strings.Contains(e.Error(), want) {
				return fmt.Errorf("I5: one more: %w; want code 11 with %q", err, want)
			}
			return nil
		})
		return errors.Join(err, p.n.Del(p.i))
	})
}

// freedElsewhere frees addresses of a full pool one by one, and wants each to be
// served to a node that is drawn.
func (w *world) freedElsewhere(rng *rand.Rand, s subject, all []placed) {
	w.t.Helper()
	for range 5 {
		j := rng.IntN(len(all))
		next := w.podWith(w.nodes[rng.IntN(len(w.nodes))], s, 1)[0]
		if err := all[j].n.Del(all[j].i); err != nil {
			w.t.Errorf("DEL on %s: %v", all[j].n.Name, err)
		}
		all[j] = next
		freed := time.Now()
		if err := patiently(w.t.Context(), time.Minute, func(context.Context) error { _, err := next.n.Add(next.i); return err }); err != nil {
			w.t.Errorf("I5: an address of %s is free, and %s does not get it: %v", s.name, next.n.Name, err)
		}
		w.stats.freed(time.Since(freed))
	}
}
