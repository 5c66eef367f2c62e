package reported

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	web  = types.NamespacedName{Namespace: "ns", Name: "web"}
	db   = types.NamespacedName{Namespace: "ns", Name: "db"}
	noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

// TestNew: a fault is told once for each object, and again when it has been gone.
func TestNew(t *testing.T) {
	var f Faults[string]
	for i, step := range []struct {
		object types.NamespacedName
		faults []string
		want   []string
	}{
		{web, []string{"a", "b", "a"}, []string{"a", "b"}},
		{db, []string{"a"}, []string{"a"}},
		{web, []string{"b", "c"}, []string{"c"}},
		{web, []string{"a", "b"}, []string{"a"}},
		{web, nil, nil},
		{web, []string{"b"}, []string{"b"}},
	} {
		if got := f.New(step.object, step.faults...); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %q are told; want %q", i, got, step.want)
		}
	}
	f.Forget(web)
	f.Forget(db)
	if len(f.of) > 0 {
		t.Errorf("%v is remembered; want nothing", f.of)
	}
}

// TestDue: what may end by itself is told when it has lasted.
func TestDue(t *testing.T) {
	var f Faults[string]
	lasts := map[string]time.Duration{"slow": time.Minute, "slower": time.Hour}
	delay := func(x string) time.Duration { return lasts[x] }
	for i, step := range []struct {
		after  time.Duration
		faults []string
		due    []string
		wait   time.Duration
	}{
		{0, []string{"slower", "slow", "quick"}, []string{"quick"}, time.Minute},
		{50 * time.Second, []string{"slower", "slow", "quick"}, nil, 10 * time.Second},
		{time.Minute, []string{"slower", "slow"}, []string{"slow"}, 59 * time.Minute},
		{2 * time.Minute, []string{"slow"}, nil, 0},
		{3 * time.Minute, []string{"slower"}, nil, time.Hour}, // it had been gone
	} {
		due, wait := f.Due(web, noon.Add(step.after), delay, step.faults...)
		if !slices.Equal(due, step.due) || wait != step.wait {
			t.Errorf("step %d: %q are told, the next in %v; want %q, %v", i, due, wait, step.due, step.wait)
		}
	}
}
