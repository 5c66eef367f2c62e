package nodes_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// throttle stands between clients and the API server, and while it is on answers every
// request as priority and fairness answers one that it has no seat for. (The API server
// itself cannot be told to: a priority level without seats still serves one request at a time.)
type throttle struct {
	on      atomic.Bool
	refused atomic.Int64
}

// between returns a copy of rc whose requests go through the throttle.
func (h *throttle) between(rc *rest.Config) *rest.Config {
	return fleet.Through(rc, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !h.on.Load() {
			return next.RoundTrip(r)
		}
		h.refused.Add(1)
		return &http.Response{
			Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
			Header: http.Header{"Retry-After": {"1"}, "Content-Type": {"text/plain; charset=utf-8"}},
			Body:   io.NopCloser(bytes.NewReader([]byte("Too many requests, please try again later.\n"))),
		}, nil
	})
}

// An API server that throttles an agent is one that is away: pods whose addresses the
// node holds start, the others are told why they do not, pods end; the agent does not
// ask in a storm; and when it throttles no longer, everything that waits is served.
func TestThrottlingAPIServer(t *testing.T) {
	var h throttle
	w := newNetwork(t, "throttled", 0, cidr("10.57.0.0/20")) // blocks of 16
	w.fleet = fleet.New(t, h.between(accounts.Agent))
	w.fleet.Change = quick
	w.start(1)
	n := w.nodes[0]
	added(t, n, w.sandbox())

	h.on.Store(true)
	var held []fleet.Interface
	var err error
	for err == nil {
		i := w.sandbox()
		if _, err = n.Add(i); err == nil {
			held = append(held, i)
		}
		if len(held) > 100 {
			t.Fatalf("%d ADDs are answered while no block can be leased", len(held))
		}
	}
	if len(held) < 8 {
		t.Errorf("%d ADDs are answered out of the block that the node holds, then %v; want most of its 16 addresses", len(held), err)
	}
	fleet.WantCode(t, err, agentapi.CodeTryAgainLater, "the API server has too many requests and throttles this node's (429)")
	for _, i := range held {
		if err := n.Del(i); err != nil {
			t.Errorf("DEL while the API server throttles: %v", err)
		}
	}

	// Many more than the node has addresses for, all at once, and as kubelets do again
	// while they are told to.
	const crowd = 200
	var wg sync.WaitGroup
	served := make([]time.Time, crowd)
	asked := h.refused.Load()
	began := time.Now()
	for i := range served {
		p := &pod{Interface: w.sandbox(), node: n}
		wg.Go(func() {
			if err := p.attach(); err != nil {
				t.Error(err)
			}
			served[i] = time.Now()
		})
	}
	for h.refused.Load() == asked { // the first of them has met the throttle
		time.Sleep(10 * time.Millisecond)
	}
	// Two rounds of waiting: each ADD is answered in time, and made again.
	time.Sleep(2 * n.Config().Agent.Wait) // what is asked of the API server meanwhile is measured
	asked = h.refused.Load() - asked
	throttled := time.Since(began)
	h.on.Store(false)
	wg.Wait()
	last := slices.MaxFunc(served, time.Time.Compare)
	t.Logf("%d requests were refused in %v; the last of %d ADDs was served %v after", asked, throttled.Round(time.Millisecond), crowd, last.Sub(began.Add(throttled)).Round(time.Millisecond))
	if float64(asked) > 50*throttled.Seconds() {
		t.Errorf("%d requests in %v are a storm", asked, throttled)
	}
}
