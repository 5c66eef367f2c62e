package agent

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Metrics are the agent's collectors. The caller registers them. Labels are
// bounded: verbs, CNI codes, kinds of calls and their outcomes.
type Metrics struct {
	requests  *prometheus.CounterVec   // by verb and CNI code ("0" is success)
	took      *prometheus.HistogramVec // seconds to answer, by verb
	calls     *prometheus.CounterVec   // protocol calls to the API server, by kind, call and outcome
	swept     prometheus.Counter       // attachments freed without a DEL
	rewound   prometheus.Counter       // times that the API server was seen to go back
	asked     *prometheus.CounterVec   // waits for requests, by how they ended
	ceded     prometheus.Counter       // addresses ceded to the cluster
	takenBack prometheus.Counter       // and taken back
	recalls   *prometheus.CounterVec   // recalls, by how they were answered
	state     prometheus.Collector     // what the node has, read when collected
}

func newMetrics(state prometheus.Collector) *Metrics {
	return &Metrics{
		state: state,
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
		rewound: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_agent_api_rewound_total", Help: "Times that the API server was seen to have gone back to an earlier state.",
		}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_agent_garbage_freed_total", Help: "Attachments freed by the agent's own garbage collection, whose DEL never came.",
		}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_agent_asked_total", Help: "ADDs that asked the cluster for addresses, by outcome (granted, refused, waiting: not answered in the ADD's time), and requests given back unused.",
		}, []string{"outcome"}),
		ceded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_agent_addresses_ceded_total", Help: "Free addresses that this node has ceded to the cluster.",
		}),
		takenBack: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_agent_addresses_taken_back_total", Help: "Ceded addresses that this node has taken back.",
		}),
		recalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_agent_recalls_total", Help: "Recalls by the controller, by outcome (answered, not held, invalid, failed).",
		}, []string{"outcome"}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.took, m.calls, m.swept, m.rewound, m.asked, m.ceded, m.takenBack, m.recalls, m.state}
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

func (m *Metrics) request(verb agentapi.Verb, err *agentapi.Error, took time.Duration) {
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

// state collects what the node has, when it is asked.
type state struct{ a *Agent }

var (
	descServing     = prometheus.NewDesc("tenure_agent_serving", "1 if the agent may give out new addresses.", nil, nil)
	descBeatAge     = prometheus.NewDesc("tenure_agent_heartbeat_age_seconds", "Time since the last accepted heartbeat was sent; nothing new is given out from F on.", nil, nil)
	descAttachments = prometheus.NewDesc("tenure_agent_attachments", "Interfaces that have addresses.", nil, nil)
	descLost        = prometheus.NewDesc("tenure_agent_attachments_lost", "Interfaces whose addresses were taken from this node, as from a dead one, and may be others' by now: their pods should go.", nil, nil)
	descStoreFaults = prometheus.NewDesc("tenure_agent_store_faults", "Faults that the last hourly check of the store has found.", nil, nil)
	descDamaged     = prometheus.NewDesc("tenure_agent_journal_damaged", "Journalled DELs that do not read and were set aside.", nil, nil)
	descForeign     = prometheus.NewDesc("tenure_agent_foreign_rights", "Leases and sub-leases in this node's name of another machine's stores, which are left alone.", nil, nil)
	descUsed        = prometheus.NewDesc("tenure_agent_addresses_used", "Addresses in use out of blocks of this node, by pool.", []string{"pool"}, nil)
	descFree        = prometheus.NewDesc("tenure_agent_addresses_free", "Addresses that this node can give out without the API server, by pool.", []string{"pool"}, nil)
	descRights      = prometheus.NewDesc("tenure_agent_rights", "Leases, uses and requests of this node, by kind and phase.", []string{"kind", "phase"}, nil)
)

// Describe implements [prometheus.Collector].
func (s state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descServing, descBeatAge, descAttachments, descLost, descStoreFaults, descDamaged, descForeign, descUsed, descFree, descRights} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (s state) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	serving, _ := s.a.reg.serving()
	gauge(descServing, map[bool]float64{true: 1}[serving])
	sent := s.a.reg.current().Sent
	gauge(descStoreFaults, float64(s.a.storeFaults.Load()))
	gauge(descDamaged, float64(s.a.attachments.damaged.Load()))
	gauge(descForeign, float64(s.a.losses.foreign.Load()))
	if !sent.Wall.IsZero() {
		gauge(descBeatAge, s.a.sched.Now().Since(sent).Seconds())
	}
	var attachments float64
	lost := 0
	used, free := map[protocol.PoolName]int{}, map[protocol.PoolName]int{}
	rights := map[[2]string]float64{}
	// A disk that hangs must not keep a scrape: that is when people look.
	err := s.a.st.Peek(func(tx *store.Tx) error {
		for _, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			attachments++
		}
		var err error
		if lost, err = countLost(tx); err != nil {
			return err
		}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			rights[[2]string{string(r.Kind), string(r.Phase)}]++
		}
		for _, name := range tx.Pools() {
			for _, f := range allocator.Families() {
				c, err := s.a.rights.counts(tx, name, f)
				if err != nil {
					return err
				}
				used[name] += c.Taken
				free[name] += c.Free
			}
		}
		return nil
	})
	if err != nil {
		s.a.log.Error("store not read for metrics", "error", err)
		return
	}
	gauge(descAttachments, attachments)
	gauge(descLost, float64(lost))
	for name, n := range used {
		gauge(descUsed, float64(n), string(name))
		gauge(descFree, float64(free[name]), string(name))
	}
	for label, n := range rights {
		gauge(descRights, n, label[0], label[1])
	}
}
