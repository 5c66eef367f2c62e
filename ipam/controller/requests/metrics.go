package requests

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are the reconciler's collectors. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	waits    prometheus.Histogram
	refusals *prometheus.CounterVec
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		waits: with.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_request_grant_seconds", Help: "Time from the creation of a request until its addresses are in its status.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		refusals: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_request_refusals_total", Help: "Requests that were refused, by reason.",
		}, []string{"reason"}),
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
