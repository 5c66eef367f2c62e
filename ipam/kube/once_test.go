package kube

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestCreateIsSentOnce: a create that the API server could not do, and wants to have
// again, may have been done all the same. It is not sent again by the client: its outcome
// is unknown, and not that it has met an object, which is its own.
func TestCreateIsSentOnce(t *testing.T) {
	for status, want := range map[int]struct {
		sent int
		out  protocol.Outcome
	}{
		http.StatusInternalServerError: {1, protocol.Unknown}, http.StatusServiceUnavailable: {1, protocol.Unknown},
		http.StatusTooManyRequests: {2, protocol.Exists}, // it was not looked at
	} {
		sent := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if sent++; sent > 1 {
				status = http.StatusConflict
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			if status == http.StatusConflict {
				_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`))
			}
		}))
		api, _, err := Dial(&rest.Config{Host: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		block := netip.MustParsePrefix("10.0.0.0/26")
		_, out, err := api.CreateLease(t.Context(), protocol.Lease{Meta: protocol.Meta{Name: protocol.LeaseName("lan", block)}, Pool: "lan", Block: block})
		if sent != want.sent || out != want.out {
			t.Errorf("sent %d times, %v (%v); want %d times, %v", sent, out, err, want.sent, want.out)
		}
		srv.Close()
	}
}
