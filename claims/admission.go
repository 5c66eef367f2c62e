package claims

import (
	"errors"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/access"
)

// admission is whether the claim's namespace may use the pools of its network: err is
// nil, or what [Admission] says; since is when it began not to be known.
type admission struct {
	err   error
	since time.Time
}

// askAdmission is when a claim whose namespace may not use a pool is looked at again:
// of a change of RBAC nobody hears.
const askAdmission = 15 * time.Second

// admitted reports whether nobody need be asked about the claim any more. A pool's rule
// is about who comes, and takes nothing away: what is granted, or stands in the status,
// stays the claim's, and is granted to it anew should its lease be lost, also while the
// pool cannot be had.
//
// What is granted counts once it was shown: a claim waits, for hours where a pool is
// exhausted, and the rule that it was asked by is of then. The status of a claim to which
// nothing is granted counts only with a reason that is given to those who have been
// admitted: addresses alone may be of a backup, or of another IPAM.
func (s seen) admitted() bool {
	switch reason := s.reason(); {
	case reason == ReasonPoolNotAllowed: // one who has been admitted is never told so
		return false
	case len(s.claim.ips) == 0:
		return s.emptied()
	case len(s.held) > 0:
		return true
	default:
		return slices.Contains([]string{
			ReasonAllocated, ReasonConflict, ReasonExhausted, ReasonPoolNotFound, ReasonPoolNotReady, ReasonInternalError,
		}, reason)
	}
}

// emptied reports whether the claim's status, which has no addresses, has shown what is
// granted to it: its reason is one that only such a claim is given, or a pod uses it.
func (s seen) emptied() bool {
	reason := s.reason()
	return len(s.held) > 0 && len(s.claim.ips) == 0 && (reason == ReasonAllocated || reason == ReasonConflict || len(s.uses) > 0)
}

// refuse is what follows from an admission that is an error. A claim that may not use the
// pool asks for nothing, and what was granted and has not been shown goes back. Where it is
// not known whether it may, nothing changes, not even its place among those that wait; but
// there is none for a pool that is not there, which may have a rule once it is made.
func (s seen) refuse() plan {
	if _, denied := errors.AsType[*access.DeniedError](s.admission.err); !denied {
		_, missing := errors.AsType[*access.MissingError](s.admission.err)
		if waited := s.now.Sub(s.admission.since); waited < patience {
			return plan{withdraw: missing, after: patience - waited}
		}
		reason := ReasonAccessUnknown
		if missing && len(s.claim.ips) == 0 { // beside addresses it is for those who have been admitted
			reason = ReasonPoolNotFound
		}
		return plan{withdraw: missing, status: s.change(s.failed(reason, s.admission.err.Error())), after: askAdmission}
	}
	why := s.failed(ReasonPoolNotAllowed, s.admission.err.Error())
	p := plan{status: s.change(why)}
	if len(s.held) > 0 {
		p = s.giveBack(why)
	}
	p.withdraw, p.after = true, sooner(p.after, askAdmission)
	return p
}
