package kube

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// unanswered is how long a request is under way before that is trouble.
const unanswered = time.Second

// A Line watches how the API server answers, to tell people what an ADD waits for: the
// client makes throttled requests again by itself, and a request that nobody answers
// says nothing until its time is up. The zero value is ready to use. Safe for concurrent
// use.
type Line struct {
	mu      sync.Mutex
	pending map[*http.Request]time.Time // guarded by mu; since when each is under way
	said    string                      // guarded by mu; what was wrong with the last answer, "" if nothing
}

// Watch returns a copy of rc whose requests the line watches.
func (l *Line) Watch(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return lineTripper{next, l} })
	return rc
}

// Trouble says what is wrong with the API server, as far as this program's requests
// tell; "" if nothing is.
func (l *Line) Trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said != "" {
		return l.said
	}
	var longest time.Duration
	for _, since := range l.pending {
		longest = max(longest, time.Since(since))
	}
	if longest < unanswered {
		return ""
	}
	return fmt.Sprintf("the API server has not answered for %v", longest.Round(100*time.Millisecond))
}

func (l *Line) begin(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending = map[*http.Request]time.Time{}
	}
	l.pending[r] = time.Now()
}

func (l *Line) end(r *http.Request, resp *http.Response, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, r)
	switch {
	case r.Context().Err() != nil && err != nil: // whoever asked has given up: that tells nothing
	case err != nil:
		l.said = "the API server cannot be reached: " + err.Error()
	case resp.StatusCode == http.StatusTooManyRequests:
		l.said = "the API server has too many requests and throttles this node's (429)"
	case resp.StatusCode >= http.StatusInternalServerError:
		l.said = "the API server answers " + resp.Status
	default:
		l.said = ""
	}
}

// lineTripper passes requests on, and tells the line of them.
type lineTripper struct {
	next http.RoundTripper
	line *Line
}

// RoundTrip implements [http.RoundTripper].
func (t lineTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	t.line.begin(r)
	resp, err := t.next.RoundTrip(r)
	t.line.end(r, resp, err)
	return resp, err
}

// WrappedRoundTripper returns the tripper that this one passes requests on to: client-go
// looks for the one that closes connections.
func (t lineTripper) WrappedRoundTripper() http.RoundTripper { return t.next }
