package agent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/labels"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// racked returns p's pool with a range for each of two racks.
func racked(p *pool) Pool {
	known, _, _ := p.now()
	of := known.Pool
	of.Text = poolspec.PoolText{Ranges: []poolspec.RangeText{
		{CIDR: "10.1.0.0/24", NodeSelector: &labels.Selector{Labels: map[string]string{"rack": "a"}}},
		{CIDR: "10.2.0.0/24", NodeSelector: &labels.Selector{Labels: map[string]string{"rack": "b"}}},
	}}
	of.Parts = []PoolPart{{Selector: "rack=a", Pressure: allocator.PressureExhausted, Exhausted: "rack a is full"}, {Selector: "rack=b"}}
	return of
}

// TestRelabelEndsWithItsContext: where a pool is being taken over, as while the disk hangs, its new
// labels wait for that no longer than the agent runs.
func TestRelabelEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		unlock, err := p.hearing.Lock(t.Context(), a.sched, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.pools.relabelPool(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want that the agent's end ends it", err)
		}
	})
}

// TestNodesOfAPool: a node is given the ranges that select it by the labels that its registration
// tells, as scarce as they are; and an edit, or a label, that changes.
func TestNodesOfAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		ctx := t.Context()
		hear := func() {
			t.Helper()
			unlock, err := p.hearing.Lock(ctx, a.sched, struct{}{})
			if err == nil {
				defer unlock()
				err = a.pools.hear(ctx, p, racked(p), true)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		hear()
		known, absent, _ := p.now()
		if why := unready(known, absent); !strings.Contains(why, "has not told this node its labels yet") || len(known.shape.Ranges()) != 0 {
			t.Errorf("before the labels are told: %q, ranges %v", why, known.shape.Ranges())
		}
		for _, tt := range []struct {
			told, has, why string
			pressure       allocator.Pressure
		}{
			{`{"rack":"a"}`, "10.1.0.0/24", "", allocator.PressureExhausted},
			{`{"rack":"b"}`, "10.2.0.0/24", "", allocator.PressureLow},
			{`{"rack":null}`, "", "has no range for this node (rack is missing): the nodeSelectors of its ranges are rack=a; rack=b", allocator.PressureLow},
			{`{"rack":"a"}`, "10.1.0.0/24", "", allocator.PressureExhausted},
		} {
			a.pools.hearLabels(tt.told)
			synctest.Wait()
			hear() // news of the pool change nothing of that
			known, absent, _ := p.now()
			var has string
			for _, r := range known.shape.Ranges() {
				has += r.Prefix.String()
			}
			if has != tt.has || !strings.HasPrefix(unready(known, absent), tt.why) || (tt.why == "") != (unready(known, absent) == "") {
				t.Errorf("told %s: has %q, %q; want %q, %q", tt.told, has, unready(known, absent), tt.has, tt.why)
			}
			if known.Pressure != tt.pressure || (known.Exhausted != "") != (tt.pressure == allocator.PressureExhausted) {
				t.Errorf("told %s: pressure %v, %q; want %v", tt.told, known.Pressure, known.Exhausted, tt.pressure)
			}
		}
		wrong := &assign.UnassignableError{Addr: netip.MustParseAddr("10.2.0.7"), Pool: "lan", Reason: errors.New("it lies outside")}
		err := a.pools.elsewhere(wrong, []poolspec.Source{{Pool: "lan"}})
		if want := "address 10.2.0.7 of pool lan cannot be given: it is one whose range is for nodes with rack=b, and this node has rack=a"; err.Error() != want {
			t.Errorf("got %q; want %q", err, want)
		}
		wrong.Addr = netip.MustParseAddr("10.1.0.0")
		if err := a.pools.elsewhere(wrong, []poolspec.Source{{Pool: "lan"}}); !errors.Is(err, wrong) {
			t.Errorf("got %q; want the reason itself", err)
		}
	})
}
