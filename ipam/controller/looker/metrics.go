package looker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are a Looker's collectors. The caller registers them.
type Metrics struct {
	looks prometheus.Histogram
	calls prometheus.Counter
	pods  prometheus.Gauge
	kept  prometheus.Gauge
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	return &Metrics{
		looks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_foreign_look_seconds", Help: "Time of one look at what pods have by other IPAMs.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		calls: prometheus.NewCounter(prometheus.CounterOpts{Name: "tenure_foreign_look_calls_total", Help: "Pages of pods that looks have listed."}),
		pods:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "tenure_foreign_pods", Help: "Pods with secondary networks that the last look has seen."}),
		kept:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "tenure_foreign_addresses", Help: "Addresses that are kept for pods of other IPAMs."}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.looks, m.calls, m.pods, m.kept}
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

// looked notes a look.
func (m *Metrics) looked(took time.Duration, pods, calls, kept int) {
	m.looks.Observe(took.Seconds())
	m.calls.Add(float64(calls))
	m.pods.Set(float64(pods))
	m.kept.Set(float64(kept))
}
