package protocol

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A History is the latest state of the API server that an agent has seen. If the API server answers
// with an earlier state, its data went back in time, and it may have lost rights that others rely
// on.
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
	// node's pools wait for nodes no more.
	Restored *Restoration `json:"restored,omitempty"`
	// HeardSince are the pools that the agent has first heard of since then, and of which it has
	// no lease.
	HeardSince []PoolName `json:"since,omitempty"`
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

// SawRight returns h with the record of a right, for an agent that starts in term. The agent's
// history was stored with the last heartbeat, and the record may be younger. A right that has not
// been written in term is ignored: the API server may have gone back since it was recorded.
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

// FirstHeard returns h with a pool of which the agent had not heard before, and has no lease.
func (h History) FirstHeard(name PoolName) History {
	if h.Restored != nil && !h.IsHeardSince(name) {
		h.HeardSince = append(slices.Clip(h.HeardSince), name)
	}
	return h
}

// IsHeardSince reports whether the agent has first heard of a pool since the API server went back.
func (h History) IsHeardSince(name PoolName) bool { return slices.Contains(h.HeardSince, name) }

// Behind reports whether rev, the revision in the answer to a write to one of Tenure's kinds, is of
// an earlier state than h. h must be the history from before the write was sent.
func (h History) Behind(rev Revision) bool {
	n := number(rev)
	return n != 0 && n < h.Objects
}

// RegistrationBehind reports whether the node's registration, read or written after h was seen, is
// of an earlier state than h.
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

// Rewound returns the registrar of an agent that has seen the API server go back. It has no
// registration, and registers in a later term than all before, so that it writes each of its rights
// again.
func (s Registrar) Rewound() Registrar {
	s.LastTerm = max(s.LastTerm, s.Term) + 1
	s.Term, s.Seen, s.Pending, s.OtherHolder = 0, Registration{}, nil, nil
	return s
}

// EndedFor reports whether a pool in epoch waits for nodes no more after r: the epoch is later than
// r's. The pool may be closed all the same.
func (r Restoration) EndedFor(epoch string) bool { return epoch > r.Epoch }

// RecordBehind reports whether an object, read live by an agent that had seen h, shows that the API
// server went back: it is of an earlier state than r, its record. It is false in three cases. Once
// the agent knows that the API server went back, its records are of the time before; otherwise each
// read of such an object would begin everything again, for ever. The record of a Lost right stays
// at this node's last write, and the object may be behind it as long as pods here use it.
// otherHolder says that the object is another's, or a lost store's again from which r had come:
// then r is about to be Lost.
func (h History) RecordBehind(r Right, m Meta, writes int64, otherHolder bool) bool {
	return h.Restored == nil && r.Phase != Lost && !otherHolder && r.behind(m, writes)
}

// Supplanted reports whether m, another object of the name of r, is older than the last answer
// about r. Both cannot have been there at one time, so the API server went back. Whoever holds m
// had given it back since, and will do so again: r is not Lost. The answer is no if r was not
// written in term, or if the agent knows already that the API server went back: then the record of
// r may be older than that.
func (h History) Supplanted(r Right, m Meta, term int64) bool {
	if h.Restored != nil || r.Phase != Held || r.UID == "" || m.UID == r.UID || term == 0 || r.Asserted != term {
		return false
	}
	n := number(m.Revision)
	return n != 0 && n < number(r.Revision)
}

// behind reports whether an object, as read live after r was recorded, is of an
// earlier state than r.
func (r Right) behind(m Meta, writes int64) bool {
	if r.UID == "" || m.UID != r.UID {
		return false
	}
	n := number(m.Revision)
	return n != 0 && n < number(r.Revision) || writes < r.Writes
}

// MayGo reports whether a right on which nothing rests may be given back although its pools
// wait for nodes since the API server went back: the pools may wait for it. This holds for a
// lease that had vanished, and was made again in term and not confirmed since: its block may have
// another size than the pool's. It holds for a use or a request that was written in term, so that
// no earlier write can land any more: its grant may be on a lease of an earlier pool of the name.
func (r Right) MayGo(term int64) bool {
	return r.Phase == Held && r.UID != "" && r.Asserted == term && (r.Kind != RightLease || r.Term == 0)
}

// PutBack reports whether a right need not be put back in term: it has been written in term, so
// that the API server has it again, or it is not Held.
func (r Right) PutBack(term int64) bool {
	return r.Phase != Held || r.UID != "" && r.Asserted == term
}

// Unconfirmed reports whether a Held right has been written in term and not been confirmed in it.
// It gives nothing yet.
func (r Right) Unconfirmed(term int64) bool {
	return r.Phase == Held && r.PutBack(term) && !r.Usable(term)
}

// A Restoration is what a registration says while its agent knows that the API server has gone back
// to an earlier state, as after a restore of etcd. It is there from the heartbeat after the agent
// has seen that until each pool that the agent uses is gone, or is in a later epoch than Epoch.
// Meanwhile the agent leases nothing, and gives nothing back but what a pool may wait for
// ([Right.MayGo]).
type Restoration struct {
	// Back says that the agent has put back what it holds. Until then it has only seen that the
	// API server went back.
	Back bool
	// Epoch is the greatest epoch of any pool that this agent has ever heard of. A pool that
	// is in it, or in an earlier one, has not waited since the API server went back.
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

// IsEpoch reports whether a controller may have written a word as an epoch.
func IsEpoch(word string) bool {
	t, err := time.Parse(epochForm, word)
	return err == nil && t.Format(epochForm) == word // Parse takes more, such as an hour of one digit
}

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
