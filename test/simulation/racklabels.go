package simulation

import (
	"context"

	coordination "k8s.io/api/coordination/v1"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TellLabels implements [nodelabels.Teller].
func (c liveCalls) TellLabels(_ context.Context, m protocol.Meta, labels string) (protocol.Outcome, error) {
	_, out, err := call(c.simController, c.w.text("labels %s for %s", labels, m.Name), true, func() (protocol.Registration, protocol.Outcome) {
		return c.w.api.regs.update(protocol.Meta{Name: m.Name, UID: m.UID}, func(to *protocol.Registration) { to.Labels = labels })
	})
	return out, err
}

// registrationObject returns s as the API server shows it.
func registrationObject(s protocol.Registration) *coordination.Lease {
	o := kube.ToRegistration("registrations", s)
	o.Annotations["tenure.dev/labels"] = s.Labels
	stamp(&o.ObjectMeta, s.Meta)
	return o
}
