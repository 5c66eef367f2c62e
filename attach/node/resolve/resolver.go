package resolve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Config configures a [Resolver].
type Config struct {
	// Wait is how long an answer waits for the API server, where the caches do not
	// have what it takes.
	Wait time.Duration
	// Reports is the directory where accepted reports are kept as long as their pods are
	// there.
	Reports string
	// State is the plugin's directory, where it keeps reports that it could not make;
	// empty, or a directory that is not there, has none. Collect is how often it is
	// looked into.
	State   string
	Collect time.Duration
	// Boot names the present boot of the machine: reports of another one are older.
	Boot string
	// Linger is how long a definition is followed that no pod selects any more.
	Linger time.Duration
	// VIFs says that interfaces are served that the control plane decides.
	VIFs bool
}

// DefaultConfig returns a Config that keeps reports in dir.
func DefaultConfig(dir string) Config {
	return Config{Wait: 5 * time.Second, Reports: dir, Collect: 10 * time.Second, Linger: time.Hour}
}

// validate reports every fault of c.
func (c Config) validate() error {
	var errs []error
	if c.Wait <= 0 || c.Linger <= 0 || c.Collect <= 0 {
		errs = append(errs, fmt.Errorf("Wait is %v, Linger %v and Collect %v, all must be positive", c.Wait, c.Linger, c.Collect))
	}
	if c.Reports == "" {
		errs = append(errs, errors.New("Reports is empty"))
	}
	return errors.Join(errs...)
}

// What is followed at most. Pods name definitions, also such as do not exist: what
// one of them names beyond its share is read when it is asked for.
const (
	maxDefinitions    = 1024
	maxDefinitionsPod = 32
	maxNamespaces     = 256
)

// Resolver answers the meta-plugin on one node. It is safe for concurrent use.
type Resolver struct {
	cfg     Config
	cl      Cluster
	log     *slog.Logger
	metrics *Metrics
	outbox  *outbox

	selections *selections
	stopped    chan struct{} // closed when Run ends

	definitions *mirror[facts.Ref, facts.Definition]
	labels      *mirror[string, map[string]string]
	networks    *podNetworks // nil where the cluster serves none

	mu       sync.Mutex
	selected map[podName][]facts.Ref // guarded by mu; the definitions wanted for a pod of the node
	changed  chan struct{}           // guarded by mu; closed when a pod of the node changes
}

// podName names a pod.
type podName struct{ namespace, name string }

// New returns a resolver. It does no I/O and starts nothing.
func New(cfg Config, cl Cluster, log *slog.Logger) (*Resolver, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("resolver configuration: %w", err)
	}
	r := &Resolver{
		cfg: cfg, cl: cl, log: log, selected: map[podName][]facts.Ref{}, changed: make(chan struct{}),
		selections: newSelections(), stopped: make(chan struct{}),
		definitions: newMirror(maxDefinitions, cfg.Linger, cl.Definitions.FollowDefinition),
		labels:      newMirror(maxNamespaces, cfg.Linger, cl.Namespaces.FollowLabels),
	}
	if cl.PodNetworks != nil {
		r.networks = newPodNetworks(cl.PodNetworks, cfg.Linger)
	}
	r.metrics = newMetrics(r)
	r.outbox = newOutbox(cfg, cl, r.metrics, log)
	return r, nil
}

// Metrics returns the resolver's collectors. The caller registers them.
func (r *Resolver) Metrics() *Metrics { return r.metrics }

// Run follows what this node's pods select, and hands accepted reports on, until ctx
// ends. It returns after every goroutine that it started has.
func (r *Resolver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); close(r.stopped); return nil })
	g.Go(func() error { r.definitions.run(ctx); return nil })
	g.Go(func() error { r.labels.run(ctx); return nil })
	if r.networks != nil {
		g.Go(func() error { r.networks.networks.run(ctx); return nil })
		g.Go(func() error { r.networks.attachments.run(ctx); return nil })
	}
	g.Go(func() error { return r.outbox.run(ctx) })
	if r.cfg.State != "" {
		g.Go(func() error { r.collect(ctx); return nil })
	}
	return g.Wait()
}

// PodChanged tells what the watch of the node's pods has seen of a pod, so that what
// it selects is at hand before it is asked for. It is not called concurrently.
func (r *Resolver) PodChanged(p Pod, exists bool) {
	r.outbox.podChanged(p, exists, time.Now())
	r.selections.podChanged(p, exists)
	name := podName{p.Namespace, p.Name}
	var now []facts.Ref
	if exists {
		// A default network named without its namespace is the configuration's to
		// find; it is followed from the first question on.
		now = plan.Wanted(facts.Question{}, facts.Pod{PodRef: facts.PodRef{Namespace: p.Namespace, Name: p.Name}, Annotations: p.Annotations})
		now = append(now[:min(len(now), maxDefinitionsPod)], r.madeFor(p)...)
	}
	if r.networks != nil && exists {
		r.networks.followAhead(p)
	}
	r.mu.Lock()
	before := r.selected[name]
	if r.selected[name] = now; len(now) == 0 {
		delete(r.selected, name)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	for _, ref := range now { // first, so that what stays is wanted all the time
		r.definitions.want(ref)
	}
	for _, ref := range before {
		r.definitions.drop(ref)
	}
}

// Serve implements [agentapi.Handler] for the verbs of the meta-plugin.
func (r *Resolver) Serve(ctx context.Context, req agentapi.Request) agentapi.Response {
	resp := agentapi.Response{Version: agentapi.Version}
	var err error
	switch req.Verb {
	case agentapi.Facts:
		resp.Facts, err = r.facts(ctx, req.Ask)
	case agentapi.Report:
		err = r.report(req.Ask)
	case agentapi.Selected:
		resp.Facts, err = r.awaitSelected(ctx, req.Ask)
	default:
		err = fmt.Errorf("verb %s is not the meta-plugin's", req.Verb)
	}
	if err != nil {
		return agentapi.Response{Version: agentapi.Version, Error: wireError(err)}
	}
	return resp
}

// A laterError says what cannot be known now, and may be in a moment.
type laterError struct {
	What string
	Err  error
}

func (e *laterError) Error() string {
	if e.Err == nil {
		return e.What
	}
	return e.What + ": " + e.Err.Error()
}

func (e *laterError) Unwrap() error { return e.Err }

// A badAskError says that a plugin does not keep to the form of what it says.
type badAskError struct{ Err error }

func (e *badAskError) Error() string {
	return "the plugin's words are not understood: " + e.Err.Error()
}

func (e *badAskError) Unwrap() error { return e.Err }

func isBadAsk(err error) bool {
	_, bad := errors.AsType[*badAskError](err)
	return bad
}

// wireError is the only place where errors of this package meet the CNI codes.
func wireError(err error) *agentapi.Error {
	code := agentapi.CodeInternal
	if isBadAsk(err) {
		code = agentapi.CodeDecoding
	} else if _, later := errors.AsType[*laterError](err); later || errors.Is(err, agentapi.ErrStopped) || errors.Is(err, agentapi.ErrHungUp) || errors.Is(err, context.DeadlineExceeded) {
		code = agentapi.CodeTryAgainLater
	}
	return &agentapi.Error{Code: code, Msg: err.Error()}
}

// facts answers a question.
func (r *Resolver) facts(ctx context.Context, ask json.RawMessage) (json.RawMessage, error) {
	var q facts.Question
	if err := json.Unmarshal(ask, &q); err != nil {
		return nil, &badAskError{err}
	}
	if err := checkPod(q.Pod); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Wait, &laterError{What: fmt.Sprintf("what is to be known of pod %s/%s was not there within %v", q.Pod.Namespace, q.Pod.Name, r.cfg.Wait)})
	defer cancel()
	src := Source(r)
	if q.Live {
		src = live{r}
	}
	answer, err := Gather(ctx, src, q)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return nil, err
	}
	return json.Marshal(answer)
}

func checkPod(ref facts.PodRef) error {
	if ref.Namespace == "" || ref.Name == "" {
		return &badAskError{errors.New("it names no pod: the runtime must give K8S_POD_NAMESPACE and K8S_POD_NAME")}
	}
	return nil
}

// Pod implements [Source]. A pod that the watch does not have, or not with the UID
// that the runtime names, is read live.
func (r *Resolver) Pod(ctx context.Context, ref facts.PodRef) (Pod, error) {
	// Without a UID the watch may have the previous pod of that name.
	if p, ok := r.cl.Pods.Cached(ref.Namespace, ref.Name); ok && ref.UID != "" && p.is(ref.UID) {
		return p, nil
	}
	return live{r}.Pod(ctx, ref)
}

// live is a Resolver that reads pods from the API server.
type live struct{ *Resolver }

// Pod implements [Source].
func (l live) Pod(ctx context.Context, ref facts.PodRef) (Pod, error) {
	l.metrics.liveRead("pod")
	p, out, err := l.cl.Pods.ReadPod(ctx, ref.Namespace, ref.Name)
	return livePod(ref, p, out, err)
}

// livePod judges what a live read of a pod has shown.
func livePod(ref facts.PodRef, p Pod, out protocol.Outcome, err error) (Pod, error) {
	name := ref.Namespace + "/" + ref.Name
	switch {
	case out == protocol.NotFound:
		return Pod{}, &laterError{What: fmt.Sprintf("pod %s does not exist (of a static pod: its mirror does not exist yet)", name)}
	case out != protocol.Done:
		return Pod{}, &laterError{"pod " + name + " cannot be read", err}
	case !p.is(ref.UID):
		return Pod{}, &laterError{What: fmt.Sprintf("pod %s has UID %s, and the runtime asks for one with UID %s", name, p.UID, ref.UID)}
	}
	return p, nil
}

// Definition implements [Source]. What the watch has not shown to exist is read live,
// but for what the configuration names: it is the same for every pod, and may well be
// no definition but a file.
func (r *Resolver) Definition(ctx context.Context, ref facts.Ref, named bool) (facts.Definition, error) {
	switch d, seen := r.definitions.get(ref); {
	case seen == present:
		return d, nil
	case seen == absent && named:
		return Missing(ref), nil
	}
	r.metrics.liveRead("definition")
	d, out, err := r.cl.Definitions.ReadDefinition(ctx, ref)
	return liveDefinition(ref, d, out, err)
}

// liveDefinition judges what a live read of a definition has shown.
func liveDefinition(ref facts.Ref, d facts.Definition, out protocol.Outcome, err error) (facts.Definition, error) {
	switch out {
	case protocol.Done:
		return d, nil
	case protocol.NotFound:
		return Missing(ref), nil
	case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
	}
	return facts.Definition{}, &laterError{fmt.Sprintf("network attachment definition %s cannot be read", ref), err}
}

// Missing returns what is told of a definition that does not exist.
func Missing(ref facts.Ref) facts.Definition {
	return facts.Definition{Ref: ref, Missing: fmt.Sprintf("there is no NetworkAttachmentDefinition %s in namespace %s", ref.Name, ref.Namespace)}
}

// Labels implements [Source].
func (r *Resolver) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	if labels, seen := r.labels.get(namespace); seen == present {
		return labels, nil
	}
	r.metrics.liveRead("namespace")
	labels, out, err := r.cl.Namespaces.ReadLabels(ctx, namespace)
	if out != protocol.Done {
		return nil, &laterError{"namespace " + namespace + " cannot be read", err}
	}
	return labels, nil
}

// DevicesOf implements [Source].
func (r *Resolver) DevicesOf(ctx context.Context, namespace, pod string) (map[string][]string, error) {
	devices, err := r.cl.Devices.DevicesOf(ctx, namespace, pod)
	if err != nil {
		return nil, &laterError{"the kubelet does not say which devices it gave", err}
	}
	return devices, nil
}

// report accepts a report: its warnings and notes are said, its status is kept until the API
// server has it.
func (r *Resolver) report(ask json.RawMessage) error {
	var rep facts.Report
	if err := json.Unmarshal(ask, &rep); err != nil {
		return &badAskError{err}
	}
	return r.take(rep)
}

// take takes a report over.
func (r *Resolver) take(rep facts.Report) error {
	if err := checkPod(rep.Pod); err != nil {
		return err
	}
	if len(rep.Status) > 0 {
		var list []json.RawMessage
		if err := json.Unmarshal(rep.Status, &list); err != nil {
			return &badAskError{fmt.Errorf("status: want a list: %w", err)}
		}
		if err := r.outbox.accept(status{Pod: rep.Pod, Made: rep.Made, Text: string(rep.Status), PodIPs: string(rep.PodIPs)}); err != nil {
			return err
		}
	}
	pod := protocol.PodRef{Namespace: rep.Pod.Namespace, Name: rep.Pod.Name, UID: protocol.UID(rep.Pod.UID)}
	if p, ok := r.cl.Pods.Cached(pod.Namespace, pod.Name); ok && p.is(rep.Pod.UID) {
		pod.UID = p.UID // an event of a static pod is its mirror's
	}
	for _, w := range rep.Warnings {
		r.metrics.warned(w.Reason)
		r.cl.Warn(pod, w.Reason, w.Message)
	}
	for _, n := range rep.Notes {
		r.cl.Note(pod, n.Reason, n.Message)
	}
	return nil
}
