package neutron_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	neutron "github.com/tenure-ipam/tenure/ipam/controller/neutron"
	server "github.com/tenure-ipam/tenure/test/neutron"
)

// lostAnswer: Neutron makes the port, and the connection breaks before it says so. The port without
// a wish is made last, since Neutron could choose the address of the wish for it.
func lostAnswer(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	for i, wish := range [][]neutron.FixedIP{at(n, "192.0.2.50"), nil} {
		door := c.Open(t, &server.Door{By: tenant, Lose: posts(func(n int64) bool { return n == 1 })})
		w := neutron.Want{Claim: named(t, i), Network: n.ID, Addresses: wish}
		p, err := client(t, door.URL).Ensure(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		only(t, c.Server, w.Claim, p)
	}
}

// lostAlways: whatever makes or lists is lost. The call ends with that, and the port that is
// there is found later.
func lostAlways(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	var made atomic.Bool
	door := c.Open(t, &server.Door{By: tenant, Lose: func(r *http.Request) bool {
		made.Store(made.Load() || r.Method == http.MethodPost)
		return made.Load()
	}})
	w := neutron.Want{Claim: named(t, 1), Network: n.ID}
	_, err := client(t, door.URL).Ensure(t.Context(), w)
	fails(t, err, neutron.Unavailable, "no answer")
	if got, want := door.Requests(), 1+1+4; got != want {
		t.Errorf("%d requests; want %d: a list, one that makes it, four more lists", got, want)
	}
	only(t, c.Server, w.Claim, c.ensure(t, w))
}

// busy: what passes is tried again within the budget, and after as long as the server says.
func busy(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	for _, tt := range []struct {
		name    string
		status  int
		times   int64 // that the status is answered
		after   string
		atLeast time.Duration
		fails   bool
	}{
		{"twice 503", http.StatusServiceUnavailable, 2, "", 600 * time.Millisecond, false},
		{"once 429", http.StatusTooManyRequests, 1, "1", time.Second, false},
		{"always 500", http.StatusInternalServerError, 1000, "", 3 * time.Second, true},
		{"429 beyond all patience", http.StatusTooManyRequests, 1, "3600", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var answered atomic.Int64
			door := c.Open(t, &server.Door{By: tenant, Instead: func(w http.ResponseWriter, _ *http.Request) bool {
				if answered.Add(1) > tt.times {
					return false
				}
				if tt.after != "" {
					w.Header().Set("Retry-After", tt.after)
				}
				w.WriteHeader(tt.status)
				return true
			}})
			w := neutron.Want{Claim: t.Name(), Network: n.ID}
			began := time.Now()
			p, err := client(t, door.URL).Ensure(t.Context(), w)
			if took := time.Since(began); took < tt.atLeast {
				t.Errorf("it took %v; want at least %v", took, tt.atLeast)
			}
			if tt.fails {
				fails(t, err, neutron.Unavailable, "OpenStack answers")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			only(t, c.Server, w.Claim, p)
		})
	}
}

// refused: nobody listens. Nothing but the budget is spent, of one claim though there are many.
func refused(t *testing.T, _ cloud) {
	closed := server.Closed(t)
	wants := []neutron.Want{{Claim: "a", Network: "n"}, {Claim: "b", Network: "n"}, {Claim: "c", Network: "n"}}
	began := time.Now()
	for _, e := range client(t, closed).EnsureMany(t.Context(), wants) {
		fails(t, e.Err, neutron.Unavailable, "connection refused")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v; want the waits of one budget, 3 s", took)
	}
}

// slow: Neutron does not answer. A call ends with its patience.
func slow(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	hasty := client(t, c.door.URL, func(c *neutron.Config) { c.CallTimeout, c.Timeout = 300*time.Millisecond, time.Second })
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	w := neutron.Want{Claim: named(t, 1), Network: n.ID}
	began := time.Now()
	_, err := hasty.Ensure(t.Context(), w)
	took := time.Since(began)
	if resumeErr := c.Resume(); resumeErr != nil {
		t.Fatal(resumeErr)
	}
	fails(t, err, neutron.Unavailable, "no answer")
	if took > 20*time.Second {
		t.Errorf("it took %v; want no more than 1 s", took)
	}
	only(t, c.Server, w.Claim, c.ensure(t, w))
}

// killed: Neutron is killed when it has made the port, before it says so, and comes back.
func killed(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	var once sync.Once
	died := make(chan error, 1)
	door := c.Open(t, &server.Door{By: tenant, Lose: func(r *http.Request) (lost bool) {
		if r.Method == http.MethodPost {
			once.Do(func() {
				died <- c.Kill()
				lost = true
			})
		}
		return lost
	}})
	patient := client(t, door.URL, func(c *neutron.Config) { c.Retries, c.Timeout = 1000, wait })
	w := neutron.Want{Claim: named(t, 1), Network: n.ID}
	var p neutron.Port
	ended := make(chan error, 1)
	go func() {
		var err error
		p, err = patient.Ensure(t.Context(), w)
		ended <- err
	}()
	if err := <-died; err != nil {
		t.Fatal(err)
	}
	c.Start(t)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	only(t, c.Server, w.Claim, p)
}
