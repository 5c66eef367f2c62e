package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// brink carries a controller's calls until it is killed at one of its writes to
// leases and claims: that write is done, unheard, or not at all, and nothing after
// it.
type brink struct {
	next http.RoundTripper
	last bool // the write that it is killed at is done

	mu    sync.Mutex
	lives int  // guarded by mu; writes before it is killed
	dead  bool // guarded by mu
}

func (b *brink) killed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dead
}

// pass reports whether a request is sent, and whether its answer is heard.
func (b *brink) pass(req *http.Request) (sent, heard bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ours := strings.Contains(req.URL.Path, "/ipleases") || strings.Contains(req.URL.Path, "/ipamclaims")
	switch {
	case b.dead:
		return false, false
	case req.Method == http.MethodGet || !ours:
		return true, true
	case b.lives > 0:
		b.lives--
		return true, true
	}
	b.dead = true
	return b.last, false
}

// RoundTrip implements [http.RoundTripper].
func (b *brink) RoundTrip(req *http.Request) (*http.Response, error) {
	sent, heard := b.pass(req)
	if !sent {
		return nil, errors.New("the controller was killed")
	}
	resp, err := b.next.RoundTrip(req)
	if err == nil && !heard {
		_ = resp.Body.Close() // nobody reads it
		return nil, errors.New("the controller was killed")
	}
	return resp, err
}

// TestKilledAtEachWrite kills the controller at each of the writes by which it
// allocates one claim of two families and frees another, with the write done and
// not. The next controller finishes both: the claim has its addresses, nothing of
// the other is left, and no address is granted twice.
func TestKilledAtEachWrite(t *testing.T) {
	ns := namespace(t)
	four, six := pool(t, "10.0.0.0/28"), pool(t, "fd00::/64")
	definition(t, ns, "lan", "lan", fmt.Sprintf(`{"type":"tenure","pools":[%q,%q]}`, four.Name, six.Name))
	stop := start(t)
	opened(t, four)
	opened(t, six)
	old := claim(t, ns, "first", "lan")
	allocated(t, old)
	stop()

	at, survived := 0, false
	for ; !survived; at++ {
		for _, last := range []bool{false, true} {
			old, survived = killedAt(t, ns, old, at, last)
		}
	}
	if at < 5 { // two leases, two grants, a status; and what frees
		t.Errorf("the controller needed %d writes; want more to be killed at", at-1)
	}
}

// killedAt has a controller killed at a write while it frees old and allocates
// another claim, which it returns, and whether the controller survived.
func killedAt(t *testing.T, ns string, old *ipamclaims.IPAMClaim, at int, last bool) (next *ipamclaims.IPAMClaim, survived bool) {
	t.Helper()
	b := &brink{lives: at, last: last}
	rc := rest.CopyConfig(role)
	rc.Wrap(func(rt http.RoundTripper) http.RoundTripper { b.next = rt; return b })
	c, err := controller.New(quick(), rc, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	next = claim(t, ns, fmt.Sprintf("at-%d-%v", at, last), "lan")
	remove(t, old)
	settled := func() error {
		if a, b := granted(t, uidOf(old)), granted(t, uidOf(next)); len(a) > 0 || len(b) != 2 {
			return fmt.Errorf("killed at write %d, done %v: granted to the deleted claim: %v, to the other: %v", at, last, a, b)
		}
		if _, err := read(next); err != nil {
			return err
		}
		if len(next.Status.IPs) != 2 {
			return fmt.Errorf("killed at write %d, done %v: status.ips %v", at, last, next.Status.IPs)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, 30*time.Second, func() error {
		if b.killed() {
			return nil
		}
		return settled()
	})
	survived = !b.killed()
	cancel()
	<-done //nolint:errcheck // how a killed one ends is of no interest

	stop := start(t)
	defer stop()
	eventually(t, 30*time.Second, settled)
	if err := distinct(t, ns); err != nil {
		t.Errorf("killed at write %d, done %v: %v", at, last, err)
	}
	leases, err := api.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		for _, g := range l.Grants {
			if g.To.Namespace == ns && g.To.UID != protocol.UID(next.UID) || g.To.Namespace == ns && g.Freeing {
				t.Errorf("killed at write %d, done %v: lease %s grants %+v", at, last, l.Name, g)
			}
		}
	}
	return next, survived
}
