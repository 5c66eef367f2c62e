package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/broker"
)

func newQueue(t *testing.T) queue {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// drain returns what waits in q, sorted, and takes it out.
func drain(q queue) string {
	var names []string
	for q.Len() > 0 {
		req, _ := q.Get()
		q.Done(req)
		names = append(names, req.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestQueueOfClaims: the queue begins with every claim that grants name, there or
// not, since one that is gone has no event to come; from then on the bell adds to
// it, and before it added nothing.
func TestQueueOfClaims(t *testing.T) {
	q, bell := newQueue(t), &Doorbell{}
	w := &world{claims: []broker.ClaimKey{{Namespace: "ns", Name: "gone"}, {Namespace: "other", Name: "gone"}}}
	bell.Ring(broker.ClaimKey{Namespace: "ns", Name: "early"})
	if err := (opening{bell, w}).Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if got, want := drain(q), "ns/gone other/gone"; got != want {
		t.Errorf("the queue begins with %q; want %q", got, want)
	}
	for range 2 {
		bell.Ring(broker.ClaimKey{Namespace: "ns", Name: "vm"})
	}
	if got, want := drain(q), "ns/vm"; got != want {
		t.Errorf("after two rings the queue has %q; want %q", got, want)
	}
}

// TestOfUse: a use has its claim looked at; a request has not.
func TestOfUse(t *testing.T) {
	use := &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: "u1.0"}}
	use.Spec.Use = &v1alpha1.Use{Claim: v1alpha1.ClaimReference{Namespace: "ns", Name: "vm", UID: "u1"}}
	request := &v1alpha1.IPSubLease{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	request.Spec.Request = &v1alpha1.Request{}
	if got := fmt.Sprint(ofUse(t.Context(), use), ofUse(t.Context(), request)); got != "[ns/vm] []" {
		t.Errorf("a use and a request have %s looked at; want [ns/vm] []", got)
	}
}
