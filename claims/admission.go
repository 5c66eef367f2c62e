package claims

import (
	"errors"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/access"
)

// admission says whether the claim's namespace may use the pools of its network. err is nil if it
// may, else what [Admission] says. since is when that began to be unknown.
type admission struct {
	err   error
	since time.Time
}

// askAdmission is when a claim whose namespace may not use a pool is looked at again: no watch
// tells of a change of RBAC.
const askAdmission = 15 * time.Second

// admitted reports whether the claim was admitted before, so that nobody is asked again. A pool's
// rule is about new claims. It takes no address away from a claim that has it by a grant or by
// its status, even if its lease is lost or the pool cannot be had.
//
// A grant counts only once the status has shown it. A claim may wait for hours, and the rule may
// have changed since it was asked. The status of a claim without grants counts only with a reason
// that admitted claims are given: the addresses alone may come from a backup, or from another
// IPAM.
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

// emptied reports whether somebody has emptied the status of a claim that has grants and had
// shown them. Its reason is then one that only an allocated claim gets, or a pod uses it. Where
// addresses depend on nodes, a pod uses a claim before this has any.
func (s seen) emptied() bool {
	reason := s.reason()
	return len(s.held) > 0 && len(s.claim.ips) == 0 && (reason == ReasonAllocated || reason == ReasonConflict || len(s.uses) > 0 && s.place.anywhere())
}

// refuse decides what to do about a claim that was not admitted. If its namespace may not use the
// pool, it asks for nothing, and gives back what its status has not shown. If that is not known,
// nothing changes, and the claim keeps its place in the queue. Of a pool that does not exist it
// has no place: once the pool is made, it may have a rule.
func (s seen) refuse() plan {
	if _, denied := errors.AsType[*access.DeniedError](s.admission.err); !denied {
		_, missing := errors.AsType[*access.MissingError](s.admission.err)
		if waited := s.now.Sub(s.admission.since); waited < reportDelay {
			return plan{withdraw: missing, after: reportDelay - waited}
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
