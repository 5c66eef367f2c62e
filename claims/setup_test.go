package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
)

func newQueue(t *testing.T) trigger.Queue {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// drain returns what waits in q, sorted, and takes it out.
func drain(q trigger.Queue) string {
	var names []string
	for q.Len() > 0 {
		req, _ := q.Get()
		q.Done(req)
		names = append(names, req.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestQueueOfClaims: the queue begins with every claim that grants name, whether it is there or
// not: a claim that is gone sends no event. Before that the trigger adds nothing, afterwards it
// does.
func TestQueueOfClaims(t *testing.T) {
	q, changed := newQueue(t), &trigger.Source{}
	w := &world{claims: []grants.ClaimKey{{Namespace: "ns", Name: "gone"}, {Namespace: "other", Name: "gone"}}}
	changed.Fire("ns", "early")
	if err := w.reconciler().first(changed).Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if got, want := drain(q), "ns/gone other/gone"; got != want {
		t.Errorf("the queue begins with %q; want %q", got, want)
	}
	for range 2 {
		changed.Fire("ns", "vm")
	}
	if got, want := drain(q), "ns/vm"; got != want {
		t.Errorf("after two triggers the queue has %q; want %q", got, want)
	}
}

// indexes are indexes of claims by their names.
type indexes map[string]client.IndexerFunc

func (x indexes) IndexField(_ context.Context, _ client.Object, name string, of client.IndexerFunc) error {
	x[name] = of
	return nil
}

// TestIndexOfClaims: a change of a rule concerns every claim that does not have its
// addresses, whatever it waits for and whatever it has been told.
func TestIndexOfClaims(t *testing.T) {
	of := indexes{}
	if err := IndexClaims(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		claim claim
		want  bool
	}{
		{fresh(), true},
		{fresh().with(metav1.ConditionFalse, ReasonPoolNotAllowed, "x"), true},
		{fresh().with(metav1.ConditionFalse, ReasonExhausted, "x"), true},
		{fresh().happy(), true},
		{shows("10.0.0.5/24"), true},
		{shows("10.0.0.5/24").with(metav1.ConditionFalse, ReasonConflict, "x"), true},
		{shows("10.0.0.5/24").happy(), false},
	} {
		o := &ipamclaims.IPAMClaim{Spec: ipamclaims.IPAMClaimSpec{Network: "lan"}, Status: ipamclaims.IPAMClaimStatus{IPs: tt.claim.ips, Conditions: tt.claim.conditions}}
		if got := fmt.Sprint(of[waiting](o), of[unsettled](o)); got != map[bool]string{true: "[tenure.waiting] [lan]", false: "[] []"}[tt.want] {
			t.Errorf("claim with %v and %v: indexed %s; want it so: %t", tt.claim.ips, tt.claim.conditions, got, tt.want)
		}
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
