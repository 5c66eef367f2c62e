package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/recovery"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// resourceClaimsOf returns those ResourceClaims of pods for whose devices a driver asks for
// addresses. The devices may have these for longer than the pods run. Of one that may not be read
// the UID is not known.
func (ls *losses) resourceClaimsOf(ctx context.Context, pods []Pod) (all []protocol.ResourceClaimRef, err error) {
	if ls.cl.ResourceClaims == nil {
		return nil, nil
	}
	for _, p := range pods {
		for _, name := range p.ResourceClaims {
			ref := protocol.ResourceClaimRef{Namespace: p.Namespace, Name: name}
			if slices.ContainsFunc(all, func(r protocol.ResourceClaimRef) bool { return r.Namespace == ref.Namespace && r.Name == name }) {
				continue
			}
			now, out, err := ls.cl.ResourceClaims.ReadDevices(ctx, ls.cfg.Node, ref.Namespace, ref.Name)
			switch {
			case out == protocol.NotFound || out == protocol.Done && !now.Profile:
				continue
			case out != protocol.Done && out != protocol.Refused:
				return nil, fmt.Errorf("read ResourceClaim %s: %w", ref, cmpErr(err, out))
			}
			ref.UID = now.UID
			all = append(all, ref)
		}
	}
	return all, nil
}

// stillAllocated returns the first of some ResourceClaims that may have devices still.
func (ls *losses) stillAllocated(ctx context.Context, all []protocol.ResourceClaimRef) (what string, err error) {
	for _, ref := range all {
		what := "ResourceClaim " + ref.String()
		if ls.cl.ResourceClaims == nil { // nobody tells
			return what, nil
		}
		now, out, err := ls.cl.ResourceClaims.ReadDevices(ctx, ls.cfg.Node, ref.Namespace, ref.Name)
		switch {
		case out == protocol.NotFound:
		case out != protocol.Done:
			return "", fmt.Errorf("read %s: %w", what, cmpErr(err, out))
		case (ref.UID == now.UID || ref.UID == "" && now.Profile) && len(now.Devices) > 0:
			return what, nil
		}
	}
	return "", nil
}

// readBackDevice records a device's addresses as the driver says them in the ResourceClaim's
// status, if a lost store gave them and this one does not know them. So a repeated question has the
// same answer.
func (ls *losses) readBackDevice(ctx context.Context, d Device, att store.Attachment, conf *poolspec.Config) error {
	// First: while the agent serves, all that was lost is noted.
	serving, why := ls.reg.serving()
	known, lost := false, []protocol.StoreID(nil)
	err := ls.st.ViewContext(ctx, func(tx *store.Tx) (err error) {
		if _, known, err = tx.Attachment(att.Key); err != nil {
			return err
		}
		lost = lost[:0]
		for l, err := range tx.LostStores() {
			if err != nil {
				return err
			}
			lost = append(lost, l.Store)
		}
		return nil
	})
	switch {
	case err != nil || known:
		return err
	case !serving:
		return &notServingError{Why: why}
	case len(lost) == 0 || ls.cl.ResourceClaims == nil:
		return nil
	}
	now, out, err := ls.cl.ResourceClaims.ReadDevices(ctx, ls.cfg.Node, d.Claim.Namespace, d.Claim.Name)
	switch {
	case out == protocol.NotFound || out == protocol.Done && now.UID != d.Claim.UID:
		return nil
	case out != protocol.Done:
		return fmt.Errorf("a store of this node was lost, and what ResourceClaim %s has by its status cannot be read: %w", d.Claim, cmpErr(err, out))
	}
	var ips []cniresults.IP
	for _, x := range now.Addrs[d.Name] {
		ips = append(ips, cniresults.IP{Address: x})
	}
	for _, id := range lost {
		if err := ls.recordDevice(ctx, id, att, conf, ips); err != nil {
			return err
		}
	}
	return nil
}

// recordDevice records those of ips that a device had of one lost store.
func (ls *losses) recordDevice(ctx context.Context, id protocol.StoreID, att store.Attachment, conf *poolspec.Config, ips []cniresults.IP) error {
	frozen, err := ls.frozen(ctx, id)
	if err != nil {
		return err
	}
	att, unknown, ok := frozen.With(conf, att, ips)
	if len(unknown) > 0 {
		return &notReadyError{Pool: unknown[0]}
	}
	if !ok {
		return nil
	}
	for i := range att.Addresses { // the status does not tell the gateway
		x := &att.Addresses[i]
		in, _ := frozen.Shape(x.Pool).Locate(x.Addr)
		for _, src := range conf.Sources {
			if src.Pool == string(x.Pool) || src.Pool == "" || src.Unnamed {
				_, x.Gateway = src.Answer(x.Addr, in)
			}
		}
	}
	err = ls.st.Update(ctx, func(tx *store.Tx) error { return recovery.Record(tx, att) })
	if errors.Is(err, recovery.ErrKnown) {
		return nil
	}
	if err == nil {
		ls.log.InfoContext(ctx, "device of a lost store read back", "store", id, "pod", att.Pod, "device", att.IfName)
	}
	return err
}
