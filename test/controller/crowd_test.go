package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// patience bounds what waits for the API server.
const patience = 5 * time.Minute

// insist makes a call again while it has no answer: on a machine that is busy with other
// tests the API server may take longer than the call waits, many times over.
func insist(call func() (protocol.Outcome, error)) error {
	for deadline := time.Now().Add(patience); ; {
		out, err := call()
		if out != protocol.Unknown || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // one that is refused at once must not be asked without end
	}
}

// newRequest asks for addresses. A create that had no answer may have been made all the
// same: the request of its name is the one.
func newRequest(ctx context.Context, wants ...protocol.Wanted) (s protocol.SubLease, err error) {
	name, pod := protocol.RequestName("asker", rand.Uint64()), fleet.Unique("pod")
	err = insist(func() (out protocol.Outcome, err error) {
		s, out, err = api.CreateSubLease(ctx, protocol.SubLease{
			Meta: protocol.Meta{Name: name}, Protocol: protocol.Version, Node: "asker", Store: "store-of-asker", Term: 1,
			Request: &protocol.Request{Pod: protocol.PodRef{Namespace: "ns", Name: pod, UID: "u"}, Interface: "net1", Wants: wants},
		})
		if out == protocol.Exists {
			s, out, err = api.ReadSubLease(ctx, name)
		}
		return out, err
	})
	return s, err
}

// forsaken deletes a request, unless it is gone.
func forsaken(ctx context.Context, name string) error {
	return insist(func() (protocol.Outcome, error) {
		live, out, err := api.ReadSubLease(ctx, name)
		if out == protocol.Done {
			out, err = api.DeleteSubLease(ctx, live.Meta)
		}
		switch out {
		case protocol.NotFound:
			return protocol.Done, nil
		case protocol.Conflict: // it has been answered meanwhile
			return protocol.Unknown, err
		default:
			return out, err
		}
	})
}

// awaitAnswer waits as an agent does, with a watch of the request by its name, until it
// is answered.
func awaitAnswer(ctx context.Context, wc client.WithWatch, s protocol.SubLease) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	heard := false
	var wrong error
	err := kube.FollowSubLease(ctx, wc, s.Name, s.Revision, func(o *v1alpha1.IPSubLease) {
		if o == nil {
			wrong = fmt.Errorf("request %s is gone", s.Name)
		} else if s, wrong = kube.SubLeaseOf(o); wrong == nil && !s.Answered() {
			return
		}
		heard = true
		cancel()
	})
	if !heard {
		return fmt.Errorf("request %s has no answer: %w", s.Name, context.Cause(ctx))
	}
	if wrong != nil {
		return wrong
	}
	return err
}

// TestRequestsOfTwoLeaders: two controllers at once grant a request twice perhaps,
// but its status is written once, and what it does not name is freed.
func TestRequestsOfTwoLeaders(t *testing.T) {
	proof.Only(t)
	start(t)
	start(t)
	p := pool(t, "10.0.0.0/24", "fd00::/64")
	opened(t, p)
	const n = 100
	subs := make([]protocol.SubLease, n)
	parallel(t, n, func(i int) (err error) {
		subs[i], err = newRequest(t.Context(), want(p, "10.0.0.1-10.0.0.254"), want(p, "fd00::1-fd00::ffff"))
		return err
	})
	seen := map[netip.Addr]string{}
	for _, s := range subs {
		for _, g := range served(t, s).Granted {
			if other := seen[g.Addr]; other != "" {
				t.Errorf("%v is granted to %s and %s", g.Addr, other, s.Name)
			}
			seen[g.Addr] = s.Name
		}
	}
	exactly := func(want int) func() error {
		return func() error {
			leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
			got := 0
			for _, l := range leases {
				got += len(l.Grants)
			}
			if err == nil && got != want {
				err = fmt.Errorf("%d grants; want %d", got, want)
			}
			return err
		}
	}
	eventually(t, 20*time.Second, exactly(2*n))
	parallel(t, n, func(i int) error { return forsaken(t.Context(), subs[i].Name) })
	eventually(t, 20*time.Second, exactly(0))
}

// TestRequestsRate measures how fast one pool serves requests that wait, beside what
// the API server can do.
func TestRequestsRate(t *testing.T) {
	proof.Only(t)
	start(t)
	p := pool(t, "10.0.0.0/16")
	opened(t, p)
	wc := kc
	const waiting, rounds = 50, 6
	begun := time.Now()
	parallelOf(t, waiting, waiting*rounds, func(int) error {
		s, err := newRequest(t.Context(), want(p, "10.0.0.1-10.0.255.254"))
		if err != nil || s.Answered() {
			return err
		}
		return awaitAnswer(t.Context(), wc, s)
	})
	took := time.Since(begun)
	raw := time.Now()
	names := make([]string, waiting*rounds)
	parallel(t, waiting*rounds, func(i int) error {
		s, err := newRequest(t.Context(), want(p, "10.1.0.1-10.1.0.1"))
		names[i] = s.Name
		if err == nil {
			s.Granted = []protocol.Granted{{Addr: netip.MustParseAddr("10.0.0.1"), Lease: "x"}}
			_, _ = api.AnswerSubLease(t.Context(), s) // the controller refuses it, and may be faster
		}
		return err
	})
	t.Logf("%d requests, %d at once: %.0f/s; the API server alone creates and answers %.0f/s",
		waiting*rounds, waiting, float64(waiting*rounds)/took.Seconds(), float64(waiting*rounds)/time.Since(raw).Seconds())
	// No controller ceases to look for lease x: the other tests would pay for it.
	parallel(t, len(names), func(i int) error { return forsaken(t.Context(), names[i]) })
}
