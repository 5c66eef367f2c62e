package deadnodes

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are the reconciler's collectors. The caller registers them.
type Metrics struct {
	terms        *prometheus.CounterVec
	leases, subs prometheus.Counter
	waiting      *prometheus.Desc

	mu   sync.Mutex
	left map[protocol.NodeName]int // guarded by mu
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	return &Metrics{
		terms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_takeover_terms_ended_total", Help: "Terms of dead nodes' registrations that were ended, by evidence: Taint or Silence.",
		}, []string{"evidence"}),
		leases: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_takeover_leases_total", Help: "Leases of dead nodes that the cluster has taken over.",
		}),
		subs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_takeover_sub_leases_total", Help: "Uses and requests of dead nodes that were deleted.",
		}),
		waiting: prometheus.NewDesc("tenure_takeover_waiting",
			"Leases, uses and requests of dead nodes that wait until somebody vouches with the out-of-service taint, as their pools ask.", nil, nil),
		left: map[protocol.NodeName]int{},
	}
}

// ended counts a term that was ended.
func (m *Metrics) ended(why protocol.Evidence) { m.terms.WithLabelValues(why.String()).Inc() }

// took counts what was taken.
func (m *Metrics) took(leases, subs int) {
	m.leases.Add(float64(leases))
	m.subs.Add(float64(subs))
}

// setWaiting notes how much of a node's waits.
func (m *Metrics) setWaiting(node protocol.NodeName, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == 0 {
		delete(m.left, node)
		return
	}
	m.left[node] = n
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.terms.Describe(ch)
	m.leases.Describe(ch)
	m.subs.Describe(ch)
	ch <- m.waiting
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.terms.Collect(ch)
	m.leases.Collect(ch)
	m.subs.Collect(ch)
	total := 0
	m.mu.Lock()
	for _, n := range m.left {
		total += n
	}
	m.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(total))
}
