package claims

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/ports"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ConditionPortReady says that a claim has addresses, and no port with them where its pool has
// them from. It is there only while it is False.
const ConditionPortReady = "PortReady"

// ReasonTwoOwners says, of the conditions PortReady and IPsAllocated, that a port which is not the
// claim's has its address.
const ReasonTwoOwners = "TwoOwners"

// Porter makes ports for claims whose pool has its addresses from elsewhere: a [ports.Ports].
type Porter interface {
	Serves(ctx context.Context, pool protocol.PoolName) (bool, error)
	Known(key grants.ClaimKey) []protocol.UID
	Ask(ctx context.Context, a ports.Ask) (ports.Answer, error)
	Settle(uid protocol.UID, portID string)
	Withdraw(uid protocol.UID)
	Refuse(uid protocol.UID, why ports.Problem)
	Release(uid protocol.UID)
	Lost(uid protocol.UID) bool
}

// askPort returns the ask for the claim's port with these addresses, or any. granted says that they
// are the claim's already.
func (s seen) askPort(addrs []netip.Addr, granted bool) *ports.Ask {
	return &ports.Ask{
		UID: s.claim.uid, Claim: s.claim.key, From: s.sourced, Mixed: s.network != nil && len(s.sourced) < len(s.network.Network.Sources),
		Addresses: addrs, Granted: granted, Port: s.claim.port,
	}
}

// makePort decides what is to be done about the port of a claim that has no addresses yet. done
// says that it has its port, and has been told of it: wanted are the addresses to be granted.
func (s seen) makePort(requested []netip.Addr) (wanted []netip.Addr, p plan, done bool) {
	if s.portAnswer == nil {
		return nil, plan{port: s.askPort(requested, false)}, false
	}
	got := *s.portAnswer
	switch {
	case got.Port.ID == "":
		return nil, s.waitForPort(), false
	case got.Port.String() != s.claim.port.String():
		return nil, plan{tellPort: &got.Port}, false
	}
	wanted = append(wanted, got.Addresses...)
	for _, a := range requested { // of the network's other pools
		if !slices.Contains(wanted, a) {
			wanted = append(wanted, a)
		}
	}
	return wanted, plan{}, true
}

// makePortAgain decides what is to be done about a claim that has its addresses, and has lost its
// port or was not told of it. p is what is to be done otherwise.
func (s seen) makePortAgain(named []netip.Addr, p plan) plan {
	switch {
	case s.network == nil:
		return plan{resolve: true}
	case s.network.Verdict != networks.Known || len(s.sourced) == 0: // nobody says what it would be made of
		return p
	case s.portAnswer == nil:
		return plan{port: s.askPort(named, true)}
	case s.portAnswer.Port.ID == "":
		p.settlePort = false
		if p.status = s.change(s.allocated(nil)); !s.portAnswer.Problem.None() {
			p.after = recheckAfter
		}
		return p
	case s.portAnswer.Port.String() != s.claim.port.String():
		return plan{tellPort: &s.portAnswer.Port}
	}
	return p
}

// waitForPort says why the claim waits for its port.
func (s seen) waitForPort() plan {
	bad := s.portAnswer.Problem
	if bad.None() {
		return plan{}
	}
	reason, message := s.whyNoPort(bad)
	return plan{status: s.change(s.whyBlocked(s.failed(reason, message))), after: recheckAfter}
}

// whyNoPort returns the reason and the message of a condition for a problem with a port.
func (s seen) whyNoPort(bad ports.Problem) (reason, message string) {
	has := len(s.claim.ips) > 0
	switch {
	case bad.Reason == neutron.AddressInUse && has:
		owner := "a port that Neutron does not show us"
		if h := bad.Holder; h != nil {
			owner = fmt.Sprintf("port %s of device %q (%s)", h.PortID, h.DeviceID, h.DeviceOwner)
		}
		return ReasonTwoOwners, fmt.Sprintf("%s has an address that is claim %s/%s's, whose own port was deleted: delete one of the two: %s",
			owner, s.claim.key.Namespace, s.claim.key.Name, bad.Message)
	case bad.Reason == neutron.AddressInUse:
		return ReasonRequestedTaken, s.request().prefix() + bad.Message
	case bad.Reason == ports.Unassignable, bad.Reason == neutron.AddressOutside:
		return ReasonRequestInvalid, s.request().prefix() + bad.Message
	case bad.Reason == neutron.SubnetExhausted:
		return ReasonExhausted, bad.Message
	}
	return string(bad.Reason), bad.Message
}

// refusePort decides what is to be done where the addresses of the claim's port cannot be
// granted.
func (s seen) refusePort() (plan, bool) {
	if len(s.sourced) == 0 || s.portAnswer == nil {
		return plan{}, false
	}
	bad := s.answer.Problem
	if bad.Reason != grants.Taken && bad.Reason != grants.Unassignable {
		return plan{}, false
	}
	why := ports.Problem{Reason: ReasonConflict, Message: fmt.Sprintf("Neutron has given the claim's port what cannot be granted: %s: the port is made anew", bad.Message)}
	said := s.failed(ReasonConflict, why.Message)
	p := plan{status: s.change(s.whyBlocked(said))}
	if len(s.held) > 0 {
		p = s.giveBack(said)
	}
	p.withdraw, p.refusePort, p.after = true, &why, recheckAfter
	return p, true
}

// judgePort has conditions say whether a claim with addresses has lost its port, and reports
// whether they said something else.
func (s seen) judgePort(conditions *[]metav1.Condition) (changed bool) {
	if !s.ported || s.portAnswer == nil || s.portAnswer.Problem.None() {
		if s.ported && s.portLost && (s.portAnswer == nil || s.portAnswer.Port.ID == "") {
			return false // it is not known yet
		}
		return meta.RemoveStatusCondition(conditions, ConditionPortReady)
	}
	reason, message := s.whyNoPort(s.portAnswer.Problem)
	before := meta.FindStatusCondition(*conditions, ConditionPortReady)
	if before != nil && before.Reason == reason && before.Message == message {
		return false
	}
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: ConditionPortReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(s.now.Truncate(time.Second)), ObservedGeneration: s.claim.generation,
	})
}

// havePort reports whether a UID that is gone may have ports: it asked for one, or has addresses
// of a pool with a source.
func (r *Reconciler) havePort(ctx context.Context, key grants.ClaimKey, uid protocol.UID, held []grants.Held) (bool, error) {
	if slices.Contains(r.Ports.Known(key), uid) {
		return true, nil
	}
	for _, h := range held {
		if serves, err := r.Ports.Serves(ctx, h.Pool); serves || err != nil {
			return serves, err //nolint:wrapcheck // says what it is about
		}
	}
	return false, nil
}

// readSources reads which pools of the claim's network, and of what is granted to it, have a
// source.
func (r *Reconciler) readSources(ctx context.Context, s *seen) error {
	s.sourced = nil
	if s.network != nil && s.network.Verdict == networks.Known {
		for _, src := range s.network.Network.Sources {
			serves, err := r.Ports.Serves(ctx, protocol.PoolName(src.Pool))
			if err != nil {
				return fmt.Errorf("read pool %s: %w", src.Pool, err)
			}
			if serves {
				s.sourced = append(s.sourced, ports.Source{Pool: protocol.PoolName(src.Pool), Families: src.Families})
			}
		}
	}
	s.ported = len(s.sourced) > 0
	for _, h := range s.held {
		serves, err := r.Ports.Serves(ctx, h.Pool)
		if err != nil {
			return fmt.Errorf("read pool %s: %w", h.Pool, err)
		}
		s.ported = s.ported || serves
	}
	return nil
}

// tellPort writes on the claim which port it has.
func (r *Reconciler) tellPort(ctx context.Context, obj *ipamclaims.IPAMClaim, c claim, port vif.Port) error {
	meta := protocol.Meta{Name: c.key.Name, UID: c.uid, Revision: c.revision}
	patch, err := kube.SwapPatch(meta, map[string]any{"metadata": map[string]any{"annotations": map[string]string{vif.AnnotationPort: port.String()}}})
	if err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	into := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	err = kube.Call(ctx, func(ctx context.Context) error { return r.Write.Patch(ctx, into, patch) })
	out := kube.Classify(err)
	if out == protocol.Done || out == protocol.NotFound || out == protocol.Conflict { // a change brings it here again
		return nil
	}
	err = fmt.Errorf("write the port of claim %s/%s: %w", c.key.Namespace, c.key.Name, err)
	if out == protocol.Refused && len(c.ips) == 0 { // people see it where they look
		s := seen{claim: c, now: r.Now()}
		if st := s.change(s.whyBlocked(s.failed(ReasonInternalError, err.Error()))); st != nil {
			_, failed := r.write(ctx, obj, c, *st)
			err = errors.Join(err, failed)
		}
	}
	return err
}
