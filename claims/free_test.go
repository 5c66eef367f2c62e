package claims

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// world is a broker and an API server that write down what they are asked.
type world struct {
	calls  []string
	held   []grants.Held
	claims []grants.ClaimKey // that grants name
	claim  protocol.Claim    // zero: there is none
	uses   []string          // names of uses that are there
	gone   bool              // the API server's data went back
	ported bool              // its pools have a source
	asked  []protocol.UID    // for ports
	errors map[string]error
}

func (w *world) say(call string) error {
	w.calls = append(w.calls, call)
	return w.errors[call]
}

func (w *world) Known(grants.ClaimKey) []protocol.UID { return nil }
func (w *world) Claims() []grants.ClaimKey            { return w.claims }
func (w *world) Held(protocol.UID) []grants.Held      { return slices.Clone(w.held) }
func (w *world) Ask(grants.Ask) grants.Answer         { return grants.Answer{} }
func (w *world) Verify(context.Context, grants.Ask) (grants.Answer, error) {
	return grants.Answer{}, w.say("verify")
}
func (w *world) Withdraw(uid protocol.UID)                   { _ = w.say("withdraw") }
func (w *world) Unmark(context.Context, []grants.Held) error { return w.say("unmark") }
func (w *world) Mark(_ context.Context, h []grants.Held) ([]grants.Held, error) {
	marked := slices.Clone(h)
	for i := range marked {
		marked[i].Grant.Freeing, marked[i].Grant.Mark = true, "m"
	}
	return marked, w.say("mark " + join(addrsOf(h)))
}
func (w *world) Clear(_ context.Context, h []grants.Held) error {
	if slices.ContainsFunc(h, func(h grants.Held) bool { return h.Grant.Mark != "m" }) {
		return w.say("clear without the mark " + join(addrsOf(h)))
	}
	return w.say("clear " + join(addrsOf(h)))
}

// porter is the world's network service.
type porter struct {
	Porter
	w *world
}

func (p porter) Serves(context.Context, protocol.PoolName) (bool, error) { return p.w.ported, nil }
func (p porter) Known(grants.ClaimKey) []protocol.UID                    { return p.w.asked }
func (p porter) Withdraw(protocol.UID)                                   {}
func (p porter) Release(protocol.UID)                                    { _ = p.w.say("delete its port") }

func (w *world) Status() client.SubResourceWriter { return statusWriter{w: w} }

// statusWriter writes claims' status, by patches only.
type statusWriter struct {
	client.SubResourceWriter
	w *world
}

func (s statusWriter) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return s.w.say("write")
}

func (w *world) MayFree(_ context.Context, h []grants.Held) (bool, error) {
	return !w.gone || len(h) == 0, nil
}

func (w *world) ReadClaim(context.Context, string, string) (protocol.Claim, protocol.Outcome, error) {
	if err := w.say("read claim"); err != nil {
		return protocol.Claim{}, protocol.Unknown, err
	}
	if w.claim.UID == "" {
		return protocol.Claim{}, protocol.NotFound, errors.New("not found")
	}
	return w.claim, protocol.Done, nil
}

func (w *world) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	if err := w.say("read " + name); err != nil {
		return protocol.SubLease{}, protocol.Unknown, err
	}
	if slices.Contains(w.uses, name) {
		return protocol.SubLease{}, protocol.Done, nil
	}
	return protocol.SubLease{}, protocol.NotFound, errors.New("not found")
}

func (w *world) reconciler() *Reconciler {
	return &Reconciler{Live: w, Status: w, Broker: w, Ports: porter{w: w}, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(), Now: func() time.Time { return noon }}
}

// TestFreeingInOrder: the claim is read live, then the grants are marked, then both
// uses are looked for, then the grants are removed, and then its port is deleted; and
// nothing else ever leads to a removal.
func TestFreeingInOrder(t *testing.T) {
	lost := errors.New("no answer")
	tests := []struct {
		name  string
		world world
		want  string
		after time.Duration
		fails bool
	}{
		{name: "gone and unused", world: world{held: held("10.0.0.5")},
			want: "read claim, withdraw, mark 10.0.0.5, read u1.0, read u1.1, clear 10.0.0.5"},
		{name: "there, whatever the cache says", world: world{held: held("10.0.0.5"), claim: protocol.Claim{Meta: protocol.Meta{UID: "u1"}}},
			want: "read claim", after: recheckAfter},
		{name: "another claim has the name", world: world{held: held("10.0.0.5"), claim: protocol.Claim{Meta: protocol.Meta{UID: "u2"}}},
			want: "read claim, withdraw, mark 10.0.0.5, read u1.0, read u1.1, clear 10.0.0.5"},
		{name: "in use", world: world{held: held("10.0.0.5"), uses: []string{"u1.0"}}, want: "read claim, withdraw, mark 10.0.0.5, read u1.0", after: recheckAfter},
		{name: "in use by the second name", world: world{held: held("10.0.0.5"), uses: []string{"u1.1"}},
			want: "read claim, withdraw, mark 10.0.0.5, read u1.0, read u1.1", after: recheckAfter},
		{name: "uses may be missing", world: world{held: held("10.0.0.5"), gone: true}, want: "read claim, withdraw", after: recheckAfter},
		{name: "no answer about the claim", world: world{held: held("10.0.0.5"), errors: map[string]error{"read claim": lost}}, want: "read claim", fails: true},
		{name: "no answer about the mark", world: world{held: held("10.0.0.5"), errors: map[string]error{"mark 10.0.0.5": lost}},
			want: "read claim, withdraw, mark 10.0.0.5", fails: true},
		{name: "no answer about a use", world: world{held: held("10.0.0.5"), errors: map[string]error{"read u1.1": lost}},
			want: "read claim, withdraw, mark 10.0.0.5, read u1.0, read u1.1", fails: true},
		{name: "K4 with a port", world: world{held: held("10.0.0.5"), ported: true},
			want: "read claim, withdraw, mark 10.0.0.5, read u1.0, read u1.1, clear 10.0.0.5, delete its port"},
		{name: "K4 with a port, in use", world: world{held: held("10.0.0.5"), ported: true, uses: []string{"u1.0"}},
			want: "read claim, withdraw, mark 10.0.0.5, read u1.0", after: recheckAfter},
		{name: "K4 an ask for a port", world: world{asked: []protocol.UID{"u1"}}, want: "read claim, withdraw, delete its port"},
		{name: "an ask without grants", want: "read claim, withdraw"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, err := tt.world.reconciler().release(t.Context(), grants.ClaimKey{Namespace: "ns", Name: "vm.lan"}, "u1")
			if got := strings.Join(tt.world.calls, ", "); got != tt.want {
				t.Errorf("calls: %s; want %s", got, tt.want)
			}
			if after != tt.after || (err != nil) != tt.fails {
				t.Errorf("after %v, error %v; want after %v, an error: %v", after, err, tt.after, tt.fails)
			}
		})
	}
}

// TestSurplus: of an existing claim only what its status, read live, does not
// name is freed, and nothing while the status names none.
func TestSurplus(t *testing.T) {
	live := func(uid protocol.UID, ips ...string) protocol.Claim {
		c := protocol.Claim{Meta: protocol.Meta{UID: uid}}
		for _, ip := range ips {
			c.IPs = append(c.IPs, netip.MustParsePrefix(ip))
		}
		return c
	}
	tests := []struct {
		name string
		live protocol.Claim
		gone bool
		want string
	}{
		{name: "names one of two", live: live("u1", "10.0.0.5/24"), want: "read claim, mark 10.0.0.6, read u1.0, read u1.1, clear 10.0.0.6"},
		{name: "names both by now", live: live("u1", "10.0.0.5/24", "10.0.0.6/24"), want: "read claim"},
		{name: "names none", live: live("u1"), want: "read claim"},
		{name: "another claim", live: live("u2", "10.0.0.5/24"), want: "read claim"},
		{name: "gone", want: "read claim"},
		{name: "uses may be missing", live: live("u1", "10.0.0.5/24"), gone: true, want: "read claim"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := world{held: held("10.0.0.5", "10.0.0.6"), claim: tt.live, gone: tt.gone}
			after, err := w.reconciler().freeSurplus(t.Context(), fresh())
			if err != nil {
				t.Fatal(err)
			}
			if (after == recheckAfter) != tt.gone {
				t.Errorf("looked at again after %v; want it where nothing may be freed yet", after)
			}
			if got := strings.Join(w.calls, ", "); got != tt.want {
				t.Errorf("calls: %s; want %s", got, tt.want)
			}
		})
	}
}

// TestGivingBackInOrder (0008): part of what a claim wants is marked, then the status
// is written, then both uses are looked for, then it is removed, by that mark; and
// without the write nothing is.
func TestGivingBackInOrder(t *testing.T) {
	lost := errors.New("no answer")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "ipamclaims"}, "vm.lan", errors.New("changed"))
	tests := []struct {
		name  string
		world world
		want  string
		fails bool
	}{
		{name: "in order", want: "mark 10.0.0.5, write, read u1.0, read u1.1, clear 10.0.0.5"},
		{name: "no answer about the mark", world: world{errors: map[string]error{"mark 10.0.0.5": lost}}, want: "mark 10.0.0.5", fails: true},
		{name: "no answer about the write", world: world{errors: map[string]error{"write": lost}}, want: "mark 10.0.0.5, write", fails: true},
		{name: "the claim has changed", world: world{errors: map[string]error{"write": conflict}}, want: "mark 10.0.0.5, write"},
		{name: "in use", world: world{uses: []string{"u1.1"}}, want: "mark 10.0.0.5, write, read u1.0, read u1.1"},
		{name: "no answer about the removal", world: world{errors: map[string]error{"clear 10.0.0.5": lost}},
			want: "mark 10.0.0.5, write, read u1.0, read u1.1, clear 10.0.0.5", fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := plan{giveBack: held("10.0.0.5"), status: &status{}}
			_, err := tt.world.reconciler().apply(t.Context(), &ipamclaims.IPAMClaim{}, fresh(), p)
			if got := strings.Join(tt.world.calls, ", "); got != tt.want {
				t.Errorf("calls: %s; want %s", got, tt.want)
			}
			if (err != nil) != tt.fails {
				t.Errorf("error %v; want one: %v", err, tt.fails)
			}
		})
	}
}
