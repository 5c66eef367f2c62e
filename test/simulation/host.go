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
	for _, s := range h.n.sandboxes {
		if s.hasDevice() && s.uses() { // of its pod's own network, which is another IPAM's
			all = append(all, cniresults.Entry{Network: "own", ContainerID: s.cid, IfName: "eth0", Netns: netnsPath(s.cid), Args: podArgs(s.pod), Written: h.n.now().Wall})
		}
		if !s.uses() || s.unwritten || s.hasDevice() {
			continue
		}
		network, config := s.network()
		e := cniresults.Entry{Network: network, ContainerID: s.cid, IfName: "net1", Netns: netnsPath(s.cid), Args: podArgs(s.pod), Written: h.n.now().Wall}
		e.IPAM = append(e.IPAM, []byte(config))
		for _, x := range s.addrs {
			e.IPs = append(e.IPs, cniresults.IP{Address: netip.PrefixFrom(x, h.n.w.length(x))})
		}
		all = append(all, e)
	}
	for _, g := range h.n.guests {
		if g.netns && g.cached {
			all = append(all, cniresults.Entry{
				Network: oldNetwork, ContainerID: g.cid, IfName: "net1", Netns: netnsPath(g.cid), Args: podArgs(g.pod), Written: h.n.now().Wall,
				IPAM: []json.RawMessage{json.RawMessage(h.n.w.definition(oldNetwork, false))}, IPs: []cniresults.IP{{Address: netip.PrefixFrom(g.addr, 24)}},
			})
		}
	}
	return all, nil, nil
}
