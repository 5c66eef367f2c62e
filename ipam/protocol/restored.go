package protocol

import (
	"strconv"
	"strings"
	"time"
)

// A History is how far an agent has seen the API server come. What lies behind it
// has been seen before: an API server that answers so has gone back to an earlier
// state, and may have lost rights that others rely on.
//
// The zero History is that of an agent which has seen nothing. It is kept in the
// node's store.
type History struct {
	// Registrations and Objects are the highest resourceVersions seen, of the node's registration
	// and of Tenure's own kinds: an API server may keep the two in two etcds.
	Registrations uint64 `json:"seats,omitempty"`
	Objects       uint64 `json:"objects,omitempty"`
	// Registration and Writes are the UID and the highest write counter of the node's
	// registration.
	Registration UID   `json:"seat,omitempty"`
	Writes       int64 `json:"turn,omitempty"`
	// Epoch is the greatest epoch of any pool that the agent has heard of.
	Epoch string `json:"opening,omitempty"`
	// Restored is set from when the API server was seen to have gone back until the
	// node's pools have been opened again.
	Restored *Restoration `json:"restored,omitempty"`
}

// number returns a resourceVersion as a number, 0 for one that is none: nothing is
// concluded from it.
func number(rev Revision) uint64 {
	n, err := strconv.ParseUint(string(rev), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// SawObject returns h with the revision of a lease, a sub-lease or a pool.
func (h History) SawObject(rev Revision) History {
	h.Objects = max(h.Objects, number(rev))
	return h
}

// SawRight returns h with what the record of a right says, of an agent that starts in term:
// its history was kept with the last heartbeat, and the record may be younger. Of what has
// not been said in term, the record may be older than that the API server went back.
func (h History) SawRight(r Right, term int64) History {
	if r.Phase != Held || !r.PutBack(term) {
		return h
	}
	return h.SawObject(r.Revision)
}

// SawRegistration returns h with the node's registration.
func (h History) SawRegistration(s Registration) History {
	h.Registrations = max(h.Registrations, number(s.Revision))
	if s.UID != h.Registration {
		h.Registration, h.Writes = s.UID, 0
	}
	h.Writes = max(h.Writes, s.Writes)
	return h
}

// SawEpoch returns h with the epoch of a pool.
func (h History) SawEpoch(epoch string) History {
	h.Epoch = max(h.Epoch, epoch)
	return h
}

// Behind reports whether rev, which a write to one of Tenure's kinds got for an
// answer, is of an earlier state than h, which was what had been seen before the
// write was sent.
func (h History) Behind(rev Revision) bool {
	n := number(rev)
	return n != 0 && n < h.Objects
}

// RegistrationBehind reports whether the node's registration, as read or written after h was seen,
// is of an earlier state.
func (h History) RegistrationBehind(s Registration) bool {
	if n := number(s.Revision); n != 0 && n < h.Registrations {
		return true
	}
	return s.UID == h.Registration && s.Writes < h.Writes
}

// Rewound returns what is left of h when the API server has gone back: the
// revisions begin anew, and a pool may be used again in a later epoch than all up to now.
func (h History) Rewound() History {
	return History{Epoch: h.Epoch, Restored: &Restoration{Epoch: h.Epoch}}
}

// Rewound returns the registrar of an agent that has seen the API server go back: it
// has no registration, and registers in a term above all that it has had, so that it says
// each of its rights anew.
func (s Registrar) Rewound() Registrar {
	s.LastTerm = max(s.LastTerm, s.Term) + 1
	s.Term, s.Seen, s.Pending, s.OtherHolder = 0, Registration{}, nil, nil
	return s
}

// Reopened reports whether a pool may be leased from again after r: it has been opened in a
// later epoch than r's.
func (r Restoration) Reopened(p Pool) bool { return p.Open && p.Epoch > r.Epoch }

// RecordBehind reports whether an object, as read live by an agent that had seen h, is
// of an earlier state than r, its record. Once the agent knows that the API server has
// gone back, its records are of the time before, and an object that comes short of one
// says nothing new: else each look at it would begin everything anew, for ever. A Lost
// right says nothing either: its record stays at this node's last write, and the object
// may come short of it for as long as pods here use it. Nor does an object that is another's,
// or a lost store's again from which r had come: r is about to be Lost.
func (h History) RecordBehind(r Right, m Meta, writes int64, otherHolder bool) bool {
	return h.Restored == nil && r.Phase != Lost && !otherHolder && r.Behind(m, writes)
}

// Supplanted reports whether m, another object of the name of r, was there before the last
// answer about r: so it was when r was there, which cannot be. Whoever holds it has given it
// back since, in a state that is gone, and will do so again: it takes nothing from r. It is
// asked of what was said in term alone, and while it is not known that the API server has
// gone back: other records may be of a state before.
func (h History) Supplanted(r Right, m Meta, term int64) bool {
	if h.Restored != nil || r.Phase != Held || r.UID == "" || m.UID == r.UID || term == 0 || r.Asserted != term {
		return false
	}
	n := number(m.Revision)
	return n != 0 && n < number(r.Revision)
}

// Behind reports whether an object, as read live after r was recorded, is of an
// earlier state than r.
func (r Right) Behind(m Meta, writes int64) bool {
	if r.UID == "" || m.UID != r.UID {
		return false
	}
	n := number(m.Revision)
	return n != 0 && n < number(r.Revision) || writes < r.Writes
}

// MayGo reports whether a right that nothing rests on may go back although its pools have
// not been opened again since the API server went back: they may wait for just that. So it
// is with a lease that had vanished, has been made again, said in term, and not been
// confirmed since: it may have another size of blocks than the pool. And with a use or a
// request that has been said in term, so that no write of before can land any more: what is
// granted for it may stand on a lease of an earlier pool of the name.
func (r Right) MayGo(term int64) bool {
	return r.Phase == Held && r.UID != "" && r.Asserted == term && (r.Kind != RightLease || r.Term == 0)
}

// PutBack reports whether a right has been said in term, so that it is in the API
// server again, or is not to be said any more.
func (r Right) PutBack(term int64) bool {
	return r.Phase != Held || r.UID != "" && r.Asserted == term
}

// Unconfirmed reports whether a right that is Held has been said in term, and not been
// confirmed in it: it gives nothing yet.
func (r Right) Unconfirmed(term int64) bool {
	return r.Phase == Held && r.PutBack(term) && !r.Usable(term)
}

// A Restoration is what a registration says while its agent knows that the API server has
// gone back to an earlier state, as after a restore of etcd. An agent says it from
// the heartbeat after it has seen that, until each pool that it uses is gone or has been opened
// in a later epoch than Epoch. Between the two it leases nothing, and gives nothing back but
// what a pool may wait for ([Right.MayGo]).
type Restoration struct {
	// Back says that the agent has put back what it holds, and that its node's
	// other rights can be told again; until then it has only seen it.
	Back bool
	// Epoch is the greatest epoch of any pool that this agent has ever heard of. A pool that
	// was last opened in it, or in an earlier one, was opened before the API server went back.
	Epoch string
}

// The words of a [Restoration] on a registration, before the epoch.
const (
	restoredSeen = "seen"
	restoredBack = "back"
)

// String returns r as [Registration.Restored] has it: "seen EPOCH" or "back EPOCH".
func (r Restoration) String() string {
	word := restoredSeen
	if r.Back {
		word = restoredBack
	}
	return strings.TrimSpace(word + " " + r.Epoch)
}

// ParseRestoration is the inverse of [Restoration.String]; ok is false for a registration
// that says nothing.
func ParseRestoration(text string) (r Restoration, ok bool) {
	word, epoch, _ := strings.Cut(text, " ")
	if word != restoredSeen && word != restoredBack {
		return Restoration{}, false
	}
	return Restoration{Back: word == restoredBack, Epoch: epoch}, true
}

// epochForm is a time of which later ones compare greater as text.
const epochForm = "2006-01-02T15:04:05.000000000Z"

// EpochAfter returns the epoch of a pool that is opened at now. It is greater than every epoch
// in before that came from here, also where the clock was ahead then.
func EpochAfter(now time.Time, before ...string) string {
	next := now.UTC().Format(epochForm)
	for _, word := range before {
		if word < next {
			continue
		}
		last, err := time.Parse(epochForm, word)
		if err != nil {
			continue // no controller wrote it
		}
		next = last.Add(time.Nanosecond).Format(epochForm)
	}
	return next
}
