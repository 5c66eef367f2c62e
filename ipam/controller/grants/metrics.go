package grants

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are a broker's collectors. The caller registers them.
type Metrics struct {
	rounds  prometheus.Histogram
	asks    prometheus.Histogram
	changes prometheus.Counter
	calls   *prometheus.CounterVec
	waiting prometheus.Gauge
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	return &Metrics{
		rounds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_broker_round_duration_seconds", Help: "How long a round of grants took.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 12),
		}),
		asks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenure_broker_round_asks", Help: "How many asks a round worked on.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_broker_changes_total", Help: "Grants marked, unmarked or removed.",
		}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_broker_calls_total", Help: "Calls to the API server, by verb and outcome.",
		}, []string{"verb", "outcome"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tenure_broker_waiting_asks", Help: "Asks that have not been granted.",
		}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.rounds, m.asks, m.changes, m.calls, m.waiting}
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

func (m *Metrics) round(asks, jobs int, took time.Duration) {
	m.rounds.Observe(took.Seconds())
	m.asks.Observe(float64(asks))
	m.changes.Add(float64(jobs))
}

func (m *Metrics) call(verb string, o protocol.Outcome) {
	m.calls.WithLabelValues(verb, o.String()).Inc()
}
