package state

import (
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Known are the registrations, as far as this user may read them.
type Known struct {
	Registrations map[protocol.NodeName]protocol.Registration
	Hidden        bool // he may not
	Now           time.Time
}

// KnownFrom reads registrations from Leases, those that are none left out. now is the API server's
// time.
func KnownFrom(l *coordination.LeaseList, now time.Time) Known {
	k := Known{Registrations: map[protocol.NodeName]protocol.Registration{}, Now: now}
	for _, o := range regsIn(l) {
		reg, _ := registrationOf(&o, now) // check tells of those that are garbled
		k.Registrations[reg.Node] = reg
	}
	return k
}

// OutOfReach says why what is free in a node's lease can be had by nobody, or "" where
// nothing speaks against it. The controller has more to go by: it counts by its own
// clock, and knows which recalls were not answered.
func (k Known) OutOfReach(l *v1alpha1.IPLease) string {
	if l.Spec.Holder.Kind != v1alpha1.HolderNode || k.Hidden {
		return ""
	}
	reg, ok := k.Registrations[protocol.NodeName(l.Spec.Holder.Node)]
	switch {
	case !ok:
		return "no agent is registered for the node: none runs there"
	case reg.Ended():
		return "the node counts as dead: its leases are being taken over"
	case string(reg.Store) != l.Spec.Store:
		return "of an earlier store of the node: frozen until nothing of that time runs there"
	case l.Spec.Term < reg.Term:
		return "the agent has not said it again since it registered anew"
	case reg.Fence > 0 && k.Now.Sub(reg.Beat) >= reg.Fence/2:
		return fmt.Sprintf("the node's agent has not been heard of for %s", duration.HumanDuration(k.Now.Sub(reg.Beat)))
	}
	return ""
}
