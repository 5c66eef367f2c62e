package agent

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// newHangingStore returns a store on a disk that hangs once hang is called, until goOn is,
// or the test ends: in the sync of a commit that makes write's changes, which readers see
// by then.
func newHangingStore(t *testing.T) (st *store.Store, hang func(write func(*store.Tx) error) (goOn func())) {
	t.Helper()
	var hanging atomic.Bool
	hangs, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Fail: func(point string) {
		if point == "after-commit" && hanging.CompareAndSwap(true, false) {
			close(hangs)
			<-free
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st, func(write func(*store.Tx) error) func() {
		hanging.Store(true)
		go func() { ended <- st.Update(context.Background(), write) }()
		<-hangs
		goOn := sync.OnceFunc(func() { close(free) })
		t.Cleanup(func() {
			goOn()
			if err := <-ended; err != nil {
				t.Errorf("the Update whose commit hung: %v", err)
			}
		})
		return goOn
	}
}

// TestAddIsNotHeldUpByTheDisk: what an ADD needs beside its own calls of the store does
// not wait for a disk that hangs: what acquires choose blocks by, and the records that
// answers of the API server are compared with. Nor does what people are told: metrics and
// events.
func TestAddIsNotHeldUpByTheDisk(t *testing.T) {
	a, p := newRegisteredAgent(t, &createdLeases{}, shutPools{})
	st, hang := newHangingStore(t)
	heard := &heardEvents{}
	a.st, a.cl.Events = st, heard
	slot := assign.Slot{Family: allocator.IPv4}
	r := leaseRight(p.known.Pool, p.known.shape.Block(p.known.shape.Spread(slot.Family, hashOf(a.cfg.Node)), 30))
	r.Phase = protocol.Held
	done := make(chan struct{})
	t.Cleanup(func() { <-done }) // the disk goes on before
	hang(func(tx *store.Tx) error { return tx.PutRight(r) })
	go func() {
		defer close(done)
		if block, ok, _, err := a.blocks.candidate(p, p.known, slot, nil); !ok || err != nil || block == r.Block {
			t.Errorf("candidate %v, %v, %v; want a block that is not %v, which this node has", block, ok, err, r.Block)
		}
		if block, err := a.blocks.unsettled(p, p.known, slot); block.IsValid() || err != nil {
			t.Errorf("unsettled %v, %v; want none", block, err)
		}
		a.blocks.reserve(p)
		if !a.holds(r.Name) {
			t.Errorf("%s is not said to be held", r.Name)
		}
		if _, out, err := (carefulLeases{a.cl.Leases, a.rights}).ReadLease(t.Context(), r.Name); out != protocol.NotFound || err != nil {
			t.Errorf("read of a lease that is gone: %v, %v", out, err)
		}
		scraped := make(chan prometheus.Metric, 100)
		state{a}.Collect(scraped)
		close(scraped)
		rights := 0
		for m := range scraped {
			if m.Desc() == descRights {
				rights++
			}
		}
		if rights != 1 {
			t.Errorf("a scrape has %d kinds of rights; want one", rights)
		}
		if a.rights.warnLost(r, "taken over"); len(heard.all) != 1 {
			t.Errorf("people hear %q; want one event", heard.all)
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("it waits for the disk")
	}
}

// TestStatusWhileTheDiskHangs: STATUS that is to tell of a full pool, and cannot find out
// in its time, does not say that all is well.
func TestStatusWhileTheDiskHangs(t *testing.T) {
	a, p := newRegisteredAgent(t, &createdLeases{}, shutPools{})
	st, hang := newHangingStore(t)
	a.st, p.known = st, changed(p, func(k *knownPool) { k.Exhausted = "pool lan is exhausted: 27 of 27 in use" })
	status := func() (code agentapi.Code, text string) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := a.status(ctx, agentapi.Request{Config: []byte(`{"cniVersion":"1.1.0","name":"lan","type":"bridge","ipam":{"type":"tenure","pool":"lan","statusWhenFull":true}}`)})
		e, ok := errors.AsType[*agentapi.Error](err)
		if !ok {
			t.Fatalf("STATUS: %v; want an error of the node socket", err)
		}
		return e.Code, e.Error()
	}
	if code, text := status(); code != agentapi.CodeNotAvailable || !strings.Contains(text, "is full") {
		t.Errorf("STATUS of a full pool: code %d, %s; want code %d", code, text, agentapi.CodeNotAvailable)
	}
	hang(func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Term: 4}) })
	if code, text := status(); code != agentapi.CodeNotAvailable || !strings.Contains(text, st.Path()) || !strings.Contains(text, "its disk is slow, or hangs") {
		t.Errorf("STATUS while the disk hangs: code %d, %s; want code %d that names the store and the disk", code, text, agentapi.CodeNotAvailable)
	}
}

// TestReadyWhileTheDiskHangs: whoever asks whether the agent is ready, and gives up, leaves
// nothing behind that waits for the disk.
func TestReadyWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRestoredAgent(t)
		st, hang := newHangingStore(t)
		a.st, a.reg.registrar.Sent, a.reg.announced = st, a.sched.Now(), announcement{heard: true, listed: true}
		hang(func(tx *store.Tx) error { return tx.PutIdentity(store.Identity{Node: "n1", Term: 3}) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ok, why := a.Ready(ctx); ok || !strings.Contains(why, "its disk is slow, or hangs") {
			t.Errorf("ready %v (%s); want that the disk hangs", ok, why)
		}
	})
}
