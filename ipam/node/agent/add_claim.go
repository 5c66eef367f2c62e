package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A ClaimError says why a pod may not have a claim's addresses. Later says that
// this may change by itself.
type ClaimError struct {
	Claim string // "namespace/name"
	Why   string
	Later bool
}

func (e *ClaimError) Error() string {
	// The protocol's sentences name the claim themselves.
	if strings.HasPrefix(e.Why, "claim "+e.Claim) {
		return e.Why
	}
	return fmt.Sprintf("claim %s: %s", e.Claim, e.Why)
}

// holdClaim gives the attachment a claim's addresses.
func (a *Agent) holdClaim(ctx context.Context, add *addCall) (store.Attachment, error) {
	if att, ok, err := a.repeatClaim(ctx, add); ok || err != nil {
		return att, err
	}
	if ok, why := a.reg.serving(); !ok {
		return store.Attachment{}, &notServingError{Why: why}
	}
	c, err := a.findClaim(ctx, add)
	if err != nil {
		return store.Attachment{}, err
	}
	unlock, err := a.claims.Lock(ctx, a.sched, c.UID)
	if err != nil {
		return store.Attachment{}, err
	}
	defer unlock()
	if add.conf, err = a.pools.place(ctx, add.conf, c.IPs...); err != nil {
		return store.Attachment{}, err
	}
	ref := c.Ref()
	for {
		name, addrs, err := a.use(ctx, c, protocol.Use{Claim: ref, Pod: add.demand.Pod, Interface: add.key.IfName}, add.conf, add.key)
		if err != nil {
			return store.Attachment{}, err
		}
		add.demand.Granted, add.demand.Use, add.demand.Claim = addrs, name, &ref
		att, lacks, err := a.commit(ctx, add)
		if err != nil || !lacks.grant || ctx.Err() != nil {
			return att, cmp.Or(err, lacks.why)
		}
	}
}

// repeatClaim answers an interface of a pod that has the claim's addresses already,
// also under an earlier sandbox that is gone, if they are of its network's pools still: the
// use is there, so that they are still the claim's, and the API server need not be asked
// again.
func (a *Agent) repeatClaim(ctx context.Context, add *addCall) (att store.Attachment, ok bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		held, known, err := a.previous(tx, add)
		if err != nil || !known || held.Claim == nil || !add.names(held.Claim.Name) || held.Pod.UID != add.demand.Pod.UID {
			return err
		}
		if held.Key != add.key && !a.pools.ofSources(held.Addresses, add.conf.Sources) {
			return nil
		}
		add.demand.Granted, add.demand.Use, add.demand.Claim = held.Addresses, held.Use, held.Claim
		ok = true
		return nil
	})
	if err != nil || !ok {
		return att, false, err
	}
	att, lacks, err := a.commit(ctx, add)
	if lacks.grant && a.rights.confirm(ctx, add.demand.Use) == nil { // it is of an earlier term
		att, lacks, err = a.commit(ctx, add)
	}
	if lacks.grant { // a use must be made anew: the long way
		return att, false, nil
	}
	return att, true, cmp.Or(err, lacks.why)
}

// claimWait is how often an ADD reads a claim that is not ready, at first.
const claimWait = 50 * time.Millisecond

// findClaim returns the claim that the interface is to have, as soon as it has addresses.
func (a *Agent) findClaim(ctx context.Context, add *addCall) (protocol.Claim, error) {
	pod, network := add.demand.Pod, add.conf.Name
	moved := false // the claim is of the network on which the pod's machine was before
	c, err := a.awaitClaim(ctx, add, add.sel.Claim, func(c protocol.Claim) error {
		if ok, _ := protocol.BelongsTo(pod, c); ok && c.VM != "" && c.Network != network {
			moved = true
			return &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf("is of network %q", c.Network)}
		}
		if add.byName && c.ByName == "" {
			return &ClaimError{Claim: c.Ref().String(), Why: "is not the pod's: either the controller makes it so, or an Event of the pod says whose it is", Later: true}
		}
		return checkClaim(c, pod, network, add.key.IfName)
	})
	if !moved {
		return c, err
	}
	next := workload.MachineClaimName(add.sel.Claim, network)
	c, err = a.awaitClaim(ctx, add, next, func(c protocol.Claim) error { return checkClaim(c, pod, network, add.key.IfName) })
	if refused, ok := errors.AsType[*ClaimError](err); ok {
		refused.Why += fmt.Sprintf("; the controller makes it, since claim %s, which the pod names, is of another network than %q", add.sel.Claim, network)
	}
	return c, err
}

// awaitClaim returns a claim as soon as it has addresses, waiting until ctx ends:
// KubeVirt's controller makes claims asynchronously. What check refuses for good is not
// waited for.
func (a *Agent) awaitClaim(ctx context.Context, add *addCall, name string, check func(protocol.Claim) error) (protocol.Claim, error) {
	wait, why, namespace := claimWait, "", add.demand.Pod.Namespace
	for {
		c, out, err := a.cl.Claims.ReadClaim(ctx, namespace, name)
		var refused *ClaimError
		if out == protocol.Done {
			if err := check(c); err != nil && (!errors.As(err, &refused) || !refused.Later) {
				return c, err
			}
		}
		switch {
		case refused != nil:
			why = refused.Why
		case out == protocol.NotFound:
			why = "does not exist yet: whoever makes the pod's claims has to make it"
		// That there was no time to read it again tells nothing.
		case out != protocol.Done && why != "" && sched.EndsWithin(ctx, wait):
		case out != protocol.Done:
			why = fmt.Sprintf("cannot be read: %v", err)
		case c.Deleting:
			return c, &ClaimError{Claim: namespace + "/" + name, Why: "is being deleted"}
		case len(c.IPs) > 0:
			return c, nil
		case c.Failed != "":
			why = "has no addresses: " + c.Failed
		default:
			why = "has no addresses yet: the controller has not allocated them"
		}
		if out == protocol.Done && refused == nil {
			a.showConsumer(ctx, add, c)
		}
		if !a.wait(ctx, wait) {
			return c, &ClaimError{Claim: namespace + "/" + name, Why: why, Later: true}
		}
		wait = min(2*wait, 16*claimWait)
	}
}

// checkClaim returns why pod's interface ifName on network may not have c at all.
func checkClaim(c protocol.Claim, pod protocol.PodRef, network, ifName string) error {
	refuse := func(format string, args ...any) error {
		return &ClaimError{Claim: c.Ref().String(), Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.Network != network:
		return refuse("is of network %q, and this attachment is to %q", c.Network, network)
	case c.Interface != "" && c.Interface != ifName:
		return refuse("is for interface %q, and this one is %q", c.Interface, ifName)
	}
	if ok, why := protocol.BelongsTo(pod, c); !ok {
		return &ClaimError{Claim: c.Ref().String(), Why: why}
	}
	return nil
}

// names reports whether the interface is to have the claim of that name.
func (add *addCall) names(claim string) bool {
	return claim == add.sel.Claim || claim == workload.MachineClaimName(add.sel.Claim, add.conf.Name)
}
