package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// knownAs returns what is known of a pool as it was heard, for the node whose labels it names. Text
// is what the store has of it.
func knownAs(heard Pool, text string) (*knownPool, error) {
	whole, err := poolspec.ParsePool(heard.Text)
	if err != nil {
		return nil, err
	}
	shape := heard.Text.ForNode(whole, heard.Labels)
	return &knownPool{Pool: heard, shape: shape, whole: whole, text: text, notHere: notHere(heard, shape)}, nil
}

// notHere says why no address of a pool is for this node; empty if some are. Shape is the part of
// it that is.
func notHere(p Pool, shape *allocator.Shape) string {
	switch {
	case !p.Labels.Tells(p.Text):
		return "has ranges for some nodes alone, and the controller has not told this node its labels yet"
	case len(shape.Families()) == 0:
		return fmt.Sprintf("has no range for this node (%s): the nodeSelectors of its ranges are %s; label the node, or add a range for it",
			p.Labels.ForPeople(), strings.Join(p.Text.Selectors(), "; "))
	}
	return ""
}

// forNode returns a pool as heard, with the labels of this node that tell which part of it is for
// the node, and with the pressure of that part. A label that the registration does not tell is as
// it was before.
func (ps *pools) forNode(heard Pool, was *knownPool) Pool {
	if heard.Text.PerNode != nil { // what the node has is nobody else's, however full the pool is
		heard.Pressure, heard.Exhausted = allocator.PressureLow, ""
	}
	keys := heard.Text.LabelKeys()
	heard.Labels = nil
	if len(keys) == 0 {
		return heard
	}
	ps.mu.Lock()
	text := ps.labels
	ps.mu.Unlock()
	told, err := poolspec.ParseNodeLabels(text)
	if err != nil {
		ps.log.Warn("labels on the registration not understood", "error", err)
	}
	heard.Labels = poolspec.NodeLabels{}
	if was != nil {
		maps.Copy(heard.Labels, was.Labels.Of(keys))
	}
	maps.Copy(heard.Labels, told.Of(keys))
	first := true
	for _, part := range heard.Parts {
		if !heard.Text.Selects(part.Selector, heard.Labels) {
			continue
		}
		if first || part.Pressure < heard.Pressure {
			heard.Pressure, heard.Exhausted = part.Pressure, part.Exhausted
		}
		first = false
	}
	return heard
}

// hearLabels takes over the node's labels as its registration tells them, if they have changed.
func (ps *pools) hearLabels(told string) {
	ps.mu.Lock()
	same := told == "" || told == ps.labels
	if !same {
		ps.labels = told
	}
	ps.mu.Unlock()
	if !same {
		ps.background(ps.relabel)
	}
}

// relabel takes over the node's labels for the pools that name some. What cannot be taken over is
// tried again with the next heartbeat.
func (ps *pools) relabel(ctx context.Context) {
	for _, p := range ps.followed() {
		if err := ps.relabelPool(ctx, p); err != nil && ctx.Err() == nil {
			ps.log.WarnContext(ctx, "pool not taken over with the node's labels", "pool", p.name, "error", err)
			ps.mu.Lock()
			ps.labels = ""
			ps.mu.Unlock()
		}
	}
}

func (ps *pools) relabelPool(ctx context.Context, p *pool) error {
	unlock, err := p.hearing.Lock(ctx, ps.sched, struct{}{})
	if err != nil {
		return err
	}
	defer unlock()
	known, absent, _ := p.now()
	if known == nil || absent || ps.forNode(known.Pool, known).Labels.String() == known.Labels.String() {
		return nil
	}
	return ps.hear(ctx, p, known.Pool, true)
}

// elsewhere says for which nodes an address of p is, if it is not for this one.
func (p *knownPool) elsewhere(a netip.Addr) string {
	selector, ok := p.Text.Elsewhere(p.whole, p.Labels, a)
	if !ok {
		return ""
	}
	return fmt.Sprintf("whose range is for nodes with %s, and this node has %s", selector, p.Labels.ForPeople())
}

// elsewhere returns the reason why an address that was asked for by name cannot be given, also if
// it is one for other nodes.
func (ps *pools) elsewhere(wrong *assign.UnassignableError, sources []poolspec.Source) error {
	for _, src := range sources {
		known, _ := ps.heard(protocol.PoolName(src.Pool))
		if known == nil {
			continue
		}
		if why := known.elsewhere(wrong.Addr); why != "" {
			return &assign.UnassignableError{Addr: wrong.Addr, Pool: protocol.PoolName(src.Pool), Reason: fmt.Errorf("it is one %s", why)}
		}
	}
	return wrong
}

// selective reports whether one of the sources' pools has ranges for some nodes alone.
func (ps *pools) selective(sources []poolspec.Source) bool {
	return slices.ContainsFunc(sources, func(src poolspec.Source) bool {
		known, _, _ := ps.get(protocol.PoolName(src.Pool)).now()
		return known != nil && len(known.Text.LabelKeys()) > 0
	})
}

// showConsumer lets the controller see that a pod of this node waits for a claim without addresses,
// where these depend on the node: it makes the use under which the pod is to have them. What comes
// of that, the ADD reads of the claim.
func (a *Agent) showConsumer(ctx context.Context, add *addCall, c protocol.Claim) {
	if !a.pools.selective(add.conf.Sources) {
		return
	}
	unlock, err := a.claims.Lock(ctx, a.sched, c.UID)
	if err != nil {
		return
	}
	defer unlock()
	r := protocol.Right{Kind: protocol.RightUse, Name: protocol.UseName(c.UID, 0), SubLeaseRight: protocol.SubLeaseRight{
		Use: &protocol.Use{Claim: c.Ref(), Pod: add.demand.Pod, Interface: add.key.IfName},
	}}
	if was, known := a.right(r.Name); known && was.UID != "" {
		return // it is there
	}
	if _, _, err := a.rights.settleForADD(ctx, r, a.rights.beginWith(protocol.Event{Kind: protocol.EventWant}), nil); err != nil {
		a.log.DebugContext(ctx, "claim's consumer not shown", "claim", c.Ref().String(), "error", err)
	}
}
