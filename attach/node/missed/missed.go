// Package missed finds the pods that tenure-attach has missed: they select networks, and the
// runtime made their sandboxes without it. Then no call fails, and nobody else says so.
package missed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/pause"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ReasonNotAttached is the reason of the Event of a pod that was missed.
const ReasonNotAttached = "NetworksNotAttached"

// tellEvery is how often the same is told of a pod: Events last for an hour.
const tellEvery = 30 * time.Minute

// A Pod is a pod of the node, as the watch shows it.
type Pod struct {
	protocol.PodRef // with the API's UID
	// MirrorOf is, of a static pod's mirror, the UID by which the runtime knows the pod.
	MirrorOf    protocol.UID
	Leaving     bool // it is being deleted
	Annotations map[string]string
}

// Config configures a [Finder].
type Config struct {
	// ResultDirs are where runtime and meta-plugins keep results, and MetaDirs those of them
	// where a meta-plugin does.
	ResultDirs, MetaDirs []string
	// Every is how often it is looked.
	Every time.Duration
}

// A Node is what a Finder asks, and tells.
type Node struct {
	// Pods returns the node's pods.
	Pods func() []Pod
	// Gone reports whether the network namespace at a path is certainly gone.
	Gone func(netns string) bool
	// Rival says what keeps the runtime from tenure-attach, empty if nothing is known.
	Rival func() string
	// Warn says something to the owner of a pod. It does not wait for the API server.
	Warn func(pod protocol.PodRef, reason, message string)
}

// A Finder finds the missed pods of one node. Make one with [New].
type Finder struct {
	cfg     Config
	node    Node
	log     *slog.Logger
	results results
	told    map[protocol.UID]time.Time // when it was told of a pod last
	missed  atomic.Int64
	metric  prometheus.GaugeFunc
}

// New returns a Finder. It does no I/O and starts nothing.
func New(cfg Config, node Node, log *slog.Logger) *Finder {
	f := &Finder{cfg: cfg, node: node, log: log, results: newResults(cfg), told: map[protocol.UID]time.Time{}}
	f.metric = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenure_attach_pods_missed", Help: "Pods of this node that select networks and run without them: the runtime made their sandboxes without the meta-plugin.",
	}, func() float64 { return float64(f.missed.Load()) })
	return f
}

// Metrics returns the collector of the Finder. The caller registers it.
func (f *Finder) Metrics() prometheus.Collector { return f.metric }

// Run looks until ctx ends.
func (f *Finder) Run(ctx context.Context) error {
	said := ""
	for {
		err := f.look(ctx, time.Now())
		if err != nil && err.Error() != said {
			f.log.WarnContext(ctx, "whether the runtime made sandboxes without tenure-attach is not known", "error", err)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
		if !pause.For(ctx, f.cfg.Every) {
			return nil
		}
	}
}

// look looks once, and tells of the pods that were missed.
func (f *Finder) look(ctx context.Context, now time.Time) error {
	sandboxes, err := f.results.read(now)
	if err != nil {
		return err
	}
	missed := map[protocol.UID]bool{}
	for _, p := range f.node.Pods() {
		selected := plan.Selected(facts.Pod{PodRef: facts.PodRef{Namespace: p.Namespace, Name: p.Name}, Annotations: p.Annotations})
		if p.Leaving || len(selected) == 0 {
			continue
		}
		i := slices.IndexFunc(sandboxes, func(s sandbox) bool { return p.missedBy(s) && !f.node.Gone(s.netns) })
		if i < 0 {
			continue
		}
		missed[p.UID] = true
		if at, ok := f.told[p.UID]; ok && now.Sub(at) < tellEvery {
			continue
		}
		f.told[p.UID] = now
		f.tell(ctx, p, sandboxes[i], selected)
	}
	for uid := range f.told {
		if !missed[uid] {
			delete(f.told, uid)
		}
	}
	f.missed.Store(int64(len(missed)))
	return nil
}

// missedBy reports whether s is a sandbox of p that was made without a meta-plugin. A status that
// tells of that very sandbox was written by one that is not known here.
func (p Pod) missedBy(s sandbox) bool {
	if s.attached || s.pod.Namespace != p.Namespace || s.pod.Name != p.Name {
		return false
	}
	if s.pod.UID != "" && s.pod.UID != p.UID && s.pod.UID != p.MirrorOf {
		return false
	}
	return !npwg.StatusIsOf(p.Annotations[npwg.AnnotationStatus], s.addrs)
}

// tell tells of a pod that was missed.
func (f *Finder) tell(ctx context.Context, p Pod, s sandbox, selected []string) {
	why := f.node.Rival()
	if why == "" {
		why = "it was made before tenure-attach was there, or while the runtime took another configuration"
	}
	message := fmt.Sprintf("the pod runs without the networks that it selects (%s): the runtime made its sandbox by network %s, without tenure-attach. %s. When that is mended, delete the pod, so that it is made anew",
		strings.Join(selected, ", "), s.network, why)
	f.log.WarnContext(ctx, "a pod runs without the networks that it selects", "pod", p.String(), "sandbox", s.id, "network", s.network, "error", why)
	f.node.Warn(p.PodRef, ReasonNotAttached, message)
}
