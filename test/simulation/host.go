package simulation

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/sightings"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// simHost is what the agent sees of its host: [agent.Host] and [sightings.Host].
type simHost struct{ n *simNode }

func netnsPath(cid string) string { return "/var/run/netns/" + cid }

// Gone implements agent.Host. Of a namespace that is told without an attachment the path tells.
func (h simHost) Gone(a store.Attachment) bool {
	if a.ContainerID == "" {
		return !h.There(a.Netns)
	}
	return h.n.w.fault == "M31" || !h.There(netnsPath(a.ContainerID))
}

func (h simHost) There(netns string) bool {
	return slices.ContainsFunc(h.n.namespaces(), func(cid string) bool { return netnsPath(cid) == netns })
}

func (simHost) HostLocal(string, string) ([]sightings.HostLocalFile, error) { return nil, nil }

func (h simHost) Netns() (all []store.Netns, _ error) {
	for _, cid := range h.n.namespaces() {
		all = append(all, store.Netns{Path: netnsPath(cid), ID: cid})
	}
	return all, nil
}

// namespaces are the sandboxes whose network namespaces are there.
func (n *simNode) namespaces() (cids []string) {
	for _, s := range n.sandboxes {
		if s.netns {
			cids = append(cids, s.cid)
		}
	}
	for _, g := range n.guests {
		if g.netns {
			cids = append(cids, g.cid)
		}
	}
	return cids
}

func (h simHost) Cached() (all []cniresults.Entry, _ []*cniresults.FileError, _ error) {
	entry := func(network, cid, ifName string, p *simPod) cniresults.Entry {
		return cniresults.Entry{Network: network, ContainerID: cid, IfName: ifName, Netns: netnsPath(cid), Args: podArgs(p), Written: h.n.now().Wall}
	}
	for _, s := range h.n.sandboxes {
		if s.hasDevice() && s.uses() { // of its pod's own network, which is another IPAM's
			all = append(all, entry("own", s.cid, "eth0", s.pod))
		}
		if !s.uses() || s.unwritten || s.hasDevice() {
			continue
		}
		network, config := s.network()
		e := entry(network, s.cid, "net1", s.pod)
		e.IPAM = append(e.IPAM, []byte(config))
		for _, x := range s.addrs {
			e.IPs = append(e.IPs, cniresults.IP{Address: netip.PrefixFrom(x, h.n.w.length(x))})
		}
		all = append(all, e)
	}
	for _, g := range h.n.guests {
		if g.netns && g.cached {
			e := entry(oldNetwork, g.cid, "net1", g.pod)
			e.IPAM = []json.RawMessage{json.RawMessage(h.n.w.definition(oldNetwork, false))}
			e.IPs = []cniresults.IP{{Address: netip.PrefixFrom(g.addr, 24)}}
			all = append(all, e)
		}
	}
	return all, nil, nil
}
