package scale_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// traffic counts what clients ask of the API server, and the bytes that come and go, of
// TLS and all.
type traffic struct {
	in, out atomic.Int64

	mu    sync.Mutex
	calls map[string]int // guarded by mu; by verb and resource
}

func newTraffic() *traffic { return &traffic{calls: map[string]int{}} }

// counted returns a copy of rc whose clients are counted.
func (c *traffic) counted(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	var d net.Dialer
	rc.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{conn, c}, nil
	}
	return fleet.Through(rc, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		c.mu.Lock()
		c.calls[callOf(r)]++
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

type countedConn struct {
	net.Conn
	c *traffic
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.c.in.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.c.out.Add(int64(n))
	return n, err
}

// callOf returns the verb of a request to the API server, and what it is about.
func callOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "discovery"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	verb := r.Method
	switch {
	case r.URL.Query().Get("watch") != "":
		verb = "WATCH"
	case verb == http.MethodGet && len(parts) == 1:
		verb = "LIST"
	}
	if len(parts) > 2 {
		return verb + " " + parts[0] + "/" + parts[2]
	}
	return verb + " " + parts[0]
}

// count is what was asked in some time.
type count struct {
	calls   map[string]int
	in, out int64
}

func (c *traffic) now() count {
	c.mu.Lock()
	defer c.mu.Unlock()
	return count{maps.Clone(c.calls), c.in.Load(), c.out.Load()}
}

func (c count) minus(o count) count {
	d := count{map[string]int{}, c.in - o.in, c.out - o.out}
	for call, n := range c.calls {
		if n -= o.calls[call]; n > 0 {
			d.calls[call] = n
		}
	}
	return d
}

func (c count) total() (n int) {
	for _, of := range c.calls {
		n += of
	}
	return n
}

// String lists the calls, the most frequent first.
func (c count) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", c.total())
	sep := ": "
	for _, call := range slices.SortedFunc(maps.Keys(c.calls), func(x, y string) int {
		return cmp.Or(cmp.Compare(c.calls[y], c.calls[x]), strings.Compare(x, y))
	}) {
		fmt.Fprintf(&b, "%s%s %d", sep, call, c.calls[call])
		sep = "; "
	}
	return b.String()
}
