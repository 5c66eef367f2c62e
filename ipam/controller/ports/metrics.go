package ports

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
)

// Metrics are the collectors of a [Ports]. The caller registers them as one.
type Metrics struct {
	*prometheus.Registry

	asks    *prometheus.CounterVec
	deleted prometheus.Counter
}

// NewMetrics returns the collectors.
func NewMetrics() *Metrics {
	of := prometheus.NewRegistry()
	with := promauto.With(of)
	return &Metrics{
		Registry: of,
		asks: with.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_neutron_port_asks_total", Help: "Ports that were asked for, by what Neutron answered: Made, or the reason of the refusal.",
		}, []string{"answer"}),
		deleted: with.NewCounter(prometheus.CounterOpts{
			Name: "tenure_neutron_ports_deleted_total", Help: "Claims whose ports were deleted, because the claim is gone.",
		}),
	}
}

// asked counts one port that was asked for; no reason is that it is there.
func (m *Metrics) asked(reason neutron.Reason) {
	if reason == "" {
		reason = "Made"
	}
	m.asks.WithLabelValues(string(reason)).Inc()
}
