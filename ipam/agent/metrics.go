package agent

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/wire"
)

// Metrics are the agent's collectors. The caller registers them. Labels are
// bounded: verbs, CNI codes, kinds of calls and their outcomes.
type Metrics struct {
	requests *prometheus.CounterVec   // by verb and CNI code ("0" is success)
	took     *prometheus.HistogramVec // seconds to answer, by verb
	calls    *prometheus.CounterVec   // protocol calls to the API server, by kind, call and outcome
	swept    prometheus.Counter       // attachments freed without a DEL
	state    prometheus.Collector     // what the store has, set by the agent
}

func newMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_agent_requests_total", Help: "Requests of the CNI plugin, by verb and CNI error code (0: success).",
		}, []string{"verb", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenure_agent_request_seconds", Help: "Time from a request's arrival to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"verb"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_agent_api_calls_total", Help: "Calls of the lease protocol to the API server, by kind of right, call and outcome.",
		}, []string{"kind", "call", "outcome"}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_agent_garbage_freed_total", Help: "Attachments freed by the agent's own garbage collection, whose DEL never came.",
		}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	all := []prometheus.Collector{m.requests, m.took, m.calls, m.swept}
	if m.state != nil {
		all = append(all, m.state)
	}
	return all
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

func (m *Metrics) request(verb wire.Verb, err *wire.Error, took time.Duration) {
	code := "0"
	if err != nil {
		code = strconv.FormatUint(uint64(err.Code), 10)
	}
	m.requests.WithLabelValues(string(verb), code).Inc()
	m.took.WithLabelValues(string(verb)).Observe(took.Seconds())
}

func (m *Metrics) apiCall(kind protocol.RightKind, call protocol.Call, out protocol.Outcome) {
	m.calls.WithLabelValues(string(kind), call.String(), out.String()).Inc()
}
