package pools

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// Metrics are the reconciler's collectors. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	addresses *prometheus.GaugeVec
	leases    *prometheus.GaugeVec
	open      *prometheus.GaugeVec
	pressure  *prometheus.GaugeVec
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		addresses: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_addresses", Help: "Addresses of a pool, by state: capacity, used, claimed, free, unreachable, foreign, reserved.",
		}, []string{"pool", "state"}),
		leases: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_leases", Help: "Leases of a pool's blocks.",
		}, []string{"pool"}),
		open: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_open", Help: "1 if blocks of the pool may be leased, else 0.",
		}, []string{"pool"}),
		pressure: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenure_pool_pressure", Help: "How scarce the pool's addresses are, as its status says: 0 Low, 1 High, 2 Exhausted.",
		}, []string{"pool"}),
	}
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
	if p, err := allocator.ParsePressure(string(pool.Status.Pressure)); err == nil { // a new pool has none yet
		m.pressure.WithLabelValues(pool.Name).Set(float64(p))
	}
}

func (m *Metrics) forget(pool string) {
	m.addresses.DeletePartialMatch(prometheus.Labels{"pool": pool})
	m.leases.DeleteLabelValues(pool)
	m.open.DeleteLabelValues(pool)
	m.pressure.DeleteLabelValues(pool)
}
