package requests

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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// world is what the reconciler of requests deals with: it answers as it is told to,
// and notes the calls.
type world struct {
	client.Reader
	calls  []string
	cached []*v1alpha1.IPSubLease
	held   []grants.Held
	known  []string                    // sub-leases that grants name
	live   *protocol.SubLease          // nil: there is none
	out    map[string]protocol.Outcome // of calls; Done without
	gone   bool                        // the API server's data went back
}

var errNoAnswer = errors.New("no answer")

// say notes a call, and returns how it ends.
func (w *world) say(call string) (protocol.Outcome, error) {
	w.calls = append(w.calls, call)
	out, told := w.out[call]
	if !told {
		return protocol.Done, nil
	}
	return out, errNoAnswer
}

func (w *world) KnownSubLeases(string) []protocol.UID { return nil }
func (w *world) SubLeases() []string                  { return w.known }
func (w *world) Held(protocol.UID) []grants.Held      { return slices.Clone(w.held) }
func (w *world) Withdraw(protocol.UID)                { w.calls = append(w.calls, "withdraw") }

func (w *world) Ask(a grants.Ask) grants.Answer {
	w.calls = append(w.calls, "ask for "+a.To.Name)
	return grants.Answer{}
}

func (w *world) Verify(context.Context, grants.Ask) (grants.Answer, error) {
	return grants.Answer{}, nil
}

func (w *world) ReadLease(context.Context, string) (protocol.Lease, bool, error) {
	return protocol.Lease{}, false, nil
}

func (w *world) Mark(_ context.Context, h []grants.Held) ([]grants.Held, error) {
	marked := slices.Clone(h)
	for i := range marked {
		marked[i].Grant.Freeing, marked[i].Grant.Mark = true, "m"
	}
	_, err := w.say("mark")
	return marked, err
}

func (w *world) Unmark(context.Context, []grants.Held) error { _, err := w.say("unmark"); return err }

func (w *world) Clear(_ context.Context, h []grants.Held) error {
	if slices.ContainsFunc(h, func(h grants.Held) bool { return h.Grant.Mark != "m" }) {
		_, err := w.say("clear without the mark")
		return err
	}
	_, err := w.say("clear")
	return err
}

func (w *world) Drop(context.Context, []grants.Held) error { _, err := w.say("drop"); return err }

func (w *world) MayFree(_ context.Context, h []grants.Held) (bool, error) {
	return !w.gone || len(h) == 0, nil
}

func (w *world) ReadSubLease(context.Context, string) (protocol.SubLease, protocol.Outcome, error) {
	out, err := w.say("read")
	switch {
	case err != nil:
		return protocol.SubLease{}, out, err
	case w.live == nil:
		return protocol.SubLease{}, protocol.NotFound, errors.New("not found")
	}
	return *w.live, out, nil
}

func (w *world) UpdateSubLease(_ context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	if next.Writes == old.Writes {
		_, _ = w.say("a write that changes nothing")
	}
	out, err := w.say("fence")
	return next, out, err
}

func (w *world) AnswerSubLease(context.Context, protocol.SubLease) (protocol.Outcome, error) {
	return w.say("answer")
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, o := range w.cached {
		l := list.(*v1alpha1.IPSubLeaseList)
		l.Items = append(l.Items, *o)
	}
	return nil
}

func (w *world) reconciler() *Reconciler {
	return &Reconciler{
		Cache: w, API: w, Broker: w, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
}

// TestGivingBackInOrder (0008, 0013): part of what a request wants is marked, then the
// sub-lease is changed, then the grant is removed, by that mark; and without the
// change nothing is.
func TestGivingBackInOrder(t *testing.T) {
	tests := []struct {
		name  string
		world world
		want  string
		after time.Duration
		fails bool
	}{
		{name: "in order", want: "mark, fence, clear"},
		{name: "no answer about the mark", world: world{out: map[string]protocol.Outcome{"mark": protocol.Unknown}}, want: "mark", fails: true},
		{name: "no answer about the fence", world: world{out: map[string]protocol.Outcome{"fence": protocol.Unknown}}, want: "mark, fence", fails: true},
		{name: "refused", world: world{out: map[string]protocol.Outcome{"fence": protocol.Refused}}, want: "mark, fence", fails: true},
		{name: "answered meanwhile", world: world{out: map[string]protocol.Outcome{"fence": protocol.Conflict}}, want: "mark, fence"},
		{name: "deleted meanwhile", world: world{out: map[string]protocol.Outcome{"fence": protocol.NotFound}}, want: "mark, fence"},
		{name: "no answer about the removal", world: world{out: map[string]protocol.Outcome{"clear": protocol.Unknown}}, want: "mark, fence, clear", fails: true},
		{name: "the data went back", world: world{gone: true}, after: recheckAfter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, err := tt.world.reconciler().giveBack(t.Context(), asks(anyV4), held("10.0.0.1"))
			if got := strings.Join(tt.world.calls, ", "); got != tt.want {
				t.Errorf("calls: %s; want %s", got, tt.want)
			}
			if after != tt.after || (err != nil) != tt.fails {
				t.Errorf("after %v, error %v; want after %v, an error: %v", after, err, tt.after, tt.fails)
			}
		})
	}
}

// TestRelease: what a request held is free once a live read shows it gone, and no
// sooner.
func TestRelease(t *testing.T) {
	live := func(uid protocol.UID) *protocol.SubLease {
		s := asks(anyV4)
		s.UID = uid
		return &s
	}
	tests := []struct {
		name  string
		world world
		want  string
		after time.Duration
		fails bool
	}{
		{name: "gone", world: world{held: held("10.0.0.1")}, want: "read, withdraw, drop"},
		{name: "gone, with an ask alone", want: "read, withdraw"},
		{name: "there, whatever the cache says", world: world{held: held("10.0.0.1"), live: live("u1")}, want: "read", after: recheckAfter},
		{name: "another has the name", world: world{held: held("10.0.0.1"), live: live("u2")}, want: "read, withdraw, drop"},
		{name: "no answer", world: world{held: held("10.0.0.1"), out: map[string]protocol.Outcome{"read": protocol.Unknown}}, want: "read", fails: true},
		{name: "the data went back", world: world{held: held("10.0.0.1"), gone: true}, want: "read, withdraw", after: recheckAfter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, err := tt.world.reconciler().release(t.Context(), "r", "u1")
			if got := strings.Join(tt.world.calls, ", "); got != tt.want {
				t.Errorf("calls: %s; want %s", got, tt.want)
			}
			if after != tt.after || (err != nil) != tt.fails {
				t.Errorf("after %v, error %v; want after %v, an error: %v", after, err, tt.after, tt.fails)
			}
		})
	}
}

// TestQueueOfRequests: the requests that a controller finds when it starts stand in
// line by age, and by name within a second; then those that come, as they come. Who
// has its answer does not, and neither do uses. Grants of who is gone are looked at.
func TestQueueOfRequests(t *testing.T) {
	at := func(name string, second int64) *v1alpha1.IPSubLease {
		s := asks(anyV4)
		s.Name, s.UID = name, protocol.UID("u-"+name)
		o := kube.ToSubLease(s)
		o.UID, o.CreationTimestamp = types.UID("u-"+name), metav1.Unix(second, 0)
		return o
	}
	use, answered := at("use", 1), at("answered", 1)
	use.Spec.Request, use.Spec.Use = nil, &v1alpha1.Use{}
	answered.Status.Granted = []v1alpha1.Granted{{Address: "10.0.0.1", Lease: "lan.0a000001.32"}}
	w := &world{cached: []*v1alpha1.IPSubLease{at("young", 3), at("b", 2), use, at("old", 1), answered, at("a", 2)}, known: []string{"gone"}}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	changed := &trigger.Source{}
	changed.Fire("", "early") // nobody listens yet, and nothing is lost
	r := w.reconciler()
	if err := r.first(changed).Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	arrive := r.arrivals()
	arrive.Create(t.Context(), event.CreateEvent{Object: at("old", 1), IsInInitialList: true}, q)
	arrive.Create(t.Context(), event.CreateEvent{Object: at("new", 0)}, q)
	if got, want := strings.Join(w.calls, ", "), "ask for old, ask for a, ask for b, ask for young, ask for new"; got != want {
		t.Errorf("in line: %s; want %s", got, want)
	}
	changed.Fire("", "news")
	var names []string
	for q.Len() > 0 {
		req, _ := q.Get()
		q.Done(req)
		names = append(names, req.Name)
	}
	if got, want := strings.Join(names, " "), "gone old new news"; got != want {
		t.Errorf("to be looked at: %s; want %s", got, want)
	}
}
