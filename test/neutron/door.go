package neutron

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/tenure-ipam/tenure/test/controlplane"
)

// As returns a change of requests that has them be a user's of a project, with roles such as
// "member,reader" or "admin". It is of use to a server with [Options.Tenants].
func As(user, project, roles string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("X-User-Id", user)
		r.Header.Set("X-Project-Id", project)
		r.Header.Set("X-Roles", roles)
	}
}

// A Door is an address of a server at which requests and answers meet what happens on a
// network. Its fields are set before it is used; it may be used concurrently.
type Door struct {
	URL string

	// By, if set, changes each request: see [As].
	By func(*http.Request)
	// Lose, if set, is asked about each request that the server has answered, and whether
	// the answer is lost: the connection then breaks.
	Lose func(*http.Request) bool
	// Instead, if set, may answer a request in the server's place; it then returns true.
	Instead func(http.ResponseWriter, *http.Request) bool

	requests atomic.Int64
}

// Requests returns how many requests have come.
func (d *Door) Requests() int { return int(d.requests.Load()) }

// Open opens d until the test ends, and returns it.
func (s *Server) Open(t testing.TB, d *Door) *Door {
	t.Helper()
	to, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		// The server writes links to further pages by the address at which it was asked.
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		ModifyResponse: func(r *http.Response) error {
			if d.Lose != nil && d.Lose(r.Request) {
				return http.ErrAbortHandler
			}
			return nil
		},
		// The client sees what it would see without a door: a connection that breaks.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:    &http.Transport{DisableKeepAlives: true},
	}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		if d.By != nil {
			d.By(r)
		}
		if d.Instead != nil && d.Instead(w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		door.CloseClientConnections()
		door.Close()
	})
	d.URL = door.URL
	return d
}

// Closed returns a URL at which nobody listens.
func Closed(t testing.TB) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + address
}
