package hotplug

import (
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// How long is waited between two tries for one pod.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// A queue has the pods that are to be changed, and when.
type queue map[facts.PodRef]wait

// A wait is of a pod that is to be changed.
type wait struct {
	at      time.Time
	tries   int
	running bool // it is being changed
	more    bool // it selects others since that has begun
}

// add has pods changed now, or when what is being done to them has ended.
func (q queue) add(now time.Time, pods []facts.PodRef) {
	for _, pod := range pods {
		if w := q[pod]; w.running {
			w.more = true
			q[pod] = w
		} else {
			q[pod] = wait{at: now}
		}
	}
}

// due returns the pods whose time has come, and counts them as being changed.
func (q queue) due(now time.Time) (pods []facts.PodRef) {
	for pod, w := range q {
		if !w.running && !w.at.After(now) {
			w.running = true
			q[pod] = w
			pods = append(pods, pod)
		}
	}
	return pods
}

// tried takes note of what came of a try: each next one comes after twice the time.
func (q queue) tried(now time.Time, pod facts.PodRef, again bool) {
	switch {
	case q[pod].more:
		q[pod] = wait{at: now}
		return
	case !again:
		delete(q, pod)
		return
	}
	tries := q[pod].tries
	q[pod] = wait{at: now.Add(min(lastPause, firstPause<<min(tries, 10))), tries: tries + 1}
}
