package looker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are a Looker's collectors. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	looks prometheus.Histogram
	pods  prometheus.Gauge
	kept  prometheus.Gauge
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		looks: with.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_foreign_look_seconds", Help: "Time of one look at what pods have by other IPAMs.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		pods: with.NewGauge(prometheus.GaugeOpts{Name: "tenure_foreign_pods", Help: "Pods with secondary networks that the last look has seen."}),
		kept: with.NewGauge(prometheus.GaugeOpts{Name: "tenure_foreign_addresses", Help: "Addresses that are kept for pods of other IPAMs."}),
	}
}

// looked notes a look.
func (m *Metrics) looked(took time.Duration, pods, kept int) {
	m.looks.Observe(took.Seconds())
	m.pods.Set(float64(pods))
	m.kept.Set(float64(kept))
}
