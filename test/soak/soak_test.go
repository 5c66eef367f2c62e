package soak_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// comeBack is how long what was released may take to come back. The longest wait is
// for the second look at a name whose create had no answer, after a minute; the rest is
// for a machine that is busy with other tests.
const comeBack = 3 * time.Minute

func TestSoak(t *testing.T) {
	set, err := fromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d; %v of load: to repeat, set TENURE_SOAK_SEED", set.seed, set.load)
	w := newWorld(t, set)
	defer func() { t.Log(w.stats.summary(w.fleet.Observer.Answers())) }()

	stop := w.supervise()
	defer stop()
	workers, vms := w.startLoad(), w.startMachines()
	f := w.newFaults()
	f.run(time.Now().Add(set.load))
	f.settle()
	close(w.stop)
	w.workers.Wait()
	for _, n := range w.nodes {
		n.AwaitServing()
	}
	w.finish(workers, vms)
	f.listAnew()
	if held := w.fleet.Observer.Held(); held > 0 {
		t.Errorf("the observer counts %d addresses after every DEL", held)
	}
	w.allBack("the load")
	for _, s := range subjects {
		if s.also == "" {
			w.fill(s)
		}
	}
	w.allBack("filling the pools")
	for _, n := range w.nodes {
		n.Stop()
		w.emptyStore(n)
	}
}

// finish ends everything that the load has begun.
func (w *world) finish(workers []*worker, vms []*machine) {
	var wg sync.WaitGroup
	for _, k := range workers {
		wg.Go(k.finish)
	}
	for _, m := range vms {
		wg.Go(m.finish)
	}
	wg.Wait()
	w.insist("delete pods", func(ctx context.Context) error {
		return kc.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0))
	})
}

// allBack waits until no lease and no sub-lease is left of anything (I4).
func (w *world) allBack(after string) {
	w.t.Helper()
	began := time.Now()
	err := patiently(w.t.Context(), comeBack, func(ctx context.Context) error {
		leases, err := api.Leases(ctx)
		if err != nil {
			return err
		}
		subs, err := api.SubLeases(ctx)
		if err != nil {
			return err
		}
		var left []string
		for _, l := range leases {
			left = append(left, fmt.Sprintf("lease %s of %v, store %s, term %d, ceded %v, granted %v", l.Name, l.Holder, l.Store, l.Term, l.Ceded, l.Grants))
		}
		for _, s := range subs {
			left = append(left, fmt.Sprintf("sub-lease %s of %s, term %d, use %+v, request %+v", s.Name, s.Node, s.Term, s.Use, s.Request))
		}
		if len(left) > 0 {
			return fmt.Errorf("%d objects are left:\n%s", len(left), strings.Join(left[:min(len(left), 40)], "\n"))
		}
		return nil
	})
	if err != nil {
		w.t.Errorf("I4: %v after %s: %v", comeBack, after, err)
		return
	}
	w.t.Logf("everything came back within %v after %s", time.Since(began).Round(time.Millisecond), after)
}

// emptyStore wants the store of a node that is stopped to have no attachment left,
// and no right that serves.
func (w *world) emptyStore(n *node) {
	w.t.Helper()
	st, err := store.Open(n.Config().Store, store.Options{})
	if err != nil {
		w.t.Errorf("store of %s: %v", n.Name, err)
		return
	}
	var left []string
	err = st.View(func(tx *store.Tx) error {
		for a, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			left = append(left, "attachment "+a.Key.String())
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Phase == protocol.Held {
				left = append(left, "right "+r.Name)
			}
		}
		return nil
	})
	if err = errors.Join(err, st.Check(), st.Close()); err != nil {
		w.t.Errorf("store of %s: %v", n.Name, err)
	}
	if len(left) > 0 {
		slices.Sort(left)
		w.t.Errorf("I4: the store of %s still has %v", n.Name, left)
	}
}
