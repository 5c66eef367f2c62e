package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/cnicache"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

// unknownSandbox begins the container ID of an attachment that was read back from
// its pod's status, which does not name the sandbox. The first DEL or CHECK of the
// pod's interface tells.
const unknownSandbox = "unknown."

// readBackWait bounds how long a reading back waits for each pool.
const readBackWait = 2 * time.Second

// frozenSet is what is known of a lost store: its rights, and of each address in
// them whose it is.
type frozenSet struct {
	leases []protocol.Right
	uses   []protocol.Right
	netns  map[string]string // identity by path, of those that are there
}

// readBack records the attachments of a lost store's time, as far as they can be
// found: from the CNI library's results, then from what pods' annotations say. No
// right rests on what is found: nothing is given out of a frozen lease in any case.
func (a *Agent) readBack(ctx context.Context, id protocol.StoreID) error {
	set, err := a.frozenSet(id)
	if err != nil {
		return err
	}
	cached, unread, err := a.host.Cached()
	if err != nil {
		return err
	}
	for _, err := range unread {
		a.log.DebugContext(ctx, "cached result not understood", "error", err)
	}
	pods, err := a.cl.Pods.PodsOfNode(ctx, a.cfg.Node)
	if err != nil {
		return err
	}
	var found []store.Attachment
	for _, e := range cached {
		if att, ok := a.fromCache(ctx, e, set, pods); ok {
			found = append(found, att)
		}
	}
	// Where two say that they have an address, the one that is there has it.
	slices.SortStableFunc(found, func(x, y store.Attachment) int {
		if (x.NetnsID != "") != (y.NetnsID != "") {
			return map[bool]int{true: -1, false: 1}[x.NetnsID != ""]
		}
		return y.Created.Compare(x.Created)
	})
	for _, p := range pods {
		found = append(found, a.fromStatus(ctx, p, set)...)
	}
	recorded := 0
	for _, att := range found {
		err := a.st.Update(ctx, func(tx *store.Tx) error { return record(tx, att) })
		switch {
		case errors.Is(err, errKnown):
		case err != nil:
			return err
		default:
			recorded++
		}
	}
	a.log.InfoContext(ctx, "attachments of a lost store read back", "store", id, "found", len(found), "recorded", recorded)
	return nil
}

func (a *Agent) frozenSet(id protocol.StoreID) (set frozenSet, err error) {
	err = a.st.View(func(tx *store.Tx) error {
		set = frozenSet{netns: map[string]string{}}
		for r, err := range tx.Rights() {
			switch {
			case err != nil:
				return err
			case r.Phase != protocol.Frozen || r.Store != id:
			case r.Kind == protocol.RightLease:
				set.leases = append(set.leases, r)
			default:
				set.uses = append(set.uses, r)
			}
		}
		return nil
	})
	if err != nil {
		return set, err
	}
	there, err := a.host.Netns()
	for _, ns := range there {
		set.netns[ns.Path] = ns.ID
	}
	return set, err
}

// leaseOf returns the frozen lease that x lies in, of one of pools, or of any if
// pools is nil.
func (s frozenSet) leaseOf(x netip.Addr, pools []string) (protocol.Right, bool) {
	i := slices.IndexFunc(s.leases, func(r protocol.Right) bool {
		return r.Block.Contains(x) && (pools == nil || slices.Contains(pools, string(r.Pool)))
	})
	if i < 0 {
		return protocol.Right{}, false
	}
	return s.leases[i], true
}

// granted returns the frozen use or request of a pod's interface.
func (s frozenSet) granted(pod protocol.UID, ifName string) (protocol.Right, bool) {
	i := slices.IndexFunc(s.uses, func(r protocol.Right) bool {
		switch {
		case r.Use != nil:
			return r.Use.Pod.UID == pod && r.Use.Interface == ifName
		case r.Request != nil:
			return r.Request.Pod.UID == pod && r.Request.Interface == ifName
		}
		return false
	})
	if pod == "" || i < 0 {
		return protocol.Right{}, false
	}
	return s.uses[i], true
}

// fromCache returns the attachment that a result of the CNI library tells of, if
// it is one of this agent's.
func (a *Agent) fromCache(ctx context.Context, e cnicache.Entry, set frozenSet, pods []Pod) (att store.Attachment, ok bool) {
	conf, ok := ourConfig(e)
	if !ok {
		return att, false
	}
	uid := protocol.UID(conf.Pod.UID)
	att = store.Attachment{
		Key: store.Key{Network: conf.Name, ContainerID: e.ContainerID, IfName: e.IfName},
		Pod: protocol.PodRef{Namespace: conf.Pod.Namespace, Name: conf.Pod.Name, UID: uid}, Created: e.Written,
		Netns: e.Netns, NetnsID: set.netns[e.Netns], Boot: a.cfg.Boot,
	}
	if i := slices.IndexFunc(pods, func(p Pod) bool { return uid != "" && p.Is(uid) }); i >= 0 {
		att.Pod.Owner = pods[i].Owner
	}
	var pools []string
	for _, src := range conf.Sources {
		pools = append(pools, src.Pool)
	}
	use, used := set.granted(uid, e.IfName)
	for _, ip := range e.IPs {
		x := store.Address{Addr: ip.Address.Addr(), Bits: ip.Address.Bits(), Gateway: ip.Gateway}
		if used {
			pool, ok := a.poolOf(ctx, x.Addr, pools)
			if !ok {
				continue // another plugin's
			}
			x.Pool = pool
			if use.Request != nil && !slices.Contains(use.Addrs, x.Addr) {
				continue
			}
		} else {
			lease, ok := set.leaseOf(x.Addr, pools)
			if !ok {
				continue
			}
			x.Pool, x.Lease = lease.Pool, lease.Name
		}
		att.Addresses = append(att.Addresses, x)
	}
	if used {
		att.Use = use.Name
		if use.Use != nil {
			claim := use.Use.Claim
			att.Claim = &claim
		}
	}
	return att, len(att.Addresses) > 0
}

// ourConfig returns the configuration of e's network by which it asked this agent.
func ourConfig(e cnicache.Entry) (*poolspec.Config, bool) {
	for _, text := range e.IPAM {
		if conf, err := poolspec.ParseConfig(text, e.Args); err == nil && conf.Mode == poolspec.ModeCluster {
			return conf, true
		}
	}
	return nil, false
}

// poolOf returns which of pools has x. A single one need not be asked.
func (a *Agent) poolOf(ctx context.Context, x netip.Addr, pools []string) (protocol.PoolName, bool) {
	ctx, cancel := context.WithTimeout(ctx, readBackWait)
	defer cancel()
	for _, name := range pools {
		_, known, err := a.ready(ctx, protocol.PoolName(name))
		if err != nil {
			continue
		}
		if _, ok := known.shape.Locate(x); ok {
			return protocol.PoolName(name), true
		}
	}
	return "", false
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
func (a *Agent) fromStatus(ctx context.Context, p Pod, set frozenSet) []store.Attachment {
	var elements []status
	if p.Status == "" || p.UID == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(p.Status), &elements); err != nil {
		a.log.DebugContext(ctx, "status annotation not understood", "pod", p.PodRef.String(), "error", err)
		return nil
	}
	pod := p.PodRef
	if p.MirrorOf != "" { // as the runtime names it
		pod.UID = p.MirrorOf
	}
	var found []store.Attachment
	for _, e := range elements {
		if e.Interface == "" {
			continue
		}
		network := strings.NewReplacer("/", ".").Replace(e.Name)
		if network == "" {
			network = unknownSandbox
		}
		att := store.Attachment{
			Key: store.Key{Network: network, ContainerID: unknownSandbox + string(pod.UID), IfName: e.Interface},
			Pod: pod, Boot: a.cfg.Boot, Created: a.clock.Now().Wall,
		}
		for _, text := range e.IPs {
			x, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			if lease, ok := set.leaseOf(x.Unmap(), nil); ok {
				att.Addresses = append(att.Addresses, a.answered(ctx, x.Unmap(), lease))
			}
		}
		if len(att.Addresses) > 0 {
			found = append(found, att)
		}
	}
	return found
}

// answered returns how an address of a frozen lease was answered: the status
// annotation has neither its prefix length nor its gateway.
func (a *Agent) answered(ctx context.Context, x netip.Addr, lease protocol.Right) store.Address {
	addr := store.Address{Addr: x, Bits: x.BitLen(), Pool: lease.Pool, Lease: lease.Name}
	ctx, cancel := context.WithTimeout(ctx, readBackWait)
	defer cancel()
	if _, known, err := a.ready(ctx, lease.Pool); err == nil {
		if in, ok := known.shape.Locate(x); ok {
			addr.Bits, addr.Gateway = in.Prefix.Bits(), in.Gateway
		}
	}
	return addr
}

// errKnown says that an attachment, or its address, is in the store already.
var errKnown = errors.New("it is known already")

// record writes an attachment that was read back, with its addresses taken in their
// frozen blocks.
func record(tx *store.Tx, att store.Attachment) error {
	if _, known, err := tx.Attachment(att.Key); err != nil || known {
		return errors.Join(err, onlyIf(known, errKnown))
	}
	if strings.HasPrefix(att.ContainerID, unknownSandbox) { // not if a result told of it
		for _, err := range tx.OfPod(att.Pod.UID, att.IfName) {
			return errors.Join(err, onlyIf(err == nil, errKnown))
		}
	}
	if att.Use == "" {
		for _, x := range att.Addresses {
			r, ok, err := tx.Right(x.Lease)
			if err != nil {
				return err
			}
			if !ok || r.Phase != protocol.Frozen {
				return errKnown // it has been given back meanwhile
			}
			err = allocator.NewSpace(tx.Table(x.Pool), nil).Take(x.Addr)
			if errors.Is(err, allocator.ErrTaken) || errors.Is(err, allocator.ErrBarred) {
				return errKnown
			}
			if err != nil {
				return err
			}
		}
	}
	return tx.PutAttachment(att)
}

func onlyIf(cond bool, err error) error {
	if cond {
		return err
	}
	return nil
}

// podUID returns the pod's UID in CNI_ARGS, empty if there is none.
func podUID(args string) protocol.UID {
	for pair := range strings.SplitSeq(args, ";") {
		if uid, ok := strings.CutPrefix(pair, "K8S_POD_UID="); ok {
			return protocol.UID(uid)
		}
	}
	return ""
}

// recognise gives an attachment that was read back without its sandbox the key of
// the call that names it: a pod has one interface of a name.
func (a *Agent) recognise(ctx context.Context, key store.Key, uid protocol.UID) error {
	if uid == "" {
		return nil
	}
	var old store.Attachment
	found := false
	err := a.st.View(func(tx *store.Tx) error {
		if _, known, err := tx.Attachment(key); err != nil || known {
			return err
		}
		for att, err := range tx.OfPod(uid, key.IfName) {
			if err != nil {
				return err
			}
			if strings.HasPrefix(att.ContainerID, unknownSandbox) {
				old, found = att, true
			}
		}
		return nil
	})
	if err != nil || !found {
		return err
	}
	return a.st.Update(ctx, func(tx *store.Tx) error {
		if _, still, err := tx.Attachment(old.Key); err != nil || !still {
			return err
		}
		if err := tx.DeleteAttachment(old.Key); err != nil {
			return err
		}
		old.Key = key
		return tx.PutAttachment(old)
	})
}
