package pools

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// Metrics are the reconciler's collectors. The caller registers them.
type Metrics struct {
	addresses *prometheus.GaugeVec
	leases    *prometheus.GaugeVec
	open      *prometheus.GaugeVec
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	return &Metrics{
		addresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_addresses", Help: "Addresses of a pool, by state: capacity, used, claimed, free, unreachable, foreign, reserved.",
		}, []string{"pool", "state"}),
		leases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_leases", Help: "Leases of a pool's blocks.",
		}, []string{"pool"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_open", Help: "1 if blocks of the pool may be leased, else 0.",
		}, []string{"pool"}),
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.addresses.Describe(ch)
	m.leases.Describe(ch)
	m.open.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.addresses.Collect(ch)
	m.leases.Collect(ch)
	m.open.Collect(ch)
}

func (m *Metrics) observe(pool *v1alpha1.IPPool, t tally, shape *allocator.Shape) {
	c := t.counts(shape)
	for state, n := range map[string]int64{
		"capacity": c.Capacity, "used": c.Used, "claimed": c.Claimed, "free": c.Free, "unreachable": c.Unreachable, "foreign": c.Foreign, "reserved": c.Reserved,
	} {
		m.addresses.WithLabelValues(pool.Name, state).Set(float64(n))
	}
	m.leases.WithLabelValues(pool.Name).Set(float64(c.Leases))
	open := 0.0
	if pool.Status.Leasing == v1alpha1.LeasingOpen {
		open = 1
	}
	m.open.WithLabelValues(pool.Name).Set(open)
}

func (m *Metrics) forget(pool string) {
	m.addresses.DeletePartialMatch(prometheus.Labels{"pool": pool})
	m.leases.DeleteLabelValues(pool)
	m.open.DeleteLabelValues(pool)
}
