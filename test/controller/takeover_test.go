package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/controller/deadnodes"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var errKilled = errors.New("the controller was killed")

// mortal is the API server as a controller sees it that is killed at a write: none of
// its calls takes effect from then on, or one more does, unheard. It notes the order
// of its writes, and holds them against the rules.
type mortal struct {
	*kube.API
	t    testing.TB
	node protocol.NodeName
	last bool // the write that it is killed at takes effect

	mu     sync.Mutex
	lives  int      // guarded by mu; writes before it is killed
	dead   bool     // guarded by mu
	writes []string // guarded by mu
}

// write reports whether a write takes effect, and whether its answer is heard.
func (m *mortal) write(what string) (takes, heard bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return false, false
	}
	if m.lives == 0 {
		m.dead = true
		return m.last, false
	}
	m.lives--
	m.writes = append(m.writes, what)
	return true, true
}

// ended fails the test unless the registration's term has ended.
func (m *mortal) ended(ctx context.Context, what string) {
	s, _, err := m.API.ReadRegistration(ctx, m.node)
	if err != nil || !s.Ended() {
		m.t.Errorf("%s while the registration is %+v, %v: the term must end first", what, s, err)
	}
}

func (m *mortal) UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	takes, heard := m.write("registration")
	if takes {
		next, out, err := m.API.UpdateRegistration(ctx, s)
		if heard {
			return next, out, err
		}
	}
	return protocol.Registration{}, protocol.Unknown, errKilled
}

func (m *mortal) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	takes, heard := m.write("lease")
	if takes {
		m.ended(ctx, "lease "+old.Name+" taken")
		got, out, err := m.API.UpdateLease(ctx, old, next)
		if heard {
			return got, out, err
		}
	}
	return protocol.Lease{}, protocol.Unknown, errKilled
}

func (m *mortal) killed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	if m.killed() {
		return protocol.Lease{}, protocol.Unknown, errKilled
	}
	return m.API.ReadLease(ctx, name)
}

func (m *mortal) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	if m.killed() {
		return protocol.SubLease{}, protocol.Unknown, errKilled
	}
	return m.API.ReadSubLease(ctx, name)
}

func (m *mortal) DeleteSubLease(ctx context.Context, meta protocol.Meta) (protocol.Outcome, error) {
	takes, heard := m.write("sub-lease")
	if takes {
		m.ended(ctx, "sub-lease "+meta.Name+" deleted")
		if held, err := m.API.LeasesOfNode(ctx, m.node); err != nil || len(held) > 0 {
			m.t.Errorf("sub-lease %s deleted while the node holds %v, %v: the leases come first", meta.Name, held, err)
		}
		out, err := m.API.DeleteSubLease(ctx, meta)
		if heard {
			return out, err
		}
	}
	return protocol.Unknown, errKilled
}

// leading is a reconciler that has just begun to lead, with this clock.
func leading(live deadnodes.Live, now *time.Duration) *deadnodes.Reconciler {
	return &deadnodes.Reconciler{
		RegistrationNamespace: kube.DefaultRegistrationNamespace, Live: live, Events: events.NewFakeRecorder(100), Metrics: deadnodes.NewMetrics(),
		Log: slog.New(slog.DiscardHandler), Margin: time.Minute, Calls: 4, Now: func() time.Duration { return *now },
	}
}

// TestLeaderKilledInATakeOver kills the leader at each of its writes, with the
// write done and not: the next one finishes the work, at once, since the term was
// ended; grants stay, and what an agent that has come back has said anew is its own.
func TestLeaderKilledInATakeOver(t *testing.T) {
	const leases, uses = 3, 2
	p := pool(t, "10.0.0.0/24")
	ns := namespace(t)
	for _, last := range []bool{false, true} {
		for at := 0; at <= 1+leases+uses; at++ {
			t.Run(fmt.Sprintf("at write %d, done %v", at, last), func(t *testing.T) {
				node := fleet.Unique("killed")
				start := deadRegistration(t, node)
				to := []protocol.Grant{}
				for i := range leases {
					l := nodeLease(t, p, uidOf(p), fmt.Sprintf("10.0.0.%d/32", i), node)
					t.Cleanup(func() { dropLease(t, l.Name) })
					addr := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i))
					next := l.Clone()
					next.Ceded = []netip.Addr{addr}
					next.Grants = []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "somebody", Namespace: ns, Name: "c"}}}
					to = append(to, next.Grants...)
					if _, out, err := api.UpdateLease(t.Context(), l, next); out != protocol.Done {
						t.Fatal(err)
					}
				}
				for range uses {
					use(t, claim(t, ns, fleet.Unique("claim"), "none"), 0, node, "pod")
				}

				var now time.Duration
				m := &mortal{API: api, t: t, node: protocol.NodeName(node), lives: at, last: last}
				first := leading(m, &now)
				look(t, first, node, nil)
				if s := reg(t, node); s.Ended() {
					t.Fatal("the term was ended before anything was heard of")
				}
				now += start.Fence + time.Minute // the silence that counts
				var want error
				if at < 1+leases+uses {
					want = errKilled
				}
				look(t, first, node, want)

				// The next leader, with a clock of its own. Unless the term was ended it
				// counts anew.
				now = 500 * time.Hour
				second := leading(api, &now)
				if !reg(t, node).Ended() {
					look(t, second, node, nil)
					if reg(t, node).Ended() {
						t.Error("the next leader counts the silence that the first one heard")
					}
					now += start.Fence + time.Minute
				}
				look(t, second, node, nil)
				checkTaken(t, node, start, to)
				wantWrites := slices.Concat([]string{"registration"}, slices.Repeat([]string{"lease"}, leases), slices.Repeat([]string{"sub-lease"}, uses))[:at]
				if !slices.Equal(m.writes, wantWrites) {
					t.Errorf("the first leader wrote %v; want %v", m.writes, wantWrites)
				}

				// When nothing can come any more the registration goes: there is no Node.
				now += protocol.LastRecheck - time.Second
				look(t, second, node, nil)
				reg(t, node)
				now += time.Second + start.Fence + time.Minute // since the first look at it
				look(t, second, node, nil)
				if _, out, err := api.ReadRegistration(t.Context(), protocol.NodeName(node)); out != protocol.NotFound {
					t.Errorf("the registration is still there: %v", err)
				}
			})
		}
	}
}

// look looks once at a node's registration.
func look(t testing.TB, r *deadnodes.Reconciler, node string, want error) {
	t.Helper()
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	if !errors.Is(err, want) {
		t.Fatalf("look at %s: %v; want %v", node, err, want)
	}
}

// checkTaken wants the term of start ended, once, and nothing left of the node but
// grants.
func checkTaken(t testing.TB, node string, start protocol.Registration, grants []protocol.Grant) {
	t.Helper()
	name := protocol.NodeName(node)
	if s := reg(t, node); s.Term != start.Term+1 || len(s.Former) != 1 || s.Former[0].Store != start.Store {
		t.Errorf("the registration is %+v; want term %d, after %s", s, start.Term+1, start.Store)
	}
	held, err := api.LeasesOfNode(t.Context(), name)
	subs, errSubs := api.SubLeasesOfNode(t.Context(), name)
	if err := errors.Join(err, errSubs); err != nil || len(held)+len(subs) > 0 {
		t.Errorf("the node has %v and %v, %v; want nothing", held, subs, err)
	}
	all, err := api.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kept []protocol.Grant
	for _, l := range all {
		if l.Holder.Cluster && len(l.GrantsOf("somebody")) > 0 {
			kept = append(kept, l.Grants...)
			if len(l.Ceded) > 0 || l.Store != "" || l.Term != 0 {
				t.Errorf("the cluster's lease is %+v; want nothing of its holder before", l)
			}
		}
	}
	if !slices.Equal(kept, grants) {
		t.Errorf("granted: %v; want %v", kept, grants)
	}
}

// dropLease deletes a lease, whoever holds it.
func dropLease(t testing.TB, name string) {
	l, out, err := api.ReadLease(context.Background(), name)
	if out == protocol.Done {
		_, err = api.DeleteLease(context.Background(), l.Meta)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestReturnWhileTakenOver: an agent registers again while its node is being taken over.
// What it has said anew is its own; what was taken stays taken.
func TestReturnWhileTakenOver(t *testing.T) {
	p := pool(t, "10.0.0.0/24")
	node := fleet.Unique("returns")
	start := deadRegistration(t, node)
	taken, said, unsaid := nodeLease(t, p, uidOf(p), "10.0.0.1/32", node), nodeLease(t, p, uidOf(p), "10.0.0.2/32", node), nodeLease(t, p, uidOf(p), "10.0.0.3/32", node)
	var now time.Duration
	m := &mortal{API: api, t: t, node: protocol.NodeName(node), lives: 1} // the term, and not one lease
	r := leading(m, &now)
	look(t, r, node, nil)
	now += start.Fence + time.Minute
	look(t, r, node, errKilled)
	ours, ok := protocol.Dead{Former: reg(t, node).Former[0]}.TakeLease(taken, protocol.NodeName(node), false)
	if _, out, err := api.UpdateLease(t.Context(), taken, ours); !ok || out != protocol.Done {
		t.Fatal(err)
	}
	// The agent, in a new term, says one of the others.
	res := protocol.StepRegistration(protocol.Registrar{Self: protocol.Identity{
		Node: protocol.NodeName(node), Store: start.Store, Machine: start.Machine, Boot: start.Boot, Fence: start.Fence,
	}}, protocol.RegistrationEvent{Call: protocol.RegistrationRead, Outcome: protocol.Done, Registration: reg(t, node), Now: protocol.Instant{Wall: time.Now()}})
	back, out, err := api.UpdateRegistration(t.Context(), res.Write)
	if out != protocol.Done {
		t.Fatal(err)
	}
	next := said
	next.Term, next.Writes = back.Term, said.Writes+1
	if _, out, err = api.UpdateLease(t.Context(), said, next); out != protocol.Done {
		t.Fatal(err)
	}
	second := leading(api, &now)
	look(t, second, node, nil)
	for name, want := range map[string]protocol.NodeName{taken.Name: "", said.Name: protocol.NodeName(node), unsaid.Name: protocol.NodeName(node)} {
		l, _, err := api.ReadLease(t.Context(), name)
		if err != nil || l.Holder.Node != want {
			t.Errorf("lease %s is that of %v, %v; want %q", name, l.Holder, err, want)
		}
		dropLease(t, name)
	}
	if s := reg(t, node); s.Term != back.Term || s.Store != start.Store {
		t.Errorf("the registration is %+v; want it as the agent wrote it", s)
	}
	// Its fencing write of what was taken misses.
	if _, out, _ := api.UpdateLease(t.Context(), taken, next); out != protocol.Conflict && out != protocol.NotFound {
		t.Errorf("a fencing write of a lease that was taken: %v; want a conflict", out)
	}
}
