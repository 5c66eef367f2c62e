package recovery

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Find returns the attachments with addresses of f's rights that results of the CNI
// library or pods tell of, those first that are to be believed where two say that
// they have an address: that of a network namespace that is there, then the latest
// result, and last what only a pod's annotation says. unread says what was not
// understood.
func (f Frozen) Find(cached []cniresults.Entry, pods []Pod) (found []store.Attachment, unread []error) {
	for _, e := range cached {
		if att, ok := f.fromCache(e, pods); ok {
			found = append(found, att)
		}
	}
	slices.SortStableFunc(found, func(x, y store.Attachment) int {
		if (x.NetnsID != "") != (y.NetnsID != "") {
			return map[bool]int{true: -1, false: 1}[x.NetnsID != ""]
		}
		return y.Created.Compare(x.Created)
	})
	for _, p := range pods {
		atts, err := f.fromStatus(p)
		if err != nil {
			unread = append(unread, err)
		}
		found = append(found, atts...)
	}
	return found, unread
}

// fromCache returns the attachment that a result of the CNI library tells of, if
// it is one of this agent's.
func (f Frozen) fromCache(e cniresults.Entry, pods []Pod) (att store.Attachment, ok bool) {
	conf, ok := ourConfig(e)
	if !ok {
		return att, false
	}
	uid := protocol.UID(conf.Pod.UID)
	att = store.Attachment{
		Key: store.Key{Network: conf.Name, ContainerID: e.ContainerID, IfName: e.IfName},
		Pod: protocol.PodRef{Namespace: conf.Pod.Namespace, Name: conf.Pod.Name, UID: uid}, Created: e.Written,
		Netns: e.Netns, NetnsID: f.Netns[e.Netns], Boot: f.Boot,
	}
	if i := slices.IndexFunc(pods, func(p Pod) bool { return uid != "" && (uid == p.UID || uid == p.RuntimeUID) }); i >= 0 {
		att.Pod.Owner = pods[i].Owner
	}
	var pools []protocol.PoolName
	var addrs []netip.Prefix
	for _, ip := range e.IPs {
		addrs = append(addrs, ip.Address)
	}
	for _, src := range conf.Sources {
		if src.Unnamed {
			pools = append(pools, f.unnamed(addrs)...)
		} else {
			pools = append(pools, protocol.PoolName(src.Pool))
		}
	}
	right, granted := f.granted(uid, e.IfName)
	if granted {
		att.Use = right.Name
		if right.Use != nil {
			claim := right.Use.Claim
			att.Claim = &claim
		}
	}
	for _, ip := range e.IPs {
		x := store.Address{Addr: ip.Address.Addr(), Bits: ip.Address.Bits(), Gateway: ip.Gateway}
		if granted {
			x.Pool, ok = f.poolOf(x.Addr, pools)
			ok = ok && (right.Request == nil || slices.Contains(right.Addrs, x.Addr))
		} else {
			var lease protocol.Right
			lease, ok = f.leaseOf(x.Addr, pools)
			x.Pool, x.Lease = lease.Pool, lease.Name
		}
		if ok { // else it is another plugin's
			att.Addresses = append(att.Addresses, x)
		}
	}
	return att, len(att.Addresses) > 0
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

// status is one element of the annotation in which a meta-plugin says what it has
// attached.
type status struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
}

// fromStatus returns the attachments that a pod's status annotation tells of, with
// addresses of frozen leases.
func (f Frozen) fromStatus(p Pod) (found []store.Attachment, err error) {
	if p.Status == "" || p.UID == "" {
		return nil, nil
	}
	var elements []status
	if err := json.Unmarshal([]byte(p.Status), &elements); err != nil {
		return nil, fmt.Errorf("status annotation of pod %s: %w", p.PodRef, err)
	}
	pod := p.PodRef
	pod.UID = p.uid()
	for _, e := range elements {
		if e.Interface == "" {
			continue
		}
		att := store.Attachment{Key: unknownKey(e.Name, pod.UID, e.Interface), Pod: pod, Boot: f.Boot, Created: f.Now}
		for _, text := range e.IPs {
			x, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			if lease, ok := f.leaseOf(x.Unmap(), nil); ok {
				att.Addresses = append(att.Addresses, f.answered(x.Unmap(), lease))
			}
		}
		if len(att.Addresses) > 0 {
			found = append(found, att)
		}
	}
	return found, nil
}

// answered returns how an address of a frozen lease was answered: the status
// annotation has neither its prefix length nor its gateway.
func (f Frozen) answered(x netip.Addr, lease protocol.Right) store.Address {
	addr := store.Address{Addr: x, Bits: x.BitLen(), Pool: lease.Pool, Lease: lease.Name}
	if in, ok := f.Locate(lease.Pool, x); ok {
		addr.Bits, addr.Gateway = in.Prefix.Bits(), in.Gateway
	}
	return addr
}

// unknownSandbox begins the container ID of an attachment that was read back from
// its pod's status, which does not name the sandbox.
const unknownSandbox = "unknown."

func unknownKey(network string, pod protocol.UID, ifName string) store.Key {
	if network == "" {
		network = unknownSandbox
	}
	return store.Key{Network: strings.ReplaceAll(network, "/", "."), ContainerID: unknownSandbox + string(pod), IfName: ifName}
}

// unknown reports whether the sandbox of a key is not known.
func unknown(k store.Key) bool { return strings.HasPrefix(k.ContainerID, unknownSandbox) }
