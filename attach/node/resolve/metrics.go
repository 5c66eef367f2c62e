package resolve

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are a resolver's collectors. The caller registers them as one. Labels are bounded.
type Metrics struct {
	*prometheus.Registry

	liveReads *prometheus.CounterVec // reads of the API server that an answer waited for, by kind
	statuses  *prometheus.CounterVec // statuses of pods, by what became of them
	warnings  *prometheus.CounterVec // warnings of the plugin, by reason

	mu      sync.Mutex
	reasons map[string]bool // guarded by mu; those that have a label of their own
}

func newMetrics(r *Resolver) *Metrics {
	of := prometheus.NewRegistry()
	of.MustRegister(collector{r})
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		liveReads: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_attach_live_reads_total", Help: "Reads of the API server that an ADD waited for, because no watch had what it took, by kind (pod, definition, namespace, podnetwork, attachment).",
		}, []string{"kind"}),
		statuses: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_attach_statuses_total", Help: "Writes of pods' network-status, by outcome (written; gone: the pod was; outdated: a newer one had come; too_large: it is not written; retried).",
		}, []string{"outcome"}),
		warnings: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_attach_warnings_total", Help: "What was ignored of pods' annotations, or went wrong, and was said in an event, by reason.",
		}, []string{"reason"}),
		reasons: map[string]bool{},
	}
}

func (m *Metrics) liveRead(kind string) { m.liveReads.WithLabelValues(kind).Inc() }

func (m *Metrics) statusWritten(outcome string) { m.statuses.WithLabelValues(outcome).Inc() }

// maxReasons is how many reasons of warnings have a label of their own: they come from
// another program.
const maxReasons = 32

func (m *Metrics) warned(reason string) {
	m.mu.Lock()
	if len(m.reasons) < maxReasons {
		m.reasons[reason] = true
	}
	if !m.reasons[reason] {
		reason = "Other"
	}
	m.mu.Unlock()
	m.warnings.WithLabelValues(reason).Inc()
}

// collector collects what a resolver has, when it is asked.
type collector struct{ r *Resolver }

var (
	descFollowed = prometheus.NewDesc("tenure_attach_followed", "Objects that are followed by name, by kind (definition, namespace).", []string{"kind"}, nil)
	descPending  = prometheus.NewDesc("tenure_attach_statuses_pending", "Statuses of pods that the API server has not taken yet.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descFollowed
	ch <- descPending
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(descFollowed, c.r.definitions.size(), "definition")
	gauge(descFollowed, c.r.labels.size(), "namespace")
	gauge(descPending, c.r.outbox.size())
}
