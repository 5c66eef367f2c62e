package pools

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// somePools is a cache with these pools, as they are when they are read, and nothing else.
type somePools struct {
	client.Reader
	pools []*v1alpha1.IPPool
}

func (c somePools) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, p := range c.pools {
		if o, ok := into.(*v1alpha1.IPPool); ok && p.Name == key.Name {
			p.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c somePools) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if l, ok := into.(*v1alpha1.IPPoolList); ok {
		for _, p := range c.pools {
			l.Items = append(l.Items, *p)
		}
	}
	return nil
}

// TestFreesBeforeItOpens: after a restore nothing of a pool is freed while nodes may be
// about to put back that they use it. A pool that waits for no node any more, but for
// leases of an earlier pool of its name, would wait for ever if what was granted of these
// to a claim that is gone could not be freed (I4).
func TestFreesBeforeItOpens(t *testing.T) {
	p := with(pool("10.0.0.0/24"), open(32))
	p.Status.Leasing, p.Status.Opening = v1alpha1.LeasingClosed, protocol.EpochAfter(noon)
	now := noon
	r := &Reconciler{Networks: using{}, Live: liveOf{}, Cache: somePools{pools: []*v1alpha1.IPPool{p}}, Now: func() time.Time { return now }}
	r.regs.observe(saying(regAt("a", 0), true, p.Status.Opening), noon)
	for ; now.Before(noon.Add(12 * time.Minute)); now = now.Add(recheckAfter) {
		got, err := r.Restored(t.Context(), "lan")
		if err != nil {
			t.Fatal(err)
		}
		if want := now.Before(noon.Add(8 * time.Minute)); got != want {
			t.Fatalf("%v after the pool was closed nothing is freed: %v; want %v", now.Sub(noon), got, want)
		}
	}
}

// TestFreesWhatTheReconcilerDoesNotWaitFor: a pool that was made again after a restore
// waits for a lease of the earlier one, with a grant to a claim that is gone. Another pool has
// been opened since, so that no restore concerns this one, in the reconciler's words. What
// is to be freed is asked for between its looks, and must be told the same, or it is never
// freed, and the pool never opened (I4).
func TestFreesWhatTheReconcilerDoesNotWaitFor(t *testing.T) {
	restored := protocol.EpochAfter(noon.Add(-time.Hour))
	again, other := pool("10.0.0.0/24"), with(pool("10.9.0.0/24"), open(32))
	again.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	other.Name, other.UID, other.Status.Opening = "other", "other", protocol.EpochAfter(noon.Add(-2*time.Minute))
	now := noon
	r := &Reconciler{Networks: using{}, Live: liveOf{}, Cache: somePools{pools: []*v1alpha1.IPPool{again, other}}, Shapes: &Shapes{}, Now: func() time.Time { return now }}
	r.regs.observe(saying(regAt("a", 0), true, restored), noon)
	for ; now.Before(noon.Add(time.Minute)); now = now.Add(recheckAfter) {
		s, err := r.look(t.Context(), again)
		if err != nil {
			t.Fatal(err)
		}
		why, _ := s.waits()
		if held, err := r.Restored(t.Context(), "lan"); err != nil || held != (why != "") {
			t.Fatalf("%v: the pool waits for nodes: %q; what is granted of it stays for that: %v, %v", now.Sub(noon), why, held, err)
		}
	}
}

// TestKnowsBeforeWatchesTell (I1): what a registration said of a restored API server before
// this controller led counts at once, whatever its watches have shown by then: they may be behind.
func TestKnowsBeforeWatchesTell(t *testing.T) {
	p := with(pool("10.0.0.0/24"), open(32))
	p.Status.Opening = protocol.EpochAfter(noon)
	reg := saying(regAt("a", 0), true, p.Status.Opening)
	reg.Revision = "12"
	live := liveOf{regs: []protocol.Registration{reg}, away: errors.New("no answer")}
	r := &Reconciler{Networks: using{}, Live: live, Cache: somePools{pools: []*v1alpha1.IPPool{p}}, Now: func() time.Time { return noon }}
	if _, err := r.Restored(t.Context(), "lan"); err == nil {
		t.Error("it knows without having read the registrations")
	}
	live.away = nil
	r.Live, r.Changed = live, &trigger.Source{}
	first := &Reconciler{Networks: using{}, Live: live, Changed: &trigger.Source{}, Cache: r.Cache, Shapes: &Shapes{}, Now: r.Now}
	if s, err := first.look(t.Context(), p); err != nil || s.restored == nil {
		t.Errorf("its first look at the pool shows nothing of that, %v", err)
	}
	before, after := regAt("a", 0), regAt("a", 1)
	before.Revision, after.Revision = "9", "13"
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"no watch has shown a registration", func() {}, true},
		{"a watch is behind", func() { r.Hear(before) }, true},
		{"a watch tells of a registration that was there before", func() { r.Deregister("a", "registration-before") }, true},
		{"the node says it no more", func() { r.Hear(after) }, false},
	} {
		step.do()
		if o := r.regs.nodes["a"]; o != nil && step.want && o.beats > 0 {
			t.Errorf("%s: %d heartbeats were seen; want none", step.name, o.beats)
		}
		if got, err := r.Restored(t.Context(), "gone", "lan"); err != nil || got != step.want {
			t.Errorf("%s: restored %v, %v; want %v", step.name, got, err, step.want)
		}
	}
}
