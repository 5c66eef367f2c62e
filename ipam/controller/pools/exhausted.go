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
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, exhaustedText("pool "+s.pool.Name+" is exhausted", used, capacity, unreachable))
	case exhaustedParts(st.Selectors) != "":
		s.set(st, v1alpha1.PoolExhausted, metav1.ConditionTrue, v1alpha1.ReasonNoAddressFree, exhaustedParts(st.Selectors))
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

// exhaustedText goes on after what with how many addresses are in use.
func exhaustedText(what string, used, capacity, unreachable int64) string {
	text := fmt.Sprintf("%s: %d of %d in use", what, used, capacity)
	if unreachable > 0 {
		text += fmt.Sprintf(", %d unreachable", unreachable)
	}
	return text
}
