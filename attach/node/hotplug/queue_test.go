package hotplug

import (
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// TestQueue: a pod that could not be changed is tried again, later each time, and at once when its
// annotation changes.
func TestQueue(t *testing.T) {
	pod, other := facts.PodRef{Namespace: "ns", Name: "p"}, facts.PodRef{Namespace: "ns", Name: "o"}
	now := time.Unix(1000, 0)
	q := queue{}
	q.add(now, []facts.PodRef{pod, other})
	if got := q.due(now); len(got) != 2 {
		t.Fatalf("%v are due; want both", got)
	}
	q.tried(now, other, false)
	last := time.Duration(0)
	for range 20 {
		q.tried(now, pod, true)
		if got := q.due(now); len(got) > 0 {
			t.Fatalf("%v are due at once", got)
		}
		waited := q[pod].at.Sub(now)
		if waited < last || waited > lastPause || last == 0 && waited != firstPause {
			t.Errorf("it waits for %v, after %v", waited, last)
		}
		last, now = waited, q[pod].at
		if got := q.due(now); len(got) != 1 {
			t.Fatalf("%v are due; want the pod", got)
		}
	}
	if last != lastPause {
		t.Errorf("after 20 tries it waits for %v; want %v", last, lastPause)
	}
	q.tried(now, pod, true)
	q.add(now, []facts.PodRef{pod})
	if got := q.due(now); len(got) != 1 || q[pod].tries != 0 {
		t.Errorf("%v are due after another change; want the pod, as if for the first time", got)
	}
	if got := q.due(now); len(got) > 0 {
		t.Fatalf("%v are due while the pod is being changed", got)
	}
	q.add(now, []facts.PodRef{pod})
	if got := q.due(now); len(got) > 0 {
		t.Fatalf("%v are due while the pod is being changed", got)
	}
	q.tried(now, pod, false)
	if got := q.due(now); len(got) != 1 {
		t.Fatalf("%v are due; want the pod, which has changed meanwhile", got)
	}
	q.tried(now, pod, false)
	if len(q) > 0 {
		t.Errorf("%v is left; want nothing", q)
	}
}
