package resolve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A status is what a pod's status annotation is to say.
type status struct {
	Pod facts.PodRef `json:"pod"`
	// Made is when it was true.
	Made facts.Made `json:"made,omitzero"`
	// Text is the annotation's.
	Text string `json:"text"`
	// PodIPs is that of the annotation tenure.dev/pod-ips; empty: the pod has none.
	PodIPs string `json:"podIPs,omitempty"`
}

// annotations returns what is written to the pod.
func (s status) annotations() map[string]string {
	all := map[string]string{npwg.AnnotationStatus: s.Text}
	if s.PodIPs != "" {
		all[podnetwork.AnnotationIPs] = s.PodIPs
	}
	return all
}

// An outbox has the statuses that the API server has yet to be told, the last one of
// each pod, and those that it has been told or cannot take. Each is a file of a directory
// as well: a restart of the agent loses none. Files are not synced to the disk: a crash of the
// machine ends the pods' sandboxes, and new ones are reported anew.
type outbox struct {
	dir     string
	boot    string // the machine's present one
	pods    Pods
	warn    func(pod protocol.PodRef, reason, message string)
	metrics *Metrics
	log     *slog.Logger
	wake    chan struct{} // there is a letter without a carrier
	calls   chan struct{} // tokens: so many calls at once

	mu      sync.Mutex
	loaded  bool               // guarded by mu
	letters map[string]*letter // guarded by mu; by file name
	shown   map[string]*shown  // guarded by mu; by file name
}

// A shown is a status that a pod of the node has got. It is remembered as long as the pod exists.
// An older report that comes late must not replace it, and when the mirror of a static pod is
// made anew, the status is written to it again.
type shown struct {
	status status
	uid    protocol.UID // the API's
	lost   time.Time    // since when the watch does not show it; zero while it does
}

// maxLost is how long the watch may not show a pod until it counts as gone: the kubelet
// makes a static pod's mirror anew within seconds.
const maxLost = 10 * time.Minute

// A letter is a status on its way.
type letter struct {
	status  status
	edition int           // counts statuses of the pod
	carried bool          // a goroutine sees to it
	changed chan struct{} // a newer edition is there
}

// maxCalls is how many calls to the API server are under way at once.
const maxCalls = 8

func newOutbox(cfg Config, cl Cluster, m *Metrics, log *slog.Logger) *outbox {
	return &outbox{
		dir: cfg.Reports, boot: cfg.Boot, pods: cl.Pods, warn: cl.Warn, metrics: m, log: log,
		wake: make(chan struct{}, 1), calls: make(chan struct{}, maxCalls), letters: map[string]*letter{}, shown: map[string]*shown{},
	}
}

// accept takes s over. Once it has returned nil, the pod gets the status as long as
// it exists, unless it has or gets a newer one.
func (o *outbox) accept(s status) error {
	name := fileOf(s.Pod)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.loadLocked(); err != nil {
		return err
	}
	if last, ok := o.lastLocked(name); ok && s.Made.Before(last.Made, o.boot) {
		o.metrics.statusWritten("outdated")
		o.log.Debug("status dropped: the pod has a newer one", "namespace", s.Pod.Namespace, "pod", s.Pod.Name)
		return nil
	}
	return o.keepLocked(name, s)
}

// lastLocked returns the status that the pod of that file gets or has. o.mu must be
// held.
func (o *outbox) lastLocked(name string) (status, bool) {
	if l, ok := o.letters[name]; ok {
		return l.status, true
	}
	if sh, ok := o.shown[name]; ok {
		return sh.status, true
	}
	return status{}, false
}

// keepLocked keeps s in its file and puts it on its way. o.mu must be held.
func (o *outbox) keepLocked(name string, s status) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// Under the lock: of two statuses the later one must be the file's too. It is a
	// short write that nothing waits for but other pods' reports.
	if err := o.write(name, raw); err != nil {
		return fmt.Errorf("keep the status of pod %s/%s: %w", s.Pod.Namespace, s.Pod.Name, err)
	}
	o.setLetterLocked(name, s)
	return nil
}

// podChanged takes note of what the watch of the node's pods shows of a pod.
func (o *outbox) podChanged(p Pod, exists bool, now time.Time) {
	name := fileOf(facts.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.kubelets())})
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.loadLocked(); err != nil {
		o.log.Warn("statuses of pods not remembered", "error", err)
	}
	sh, ok := o.shown[name]
	switch {
	case ok && exists && sh.uid != p.UID: // another mirror of the same static pod
		delete(o.shown, name)
		if _, newer := o.letters[name]; !newer {
			o.setLetterLocked(name, sh.status) // its file stays, so that a restart sends it as well
		}
	case ok && exists:
		sh.lost = time.Time{}
	case ok && p.MirrorOf != "":
		sh.lost = now
	case ok:
		o.forgetShownLocked(name)
	}
	for name, sh := range o.shown {
		if !sh.lost.IsZero() && now.Sub(sh.lost) >= maxLost {
			o.forgetShownLocked(name)
		}
	}
}

// setLetterLocked makes s the letter of that name, in the place of an earlier one. o.mu must be
// held.
func (o *outbox) setLetterLocked(name string, s status) {
	l, ok := o.letters[name]
	if !ok {
		l = &letter{changed: make(chan struct{}, 1)}
		o.letters[name] = l
		signal(o.wake)
	} else {
		signal(l.changed)
	}
	l.status = s
	l.edition++
}

// signal wakes who waits for c, which has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// size returns how many statuses are on their way.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.letters)
}

// run hands statuses on until ctx ends.
func (o *outbox) run(ctx context.Context) error {
	o.mu.Lock()
	err := o.loadLocked()
	o.mu.Unlock()
	if err != nil {
		return err
	}
	var carriers sync.WaitGroup
	defer carriers.Wait()
	for {
		o.mu.Lock()
		for name, l := range o.letters {
			if !l.carried {
				l.carried = true
				carriers.Go(func() { o.carry(ctx, name, l) })
			}
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
		}
	}
}

// How long is waited between two tries for one pod.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
)

// carry hands a letter on, and tries again until it has arrived, or its pod is gone.
func (o *outbox) carry(ctx context.Context, name string, l *letter) {
	tries := 0
	for ctx.Err() == nil {
		o.mu.Lock()
		s, edition := l.status, l.edition
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case o.calls <- struct{}{}:
		}
		uid, done, err := o.send(ctx, s, tries > 0)
		<-o.calls
		if done {
			if o.forget(name, l, edition, uid) {
				return
			}
			tries = 0
			continue
		}
		o.metrics.statusWritten("retried")
		if tries == 0 || backOff(tries) == lastPause {
			o.log.WarnContext(ctx, "status not written yet", "namespace", s.Pod.Namespace, "pod", s.Pod.Name, "error", err)
		}
		o.await(ctx, l, jitter(backOff(tries)))
		tries++
	}
}

// backOff returns the pause after so many tries.
func backOff(tries int) time.Duration {
	return min(lastPause, firstPause<<min(tries, 16))
}

// jitter returns d, give or take a half: after an outage not all nodes must come at once.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// await waits for d, or until there is a newer edition.
func (o *outbox) await(ctx context.Context, l *letter, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-l.changed:
	}
}

// forget drops a letter that has arrived at the pod with that UID, or at none, unless
// there is a newer edition.
func (o *outbox) forget(name string, l *letter, edition int, uid protocol.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.edition != edition {
		return false
	}
	delete(o.letters, name)
	path := filepath.Join(o.dir, name)
	pod := l.status.Pod
	if uid == "" || pod.UID == "" { // without one it may have been any pod's
		o.remove(path)
		o.forgetShownLocked(name)
		return true
	}
	sh := &shown{status: l.status, uid: uid}
	if p, ok := o.pods.Cached(pod.Namespace, pod.Name); !ok || p.UID != uid {
		sh.lost = time.Now() // the watch has yet to show it, or its end
	}
	o.shown[name] = sh
	if err := os.Rename(path, o.shownFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // see podChanged
		o.log.Warn("kept status not noted as written: it will be written once more", "path", path, "error", err)
	}
	return true
}

// ReasonStatusTooLarge is of the warning that a pod's status has no room among its annotations.
const ReasonStatusTooLarge = "NetworkStatusTooLarge"

// send tries once to write s, and returns the UID of the pod that has it now, or that has no room
// for it and is told so. It reports whether there is nothing more to do.
func (o *outbox) send(ctx context.Context, s status, live bool) (uid protocol.UID, done bool, err error) {
	p, out, err := o.find(ctx, s.Pod, live)
	if out == protocol.Done && !p.is(s.Pod.UID) {
		out = protocol.NotFound // the pod of that name is another one
	}
	if out == protocol.Done {
		out, err = o.pods.Annotate(ctx, protocol.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, s.annotations())
	}
	if errors.Is(err, ErrTooLarge) {
		// What stands there tells of an earlier sandbox, or came with the pod.
		none := map[string]string{npwg.AnnotationStatus: "", podnetwork.AnnotationIPs: ""}
		if out, err := o.pods.Annotate(ctx, protocol.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, none); out != protocol.Done {
			return "", false, err
		}
		o.metrics.statusWritten("too_large")
		o.metrics.warned(ReasonStatusTooLarge)
		o.warn(protocol.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, ReasonStatusTooLarge, fmt.Sprintf(
			"the network status, of %d bytes, is not written: all annotations of a pod may have %d bytes together. The pod is attached all the same. "+
				"To have the status, select fewer networks, or take other annotations out, and make the pod again", len(s.Text)+len(s.PodIPs), npwg.MaxAnnotations))
		return p.UID, true, nil
	}
	switch out {
	case protocol.Done:
		o.metrics.statusWritten("written")
		return p.UID, true, nil
	case protocol.NotFound:
		o.metrics.statusWritten("gone")
		o.log.DebugContext(ctx, "status dropped: its pod is gone", "namespace", s.Pod.Namespace, "pod", s.Pod.Name)
		return "", true, nil
	case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
	}
	return "", false, err
}

// find finds a pod by the UID that the runtime knows, live if asked to.
func (o *outbox) find(ctx context.Context, ref facts.PodRef, live bool) (Pod, protocol.Outcome, error) {
	if !live && ref.UID != "" {
		if p, ok := o.pods.Cached(ref.Namespace, ref.Name); ok && p.is(ref.UID) {
			return p, protocol.Done, nil
		}
	}
	return o.pods.ReadPod(ctx, ref.Namespace, ref.Name)
}
