package reservations

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// broker answers as it is told, and notes what it is asked.
type broker struct {
	known  []protocol.UID
	held   []grants.Held
	answer grants.Answer
	busy   bool // nothing may be freed yet
	err    error

	did []string
}

func (b *broker) KnownReservations(string) []protocol.UID { return b.known }
func (b *broker) Reservations() []string                  { return nil }
func (b *broker) Held(protocol.UID) []grants.Held         { return b.held }
func (b *broker) Withdraw(uid protocol.UID)               { b.did = append(b.did, "withdraw "+string(uid)) }

func (b *broker) Ask(a grants.Ask) grants.Answer {
	b.did = append(b.did, "ask for "+a.From[0].Addr.String()+" of "+string(a.From[0].Pool))
	return b.answer
}

func (b *broker) MayFree(context.Context, []grants.Held) (bool, error) { return !b.busy, b.err }

func (b *broker) Drop(context.Context, []grants.Held) error {
	b.did = append(b.did, "drop")
	return b.err
}

// live has what the API server has under a reservation's name.
type live struct {
	uid types.UID
	out protocol.Outcome
}

func (l live) ReadReservation(context.Context, string) (*v1alpha1.IPReservation, protocol.Outcome, error) {
	if l.out != protocol.Done {
		return nil, l.out, nil
	}
	return &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{UID: l.uid}}, l.out, nil
}

// printer is a reservation with the UID u1.
func printer(edits ...func(*v1alpha1.IPReservation)) *v1alpha1.IPReservation {
	r := &v1alpha1.IPReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "printer", UID: "u1", Generation: 3},
		Spec:       v1alpha1.IPReservationSpec{Pool: "lan", Address: "10.0.0.9", For: "the printer"},
	}
	for _, edit := range edits {
		edit(r)
	}
	return r
}

// until has a reservation end so long after noon.
func until(d time.Duration) func(*v1alpha1.IPReservation) {
	return func(r *v1alpha1.IPReservation) { r.Spec.Until = &metav1.Time{Time: noon.Add(d)} }
}

// ownedBy has a pool of that UID own a reservation, as those of strangers' addresses are.
func ownedBy(uid types.UID) func(*v1alpha1.IPReservation) {
	return func(r *v1alpha1.IPReservation) {
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "tenure.dev/v1alpha1", Kind: "IPPool", Name: "lan", UID: uid}}
	}
}

// lan is a pool, which is being deleted or not.
func lan(uid types.UID, deleted bool) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan", UID: uid, Finalizers: []string{v1alpha1.LeasesFinalizer}}}
	if deleted {
		p.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	return p
}

func refused(why grants.Reason) grants.Answer {
	return grants.Answer{Problem: grants.Problem{Reason: why, Message: "pod ns/web has it"}}
}

// TestReconcile: a reservation asks for its address, and says what became of that. What was granted
// to one that is gone, or has ended, is given back, by a live read alone.
func TestReconcile(t *testing.T) {
	granted := grants.Answer{Granted: make([]grants.Granted, 1)}
	for name, tt := range map[string]struct {
		there  *v1alpha1.IPReservation
		pool   *v1alpha1.IPPool
		broker broker
		live   live
		did    string
		says   string // the condition: reason, message
		after  time.Duration
		fails  string
	}{
		"asked for":           {there: printer(), did: "ask for 10.0.0.9 of lan"},
		"granted":             {there: printer(), broker: broker{answer: granted}, did: "ask for 10.0.0.9 of lan", says: "True Kept 10.0.0.9 is kept for the printer"},
		"granted for an hour": {there: printer(until(time.Hour)), broker: broker{answer: granted}, did: "ask for 10.0.0.9 of lan", says: "True Kept 10.0.0.9", after: time.Hour},
		"in use": {there: printer(), broker: broker{answer: refused(grants.Taken)}, did: "ask for 10.0.0.9 of lan",
			says: "False InUse pod ns/web has it; it is kept when it comes free"},
		"given to nobody": {there: printer(), broker: broker{answer: refused(grants.Unassignable)}, did: "ask for 10.0.0.9 of lan",
			says: "False NotAssignable pod ns/web has it: the pool gives it to nobody"},
		"no pool":    {there: printer(), broker: broker{answer: refused(grants.PoolMissing)}, did: "ask for 10.0.0.9 of lan", says: "False PoolNotReady pod"},
		"no address": {there: printer(func(r *v1alpha1.IPReservation) { r.Spec.Address = "printer" }), fails: "reservation printer: spec.address"},
		"ended": {there: printer(until(0)), broker: broker{held: make([]grants.Held, 1)}, did: "withdraw u1, drop",
			says: "False Expired spec.until, 2026-01-02T12:00:00Z, has passed: 10.0.0.9 is not kept any more"},
		"ended, and not freed yet": {there: printer(until(0)), broker: broker{held: make([]grants.Held, 1), busy: true}, did: "withdraw u1", after: recheckAfter},
		"ended, and freeing fails": {there: printer(until(0)), broker: broker{held: make([]grants.Held, 1), err: errors.New("no")}, did: "withdraw u1, drop",
			fails: "free the address of reservation printer: no"},
		"goes with its pool": {there: printer(ownedBy("p1")), pool: lan("p1", true), broker: broker{held: make([]grants.Held, 1)}, did: "withdraw u1, drop",
			says: "False PoolNotReady pool lan was deleted, and gives 10.0.0.9 to nobody: this reservation goes with it"},
		"goes, and is not freed yet":            {there: printer(ownedBy("p1")), pool: lan("p1", true), broker: broker{held: make([]grants.Held, 1), busy: true}, did: "withdraw u1", after: recheckAfter},
		"of a pool that stays":                  {there: printer(ownedBy("p1")), pool: lan("p1", false), did: "ask for 10.0.0.9 of lan"},
		"of a pool that is gone":                {there: printer(ownedBy("p1")), did: "ask for 10.0.0.9 of lan"},
		"of an earlier pool":                    {there: printer(ownedBy("p0")), pool: lan("p1", true), did: "ask for 10.0.0.9 of lan"},
		"a person's, of a pool that is deleted": {there: printer(), pool: lan("p1", true), did: "ask for 10.0.0.9 of lan"},

		"gone":                           {broker: broker{known: []protocol.UID{"u1"}, held: make([]grants.Held, 1)}, live: live{out: protocol.NotFound}, did: "withdraw u1, drop"},
		"gone, with nothing":             {broker: broker{known: []protocol.UID{"u1"}}, live: live{out: protocol.NotFound}, did: "withdraw u1"},
		"gone by a cache that is behind": {broker: broker{known: []protocol.UID{"u1"}, held: make([]grants.Held, 1)}, live: live{uid: "u1", out: protocol.Done}, after: recheckAfter},
		"gone, and nobody answers":       {broker: broker{known: []protocol.UID{"u1"}, held: make([]grants.Held, 1)}, live: live{out: protocol.Unknown}, fails: "read reservation printer"},
		"made again": {there: printer(), broker: broker{known: []protocol.UID{"u0", "u1"}, held: make([]grants.Held, 1)}, live: live{uid: "u1", out: protocol.Done},
			did: "withdraw u0, drop, ask for 10.0.0.9 of lan"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := kube.Scheme()
			if err != nil {
				t.Fatal(err)
			}
			build := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.IPReservation{})
			if tt.there != nil {
				build.WithObjects(tt.there)
			}
			if tt.pool != nil {
				build.WithObjects(tt.pool)
			}
			kc := build.Build()
			r := &Reconciler{Cache: kc, Live: tt.live, Status: kc, Broker: &tt.broker, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }}
			res, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "printer"}})
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v; want %q", err, tt.fails)
			}
			if got := strings.Join(tt.broker.did, ", "); got != tt.did || res.RequeueAfter != tt.after {
				t.Errorf("it does %q, and looks again after %v; want %q, %v", got, res.RequeueAfter, tt.did, tt.after)
			}
			if got := said(t, kc); !strings.HasPrefix(got, tt.says) || (got == "") != (tt.says == "") {
				t.Errorf("it says %q; want %q", got, tt.says)
			}
		})
	}
}

// said returns the condition of the reservation, empty if there is none.
func said(t *testing.T, kc client.Client) string {
	t.Helper()
	var r v1alpha1.IPReservation
	if err := kc.Get(t.Context(), client.ObjectKey{Name: "printer"}, &r); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if len(r.Status.Conditions) == 0 {
		return ""
	}
	c := r.Status.Conditions[0]
	if c.Type != v1alpha1.Reserved || c.ObservedGeneration != r.Generation {
		t.Errorf("the condition is %+v", c)
	}
	return strings.Join([]string{string(c.Status), c.Reason, c.Message}, " ")
}

// TestSaidOnce: a condition that says the same is not written again.
func TestSaidOnce(t *testing.T) {
	r := printer()
	c, ok := conditionAfter(r, refused(grants.Taken))
	if !ok || !changes(r, c) {
		t.Fatalf("%+v, %t: the first condition is not written", c, ok)
	}
	r.Status.Conditions = []metav1.Condition{c}
	if changes(r, c) {
		t.Error("it is written again")
	}
	other, _ := conditionAfter(r, refused(grants.Unassignable))
	if !changes(r, other) {
		t.Error("another is not written")
	}
	if reasons := []string{c.Reason, other.Reason}; !slices.Equal(reasons, []string{v1alpha1.ReasonInUse, v1alpha1.ReasonNotAssignable}) {
		t.Errorf("it says %q", reasons)
	}
}
