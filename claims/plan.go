package claims

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/controller/ports"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// reportDelay is how long a claim's status says nothing of a pool that is missing or not open yet,
// or of a call that failed: definitions, pools and claims are often created together.
const reportDelay = 3 * time.Second

// claim is an IPAMClaim as it was read.
type claim struct {
	key        grants.ClaimKey
	uid        protocol.UID
	revision   protocol.Revision
	generation int64
	created    time.Time
	deleting   bool
	network    string
	requested  string   // the annotation, as it is
	topology   string   // likewise
	port       vif.Port // the annotation; zero where there is none that can be read
	machine    string   // the VirtualMachine that owns it, and may ask for addresses in its stead

	ips        []string
	conditions []metav1.Condition
	ownerPod   string
}

// seen is what is known when a claim is looked at. The claim, its grants and its uses are read at
// once. The rest is read when [decide] asks for it.
type seen struct {
	claim claim
	held  []grants.Held
	uses  []use
	now   time.Time

	network   *networks.Resolution // nil: not read
	place     place                // of the network's pools, once it is read
	admission *admission           // nil: not asked
	byMachine *request             // nil: the VirtualMachine has not been read
	answer    *grants.Answer       // nil: not asked

	// sourced are those of the network's pools that have a source, and ported is set where
	// there are some, or what is granted is of such. A port is then asked for: portAnswer.
	sourced    []ports.Source
	ported     bool
	portLost   bool          // Neutron has no port of the claim as it was told
	portAnswer *ports.Answer // nil: not asked
}

// use is a pod's use of the claim.
type use struct {
	pod     string
	node    string
	created time.Time
	name    string
}

// plan is what is to be done about a claim. If one of the first six is set, [decide] is called
// again with the answer. Otherwise the others say what to do.
type plan struct {
	resolve     bool        // find out what the claim's network is
	admit       bool        // find out whether its namespace may use the network's pools
	readMachine bool        // find out what the VirtualMachine that owns it asks for
	port        *ports.Ask  // ask for its port
	ask         *grants.Ask // ask the broker
	verify      *grants.Ask // ask it, with the leases of the grants read live

	// withdraw says that what was asked for is not wanted any more.
	withdraw bool
	// tellPort is what is to be written on the claim about its port, before anything else.
	// settlePort says that the claim has what was told of it, and refusePort that its
	// addresses cannot be granted, and why.
	tellPort   *vif.Port
	settlePort bool
	refusePort *ports.Problem
	status     *status
	// giveBack are grants to be marked before, and freed after, status is written:
	// part of what the claim wants, which is of no use without the rest that cannot
	// be had. A pool that is closed or missing says nothing of that.
	giveBack []grants.Held
	// unmark are grants that the status names: they are not to be freed.
	unmark []grants.Held
	// free are grants that the status does not name.
	free []grants.Held
	// tellUndefined says that people are to be told that no definition has the claim's network.
	tellUndefined bool
	// after is when the claim is to be looked at again; 0 is when it changes.
	after time.Duration
}

// decide returns what is to be done.
func decide(s seen) plan {
	if len(s.claim.ips) == 0 {
		return s.allocate()
	}
	named, malformed := parse(s.claim.ips)
	var extra, unmark []grants.Held
	for _, h := range s.held {
		switch {
		case !slices.Contains(named, h.Grant.Addr):
			extra = append(extra, h)
		case h.Grant.Freeing:
			unmark = append(unmark, h)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(named), func(a netip.Addr) bool { return s.holds(a) })
	if len(missing) > 0 || malformed != "" {
		return s.decideMismatch(named, malformed, extra)
	}
	p := plan{status: s.change(s.allocated(nil)), unmark: unmark, free: extra, settlePort: s.ported}
	if s.ported && (s.portLost || s.claim.port.ID == "") {
		return s.makePortAgain(named, p)
	}
	return p
}

// allocate decides what to do about a claim whose status has no addresses.
func (s seen) allocate() plan {
	if s.claim.deleting {
		return plan{withdraw: true} // nobody needs them any more
	}
	if s.network == nil {
		return plan{resolve: true}
	}
	switch s.network.Verdict {
	case networks.Unknown: // or another implementation's by now
		return s.leaveAlone()
	case networks.Ambiguous:
		return plan{withdraw: true, status: s.change(s.whyBlocked(s.failed(ReasonNetworkAmbiguous, s.network.Message)))}
	case networks.Faulty:
		return plan{withdraw: true, status: s.change(s.whyBlocked(s.failed(ReasonNetworkFaulty, s.network.Message)))}
	case networks.Known:
	}
	switch {
	case s.admitted():
	case s.admission == nil:
		return plan{admit: true}
	case s.admission.err != nil:
		return s.refuse()
	}
	if why := s.whyNowhere(); why != nil && !s.emptied() {
		return s.nowhere(*why)
	}
	var requested []netip.Addr
	if !s.emptied() { // what a claim has shown to have is never changed for others
		if s.claim.machine != "" && s.byMachine == nil {
			return plan{readMachine: true}
		}
		var err error
		if requested, err = s.request().parse(); err != nil {
			return plan{withdraw: true, status: s.change(s.failed(ReasonRequestInvalid, err.Error())), after: s.again()}
		}
		if why := s.place.elsewhere(requested); why != "" {
			return plan{withdraw: true, status: s.change(s.failed(ReasonRequestInvalid, s.request().prefix()+why)), after: s.again()}
		}
	}
	if len(s.sourced) > 0 {
		var p plan
		var done bool
		if requested, p, done = s.makePort(requested); !done {
			return p
		}
	}
	if s.answer == nil {
		return plan{ask: s.ask(nil, requested)}
	}
	if len(s.answer.Granted) > 0 {
		// The status write must fail if somebody is giving these back.
		if s.answer.Stamp != s.claim.revision {
			return plan{verify: s.ask(nil, requested)}
		}
		return plan{status: s.change(s.allocated(s.cidrs(s.answer.Granted))), unmark: s.freeing(s.answer.Granted), settlePort: len(s.sourced) > 0}
	}
	if p, refused := s.refusePort(); refused {
		return p
	}
	why, after := s.whyWaiting()
	switch {
	case why == nil:
		return plan{after: after}
	case len(s.held) > 0 && s.useless():
		return s.giveBack(*why)
	default:
		return plan{status: s.change(s.whyBlocked(*why)), after: s.again()}
	}
}

// useless reports whether the granted part is of no use, because the rest cannot be had.
func (s seen) useless() bool {
	switch s.answer.Problem.Reason {
	case grants.Exhausted, grants.Taken, grants.Silent, grants.Unassignable:
		return true
	case grants.NoProblem, grants.PoolMissing, grants.PoolNotReady, grants.Failed:
	}
	return false
}

// freeing returns the grants of these addresses that somebody has begun to free because the rest
// could not be had. An address that is asked for by name may be granted although it is being freed.
func (s seen) freeing(granted []grants.Granted) (marked []grants.Held) {
	for _, h := range s.held {
		if h.Grant.Freeing && slices.ContainsFunc(granted, func(g grants.Granted) bool { return g.Addr == h.Grant.Addr }) {
			marked = append(marked, h)
		}
	}
	return marked
}

// again returns when to look again at a claim of a VirtualMachine that waits: no watch tells of
// a change of the machine's annotation.
func (s seen) again() time.Duration {
	if s.byMachine != nil {
		return 3 * recheckAfter
	}
	return 0
}

// whyBlocked returns the outcome for a claim that can have no addresses written now, because of
// why. If its status has shown addresses before, the reason must go on to say so: by that reason
// the claim is admitted.
func (s seen) whyBlocked(why outcome) outcome {
	if s.emptied() {
		return s.failed(ReasonConflict, "status.ips names nothing, and cannot be written anew: "+why.message)
	}
	return why
}

// decideMismatch decides what to do about a claim whose status names addresses that are not
// granted to it, or something that is no address.
func (s seen) decideMismatch(named []netip.Addr, malformed string, extra []grants.Held) plan {
	if s.network == nil {
		return plan{resolve: true}
	}
	known := s.network.Verdict == networks.Known
	switch {
	case !known && len(s.held) == 0:
		return plan{withdraw: true} // another implementation's, as far as can be told
	case !known, s.admitted(): // there is nothing, or no need, to ask
	case s.admission == nil:
		return plan{admit: true}
	case s.admission.err != nil:
		return s.refuse()
	}
	switch {
	case malformed != "":
		return plan{withdraw: true, status: s.change(s.failed(ReasonConflict, fmt.Sprintf(
			"status.ips has %q, which is no address: set status.ips to [] to have addresses written anew", malformed)))}
	case !known || len(extra) > 0:
		return plan{withdraw: true, status: s.change(s.failed(ReasonConflict, fmt.Sprintf(
			"status.ips has %s, but granted is %s: no pod is served; set status.ips to [] to have what is granted written anew",
			join(named), join(addrsOf(s.held)))))}
	case s.claim.deleting:
		return plan{withdraw: true}
	case len(s.sourced) > 0 && s.portAnswer == nil:
		return plan{port: s.askPort(named, true)}
	case len(s.sourced) > 0 && s.portAnswer.Port.ID == "":
		return s.waitForPort()
	case len(s.sourced) > 0 && s.portAnswer.Port.String() != s.claim.port.String():
		return plan{tellPort: &s.portAnswer.Port}
	case s.answer == nil:
		// A lease that was deleted by hand, or a claim restored from a backup, or
		// taken over from another IPAM: the addresses become the claim's, if they
		// are nobody else's.
		return plan{ask: s.ask(named, nil)}
	case len(s.answer.Granted) > 0:
		return plan{status: s.change(s.allocated(nil))}
	}
	why, after := s.whyWaiting()
	if why == nil {
		return plan{after: after}
	}
	return plan{status: s.change(*why)}
}

// whyWaiting returns why the claim cannot be granted its addresses. It returns nil while there is
// nothing to say yet, and then when to look again.
func (s seen) whyWaiting() (why *outcome, after time.Duration) {
	bad := s.answer.Problem
	reason, message := "", bad.Message
	switch bad.Reason {
	case grants.NoProblem:
		return nil, 0
	case grants.Exhausted:
		reason = ReasonExhausted
	case grants.Taken, grants.Silent, grants.Unassignable:
		reason, message = s.unavailable(bad)
	case grants.PoolMissing:
		reason = ReasonPoolNotFound
	case grants.PoolNotReady:
		reason = ReasonPoolNotReady
	case grants.Failed:
		reason = ReasonInternalError
	}
	passing := bad.Reason == grants.PoolMissing || bad.Reason == grants.PoolNotReady || bad.Reason == grants.Failed
	if waited := s.now.Sub(bad.Since); passing && waited < reportDelay {
		return nil, reportDelay - waited
	}
	return new(s.failed(reason, message)), 0
}

// unavailable returns the reason and the message for addresses that were asked for by name, by
// the status or by the annotation, and cannot be had.
func (s seen) unavailable(bad grants.Problem) (reason, message string) {
	switch {
	case len(s.claim.ips) > 0:
		return ReasonConflict, "status.ips cannot be granted: " + bad.Message
	case bad.Reason == grants.Unassignable:
		return ReasonRequestInvalid, s.request().prefix() + bad.Message
	}
	return ReasonRequestedTaken, s.request().prefix() + bad.Message + "; the claim gets it when it comes free"
}

// giveBack gives back what is granted, because of why. While a pod uses the claim, the status
// only says that. The end of the use brings the claim here again.
func (s seen) giveBack(why outcome) plan {
	if len(s.uses) > 0 {
		why.message += fmt.Sprintf("; gives back %s when no pod uses it any more", join(addrsOf(s.held)))
		return plan{status: s.change(why), after: recheckAfter}
	}
	return plan{giveBack: s.held, status: s.fencingStatus(why)}
}

// fencingStatus returns a status that differs from the present one. Once it is written, every
// status write that was prepared before fails.
func (s seen) fencingStatus(why outcome) *status {
	why.message += "; gives back " + join(addrsOf(s.held))
	if current := s.condition(); current != nil && current.Message == why.message {
		why.message += " again"
	}
	return s.change(why)
}

// ask returns the ask for the claim's addresses, or for exactly the given ones. Requested addresses
// are among them.
func (s seen) ask(exactly, requested []netip.Addr) *grants.Ask {
	a := grants.Ask{
		To: protocol.Grantee{
			Kind: protocol.GranteeClaim, UID: s.claim.uid, Namespace: s.claim.key.Namespace, Name: s.claim.key.Name,
		},
		Exactly: exactly, Requested: requested, Stamp: s.claim.revision,
	}
	for _, src := range s.network.Network.Sources {
		from := grants.Source{Pool: protocol.PoolName(src.Pool), View: src.View, Families: src.Families, AsFar: src.Implicit == nil}
		if src.TakesFirst {
			from.Narrow = src.ViewOf
		}
		s.place.narrow(&from)
		a.From = append(a.From, from)
	}
	return &a
}

// cidrs writes granted addresses as the pods will have them.
func (s seen) cidrs(granted []grants.Granted) []string {
	var out []string
	for _, g := range granted {
		src := poolspec.Source{}
		if g.Source < len(s.network.Network.Sources) {
			src = s.network.Network.Sources[g.Source]
		}
		bits, _ := src.Answer(g.Addr, g.Range)
		out = append(out, netip.PrefixFrom(g.Addr, bits).String())
	}
	return out
}

func (s seen) holds(a netip.Addr) bool {
	return slices.ContainsFunc(s.held, func(h grants.Held) bool { return h.Grant.Addr == a })
}

// ownerPod returns the pod of the newest use: during a live migration two pods use
// a claim, and the later one is where the workload is going.
func (s seen) ownerPod() string {
	if len(s.uses) == 0 {
		return ""
	}
	return slices.MaxFunc(s.uses, func(a, b use) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	}).pod
}
