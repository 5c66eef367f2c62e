package strangers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func found(pool protocol.PoolName, addr, mac string) protocol.Stranger {
	return protocol.Stranger{Pool: pool, Addr: netip.MustParseAddr(addr), MAC: mac, At: noon}
}

// registration is that of node n1, which tells of strangers.
func registration(t *testing.T, all ...protocol.Stranger) *coordination.Lease {
	t.Helper()
	text := "["
	for i, x := range all {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(`{"pool":%q,"address":%q,"mac":%q,"at":%q}`, x.Pool, x.Addr, x.MAC, x.At.Format(time.RFC3339))
	}
	return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenure-system", Name: "n1", Annotations: map[string]string{"tenure.dev/turn": "1", "tenure.dev/strangers": text + "]"},
	}}
}

func pool(name, cidr string, detects bool) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: cidr}}, DetectConflicts: detects}}
}

// newReconciler returns one on a cluster of these objects.
func newReconciler(t *testing.T, objects ...client.Object) (*Reconciler, client.Client, *events.FakeRecorder) {
	t.Helper()
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	recorder := events.NewFakeRecorder(100)
	return &Reconciler{
		Cache: kc, RegistrationNamespace: "tenure-system", Write: kc, Shapes: &pools.Shapes{}, Events: recorder, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return noon },
	}, kc, recorder
}

func (r *Reconciler) mustLook(t *testing.T) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
}

func reservations(t *testing.T, kc client.Client) []v1alpha1.IPReservation {
	t.Helper()
	var list v1alpha1.IPReservationList
	if err := kc.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestKept: a stranger's address is kept, once: what somebody deletes stays deleted, although the
// node tells of it for a while. What the pool does not ask for, or does not give, is passed over,
// and so is a pool that is being deleted.
func TestKept(t *testing.T) {
	const mac = "02:00:00:00:00:09"
	leaving := pool("leaving", "10.2.0.0/24", true)
	leaving.Finalizers, leaving.DeletionTimestamp = []string{v1alpha1.LeasesFinalizer}, &metav1.Time{Time: noon}
	r, kc, recorder := newReconciler(t, pool("lan", "10.0.0.0/24", true), pool("off", "10.1.0.0/24", false), pool("six", "fd00::/120", true), leaving, registration(t,
		found("leaving", "10.2.0.9", mac), found("lan", "10.0.0.9", mac), found("off", "10.1.0.9", mac), found("gone", "10.0.0.9", mac), found("lan", "10.9.0.9", mac), found("lan", "10.0.0.8", "a printer"), found("six", "fd00::10", mac)))
	r.mustLook(t)
	kept := reservations(t, kc)
	if len(kept) != 2 || kept[0].Name != "stranger-lan-10-0-0-9" || kept[0].Spec.Pool != "lan" || kept[0].Spec.Address != "10.0.0.9" ||
		kept[0].Labels[v1alpha1.LabelStranger] != "02-00-00-00-00-09" || len(kept[0].OwnerReferences) != 1 || kept[0].OwnerReferences[0].UID != "lan" || kept[1].Spec.Address != "fd00::10" {
		t.Fatalf("kept are %+v", kept)
	}
	if len(recorder.Events) != 2 {
		t.Errorf("%d Events; want 2", len(recorder.Events))
	}
	if err := kc.Delete(t.Context(), &kept[0]); err != nil {
		t.Fatal(err)
	}
	r.mustLook(t)
	if kept := reservations(t, kc); len(kept) != 1 {
		t.Errorf("what was deleted is made again: %+v", kept)
	}
}

// TestNotAgain: neither a reservation that cannot be made has others made again that somebody has
// deleted, nor does the next leader what a registration tells of that nobody writes any more.
func TestNotAgain(t *testing.T) {
	const mac = "02:00:00:00:00:09"
	r, kc, _ := newReconciler(t, pool("lan", "10.0.0.0/24", true), registration(t, found("lan", "10.0.0.8", mac), found("lan", "10.0.0.9", mac)))
	down := errors.New("down")
	r.Write = interceptor.NewClient(kc.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if o.GetName() == "stranger-lan-10-0-0-8" {
			return down
		}
		return c.Create(ctx, o, opts...)
	}})
	for range 2 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "n1"}}); !errors.Is(err, down) {
			t.Errorf("got %v; want that it is tried again", err)
		}
		if err := kc.DeleteAllOf(t.Context(), &v1alpha1.IPReservation{}); err != nil {
			t.Fatal(err)
		}
	}
	r.Write = kc
	r.mustLook(t)
	if kept := reservations(t, kc); len(kept) != 1 || kept[0].Spec.Address != "10.0.0.8" {
		t.Errorf("kept are %+v; want what could not be made before", kept)
	}
	next, kc, _ := newReconciler(t, pool("lan", "10.0.0.0/24", true), registration(t, found("lan", "10.0.0.9", mac)))
	next.Now = func() time.Time { return noon.Add(2 * time.Hour) }
	next.mustLook(t)
	if kept := reservations(t, kc); len(kept) > 0 {
		t.Errorf("kept are %+v, of two hours ago", kept)
	}
}

// TestTooMany: who answers for everything has 16 addresses of a pool kept, whatever nodes tell.
func TestTooMany(t *testing.T) {
	var all []client.Object
	for i := range protocol.MaxStrangers - 1 {
		all = append(all, &v1alpha1.IPReservation{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%02d", i), Labels: map[string]string{v1alpha1.LabelStranger: "x"}}, Spec: v1alpha1.IPReservationSpec{Pool: "lan", Address: fmt.Sprintf("10.0.0.%d", 100+i)},
		})
	}
	r, kc, _ := newReconciler(t, append(all, pool("lan", "10.0.0.0/24", true), registration(t, found("lan", "10.0.0.8", "02:00:00:00:00:09"), found("lan", "10.0.0.9", "02:00:00:00:00:09")))...)
	r.mustLook(t)
	if n := len(reservations(t, kc)); n != protocol.MaxStrangers {
		t.Errorf("%d addresses are kept; want %d", n, protocol.MaxStrangers)
	}
}
