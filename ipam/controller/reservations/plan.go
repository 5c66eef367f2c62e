package reservations

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// askOf returns what a reservation asks for. Admission has seen to it that the address is
// one.
func askOf(r *v1alpha1.IPReservation) (grants.Ask, error) {
	addr, err := netip.ParseAddr(r.Spec.Address)
	if err != nil {
		return grants.Ask{}, fmt.Errorf("reservation %s: spec.address: %w", r.Name, err)
	}
	return grants.Ask{
		To: protocol.Grantee{Kind: protocol.GranteeReservation, UID: protocol.UID(r.UID), Name: r.Name},
		From: []grants.Source{{
			Pool: protocol.PoolName(r.Spec.Pool), Addr: addr, Families: []allocator.Family{allocator.FamilyOf(addr)},
		}},
	}, nil
}

// expired reports whether the time has passed until which a reservation is meant, and how much of
// it is left.
func expired(r *v1alpha1.IPReservation, now time.Time) (ended bool, left time.Duration) {
	if r.Spec.Until == nil {
		return false, 0
	}
	left = r.Spec.Until.Sub(now)
	return left <= 0, max(left, 0)
}

// conditionAfter returns the condition for an answer of the broker's. ok is false while there is
// nothing to say yet.
func conditionAfter(r *v1alpha1.IPReservation, a grants.Answer) (c metav1.Condition, ok bool) {
	c = metav1.Condition{Type: v1alpha1.Reserved, Status: metav1.ConditionFalse, ObservedGeneration: r.Generation, Message: a.Problem.Message}
	switch a.Problem.Reason {
	case grants.NoProblem:
		if len(a.Granted) == 0 {
			return c, false
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonKept, fmt.Sprintf("%s is kept for %s", r.Spec.Address, r.Spec.For)
	case grants.Taken, grants.Silent, grants.Exhausted:
		c.Reason, c.Message = v1alpha1.ReasonInUse, a.Problem.Message+"; it is kept when it comes free"
	case grants.Unassignable:
		c.Reason, c.Message = v1alpha1.ReasonNotAssignable, a.Problem.Message+": the pool gives it to nobody, and nothing has to be kept"
	case grants.PoolMissing, grants.PoolNotReady, grants.Failed:
		c.Reason = v1alpha1.ReasonPoolNotReady
	}
	return c, true
}

// expiredCondition returns the condition of a reservation whose time has passed.
func expiredCondition(r *v1alpha1.IPReservation) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.Reserved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExpired, ObservedGeneration: r.Generation,
		Message: fmt.Sprintf("spec.until, %s, has passed: %s is not kept any more", r.Spec.Until.UTC().Format(time.RFC3339), r.Spec.Address),
	}
}

// owns reports whether a reservation goes with its pool: Tenure itself made it, of a stranger's
// address.
func owns(pool *v1alpha1.IPPool, r *v1alpha1.IPReservation) bool {
	return slices.ContainsFunc(r.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == pool.UID })
}

// leavingCondition returns the condition of a reservation that goes with its pool.
func leavingCondition(r *v1alpha1.IPReservation) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.Reserved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPoolNotReady, ObservedGeneration: r.Generation,
		Message: fmt.Sprintf("pool %s was deleted, and gives %s to nobody: this reservation goes with it", r.Spec.Pool, r.Spec.Address),
	}
}

// changes reports whether a condition says something else than r's status.
func changes(r *v1alpha1.IPReservation, c metav1.Condition) bool {
	was := meta.FindStatusCondition(r.Status.Conditions, c.Type)
	return was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message
}
