package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestProfilesAreServedWhereTheyAreAskedFor(t *testing.T) {
	ready := func(context.Context) (bool, string) { return true, "" }
	for profiles, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		h := httpHandler(prometheus.NewRegistry(), ready, profiles)
		for path, want := range map[string]int{"/debug/pprof/": want, "/debug/pprof/allocs?debug=1": want, "/metrics": http.StatusOK, "/readyz": http.StatusOK} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			if w.Code != want {
				t.Errorf("profiles asked for: %v: %s answers %d; want %d", profiles, path, w.Code, want)
			}
		}
	}
}
