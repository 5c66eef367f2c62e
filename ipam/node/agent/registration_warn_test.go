package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// heardEvents keeps what is said of nodes.
type heardEvents struct{ all []string }

func (h *heardEvents) WarnNode(node protocol.NodeName, uid protocol.UID, reason, message string) {
	h.all = append(h.all, fmt.Sprintf("%s/%s %s: %s", node, uid, reason, message))
}

func (h *heardEvents) WarnPod(pod protocol.PodRef, reason, message string) {
	h.all = append(h.all, fmt.Sprintf("%s/%s %s: %s", pod, pod.UID, reason, message))
}

// newTellingAgent returns an agent of term 3 whose events are kept.
func newTellingAgent(t *testing.T, now protocol.Instant) (*Agent, *heardEvents) {
	t.Helper()
	heard := &heardEvents{}
	a := assemble(&base{cfg: Config{Node: "n1"}, st: newStore(t), cl: Cluster{Events: heard}, sched: sched.Goroutines(clockAt{now: now}), log: slog.New(slog.DiscardHandler)})
	a.reg.registrar.Term, a.reg.registrar.Self.Node, a.reg.registrar.Self.NodeUID = 3, "n1", "u1"
	return a, heard
}

// TestWarnSilence: people are told once that the agent is fenced, and once that it is
// not any more, with how long it was.
func TestWarnSilence(t *testing.T) {
	a, heard := newTellingAgent(t, protocol.Instant{})
	a.reg.registrar.Fence, a.reg.registrar.Self.Fence = time.Minute, time.Minute
	var s silence
	for _, step := range []struct {
		at       time.Duration
		accepted bool
		term     int64
		want     string
	}{
		{at: 0, accepted: true, term: 3},
		{at: 59 * time.Second, term: 3},
		{at: 61 * time.Second, term: 3, want: "n1/u1 Fenced: no heartbeat of node n1 was accepted for 1m0s: the API server does not answer: this node gives out no new addresses"},
		{at: 90 * time.Second, term: 3},
		{at: 100 * time.Second}, // the term was ended meanwhile
		{at: 101 * time.Second, accepted: true, term: 4, want: "n1/u1 Fenced: no heartbeat of node n1 was accepted for 1m41s: it gave out no new addresses until now"},
		{at: 102 * time.Second, accepted: true, term: 4},
	} {
		now := protocol.Instant{Boot: step.at}
		a.sched, a.reg.registrar.Term = sched.Goroutines(clockAt{now: now}), step.term
		if step.accepted {
			a.reg.registrar.Sent = now
		}
		heard.all = nil
		a.reg.warnSilence(&s, step.accepted)
		var want []string
		if step.want != "" {
			want = []string{step.want}
		}
		if !slices.Equal(heard.all, want) {
			t.Errorf("after %v: %q; want %q", step.at, heard.all, want)
		}
	}
}

// TestSayLost: people are told what was taken, and by which pods it is used, the first
// of them by name.
func TestSayLost(t *testing.T) {
	a, heard := newTellingAgent(t, protocol.Instant{})
	r := leaseRight(Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}}}, netip.MustParsePrefix("10.0.0.0/27"))
	a.rights.warnLost(r, "it is another's")
	err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		var errs []error
		for i := range podsNamed + 2 {
			errs = append(errs, tx.PutAttachment(store.Attachment{
				Key: store.Key{Network: "lan", ContainerID: fmt.Sprintf("c%02d", i), IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: fmt.Sprintf("p%02d", i)},
				Addresses: []store.Address{{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Bits: 27, Pool: "lan", Lease: r.Name}},
			}))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	a.rights.warnLost(r, "it is another's")
	if len(heard.all) != 2 || !strings.Contains(heard.all[0], "it is another's; no pod here uses it") {
		t.Fatalf("said %q; want first that no pod uses it", heard.all)
	}
	if said := heard.all[1]; !strings.HasPrefix(said, "n1/u1 LeaseLost: ") || !strings.Contains(said, "ns/p00 net1, ") ||
		strings.Contains(said, "p10") || !strings.HasSuffix(said, " and 2 more") {
		t.Errorf("said %q; want the first ten of the pods that use it", said)
	}
}

// TestSayRegistrationLost: people are told why, by what the agent has read.
func TestSayRegistrationLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		next protocol.Registrar
		want string
	}{
		{"ended", protocol.Registrar{}, "term 3 of node n1 was ended"},
		{"tainted", protocol.Registrar{Off: true}, "out-of-service taint"},
		{"another machine", protocol.Registrar{OtherHolder: &protocol.Watch{}, Seen: protocol.Registration{Machine: "m2"}}, "is held by another machine (store , machine m2)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, heard := newTellingAgent(t, protocol.Instant{})
			a.reg.warnRegistrationLost(t.Context(), 3, protocol.RegistrationResult{Next: tt.next})
			if len(heard.all) != 1 || !strings.HasPrefix(heard.all[0], "n1/u1 RegistrationLost: ") || !strings.Contains(heard.all[0], tt.want) {
				t.Errorf("said %q; want %q", heard.all, tt.want)
			}
		})
	}
}
