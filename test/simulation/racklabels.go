package simulation

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// labelNews is what a controller has heard by which it knows that labels are to be told: of
// registrations, which labels they tell, and of pools, which keys they name and as of which edit.
type labelNews struct {
	told, keys map[string]string
	generation map[string]int64
}

// seeNode has the labels of a Node told that is new or has others.
func (c *simController) seeNode(ev simEvent[rackNode]) {
	if !ev.gone {
		c.soon(task{lookAtLabels, ev.name}, 0)
	}
}

// seeTold has labels told to a registration that is new, or where others have been written.
func (c *simController) seeTold(ev simEvent[protocol.Registration]) {
	if c.w.racks == nil {
		return
	}
	now := string(ev.obj.UID) + " " + ev.obj.Labels
	if ev.gone {
		delete(c.labels.told, ev.name)
	} else if c.labels.told[ev.name] != now {
		c.labels.told[ev.name] = now
		c.soon(task{lookAtLabels, ev.name}, 0)
	}
}

// seeSelectors has all nodes looked at when a pool names other labels than before, and all claims
// that wait when it was edited.
func (c *simController) seeSelectors(ev simEvent[simPool]) {
	if c.w.racks == nil {
		return
	}
	keys := ""
	if !ev.gone {
		keys = strings.Join(kube.SpecText(ev.obj.obj).LabelKeys(), " ")
	}
	if c.labels.keys[ev.name] != keys {
		c.labels.keys[ev.name] = keys
		for name := range c.rackNodes.objects {
			c.soon(task{lookAtLabels, name}, 0)
		}
	}
	if c.labels.generation[ev.name] == ev.obj.obj.Generation && !ev.gone {
		return
	}
	c.labels.generation[ev.name] = ev.obj.obj.Generation
	for name, claim := range c.claims.objects {
		if len(claim.IPs) == 0 {
			c.soon(task{lookAtClaim, name}, 0)
		}
	}
}

// TellLabels implements [nodelabels.Teller].
func (c liveCalls) TellLabels(_ context.Context, m protocol.Meta, labels string) (protocol.Outcome, error) {
	_, out, err := call(c.simController, c.w.text("labels %s for %s", labels, m.Name), true, func() (protocol.Registration, protocol.Outcome) {
		return c.w.api.regs.update(protocol.Meta{Name: m.Name, UID: m.UID}, func(to *protocol.Registration) { to.Labels = labels })
	})
	return out, err
}

// registrationMeta returns the metadata of a registration as the API server shows it, as far as
// labels go.
func registrationMeta(s protocol.Registration) metav1.ObjectMeta {
	o := metav1.ObjectMeta{Name: s.Name, Annotations: map[string]string{"tenure.dev/node-uid": string(s.NodeUID), "tenure.dev/labels": s.Labels}}
	stamp(&o, s.Meta)
	return o
}
