package agent

import (
	"slices"
	"strings"
	"sync"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// requester is whom a request is for: an interface of a pod.
type requester struct {
	pod    protocol.UID
	ifName string
}

// A request is what memory has of a request of this node, while it may serve an
// ADD. The store's record is the truth.
type request struct {
	name string
	by   requester

	tried   protocol.Instant  // guarded by requests.mu; when an ADD last wanted it
	refused *protocol.Refusal // guarded by requests.mu; the controller's answer, if it was no
}

// requests finds requests by whom they are for. A kubelet that tries an ADD again
// must find the one that waits: another one would stand at the end of the line.
// The zero value is ready.
type requests struct {
	mu     sync.Mutex
	byName map[string]*request      // guarded by mu
	of     map[requester][]*request // guarded by mu; the same
}

// namesOf returns the names of the requests for by, the oldest first.
func (q *requests) namesOf(by requester) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for _, r := range q.of[by] {
		names = append(names, r.name)
	}
	return names
}

// try notes that an ADD wants the request of that name now.
func (q *requests) try(name string, by requester, now protocol.Instant) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.entry(name, by, now)
	r.tried = now
	return r
}

// entry returns the entry of name, a new one if there is none. q.mu must be held.
func (q *requests) entry(name string, by requester, now protocol.Instant) *request {
	if r, ok := q.byName[name]; ok {
		return r
	}
	if q.byName == nil {
		q.byName, q.of = map[string]*request{}, map[requester][]*request{}
	}
	r := &request{name: name, by: by, tried: now}
	q.byName[name] = r
	q.of[by] = append(q.of[by], r)
	return r
}

// follow keeps the index with what a step has recorded of a request.
func (q *requests) follow(res protocol.Result, now protocol.Instant) {
	r := res.Next
	q.mu.Lock()
	defer q.mu.Unlock()
	if !res.Forget && r.Request != nil && (r.Phase == protocol.Noted || r.Phase == protocol.Held) {
		q.entry(r.Name, requester{r.Request.Pod.UID, r.Request.Interface}, now)
		return
	}
	q.drop(r.Name)
}

// drop forgets the entry of name. q.mu must be held.
func (q *requests) drop(name string) {
	r, ok := q.byName[name]
	if !ok {
		return
	}
	delete(q.byName, name)
	rest := slices.DeleteFunc(q.of[r.by], func(o *request) bool { return o == r })
	if len(rest) == 0 {
		delete(q.of, r.by)
		return
	}
	q.of[r.by] = rest
}

// refuse notes why the controller has refused a request.
func (q *requests) refuse(name string, why protocol.Refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r, ok := q.byName[name]; ok {
		r.refused = &why
	}
}

// refusal returns why the controller has refused r, nil if it has not.
func (q *requests) refusal(r *request) *protocol.Refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.refused
}

// untried returns the requests that no ADD has wanted since before.
func (q *requests) untried(before func(tried protocol.Instant) bool) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*request
	for _, r := range q.byName {
		if before(r.tried) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *request) int { return strings.Compare(a.name, b.name) })
	return all
}
