package pools

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// setExhausted sets the condition Exhausted. While somebody waits it stays True although an
// address is free: that address is on its way to whoever waits.
func (s seen) setExhausted(st *v1alpha1.IPPoolStatus) {
	full, used, capacity, unreachable := s.tally.exhausted(s.shape)
	switch {
	case full && st.Pressure == v1alpha1.PressureExhausted:
		message := fmt.Sprintf("pool %s is exhausted: %d of %d in use", s.pool.Name, used, capacity)
		if unreachable > 0 {
			message += fmt.Sprintf(", %d unreachable", unreachable)
		}
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, message)
	case s.starved && meta.IsStatusConditionTrue(st.Conditions, v1alpha1.PoolExhausted):
	case s.starved: // a view is full, or what is free has a holder that has yet to answer
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionFalse, v1alpha1.ReasonAddressesFree,
			"addresses are free, but somebody asked for one lately whom none of them would do, or had reached")
	case s.shape != nil && s.tally.counts(s.shape).Capacity == 0:
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, "pool "+s.pool.Name+" has no address to give: its ranges have none but those that are excluded, gateways, or the network's own")
	case s.shape != nil && slices.ContainsFunc(s.shape.Families(), func(f allocator.Family) bool { return s.shape.OrdinaryCapacity(f) == 0 }):
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionFalse, v1alpha1.ReasonAddressesFree, whoseFree(s.pool.Spec))
	default:
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionFalse, v1alpha1.ReasonAddressesFree, "addresses are free")
	}
}
