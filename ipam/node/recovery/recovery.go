package recovery

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Find returns the attachments with addresses of f's rights that results of the CNI library tell
// of, those first that are to be believed where two say that they have an address: that of a
// network namespace that is there, then the latest. An attachment with an address that may be of
// a pool that is not known now is left out, and unknown has the pool: it is found whole or not at
// all.
func (f Frozen) Find(cached []cniresults.Entry, pods []Pod) (found []store.Attachment, unknown []protocol.PoolName) {
	for _, e := range cached {
		att, waits, ok := f.fromCache(e, pods)
		switch {
		case len(waits) > 0:
			unknown = append(unknown, waits...)
		case ok:
			found = append(found, att)
		}
	}
	slices.SortStableFunc(found, func(x, y store.Attachment) int {
		if (x.NetnsID != "") != (y.NetnsID != "") {
			return map[bool]int{true: -1, false: 1}[x.NetnsID != ""]
		}
		return y.Created.Compare(x.Created)
	})
	slices.Sort(unknown)
	return found, slices.Compact(unknown)
}

// fromCache returns the attachment that a result of the CNI library tells of, if
// it is one of this agent's, and the pools that are not known now and may have given some of it.
func (f Frozen) fromCache(e cniresults.Entry, pods []Pod) (att store.Attachment, unknown []protocol.PoolName, ok bool) {
	conf, ok := ourConfig(e)
	if !ok {
		return att, nil, false
	}
	uid := protocol.UID(conf.Pod.UID)
	att = store.Attachment{
		Key: store.Key{Network: conf.Name, ContainerID: e.ContainerID, IfName: e.IfName},
		Pod: protocol.PodRef{Namespace: conf.Pod.Namespace, Name: conf.Pod.Name, UID: uid}, Created: e.Written,
		Netns: e.Netns, NetnsID: f.Netns[e.Netns], Boot: f.Boot,
	}
	if i := slices.IndexFunc(pods, func(p Pod) bool { return uid != "" && (uid == p.UID || uid == p.MirrorOf) }); i >= 0 {
		att.Pod.Owner = pods[i].Owner
	}
	return f.With(conf, att, e.IPs)
}

// With returns att with those of ips that are of f's rights, as conf asks for them; ok is false if
// none is. unknown are the pools that are not known now and may have given some of them.
func (f Frozen) With(conf *poolspec.Config, att store.Attachment, ips []cniresults.IP) (with store.Attachment, unknown []protocol.PoolName, ok bool) {
	var pools []protocol.PoolName
	var addrs []netip.Prefix
	for _, ip := range ips {
		addrs = append(addrs, ip.Address)
	}
	for _, src := range conf.Sources {
		switch {
		case src.Unnamed:
			pools = append(pools, f.unnamed(addrs)...)
		case src.Pool == "": // a label of the pod's namespace has named it, and may be another by now
			pools = append(pools, f.pools()...)
		default:
			pools = append(pools, protocol.PoolName(src.Pool))
		}
	}
	right, granted := f.granted(att.Pod.UID, att.IfName)
	if granted {
		att.Use = right.Name
		if right.Use != nil {
			claim := right.Use.Claim
			att.Claim = &claim
		}
	}
	for _, ip := range ips {
		x := store.Address{Addr: ip.Address.Addr(), Bits: ip.Address.Bits(), Gateway: ip.Gateway}
		if granted {
			var waits []protocol.PoolName
			if right.Request == nil || slices.Contains(right.Addrs, x.Addr) {
				x.Pool, waits = f.poolOf(x.Addr, pools)
			}
			unknown, ok = append(unknown, waits...), x.Pool != ""
		} else {
			var lease protocol.Right
			lease, ok = f.leaseOf(x.Addr, pools)
			x.Pool, x.Lease = lease.Pool, lease.Name
		}
		if ok { // else it is another plugin's
			att.Addresses = append(att.Addresses, x)
		}
	}
	return att, unknown, len(att.Addresses) > 0
}

// ourConfig returns the configuration of e's network by which it asked this agent.
func ourConfig(e cniresults.Entry) (*poolspec.Config, bool) {
	for _, text := range e.IPAM {
		var asks struct {
			IPAM struct{ Type string } `json:"ipam"`
		}
		if err := json.Unmarshal(text, &asks); err != nil || asks.IPAM.Type != poolspec.Type {
			continue // another plugin's configuration would be understood, too
		}
		if conf, err := poolspec.ParseConfig(text, e.Args); err == nil && conf.Mode == poolspec.ModeCluster {
			return conf, true
		}
	}
	return nil, false
}
