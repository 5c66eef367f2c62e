package resolve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// selectedWait is how long who asks for pods that select other networks waits at most.
const selectedWait = 30 * time.Second

// selections are what this node's pods select, for who changes the networks of running pods. Every
// change has a number.
type selections struct {
	of string // this run of the agent

	mu       sync.Mutex
	pods     map[podName]selection // guarded by mu
	revision int64                 // guarded by mu; the last number
	changed  chan struct{}         // guarded by mu; closed when there is a higher one
}

// A selection is what a pod selects.
type selection struct {
	pod      facts.PodRef
	text     string
	revision int64
}

func newSelections() *selections {
	return &selections{of: rand.Text(), pods: map[podName]selection{}, changed: make(chan struct{})}
}

// podChanged takes note of what the watch shows of a pod.
func (s *selections) podChanged(p Pod, exists bool) {
	name := podName{p.Namespace, p.Name}
	now := selection{pod: facts.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.kubelets())}, text: p.Annotations[npwg.AnnotationNetworks]}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !exists {
		delete(s.pods, name)
		return
	}
	if was, ok := s.pods[name]; ok && was.pod == now.pod && was.text == now.text {
		return
	}
	s.revision++
	now.revision = s.revision
	s.pods[name] = now
	close(s.changed)
	s.changed = make(chan struct{})
}

// after answers a question at once if there is something to say, and what would have to be closed
// for that.
func (s *selections) after(q facts.Since) (answer facts.Selected, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Of != s.of {
		q.Revision = 0
	}
	answer = facts.Selected{Of: s.of, Revision: s.revision}
	for _, p := range s.pods {
		if p.revision > q.Revision {
			answer.Pods = append(answer.Pods, p.pod)
		}
	}
	return answer, s.changed
}

// awaitSelected answers which pods select other networks than before. It waits for some, until the
// agent stops.
func (r *Resolver) awaitSelected(ctx context.Context, ask json.RawMessage) (json.RawMessage, error) {
	var q facts.Since
	if err := json.Unmarshal(ask, &q); err != nil {
		return nil, &badAskError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, selectedWait)
	defer cancel()
	answer, changed := r.selections.after(q)
	if len(answer.Pods) == 0 {
		select {
		case <-changed:
			answer, _ = r.selections.after(q)
		case <-ctx.Done():
		case <-r.stopped:
		}
	}
	return json.Marshal(answer)
}
