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

// agentCalls are the agent's calls to the API server: each pauses the routine that makes it
// until the scheduler has the answer come, or its context ends.
type agentCalls struct{ *simAgent }

func (a *simAgent) cluster() agent.Cluster {
	c := agentCalls{a}
	all := agent.Cluster{Leases: c, SubLeases: c, Registrations: c, Claims: c, Pools: c, Pods: c, Events: noEvents{}, Access: everybody{}}
	if a.n.w.kind.devices {
		all.ResourceClaims = c
	}
	return all
}

// agentCall makes one call.
func agentCall[T any](ctx context.Context, c agentCalls, what string, write bool, serve func() (T, protocol.Outcome)) (T, protocol.Outcome, error) {
	n := c.n
	if c.dead {
		panic(processEnd{})
	}
	c.mayDie()
	return request(&n.caller, what, write, serve, func(commit func()) error {
		r, answered, err := c.running, false, errNoAnswer
		x := n.ask(what, write, commit, func(known bool) {
			if answered = true; known {
				err = nil
			}
			c.resume(r)
		})
		x.reg, c.beating = c.beating, false
		for !answered && ctx.Err() == nil {
			c.pause(func() bool { return ctx.Err() != nil })
		}
		if answered {
			return err
		}
		n.pending = slices.DeleteFunc(n.pending, func(o *exchange) bool { return o == x })
		n.w.abandon(x)
		return context.Cause(ctx)
	})
}

func (c agentCalls) CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	got, out, err := agentCall(ctx, c, "create of "+l.Name, true, func() (protocol.Lease, protocol.Outcome) { return c.n.w.api.leases.create(l) })
	if there, ok := c.mistaken(l); out == protocol.Exists && ok {
		return there, protocol.Done, nil
	}
	return got, out, err
}

func (c agentCalls) ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	l, out, err := agentCall(ctx, c, "read of "+name, false, func() (protocol.Lease, protocol.Outcome) { return c.n.w.api.leases.read(name) })
	if c.n.w.fault == "M27" && l.Holder.Node == "" && out != protocol.Unknown {
		return c.n.w.believed(name)
	}
	return l, out, err
}

// remove sends a delete, which the API server never takes to name anything.
func (c agentCalls) remove(ctx context.Context, m protocol.Meta, remove func(protocol.Meta) protocol.Outcome) (protocol.Outcome, error) {
	_, out, err := agentCall(ctx, c, c.n.w.text("delete of %s (uid %s, rev %s)", m.Name, m.UID, m.Revision), true, func() (struct{}, protocol.Outcome) {
		if m.UID == "" || m.Revision == "" {
			return struct{}{}, protocol.Conflict
		}
		if c.n.w.fault == "M4" {
			m.Revision = ""
		}
		return struct{}{}, remove(m)
	})
	return out, err
}

// mistaken returns the lease that a create of l has met, if the agent takes it for the one that
// it has just created.
func (c agentCalls) mistaken(l protocol.Lease) (there protocol.Lease, ok bool) {
	there, _ = c.n.w.api.leases.read(l.Name)
	switch c.n.w.fault {
	case "M3":
		return there, there.Store == l.Store && there.Term == l.Term
	case "M5":
		ok = there.Holder.Node == c.n.name
		there.Store, there.Term = l.Store, l.Term
	default:
	}
	return there, ok
}

func (c agentCalls) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if c.n.w.fault == "M43" {
		next.Writes = old.Writes
	}
	l, out, err := agentCall(ctx, c, c.n.w.text("update of %s (uid %s, rev %s, turn %d)", old.Name, old.UID, old.Revision, next.Writes), true, func() (protocol.Lease, protocol.Outcome) {
		return c.n.w.api.leases.update(old.Meta, func(l *protocol.Lease) {
			l.Store, l.Term, l.Writes = next.Store, next.Term, next.Writes
			if !slices.Equal(old.Ceded, next.Ceded) {
				l.Ceded = slices.Clone(next.Ceded)
			}
		})
	})
	if r := c.n.disk.rights[old.Name]; c.n.w.fault == "M11" && out == protocol.Unknown && len(r.Taking) > 0 {
		next.Meta = old.Meta
		return next, protocol.Done, nil
	}
	return l, out, err
}

func (c agentCalls) DeleteLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	out, err := c.remove(ctx, m, func(m protocol.Meta) protocol.Outcome { return c.n.w.deleteLease(c.n.machine, m) })
	if c.n.w.fault == "M3" && out == protocol.Unknown {
		return protocol.Done, nil
	}
	return out, err
}

func (c agentCalls) PublishLease(ctx context.Context, name string, uid protocol.UID, p protocol.Publication) (protocol.Outcome, error) {
	_, out, err := agentCall(ctx, c, c.n.w.text("status of %s, recall %q", name, p.Answered), true, func() (protocol.Lease, protocol.Outcome) {
		return c.n.w.api.leases.update(protocol.Meta{Name: name, UID: uid}, func(l *protocol.Lease) {
			l.Published.Allocations = slices.Clone(p.Allocations)
			if p.Answered != "" {
				l.Published.Answered = p.Answered
			}
		})
	})
	return out, err
}

func (c agentCalls) NodeLeases(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	all, rev, err := listedAt(ctx, c, "list of its leases", c.n.w.api.leases, func(l protocol.Lease) bool { return l.Holder.Node == node })
	if c.n.w.fault == "M52" {
		all = nil
	}
	return all, rev, err
}

// listedAt lists those objects of a table that keep accepts, and says as of which revision.
func listedAt[T any](ctx context.Context, c agentCalls, what string, t *simTable[T], keep func(T) bool) (all []T, rev protocol.Revision, err error) {
	all, _, err = agentCall(ctx, c, what, false, func() ([]T, protocol.Outcome) {
		rev = revisionOf(t.api.revision)
		return t.list(keep), protocol.Done
	})
	return all, rev, err
}

func (c agentCalls) CreateSubLease(ctx context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	return agentCall(ctx, c, "create of "+s.Name, true, func() (protocol.SubLease, protocol.Outcome) {
		got, out := c.n.w.api.subs.create(s)
		if out == protocol.Done {
			c.n.w.noteUser(got)
		}
		return got, out
	})
}

func (c agentCalls) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of "+name, false, func() (protocol.SubLease, protocol.Outcome) { return c.n.w.api.subs.read(name) })
}

func (c agentCalls) UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	if c.n.w.fault == "M43" {
		next.Writes = old.Writes
	}
	return agentCall(ctx, c, c.n.w.text("update of %s (uid %s, rev %s, turn %d)", old.Name, old.UID, old.Revision, next.Writes), true, func() (protocol.SubLease, protocol.Outcome) {
		return c.n.w.api.subs.update(old.Meta, func(s *protocol.SubLease) {
			s.Term, s.Writes = next.Term, next.Writes
			if old.Use != nil && next.Use != nil && *old.Use != *next.Use {
				use := *next.Use
				s.Use = &use
			}
		})
	})
}

func (c agentCalls) DeleteSubLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return c.remove(ctx, m, c.n.w.api.subs.remove)
}

func (c agentCalls) NodeSubLeases(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return listedAt(ctx, c, "list of its sub-leases", c.n.w.api.subs, func(s protocol.SubLease) bool { return s.Node == node })
}

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
	if p := c.n.w.podObject(c.n, name); p != nil && p.ref.UID == uid {
		return p.seen(), protocol.Done, nil
	}
	return c.ReadPod(ctx, namespace, name)
}

func (c agentCalls) ReadPod(ctx context.Context, _, name string) (agent.Pod, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of pod "+name, false, func() (agent.Pod, protocol.Outcome) {
		p := c.n.w.podObject(c.n, name)
		if p == nil {
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
