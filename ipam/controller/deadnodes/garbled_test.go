package deadnodes

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// oneRegistration is a cluster of one registration, without a Node, in which somebody holds a
// lease. It keeps what is written.
type oneRegistration struct {
	Live
	client.Reader
	lease   *coordination.Lease
	written []protocol.Registration
	removed bool
	taken   []protocol.Lease
}

// Get is a cache's.
func (o *oneRegistration) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if l, ok := into.(*coordination.Lease); ok {
		o.lease.DeepCopyInto(l)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
}

func (o *oneRegistration) ReadRegistration(context.Context, protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	if n := len(o.written); n > 0 {
		return o.written[n-1], protocol.Done, nil
	}
	s, err := kube.RegistrationOf(o.lease)
	if err != nil {
		return protocol.Registration{}, protocol.Unknown, err
	}
	return s, protocol.Done, nil
}

func (o *oneRegistration) UpdateRegistration(_ context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	o.written = append(o.written, s)
	return s, protocol.Done, nil
}

func (o *oneRegistration) DeleteRegistration(context.Context, protocol.Meta) (protocol.Outcome, error) {
	o.removed = true
	return protocol.Done, nil
}

func (o *oneRegistration) ReadNode(context.Context, protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	return protocol.Node{}, protocol.NotFound, nil
}

func (o *oneRegistration) Pools(context.Context) ([]protocol.Pool, error) { return nil, nil }

func (o *oneRegistration) LeasesOfNode(context.Context, protocol.NodeName) ([]protocol.Lease, error) {
	if len(o.taken) > 0 {
		return nil, nil
	}
	return []protocol.Lease{{Meta: protocol.Meta{Name: "lan.1"}, Protocol: protocol.Version, Holder: protocol.Holder{Node: "n1"}, Store: "s", Term: 3}}, nil
}

func (o *oneRegistration) UpdateLease(_ context.Context, _, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	o.taken = append(o.taken, next)
	return next, protocol.Done, nil
}

func (o *oneRegistration) SubLeasesOfNode(context.Context, protocol.NodeName) ([]protocol.SubLease, error) {
	return nil, nil
}

// TestGarbledRegistrationIsTakenOver: whoever has taken a node over cannot keep what it holds by
// what is written on its registration: neither from who looks nor from the cluster. A person is
// told once.
func TestGarbledRegistrationIsTakenOver(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string // "-" is none
		told        int
	}{
		{"as it should be", nil, 0},
		{"hidden", map[string]string{"boot": "-", "machine": "-", "turn": "-", "former": "-", "recalls": "-"}, 1},
		{"no boot", map[string]string{"boot": "-"}, 1},
		{"a turn that is no number", map[string]string{"turn": "x"}, 1},
		{"who was registered before is no list", map[string]string{"former": "x"}, 1},
		{"what is recalled is no list", map[string]string{"recalls": "{}"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, term, fence := "s", int32(3), int32(60)
			o := &oneRegistration{lease: &coordination.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "ns", UID: "u", ResourceVersion: "9", Annotations: map[string]string{
					"tenure.dev/node-uid": "node", "tenure.dev/machine": "m", "tenure.dev/boot": "b", "tenure.dev/turn": "4", "tenure.dev/recalls": "",
					"tenure.dev/former": `[{"store":"before","machine":"m","term":1}]`,
				}},
				Spec: coordination.LeaseSpec{HolderIdentity: &store, LeaseTransitions: &term, LeaseDurationSeconds: &fence},
			}}
			for name, text := range tt.annotations {
				if o.lease.Annotations["tenure.dev/"+name] = text; text == "-" {
					delete(o.lease.Annotations, "tenure.dev/"+name)
				}
			}
			var now time.Duration
			said := events.NewFakeRecorder(100)
			r := &Reconciler{
				Cache: o, RegistrationNamespace: "ns", Live: o, Events: said, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler),
				Margin: time.Minute, Calls: 1, Now: func() time.Duration { return now },
			}
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			r.plan(t.Context(), "n1", q)
			now += 2 * time.Minute // F, and the margin
			r.plan(t.Context(), "n1", q)
			if q.Len() != 1 {
				t.Fatal("nobody looks at the registration")
			}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil {
				t.Fatal(err)
			}
			if len(o.written) == 0 || !o.written[0].Ended() || o.written[0].Term != 4 {
				t.Errorf("written %+v; want term 3 ended", o.written)
			}
			if len(o.taken) != 1 || o.taken[0].Name != "lan.1" {
				t.Errorf("taken %+v; want its lease", o.taken)
			}
			told := 0
			for len(said.Events) > 0 {
				if strings.Contains(<-said.Events, "RegistrationGarbled") {
					told++
				}
			}
			if told != tt.told {
				t.Errorf("told %d times that the registration is garbled; want %d", told, tt.told)
			}
		})
	}
}

// TestGarbledRegistrationStays: a registration whose list of former agents cannot be read is not
// taken for one that nobody has left anything on.
func TestGarbledRegistrationStays(t *testing.T) {
	o := &oneRegistration{lease: &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "ns", UID: "u", ResourceVersion: "9", Annotations: map[string]string{
		"tenure.dev/turn": "4", "tenure.dev/former": `[{"store":"s","term":3,"ended":true}`,
	}}}}
	r := &Reconciler{
		Cache: o, RegistrationNamespace: "ns", Live: o, Events: events.NewFakeRecorder(100), Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler),
		Margin: time.Minute, Calls: 1, Now: func() time.Duration { return time.Hour },
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil || o.removed {
		t.Errorf("removed: %v, error %v; want it left alone", o.removed, err)
	}
	o.lease.Annotations["tenure.dev/former"] = ""
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil || !o.removed {
		t.Errorf("removed: %v, error %v; want it removed once it says that nobody is left", o.removed, err)
	}
}
