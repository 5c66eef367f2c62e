package grants

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are a broker's collectors. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	rounds  prometheus.Histogram
	asks    prometheus.Histogram
	calls   *prometheus.CounterVec
	waiting prometheus.Gauge
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		rounds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_broker_round_duration_seconds", Help: "How long a round of grants took.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 12),
		}),
		asks: with.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_broker_round_asks", Help: "How many asks a round worked on.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		calls: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_broker_calls_total", Help: "Calls to the API server, by verb and outcome.",
		}, []string{"verb", "outcome"}),
		waiting: with.NewGauge(prometheus.GaugeOpts{
			Name: "tenure_broker_waiting_asks", Help: "Asks that have not been granted.",
		}),
	}
}

func (m *Metrics) round(asks int, took time.Duration) {
	m.rounds.Observe(took.Seconds())
	m.asks.Observe(float64(asks))
}

func (m *Metrics) call(verb string, o protocol.Outcome) {
	m.calls.WithLabelValues(verb, o.String()).Inc()
}
