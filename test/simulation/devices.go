package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/dranet"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A resource is a ResourceClaim, and the truth about what its device has.
type resource struct {
	name string
	uid  protocol.UID
	own  bool    // it was made for its pod, and goes with it
	pod  *simPod // for which it is reserved, or was last

	// node and device are what is allocated to it; nothing is where node is nil.
	node   *simNode
	device string
	// network is the definition that it names, exact the address that it asks for, and claim the
	// IPAMClaim, if any.
	network, claim string
	exact          netip.Addr
	// has is what the device was answered: it stays so until the driver is told to let go of it,
	// or it is allocated to nobody any more.
	has []netip.Addr
	// status is what the driver has written of it.
	status []netip.Prefix
}

func (r *resource) key() attKey { return attKey{string(r.uid), r.device} }

// hasDevice reports whether the addresses of s are those of a device. Its pod has been given no
// others by Tenure.
func (s *sandbox) hasDevice() bool { return s.device != attKey{} }

func (s *sandbox) key() attKey {
	if s.hasDevice() {
		return s.device
	}
	return attKey{s.cid, "net1"}
}

// giveResource has p have a ResourceClaim: one of its own, or one that outlives it. It reports
// whether that can be had.
func (w *world) giveResource(p *simPod) bool {
	name := "nic-of-" + string(p.ref.UID)
	own := !w.one(2)
	if !own {
		name = fmt.Sprintf("nic-%d", w.rng.IntN(2))
	}
	r := firstOf(w.resources, func(r *resource) bool { return r.name == name })
	if r == nil {
		r = &resource{name: name, uid: "rc-" + p.ref.UID, own: own, network: string(poolName)}
		if w.kind.uses && own && w.one(3) && w.claimPod(p) {
			r.network, _ = w.networkOf(p.claim)
			r.claim = p.claim
		} else if w.one(6) {
			r.exact, _ = pickOf(w, w.addresses())
		}
		w.resources = append(w.resources, r)
	} else if r.pod.there {
		return false
	}
	r.pod, r.node, r.device, r.has = p, p.node, fmt.Sprintf("eth%d", w.rng.IntN(2)), nil
	r.status = nil
	p.resource, p.exact = r, r.exact
	w.logf("scheduler: pod %s has ResourceClaim %s (%s), device %s of %s", p.ref.UID, r.name, r.uid, r.device, p.node.machine)
	return true
}

// letGoOfDevices does what controllers, and people, do about ResourceClaims whose pods are gone.
func (w *world) letGoOfDevices() {
	w.resources = slices.DeleteFunc(w.resources, func(r *resource) bool {
		if r.pod.there || !w.calm && !w.one(20) {
			return false
		}
		if r.node != nil {
			w.logf("controllers: ResourceClaim %s (%s) has no device any more", r.name, r.uid)
		}
		r.node, r.has, r.status = nil, nil, nil
		gone := r.own || !w.calm && w.one(15)
		if gone {
			w.logf("controllers: ResourceClaim %s (%s) is gone", r.name, r.uid)
		}
		return gone
	})
}

// forgetDevices notes that what devices of n were answered may not be theirs any more: the store is
// lost or goes back, and not always read back for them, or somebody vouches that n runs nothing.
func (n *simNode) forgetDevices() {
	for _, r := range n.w.resources {
		if r.node == n {
			r.has = nil
		}
	}
}

// forgetThawed notes that in another boot devices get other addresses for those that were read back
// of a lost store.
func (n *simNode) forgetThawed() {
	for _, r := range n.w.resources {
		if r.node == n && n.disk.restsOn(n.disk.atts[r.key()], frozen) {
			r.has = nil
		}
	}
}

// inUse reports whether a sandbox has a device still, or the driver is at it: a kubelet has nobody
// asked for the next one until then.
func (n *simNode) inUse(device attKey) bool {
	return n.delPending(device) || len(n.with(func(s *sandbox) bool { return s.key() == device && (!s.ending || s.adding || s.owes > 0) })) > 0
}

// leftOver reports whether an attachment is of a device that nobody has any more.
func (n *simNode) leftOver(att attachment) bool {
	return att.device && len(n.with(func(s *sandbox) bool { return s.key() == att.key })) == 0 &&
		!slices.ContainsFunc(n.w.resources, func(r *resource) bool { return r.node != nil && r.node.name == n.name && r.key() == att.key })
}

// callDriver has the driver ask for what s has, or tell that it is let go of.
func (n *simNode) callDriver(s *sandbox, path string, done func(addrs []netip.Addr, err error)) {
	a := n.agent
	req := dranet.Request{ClaimUID: s.device.cid, Config: &dranet.NetworkConfig{Profile: s.pod.ref.Namespace + "/" + s.pod.resource.network}}
	req.Device.Name = s.device.ifName
	if x := s.pod.exact; x.IsValid() {
		req.Config.Interface.Addresses = []string{netip.PrefixFrom(x, n.w.length(x)).String()}
	}
	a.serve(func() func() {
		srv := dranet.Server{Devices: a.agent, Cluster: agentCalls{a}, Sched: a, Log: slog.New(traceLog{n.w, n.machine})}
		said, err := srv.Answer(context.Background(), path, req)
		return func() {
			n.refresh()
			var addrs []netip.Addr
			if config, ok := said.(dranet.NetworkConfig); ok {
				for _, text := range config.Interface.Addresses {
					addrs = append(addrs, netip.MustParsePrefix(text).Addr())
				}
			}
			done(addrs, err)
		}
	})
}

// addDevice has the driver ask for the addresses of s.
func (n *simNode) addDevice(s *sandbox) {
	n.callDriver(s, dranet.PathProfile, func(addrs []netip.Addr, err error) {
		if err != nil {
			n.w.logf("%s: the driver asks for %s: %v", n.machine, s.device, err)
			n.answerAdd(s, nil)
			return
		}
		if !s.ending {
			n.checkAnswer(s, addrs)
		}
		att := n.disk.atts[s.key()]
		n.answerAdd(s, &att)
	})
}

// checkAnswer holds that what a device is answered is what it was answered before, and is recorded
// (I2).
func (n *simNode) checkAnswer(s *sandbox, addrs []netip.Addr) {
	att, r := n.disk.atts[s.key()], s.pod.resource
	for _, x := range addrs {
		if !att.has(x) {
			n.w.fail(I2, "%s was answered %v, and %v is recorded", s.device, addrs, att.addrs)
		}
	}
	if r.pod != s.pod || r.node != n {
		return // it is allocated to nobody, or to another
	}
	if r.has != nil && !slices.Equal(r.has, addrs) && !n.voided[s.key()] {
		n.w.fail(I2, "%s was answered %v, and then %v", s.device, r.has, addrs)
	}
	r.has, r.status = addrs, nil
	for _, x := range addrs {
		r.status = append(r.status, netip.PrefixFrom(x, n.w.length(x)))
	}
}

// checkDevices holds that what devices were answered is recorded while they are allocated, whether
// a sandbox has them now or not (I2).
func (w *world) checkDevices() {
	for _, r := range w.resources {
		if r.has == nil || r.node.agent == nil || r.node.voided[r.key()] {
			continue
		}
		att := r.node.disk.atts[r.key()]
		if slices.ContainsFunc(r.has, func(x netip.Addr) bool { return !att.has(x) }) {
			w.fail(I2, "%s of %s was answered %v, and %v is recorded", r.key(), r.node.machine, r.has, att.addrs)
		}
	}
}

// releaseDevice has the driver tell that s has let go of its device. It does so once, whether
// anybody hears it or not.
func (n *simNode) releaseDevice(s *sandbox) {
	w := n.w
	if r := s.pod.resource; r.pod == s.pod {
		r.has = nil
	}
	s.owes = 0
	if n.agent == nil || n.paused || !w.calm && w.one(3) {
		w.logf("%s: the release of %s is lost", n.machine, s.device)
		return
	}
	a := n.agent
	a.dels = append(a.dels, s)
	n.callDriver(s, dranet.PathRelease, func(_ []netip.Addr, err error) {
		a.dels = slices.DeleteFunc(a.dels, func(o *sandbox) bool { return o == s })
		w.logf("%s: the release of %s: %v", n.machine, s.device, err)
	})
}

// deviceWork is what befalls pods with devices alone: one is deleted by force, and its sandbox goes
// on until the kubelet sees that; or the driver asks again for what a sandbox has.
func (n *simNode) deviceWork() {
	w := n.w
	s, ok := pickOf(w, n.with(func(s *sandbox) bool { return s.hasDevice() && s.uses() }))
	switch {
	case !ok:
	case !s.pod.there:
		if w.one(4) {
			n.end(s)
		}
	case w.one(3):
		w.logf("%s: pod %s is deleted by force", n.machine, s.pod.ref.UID)
		s.pod.there = false
	case n.agent != nil && !n.paused && !w.noPods() && !s.unread:
		n.callDriver(s, dranet.PathProfile, func(addrs []netip.Addr, err error) {
			if err == nil && s.uses() && !s.void {
				n.checkAnswer(s, addrs)
			}
		})
	}
}

func (c agentCalls) FindResourceClaim(ctx context.Context, uid protocol.UID) (agent.Device, error) {
	d, _, err := agentCall(ctx, c, "search for ResourceClaim "+string(uid), false, func() (d agent.Device, out protocol.Outcome) {
		r := firstOf(c.n.w.resources, func(r *resource) bool { return r.uid == uid && r.node == c.n && r.pod.there })
		if r == nil {
			return d, protocol.NotFound
		}
		return agent.Device{Claim: protocol.ResourceClaimRef{Namespace: "ns", Name: r.name, UID: uid}, Pod: r.pod.ref, IPAMClaim: r.claim}, protocol.Done
	})
	return d, err
}

// Definition implements [dranet.Cluster]. What the agent knows of one is up to date.
func (agentCalls) Definition(_ context.Context, _, name, _ string) (config, why string, err error) {
	return configOf(name, ""), "", nil
}

func (c agentCalls) ReadDevices(ctx context.Context, node protocol.NodeName, _, name string) (protocol.ClaimedDevices, protocol.Outcome, error) {
	return agentCall(ctx, c, "read of ResourceClaim "+name, false, func() (protocol.ClaimedDevices, protocol.Outcome) {
		r := firstOf(c.n.w.resources, func(r *resource) bool { return r.name == name })
		if r == nil {
			return protocol.ClaimedDevices{}, protocol.NotFound
		}
		d := protocol.ClaimedDevices{UID: r.uid, Profile: true}
		if r.node != nil && r.node.name == node {
			d.Devices = []string{r.device}
			d.Addrs = map[string][]netip.Prefix{r.device: r.status}
		}
		return d, protocol.Done
	})
}
