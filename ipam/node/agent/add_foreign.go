package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// holdInherited gives the attachment the addresses that the pod's status shows for its
// interface and that this node did not give: another IPAM did, to an earlier sandbox of the
// pod, and they are kept for the pod. ok is false where there are none, or where they are
// not to be had: then the interface gets others.
func (a *Agent) holdInherited(ctx context.Context, add *addCall) (att store.Attachment, ok bool, err error) {
	addrs, err := a.inherited(ctx, add)
	if err != nil || len(addrs) == 0 {
		return att, false, err
	}
	conf := *add.conf
	conf.Requested = nil
	var families []allocator.Family
	for _, x := range addrs {
		conf.Requested = append(conf.Requested, poolspec.Requested{Addr: x, Path: "annotation " + npwg.AnnotationStatus})
		families = append(families, allocator.FamilyOf(x))
	}
	conf.Only(families) // exactly these, whatever else the network gives
	own := *add
	own.conf = &conf
	own.demand.Slots, err = a.slots(ctx, &own, a.pools.ready)
	notOurs := err != nil && !is[*notReadyError](err) // not of this network's pools, which are known by now
	if err == nil {
		var foreign bool
		if foreign, err = a.mayBeForeign(ctx, own.demand.Slots); err != nil || !foreign {
			return att, false, err
		}
		att, err = a.ask(ctx, &own, errors.New("the pod has these addresses by another IPAM"))
	}
	switch {
	case err == nil:
		return att, true, nil
	case notOurs, is[*RefusedError](err), is[*OutsideError](err), is[*unaskableError](err):
		a.log.InfoContext(ctx, "what the pod had by another IPAM is not to be had", "pod", add.demand.Pod.String(), "interface", add.key.IfName, "addresses", addrs, "error", err)
		return att, false, nil
	}
	return att, false, err
}

// inherited returns the addresses that the pod's status shows for the interface of add,
// if this node has given the interface none.
func (a *Agent) inherited(ctx context.Context, add *addCall) (addrs []netip.Addr, err error) {
	var elements []npwg.Status
	_ = json.Unmarshal([]byte(add.pod.Status), &elements) // a status that is none shows nothing
	for _, e := range elements {
		if e.Default || e.Interface != add.key.IfName || e.Name != add.sel.String() && e.Name != add.sel.Name {
			continue
		}
		for _, text := range e.IPs {
			x, _ := netip.ParseAddr(text)
			addrs = append(addrs, x.Unmap())
		}
	}
	if len(addrs) == 0 || slices.Contains(addrs, netip.Addr{}) {
		return nil, nil
	}
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		for _, err := range tx.OfPod(add.demand.Pod.UID, add.key.IfName) {
			addrs = nil // its own, which it keeps
			return err
		}
		return nil
	})
	return addrs, err
}

// mayBeForeign reports whether another IPAM may have given the addresses that slots ask for: their
// pool keeps some for its pods, and not all of them are this node's to give. So the cluster is
// not asked for what an earlier sandbox had of this node, which the status shows as well.
func (a *Agent) mayBeForeign(ctx context.Context, slots []assign.Slot) (foreign bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		for _, s := range slots {
			known, _, _ := a.pools.get(s.Pool).now()
			if !s.Exact.IsValid() || known == nil || !known.Foreign {
				continue
			}
			r, _, err := tx.Right(protocol.LeaseName(s.Pool, known.shape.Block(s.Exact, known.bits(allocator.FamilyOf(s.Exact)))))
			if err != nil {
				return err
			}
			foreign = foreign || r.Phase != protocol.Held || slices.Contains(r.Ceded, s.Exact)
		}
		return nil
	})
	return foreign, err
}
