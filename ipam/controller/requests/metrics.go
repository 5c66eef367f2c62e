package requests

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are the reconciler's collectors. The caller registers them.
type Metrics struct {
	waits     prometheus.Histogram
	refusals  *prometheus.CounterVec
	dropped   prometheus.Counter
	conflicts prometheus.Counter
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	return &Metrics{
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_request_grant_seconds", Help: "Time from the creation of a request until its addresses are in its status.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_request_refusals_total", Help: "Requests that were refused, by reason.",
		}, []string{"reason"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_request_dropped_grants_total", Help: "Grants taken from requests that are gone, or whose status names others.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_request_conflicts_total", Help: "Answers that met a newer version of the request.",
		}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.waits, m.refusals, m.dropped, m.conflicts}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

// answered counts an answer, which took so long.
func (m *Metrics) answered(s protocol.SubLease, took time.Duration) {
	if s.Refused != nil {
		m.refusals.WithLabelValues(s.Refused.Reason).Inc()
		return
	}
	m.waits.Observe(took.Seconds())
}
