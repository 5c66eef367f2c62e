package claims

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the reconciler's collectors. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	allocated prometheus.Histogram
	failures  *prometheus.CounterVec
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		allocated: with.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_claim_allocation_seconds", Help: "From a claim's creation to its addresses in its status; creation times have whole seconds.",
			Buckets: []float64{1, 2, 3, 5, 10, 30, 60, 300},
		}),
		failures: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_claim_failures_total", Help: "Claims that could not be allocated, by reason.",
		}, []string{"reason"}),
	}
}
