package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

func TestLineTellsWhatTheAPIServerAnswers(t *testing.T) {
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	var l Line
	hc, err := rest.HTTPClientFor(l.Watch(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	get := func() {
		resp, err := hc.Get(server.URL)
		if err == nil {
			resp.Body.Close()
		}
	}
	for _, tt := range []struct {
		status int
		want   string
	}{
		{http.StatusOK, ""},
		{http.StatusTooManyRequests, "429"},
		{http.StatusServiceUnavailable, "503 Service Unavailable"},
		{http.StatusConflict, ""}, // an answer like any other
	} {
		status.Store(int64(tt.status))
		get()
		if got := l.Trouble(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("after an answer of %d: %q; want %q in it", tt.status, got, tt.want)
		}
	}
	server.Close()
	get()
	if got := l.Trouble(); !strings.Contains(got, "cannot be reached") {
		t.Errorf("without a server: %q", got)
	}
}

// silence answers no request before its asker gives up.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

func TestLineTellsThatNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://nobody", nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := lineTripper{silence{}, &l}.RoundTrip(r) //nolint:bodyclose // there is no answer
			ended <- err
		}()
		synctest.Wait()
		if got := l.Trouble(); got != "" {
			t.Errorf("a request that has just been sent: %q; want no trouble", got)
		}
		time.Sleep(4900 * time.Millisecond)
		if got, want := l.Trouble(), "the API server has not answered for 4.9s"; got != want {
			t.Errorf("a request under way: %q; want %q", got, want)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("nobody answered, and there is an answer")
		}
		if got := l.Trouble(); got != "" {
			t.Errorf("a request that was given up: %q; want no trouble, as nothing is under way", got)
		}
	})
}
