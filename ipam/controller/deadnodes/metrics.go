package deadnodes

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are the reconciler's collectors. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	terms        *prometheus.CounterVec
	leases, subs prometheus.Counter

	mu   sync.Mutex
	left map[protocol.NodeName]int // guarded by mu
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	m := &Metrics{
		Registry: of,
		terms: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_takeover_terms_ended_total", Help: "Terms of dead nodes' registrations that were ended, by evidence: Taint or Silence.",
		}, []string{"evidence"}),
		leases: with.NewCounter(prometheus.CounterOpts{
			Name: "tenure_takeover_leases_total", Help: "Leases of dead nodes that the cluster has taken over.",
		}),
		subs: with.NewCounter(prometheus.CounterOpts{
			Name: "tenure_takeover_sub_leases_total", Help: "Uses and requests of dead nodes that were deleted.",
		}),
		left: map[protocol.NodeName]int{},
	}
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenure_takeover_waiting",
		Help: "Leases, uses and requests of dead nodes that wait until somebody vouches with the out-of-service taint, as their pools ask.",
	}, m.waiting)
	// What begins with the first node that dies would show no growth then.
	for _, why := range []protocol.Evidence{protocol.EvidenceSilence, protocol.EvidenceTaint} {
		m.terms.WithLabelValues(why.String())
	}
	return m
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

// waiting returns how much of all nodes waits.
func (m *Metrics) waiting() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := 0
	for _, n := range m.left {
		total += n
	}
	return float64(total)
}
