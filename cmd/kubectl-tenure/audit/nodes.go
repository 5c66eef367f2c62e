package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// holding is what a node has.
type holding struct {
	leases, subs int
	confirmed    int // those of them that are of pools which take the taint's word only
	stores       map[protocol.StoreID][]string
	devices      map[string]string // by the lease: which devices had addresses of it, for people
}

func (h *holding) String() string {
	return fmt.Sprintf("leases %d, sub-leases %d", h.leases, h.subs)
}

// nodes finds nodes that hold something and are gone, silent or without a registration.
func (l *look) nodes() {
	held := map[protocol.NodeName]*holding{}
	of := func(n protocol.NodeName) *holding {
		if held[n] == nil {
			held[n] = &holding{stores: map[protocol.StoreID][]string{}, devices: map[string]string{}}
		}
		return held[n]
	}
	for i := range l.Leases {
		lease := &l.Leases[i]
		if lease.Holder.Node == "" {
			continue
		}
		h := of(lease.Holder.Node)
		h.leases++
		h.stores[lease.Store] = append(h.stores[lease.Store], "iplease "+lease.Name)
		h.devices["iplease "+lease.Name] = whoseDevices(lease.Published.Allocations)
		if l.confirmed(lease.Pool) {
			h.confirmed++
		}
	}
	for i := range l.SubLeases {
		h := of(l.SubLeases[i].Node)
		h.subs++
		h.stores[l.SubLeases[i].Store] = append(h.stores[l.SubLeases[i].Store], "ipsublease "+l.SubLeases[i].Name)
		if l.confirmedUse(&l.SubLeases[i]) {
			h.confirmed++
		}
	}
	for name, h := range held {
		reg, registered := l.Registrations[name]
		if l.Nodes[name].UID == "" {
			l.checkGone(name, h, reg, registered)
			continue
		}
		l.checkPresent(name, h, reg, registered)
		if registered {
			l.stores(name, h, reg)
		}
	}
	l.findUnregistered(held)
}

// findUnregistered finds nodes that are Ready, have no registration and hold nothing. That may be
// meant so: all of them are one finding.
func (l *look) findUnregistered(held map[protocol.NodeName]*holding) {
	var names []string
	for name := range l.Nodes {
		if _, registered := l.Registrations[name]; !registered && held[name] == nil && !l.NotReady[name] {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	const most = 5
	which := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	l.add(NoAgent, "nodes without a registration", place{}, fmt.Sprintf("%d: %s. No agent has ever come up there, so that no pod there gets an address of a pool", len(names), which),
		"none where tenured is not to run; else see why its pod there does not: kubectl -n tenure-system get pods -o wide")
}

// confirmed reports whether a pool takes the taint's word only.
func (l *look) confirmed(name protocol.PoolName) bool {
	p := l.pools[name]
	return p != nil && p.Confirmed
}

// confirmedUse reports whether a sub-lease is of such a pool, by what was granted to it or
// to its claim.
func (l *look) confirmedUse(s *protocol.SubLease) bool {
	to := s.UID
	if s.Use != nil {
		to = s.Use.Claim.UID
	}
	for at := range l.held[to] {
		if l.confirmed(at.pool) {
			return true
		}
	}
	return false
}

// checkGone looks at what a node holds that does not exist.
func (l *look) checkGone(name protocol.NodeName, h *holding, reg protocol.Registration, registered bool) {
	object, quiet := "node "+string(name), l.Now.Sub(reg.Beat)
	release := fmt.Sprintf("if the machine is off for good: kubectl tenure release-node %s", name)
	switch {
	case !registered:
		l.add(NodeGone, object, place{}, fmt.Sprintf("the Node is gone and so is its registration, and it holds %s: nobody takes them over", h),
			fmt.Sprintf("kubectl tenure release-node %s says what to delete by hand, and how, once nothing of that machine runs", name))
	case !reg.Ended() && reg.Fence <= 0:
		l.add(NodeGone, object, place{}, fmt.Sprintf("the Node is gone, it holds %s, and its fence is 0: nothing is ever taken over by time", h), release)
	case !reg.Ended() && quiet < reg.Fence+takeOverRoom:
		l.note(NodeGone, object, place{}, fmt.Sprintf("the Node is gone and it holds %s; the last heartbeat was %v ago", h, quiet.Round(time.Second)),
			l.untilTakeOver(h, reg, release))
		l.found[len(l.found)-1].beat = reg.Beat
	case h.confirmed > 0:
		l.add(NodeGone, object, place{}, fmt.Sprintf("the Node is gone and it holds %s, of which %d are of pools with takeOver: Confirmed", h, h.confirmed), release)
	default:
		l.add(NodeGone, object, place{}, fmt.Sprintf("the Node is gone for longer than its fence of %v, and it still holds %s", reg.Fence, h),
			"see whether tenure-controller runs and what it logs; a new leader counts the time anew")
	}
}

// untilTakeOver says what helps while the fence of a node that is gone has not passed.
func (l *look) untilTakeOver(h *holding, reg protocol.Registration, release string) string {
	text := fmt.Sprintf("none yet: the controller takes them over at about %s", reg.Beat.Add(reg.Fence+time.Minute).UTC().Format(time.RFC3339))
	if h.confirmed > 0 {
		text += fmt.Sprintf(", but for %d of pools with takeOver: Confirmed. For these, from then on, %s", h.confirmed, release)
	}
	if l.Now.Sub(reg.Beat) < reg.Fence/4+time.Minute {
		text += ". If heartbeats go on to come, the machine runs: let its kubelet register the Node again, or stop the machine"
	}
	return text
}

// takeOverRoom is what the controller may need beyond F: its margin, and that it began
// to count later.
const takeOverRoom = 5 * time.Minute

// checkPresent looks at what a node holds that exists.
func (l *look) checkPresent(name protocol.NodeName, h *holding, reg protocol.Registration, registered bool) {
	object := "node " + string(name)
	switch quiet := l.Now.Sub(reg.Beat); {
	case !registered:
		l.add(NodeSilent, object, place{}, fmt.Sprintf("it holds %s, and it has no registration: somebody has deleted it, or no agent runs there", h),
			"see whether tenured runs on the node; it registers when it does")
	case reg.Ended():
		l.add(NodeSilent, object, place{}, fmt.Sprintf("it counts as dead, its agent has not come back, and it still holds %s", h),
			"if the machine runs, remove its out-of-service taint; else see whether tenure-controller runs: it takes over what is left")
	case reg.Fence > 0 && quiet >= reg.Fence:
		l.add(NodeSilent, object, place{}, fmt.Sprintf("no heartbeat of its agent was accepted for %v: it gives out nothing new, and what is free of its %s is out of reach", quiet.Round(time.Second), h),
			fmt.Sprintf("see whether tenured runs on the node and reaches the API server; if the machine is off for good: kubectl tenure release-node %s", name))
	}
}

// isFormer reports whether a store is an earlier one of a node.
func (l *look) isFormer(node protocol.NodeName, store protocol.StoreID) bool {
	reg := l.Registrations[node]
	return store != reg.Store && slices.ContainsFunc(reg.Former, func(f protocol.Former) bool { return f.Store == store })
}

// whoseDevices says, as the end of a sentence, which devices had addresses.
func whoseDevices(allocations []string) string {
	var texts []string
	for _, text := range allocations {
		if addr, _, d := allocationOf(text); d != (Device{}) {
			texts = append(texts, fmt.Sprintf("device %s of ResourceClaim %s/%s (%s)", d.Name, d.Namespace, d.ResourceClaim, addr))
		}
	}
	const most = 5
	which := strings.Join(texts[:min(most, len(texts))], ", ")
	switch more := len(texts) - most; {
	case more > 0:
		return fmt.Sprintf(". Addresses of it had %s and %d more", which, more)
	case which != "":
		return ". Addresses of it had " + which
	}
	return ""
}

// stores finds what a node holds of other stores than the registered one.
func (l *look) stores(name protocol.NodeName, h *holding, reg protocol.Registration) {
	for store, objects := range h.stores {
		if store == reg.Store {
			continue
		}
		former := l.isFormer(name, store)
		for _, object := range objects {
			if former {
				l.add(StoreFrozen, object, place{}, fmt.Sprintf("it is of an earlier store of node %s: nothing is given out of it%s", name, h.devices[object]),
					"nothing has to be done: it is given back when no pod of that time runs on the node any more, and no ResourceClaim of theirs has a device there. To hurry it, drain and reboot the node")
			} else {
				l.add(StoreUnknown, object, place{}, fmt.Sprintf("node %s holds it, in the name of store %s, which its registration does not know", name, store),
					fmt.Sprintf("when no pod of that time runs on node %s: kubectl annotate %s tenure.dev/deletion=confirmed, then kubectl delete %s", name, object, object))
			}
		}
	}
}
