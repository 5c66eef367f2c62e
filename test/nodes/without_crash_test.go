package nodes_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// TestKilledUnderLoad kills an agent again and again while pods come and go: what
// was answered must be there afterwards, nothing twice (I1, I2), and nothing may
// be left in the end (I4).
func TestKilledUnderLoad(t *testing.T) {
	proof.Only(t)
	const kills, workers = 8, 8
	openPool(t, "killed", cidr("10.20.0.0/20"))
	p := fleet.Build(t, cp, "tenured")
	f := newFleet(t, idle(2*time.Second))
	f.Start("killed-other") // a neighbour that must not get what the killed one has
	n := f.LaunchProcess(p, "killed")
	n.AwaitServing()

	stop := make(chan struct{})
	held := make([]map[string]fleet.Interface, workers) // what each worker was answered and has not given back
	var wg sync.WaitGroup
	for w := range workers {
		held[w] = map[string]fleet.Interface{}
		wg.Go(func() { churn(n, w, held[w], stop) })
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond) // a random moment is the point
		n.Kill()
		f.LaunchProcess(p, "killed").AwaitServing() // the same node
	}
	close(stop)
	wg.Wait()
	n.Stop()
	st, err := store.Open(n.Config().Store, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	err = st.View(func(tx *store.Tx) error {
		for _, mine := range held {
			for _, i := range mine {
				total++
				if _, ok, err := tx.Attachment(store.Key{Network: i.Network, ContainerID: i.Sandbox, IfName: i.IfName}); err != nil || !ok {
					t.Errorf("I2: %s was answered and is not in the store: %v", i.Sandbox, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%d attachments held over %d kills, %d answered", total, kills, f.Observer.Answers())
	f.LaunchProcess(p, "killed").AwaitServing()
	for _, mine := range held {
		for _, i := range mine {
			mustDel(t, n, i)
		}
	}
	eventually(t, time.Minute, noLeases(t, "killed"))
}

// churn adds and deletes attachments until stop closes. A call that fails because
// the agent was killed is repeated, as a runtime does.
func churn(n *fleet.Node, worker int, held map[string]fleet.Interface, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(uint64(worker), 1))
	repeat := func(call func() error) { // ends: the agent is started again after the last kill
		for call() != nil {
			time.Sleep(20 * time.Millisecond) // as a runtime pauses
		}
	}
	for serial := 0; ; serial++ {
		select {
		case <-stop:
			return
		default:
		}
		if len(held) > 20 || len(held) > 0 && rng.IntN(3) == 0 {
			for name, i := range held {
				// Forgotten before the answer: whether a DEL without an answer took
				// effect is not known.
				delete(held, name)
				repeat(func() error { return n.Del(i) })
				break
			}
			continue
		}
		i := onPool("killed", fmt.Sprintf("w%d-%d", worker, serial), "net1")
		repeat(func() error { _, err := n.Add(i); return err })
		held[i.Sandbox] = i
	}
}
