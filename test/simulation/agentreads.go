package simulation

import (
	"context"
	"slices"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func (c agentCalls) ReadRegistration(ctx context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	s, out, err := agentCall(ctx, c, "read of its registration", false, func() (protocol.Registration, protocol.Outcome) { return c.n.w.api.regs.read(string(node)) })
	c.n.hearLabels(s)
	switch {
	case out != protocol.Done:
	case c.n.w.fault == "M20" && c.n.disk.term != 0 && s.Term != c.n.disk.term:
		s.Store, s.Machine, s.Boot, s.Term = c.n.disk.store, c.n.machine, c.n.bootID(), c.n.disk.term
	case c.n.w.fault == "M21":
		s.Machine = c.n.machine
	}
	return s, out, err
}

func (c agentCalls) CreateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	return c.writeRegistration(ctx, s, "create", func(s protocol.Registration) (protocol.Registration, protocol.Outcome) {
		s.Name, s.Labels = string(c.n.name), ""
		return c.n.w.api.regs.create(s)
	})
}

func (c agentCalls) UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	return c.writeRegistration(ctx, s, "update", func(s protocol.Registration) (protocol.Registration, protocol.Outcome) {
		return c.n.w.api.regs.update(s.Meta, func(to *protocol.Registration) {
			recalls, look, labels := to.Recalls, to.Query, to.Labels
			*to = s
			to.Recalls, to.Query, to.Labels = recalls, look, labels
		})
	})
}

func (c agentCalls) writeRegistration(ctx context.Context, s protocol.Registration, verb string, write func(protocol.Registration) (protocol.Registration, protocol.Outcome)) (protocol.Registration, protocol.Outcome, error) {
	c.beating = true
	got, out, err := agentCall(ctx, c, c.n.w.text("%s of its registration, term %d, turn %d, rev %s", verb, s.Term, s.Writes, s.Revision), true, func() (protocol.Registration, protocol.Outcome) {
		c.n.lieIn(&s)
		got, out := write(s)
		if out == protocol.Done {
			c.n.w.heard(s)
		}
		return got, out
	})
	c.n.hearLabels(got)
	return got, out, err
}

func (c agentCalls) ReadNode(ctx context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of its Node", false, func() (protocol.Node, protocol.Outcome) { return c.n.w.nodeObject(name) })
}

func (c agentCalls) ReadClaim(ctx context.Context, _, name string) (protocol.Claim, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of claim "+name, false, func() (protocol.Claim, protocol.Outcome) { return c.n.w.api.readClaim(name) })
}

func (c agentCalls) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	p, out, err := agentCall(ctx, c, "read of pool "+string(name), false, func() (protocol.Pool, protocol.Outcome) { return c.n.w.api.readPool(name) })
	if out == protocol.Done || out == protocol.NotFound {
		for _, right := range c.n.names(func(r protocol.Right) bool { return r.Pool == name }) {
			c.n.disown(c.n.disk.rights[right], p, out)
		}
	}
	return p, out, err
}

func (c agentCalls) DomainPools(context.Context) ([]poolspec.DomainPool, error) { return nil, nil }

// A follow is one object that the agent follows.
type follow struct {
	news   chan struct{}
	behind func() bool // whether the agent has not been told of it as it is
}

// tell has the agent hear of what it follows: of all, or of some.
func (a *simAgent) tell(all bool) {
	if a.n.cut {
		return
	}
	for _, f := range slices.Clone(a.follows) {
		if f.behind() && (all || a.n.w.one(6)) {
			sched.Signal(f.news)
		}
	}
}

// following calls changed whenever what a version is of is told of, and has another one.
func (a *simAgent) following(ctx context.Context, told string, version func() string, changed func()) error {
	f := &follow{news: make(chan struct{}, 1), behind: func() bool { return version() != told }}
	a.follows = append(a.follows, f)
	for a.Wait(ctx, sched.Forever, f.news) != sched.Ended {
		if now := version(); now != told {
			told = now
			changed()
		}
	}
	a.follows = slices.DeleteFunc(a.follows, func(o *follow) bool { return o == f })
	return nil
}

// versionIn returns the revision of an object of a table, "none" if there is none.
func versionIn[T any](t *simTable[T], name string) string {
	obj, out := t.read(name)
	if out != protocol.Done {
		return "none"
	}
	return string(t.meta(&obj).Revision)
}

func (c agentCalls) FollowSubLease(ctx context.Context, name string, since protocol.Revision, changed func(protocol.SubLease, bool)) error {
	subs := c.n.w.api.subs
	return c.following(ctx, string(since), func() string { return versionIn(subs, name) }, func() {
		s, out := subs.read(name)
		changed(s, out == protocol.Done)
	})
}

func (c agentCalls) FollowRegistration(ctx context.Context, node protocol.NodeName, changed func(protocol.Registration)) error {
	regs := c.n.w.api.regs
	return c.following(ctx, "", func() string { return versionIn(regs, string(node)) }, func() {
		if s, out := regs.read(string(node)); out == protocol.Done {
			c.n.hearLabels(s)
			changed(s)
		}
	})
}

func (c agentCalls) Follow(ctx context.Context, name protocol.PoolName, changed func(agent.Pool, bool)) error {
	pools := c.n.w.api.pools
	return c.following(ctx, "", func() string { return versionIn(pools, string(name)) }, func() {
		p, out := pools.read(string(name))
		if out != protocol.Done {
			changed(agent.Pool{}, false)
			return
		}
		heard := daemon.PoolOf(p.object())
		c.n.hearPool(heard)
		changed(heard, true)
	})
}

func (c agentCalls) Pod(ctx context.Context, namespace, name string, uid protocol.UID) (agent.Pod, protocol.Outcome, error) {
	if p, ok := c.n.w.podObject(c.n, name); ok && p.ref.UID == uid {
		return p.seen(), protocol.Done, nil
	}
	return c.ReadPod(ctx, namespace, name)
}

func (c agentCalls) ReadPod(ctx context.Context, _, name string) (agent.Pod, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of pod "+name, false, func() (agent.Pod, protocol.Outcome) {
		p, ok := c.n.w.podObject(c.n, name)
		if !ok {
			return agent.Pod{}, protocol.NotFound
		}
		return p.seen(), protocol.Done
	})
}

func (c agentCalls) PodsOfNode(ctx context.Context, _ protocol.NodeName) ([]agent.Pod, error) {
	all, _, err := agentCall(ctx, c, "list of its pods", false, func() (all []agent.Pod, _ protocol.Outcome) {
		for _, p := range c.n.w.podsOf(c.n) {
			all = append(all, p.seen())
		}
		return all, protocol.Done
	})
	return all, err
}

// seen is p as the agent is shown it.
func (p *simPod) seen() agent.Pod {
	o := p.node.w.podOf(p)
	pod := agent.Pod{PodRef: p.ref, Networks: o.Annotations[npwg.AnnotationNetworks], Status: o.Annotations[npwg.AnnotationStatus]}
	if p.resource != nil {
		pod.ResourceClaims = []string{p.resource.name}
	}
	if p.mirror != "" {
		pod.UID, pod.MirrorOf = p.mirror, p.ref.UID
	}
	return pod
}
