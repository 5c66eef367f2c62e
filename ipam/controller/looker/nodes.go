package looker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// node is what a look knows of a node's agent and Node.
type node struct {
	// registered says that there is a registration, reg. Its term may have been ended.
	registered bool
	reg        protocol.Registration
	// looked says that the Node was read. Then there says whether it exists, and off whether
	// somebody vouches that the machine is off.
	looked, there, off bool
}

// readNodes reads which nodes have an agent, and which agents live.
func (t *look) readNodes(ctx context.Context) error {
	regs, err := t.Registrations(ctx)
	if err != nil {
		return err
	}
	for _, reg := range regs {
		t.nodes[reg.Node] = &node{registered: true, reg: reg}
		if reg.Ended() {
			continue
		}
		if t.facts.Agents[reg.Node], err = t.beats(ctx, reg); err != nil {
			return err
		}
	}
	return nil
}

// beats reports whether the agent of a registration lives. What is silent by the cache is read
// live, after the pods: who deletes a pod by force answers for it only while its node is silent.
func (t *look) beats(ctx context.Context, cached protocol.Registration) (bool, error) {
	if t.Beats(cached.Node) {
		return true, nil
	}
	now, out, err := t.Live.ReadRegistration(ctx, cached.Node)
	if garbled, ok := errors.AsType[*kube.RegistrationError](err); ok {
		now = garbled.Registration
	} else if out != protocol.Done && out != protocol.NotFound {
		return false, fmt.Errorf("read the registration of node %s, which is silent: %w", cached.Node, err)
	}
	return out != protocol.NotFound && now.Revision != cached.Revision, nil
}

// node returns what is known of a node. It reads the Node object the first time.
func (t *look) node(ctx context.Context, name protocol.NodeName) *node {
	n := t.nodes[name]
	if n == nil {
		n = &node{}
		t.nodes[name] = n
	}
	if !n.looked {
		seen, out, _ := t.Live.ReadNode(ctx, name)
		n.looked, n.there, n.off = true, out != protocol.NotFound, seen.Off
	}
	return n
}

// dead reports whether the node of the pod that something is kept for counts as dead: the
// controller has ended the term of its registration, or it has neither a Node nor anybody on its
// registration. Where the pool takes no silence for an answer, somebody has to vouch for that.
func (t *look) dead(ctx context.Context) func(foreign.Kept) bool {
	confirmed := map[protocol.PoolName]bool{}
	for _, p := range t.pools {
		confirmed[p.Name] = p.confirmed
	}
	return func(b foreign.Kept) bool {
		n := t.nodes[b.To.Node]
		switch {
		case n != nil && n.registered && !n.reg.Ended():
			return false
		case n != nil && n.registered && !confirmed[b.Pool]:
			return true
		case n != nil && n.registered:
			return slices.ContainsFunc(n.reg.Former, func(f protocol.Former) bool { return f.Ended && f.Vouched })
		case confirmed[b.Pool]:
			return t.node(ctx, b.To.Node).off
		}
		return !t.node(ctx, b.To.Node).there
	}
}
