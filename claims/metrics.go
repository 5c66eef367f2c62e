package claims

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the reconciler's collectors. The caller registers them.
type Metrics struct {
	allocated prometheus.Histogram
	failures  *prometheus.CounterVec
	conflicts prometheus.Counter
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	return &Metrics{
		allocated: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_claim_allocation_seconds", Help: "From a claim's creation to its addresses in its status; creation times have whole seconds.",
			Buckets: []float64{1, 2, 3, 5, 10, 30, 60, 300},
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_claim_failures_total", Help: "Claims that could not be allocated, by reason.",
		}, []string{"reason"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_claim_status_conflicts_total", Help: "Status writes that met a claim which had changed.",
		}),
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.allocated.Describe(ch)
	m.failures.Describe(ch)
	m.conflicts.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.allocated.Collect(ch)
	m.failures.Collect(ch)
	m.conflicts.Collect(ch)
}
