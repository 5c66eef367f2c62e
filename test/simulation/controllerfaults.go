package simulation

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/broker"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/takeover"
)

// calls are what the broker calls.
func (c *simController) calls() broker.Cluster { return liveCalls{c} }

// live is what the claims' reconciler reads.
func (c *simController) live() claims.Live { return liveCalls{c} }

// granter is what the claims' reconciler has grants of.
func (c *simController) granter() claims.Granter { return granter{c.broker, c} }

// nodes are the calls that bear on dead nodes.
func (c *simController) nodes() takeover.Live { return nodeCalls{liveCalls{c}} }

// margin is what the controller waits beyond F.
func (c *simController) margin() time.Duration {
	if c.w.fault == M18 {
		return -defaultFence / 2
	}
	return takeover.DefaultMargin
}

// tamper changes a patch before it is sent.
func (c *simController) tamper(_ client.Object, p patch) patch { return p }

// deleteLease deletes a lease for who, of which nothing must be granted.
func (w *world) deleteLease(who string, m protocol.Meta) protocol.Outcome {
	l, _ := w.api.leases.read(m.Name)
	out := w.api.leases.remove(m)
	if out == protocol.Done && len(l.Grants) > 0 {
		w.fail(I1, "%s deleted lease %s, of which %v is granted", who, l.Name, l.Grants[0].Addr)
	}
	return out
}
