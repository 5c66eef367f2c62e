package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
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

// claimWait is how often an ADD looks for a claim that is not ready, at first.
const claimWait = 50 * time.Millisecond

// awaitClaim returns a claim as soon as it has addresses, waiting until ctx ends:
// KubeVirt's controller makes claims asynchronously. What check refuses for good is not
// waited for.
func (a *Agent) awaitClaim(ctx context.Context, namespace, name string, check func(protocol.Claim) error) (protocol.Claim, error) {
	wait, why := claimWait, ""
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
		// That there was no time to look again tells nothing.
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

// use makes sure that this node has a confirmed use of c for pod's interface and
// returns its name, with the claim's addresses. It must run under the claim's
// lock. What it read live is as new as this call.
func (a *Agent) use(ctx context.Context, c protocol.Claim, ask protocol.Use, conf *poolspec.Config, key store.Key) (name string, addrs []store.Address, err error) {
	addrs, leases, err := a.claimAddresses(ctx, c, conf)
	if err != nil {
		return "", nil, err
	}
	bare := make([]netip.Addr, len(addrs))
	for i, addr := range addrs {
		bare[i] = addr.Addr
	}
	names, err := a.useNames(ctx, c.UID)
	if err != nil {
		return "", nil, err
	}
	blocked, why := "is in use on two other nodes", ""
	for _, name := range names {
		r := protocol.Right{Kind: protocol.RightUse, Name: name, SubLeaseRight: protocol.SubLeaseRight{Use: &ask, Addrs: bare, Leases: leases}}
		if err := a.sameNode(ctx, r, ask, key); err != nil {
			return "", nil, err
		}
		got, res, err := a.driveUse(ctx, r)
		if err != nil {
			return "", nil, &ClaimError{Claim: c.Ref().String(), Why: "use not settled: " + err.Error(), Later: true}
		}
		switch res.Verdict {
		case protocol.VerdictServes:
			return got.Name, addrs, nil
		case protocol.VerdictTaken:
			why = res.Why
			if got.Phase == protocol.Frozen {
				blocked = "cannot be used on this node now"
			}
			continue
		case protocol.VerdictRefused:
			return "", nil, &ClaimError{Claim: c.Ref().String(), Why: res.Why, Later: res.Passes}
		case protocol.VerdictLater, protocol.VerdictDenied, protocol.VerdictGone, protocol.VerdictNone:
			return "", nil, &ClaimError{Claim: c.Ref().String(), Why: cmp.Or(res.Why, "its use on this node has gone meanwhile"), Later: true}
		}
	}
	return "", nil, &ClaimError{Claim: c.Ref().String(), Why: blocked + ": " + why, Later: true}
}

// driveUse drives a use again and again, until ctx ends, where nothing can be said of it yet: a
// pod that moves often comes to the new node while the old one still gives back the use,
// which is there at one moment and gone at the next.
func (a *Agent) driveUse(ctx context.Context, r protocol.Right) (protocol.Right, protocol.Result, error) {
	ev := protocol.Event{Kind: protocol.EventRenew, Use: r.Use, Addrs: r.Addrs, Leases: r.Leases}
	for wait := claimWait; ; wait = min(2*wait, 16*claimWait) {
		got, res, err := a.driveForADD(ctx, r, a.beginWith(ev))
		if err != nil || res.Verdict != protocol.VerdictLater && res.Verdict != protocol.VerdictGone {
			return got, res, err
		}
		if !a.wait(ctx, wait) {
			return got, res, nil
		}
	}
}

// useNames returns the names of a claim's uses in the order to try them: one that this node
// has a record of is the only one, and of two the one that pods may have, or have had.
func (a *Agent) useNames(ctx context.Context, claim protocol.UID) ([]string, error) {
	names := []string{protocol.UseName(claim, 0), protocol.UseName(claim, 1)}
	err := a.st.ViewContext(ctx, func(tx *store.Tx) error {
		var recorded []protocol.Right
		for _, name := range names {
			r, ok, err := tx.Right(name)
			if err != nil {
				return err
			}
			if ok {
				recorded = append(recorded, r)
			}
		}
		if len(recorded) > 0 {
			names = []string{protocol.PickUse(recorded).Name}
		}
		return nil
	})
	return names, err
}

// sameNode refuses what may not share this node's use r: another interface of the
// same pod, or another pod that still runs.
func (a *Agent) sameNode(ctx context.Context, r protocol.Right, ask protocol.Use, key store.Key) error {
	var others []store.Attachment
	err := a.st.ViewContext(ctx, func(tx *store.Tx) error {
		others = others[:0]
		for att, err := range tx.OfUse(r.Name) {
			if err != nil {
				return err
			}
			if att.Key != key {
				others = append(others, att)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, att := range others {
		if why, later := a.mayShare(att, ask); why != "" {
			return &ClaimError{Claim: ask.Claim.String(), Why: why, Later: later}
		}
	}
	return nil
}

// mayShare returns why another attachment of a claim on this node forbids a new
// one: while its sandbox is there, there would be two. Later says that the end of that
// sandbox is all that it takes; another interface of the pod stays as long as the pod.
func (a *Agent) mayShare(att store.Attachment, ask protocol.Use) (why string, later bool) {
	switch {
	case att.Pod.UID == ask.Pod.UID && att.IfName != ask.Interface:
		return fmt.Sprintf("is already used by interface %s of this pod", att.IfName), false
	case a.host.Gone(att):
		return "", false
	default:
		return fmt.Sprintf("is in use by pod %s on this node%s", att.Pod, ask.Pod.Standoff(att.Pod)), true
	}
}

// callUse sends a step's call about the use of a claim, and completes its answer ev.
func (a *Agent) callUse(ctx context.Context, self protocol.Self, ev protocol.Event, r protocol.Right) (protocol.Event, error) {
	var s protocol.SubLease
	var out protocol.Outcome
	var err error
	switch ev.Call {
	case protocol.CallCreate:
		s, out, err = a.cl.SubLeases.CreateSubLease(ctx, protocol.SubLease{
			Meta: protocol.Meta{Name: r.Name}, Protocol: protocol.Version, Node: self.Node, Store: self.Store, Term: self.Term, Turn: 1, Use: r.Use,
		})
	case protocol.CallRead:
		s, out, err = a.cl.SubLeases.ReadSubLease(ctx, r.Name)
	case protocol.CallFence:
		old := protocol.SubLease{Meta: meta(r), Protocol: protocol.Version, Term: r.Asserted, Turn: r.Turn, Use: &protocol.Use{}}
		next := old
		next.Term, next.Turn, next.Use = self.Term, r.Turn+1, r.Use
		s, out, err = a.cl.SubLeases.UpdateSubLease(ctx, old, next)
	case protocol.CallDelete:
		out, err = a.cl.SubLeases.DeleteSubLease(ctx, meta(r))
	case protocol.CallConfirm:
		return a.confirmUse(ctx, self, ev, r)
	case protocol.CallNone:
		panic("agent: no call to send")
	}
	ev.Object, ev.Outcome = r.ObjectOfUse(s), out
	return ev, err
}

// confirmUse reads live what a use rests on, in the order that docs/contributing/protocol.md
// gives: the other name, then the claim and the leases of its addresses.
func (a *Agent) confirmUse(ctx context.Context, self protocol.Self, ev protocol.Event, r protocol.Right) (protocol.Event, error) {
	if err := a.withheldRight(r); err != nil {
		return ev, err // its outcome is unknown, as until the last read
	}
	e := protocol.UseEvidence{Own: *r.Use, Addrs: r.Addrs, Vanished: r.Term == 0}
	other, out, err := a.cl.SubLeases.ReadSubLease(ctx, otherUse(r))
	switch out {
	case protocol.Done:
		e.Other = &other
	case protocol.NotFound:
	case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
		return ev, err
	}
	e.Claim, out, err = a.cl.Claims.ReadClaim(ctx, r.Use.Claim.Namespace, r.Use.Claim.Name)
	if out != protocol.Done && out != protocol.NotFound {
		return ev, err
	}
	for _, name := range r.Leases {
		l, out, err := a.cl.Leases.ReadLease(ctx, name)
		switch out {
		case protocol.Done:
			e.Leases = append(e.Leases, l)
		case protocol.NotFound:
		case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
			return ev, err
		}
	}
	if earlier, ok := e.Earlier(self.Node); ok {
		a.background(func(ctx context.Context) { a.endEarlier(ctx, earlier) })
	}
	answer := protocol.ConfirmUse(self, e)
	ev.Outcome, ev.Passes = answer.Outcome, answer.Passes
	switch {
	case answer.Outcome == protocol.Done:
		return ev, nil
	case answer.Outcome == protocol.Unknown:
		err = &awaitedError{answer.Why}
	default:
		err = errors.New(answer.Why)
	}
	ev.Keeps = e.Keeps()
	return ev, err
}

// endEarlier sees to it that this node's other use of a claim, which was met beside the one
// that is wanted, goes soon if this store has made it: the next list of the node's own objects
// may be an hour away. A lost store's is the business of [Agent.reclaim], and another machine's
// that of the dead-node rule.
func (a *Agent) endEarlier(ctx context.Context, s protocol.SubLease) {
	if s.Store != a.st.ID() {
		return
	}
	a.adoptStray(ctx, protocol.Right{Kind: protocol.RightUse, Name: s.Name, SubLeaseRight: protocol.SubLeaseRight{Use: s.Use}})
	a.lookIn(s.Name, 0)
}

func otherUse(r protocol.Right) string {
	if first := protocol.UseName(r.Use.Claim.UID, 0); r.Name != first {
		return first
	}
	return protocol.UseName(r.Use.Claim.UID, 1)
}

// letGo gives a right back if nothing rests on it. One that is Frozen stays.
func (a *Agent) letGo(ctx context.Context, r protocol.Right) {
	_, res, err := a.drive(ctx, r, a.beginWith(protocol.Event{Kind: protocol.EventLetGo}))
	a.logLetGo(ctx, r, res, err)
}

func (a *Agent) logLetGo(ctx context.Context, r protocol.Right, res protocol.Result, err error) {
	switch {
	case errors.Is(err, errInUse), errors.Is(err, errUnanswered), is[*withheldError](err): // it is looked at again
	case err != nil:
		a.log.WarnContext(ctx, "right not given back", "right", r.Name, "error", err)
	case res.Forget:
		a.log.DebugContext(ctx, "right given back", "right", r.Name)
	}
}
