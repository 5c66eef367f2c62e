package pools

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Types of conditions of an IPPool beside those of the API: each is there only
// while it is True.
const (
	// ConditionBlockSizePending: spec.blockSize asks for another size of blocks
	// than the pool's leases have.
	ConditionBlockSizePending = "BlockSizePending"
	// ConditionDraining: addresses are in use that the ranges no longer have.
	ConditionDraining = "Draining"
	// ConditionDefinitionsDisagree: the definitions that describe an implicit
	// pool see it differently.
	ConditionDefinitionsDisagree = "DefinitionsDisagree"
)

// recheckAfter is when a pool that waits for leases is looked at again, should the
// event that it waits for have gone unnoticed.
const recheckAfter = 10 * time.Second

// seen is what is known when a pool is looked at.
type seen struct {
	pool  *v1alpha1.IPPool
	shape *allocator.Shape // nil where the spec is faulty
	// before is the shape that the pool had before it was edited, where that is known,
	// and whole the one of its spec, with what is withheld of it.
	before, whole *allocator.Shape
	fault         string
	tally         tally
	// overlaps are the pools of its named domain that share addresses with this one.
	overlaps overlaps
	// shapeOf returns the shape of another pool, nil where its spec is faulty.
	shapeOf       func(*v1alpha1.IPPool) *allocator.Shape
	disagreements []string
	routers       routers
	routed        []string // addresses of routers that somebody has, each with both
	countsDue     bool
	now           time.Time
	// starved says that somebody asks, or has asked a moment ago, for an address
	// and none was found.
	starved bool
	// parts are the ranges with each node selector; none where no range has one.
	parts []part
	// restored is set while the pool must not be used because the API server's
	// data went back, and closedFor how long it has been closed since then.
	restored  *restoration
	closedFor time.Duration
	// lastEpoch is the greatest epoch of any pool.
	lastEpoch string
	// foreign is the last verdict on the pool and other IPAMs; nil where nobody looks.
	foreign   *foreign.Verdict
	strangers []v1alpha1.IPReservation // of strangers' addresses
	pinsTaken []string                 // see takenPins
	stolen    []string                 // claims' addresses that ports of others have, each with both

	live *live // nil: not read
	// cached is what the cache has of the others of the domain that a closed pool names:
	// nil elsewhere. It may keep the pool closed, and never opens it.
	cached *live
}

// live is what was read of a pool from the API server: first the pool, then the
// leases of its name; or, where it names a domain, first all pools, then all
// leases.
type live struct {
	pool   *v1alpha1.IPPool
	leases []protocol.Lease
	// others are the other pools of the domain, and foreign the leases of these,
	// and of pools that are no longer there.
	others  []v1alpha1.IPPool
	foreign []protocol.Lease
	// garbled are those leases that cannot be read.
	garbled []*kube.LeaseError
}

// plan is what is to be done about a pool. With readLive, it is read, and plan is
// made again.
type plan struct {
	readLive bool
	// base is the pool that the writes are made to: its UID and resourceVersion
	// must still be there.
	base *v1alpha1.IPPool
	// first are statuses of other pools, which must be written before: see [seen.fencingWrites].
	first           []fencingWrite
	addFinalizer    bool
	removeFinalizer bool
	status          *v1alpha1.IPPoolStatus
	// counted says that status has the counts of this moment, or that they are
	// as before.
	counted bool
	after   time.Duration
}

// decide returns what is to be done.
func decide(s seen) plan {
	if s.live != nil {
		s.pool = s.live.pool
	}
	if s.pool.DeletionTimestamp != nil {
		return s.retire()
	}
	if !slices.Contains(s.pool.Finalizers, v1alpha1.LeasesFinalizer) {
		return plan{base: s.pool, addFinalizer: true}
	}
	st := s.pool.Status.DeepCopy()
	st.ObservedGeneration = s.pool.Generation
	s.withhold(st)
	st.Gateways = s.routers.beside
	p := s.lease(st)
	if p.readLive {
		return p
	}
	p.counted = s.describe(st)
	if !reflect.DeepEqual(*st, s.pool.Status) {
		if s.shape != nil { // what is written together is of one moment
			st.Counts, p.counted = new(s.tally.counts(s.shape)), true
			s.describeParts(st, true)
		}
		p.status = st
		p.first = s.fencingWrites(st)
	}
	p.base = s.pool
	return p
}

// retire decides what to do about a pool that is being deleted. It is closed at once, and gone
// when no lease of its name is left.
func (s seen) retire() plan {
	if !slices.Contains(s.pool.Finalizers, v1alpha1.LeasesFinalizer) {
		return plan{}
	}
	st := s.pool.Status.DeepCopy()
	st.Leasing = v1alpha1.LeasingClosed
	reason, message := v1alpha1.ReasonDeleting, "the pool was deleted, and waits for nobody"
	why, after := s.waits()
	switch {
	case why != "": // leases of it may be about to be put back
		reason, message = v1alpha1.ReasonRestored, "the pool was deleted, and "+why
	case s.tally.leases > 0:
		message = fmt.Sprintf("the pool was deleted, and waits for leases of %s", s.tally.holders())
	}
	s.ready(st, metav1.ConditionFalse, reason, message)
	switch {
	case !reflect.DeepEqual(*st, s.pool.Status):
		return plan{base: s.pool, status: st}
	case why != "":
		return plan{after: after}
	case s.tally.leases > 0:
		return plan{after: recheckAfter}
	case s.live == nil:
		return plan{readLive: true}
	case len(s.live.leases)+len(s.live.garbled) > 0:
		return plan{after: recheckAfter}
	default:
		return plan{base: s.pool, removeFinalizer: true}
	}
}

// lease decides whether blocks may be leased, and of which size: it fills in
// leasing, sizes and the condition Ready of st. The rule behind it: a pool is
// closed, then its leases are listed live, then it is changed or opened, all
// upon one resourceVersion. Whoever creates a lease before the list is seen by
// it; whoever creates one later reads a closed pool.
func (s seen) lease(st *v1alpha1.IPPoolStatus) plan {
	if why, after := s.waits(); why != "" {
		p := s.shut(st, v1alpha1.ReasonRestored, why)
		p.after = after
		return p
	}
	now := sizesIn(*st)
	want := now
	// The size is that of the spec, whatever of it is withheld for now.
	if whole := cmp.Or(s.whole, s.shape); whole != nil {
		want = now.wanted(whole, askedSize(s.pool.Spec))
	}
	if p, wait := s.takeSizes(st, now, want); wait {
		return p
	}
	if s.shape == nil {
		return s.shut(st, whyShapeless(s.pool), s.fault)
	}
	if len(s.overlaps.older) > 0 {
		return s.shut(st, v1alpha1.ReasonOverlap, shares(s.pool, s.overlaps.older))
	}
	if s.live != nil && len(s.live.garbled) > 0 {
		bad := s.live.garbled[0]
		p := s.shut(st, v1alpha1.ReasonLeaseGarbled, fmt.Sprintf("lease %s cannot be read (%s), and may be anybody's right: correct it, or, when no pod of pool %s has addresses of its block, "+
			"remove it: kubectl annotate ipleases %s tenure.dev/deletion=confirmed && kubectl delete ipleases %s", bad.Name, oneLine(bad.Err), bad.Pool, bad.Name, bad.Name))
		p.after = recheckAfter
		return p
	}
	if s.pool.Spec.Allocation == v1alpha1.AllocationStopped {
		return s.shut(st, v1alpha1.ReasonStopped, "the pool gives no addresses: its spec.allocation is Stopped")
	}
	if s.pool.Spec.Domain != "" && (st.Leasing != v1alpha1.LeasingOpen || s.edited()) {
		with := cmp.Or(s.live, s.cached)
		if with == nil {
			return plan{readLive: true}
		}
		if why, after := s.rivalry(with); why != "" {
			p := s.shut(st, v1alpha1.ReasonOverlap, why)
			p.after = after
			return p
		}
	}
	if st.Leasing == v1alpha1.LeasingOpen {
		if now.equal(want) || s.busy(now.changes(want)) && now.complete(s.shape) {
			return s.open(st, now, want)
		}
		// No lease stands against the change, or a family is new: close, and
		// look live.
		return s.shut(st, v1alpha1.ReasonBlockSizeChanging, fmt.Sprintf("blocks are about to have %v", want))
	}
	if s.live == nil {
		return plan{readLive: true}
	}
	uid := protocol.UID(s.pool.UID)
	next := want
	bad, found := want.misfit(uid, s.live.leases)
	if found {
		// What is undecided goes by what is leased: the pool had that size. In one that was
		// never opened only the cluster leases blocks, to keep addresses for pods of other
		// IPAMs; so no node decides there.
		next = now.or(leasedSizes(s.live.leases, st.Opening != "")).or(want)
	} else if changing := now.changes(want); len(changing) > 0 {
		st.BlockPrefixLengths = now.without(changing).status()
		return s.shut(st, v1alpha1.ReasonBlockSizeChanging, fmt.Sprintf("blocks are about to have %v", want))
	}
	if _, found := next.misfit(uid, s.live.leases); !found {
		st.BlockPrefixLengths = next.status()
		if p, wait := s.takeOver(st); wait {
			return p
		}
		return s.open(st, next, want)
	}
	reason, what := v1alpha1.ReasonBlockSizeChanging, fmt.Sprintf("which has another size than blocks of %v", want)
	if bad.PoolUID != uid {
		reason, what = v1alpha1.ReasonEarlierPool, "of an earlier pool of this name"
	}
	p := s.shut(st, reason, fmt.Sprintf("the pool waits for lease %s of %v, %s", bad.Name, bad.Holder, what))
	p.after = recheckAfter
	return p
}

// waits returns why the pool must stay closed, or be closed, because the API
// server's data went back, and when to look again.
func (s seen) waits() (why string, after time.Duration) {
	if s.restored == nil {
		return "", 0
	}
	return s.restored.wait(s.closedFor)
}

// edited reports whether the spec has changed since the controller last looked at it. Until the
// status says that it has, nobody relies on a new lease of the pool.
func (s seen) edited() bool { return s.pool.Status.ObservedGeneration != s.pool.Generation }

// open opens the pool with blocks of the sizes now, and says if the spec asks for other ones:
// want.
func (s seen) open(st *v1alpha1.IPPoolStatus, now, want sizes) plan {
	if st.Leasing != v1alpha1.LeasingOpen || st.Opening == "" {
		if kube.Epoch(s.pool) == "" {
			// The time at which the pool was made: if a backup has brought back a pool that
			// had been opened before, its agents know a later epoch, and their registrations
			// name that.
			st.Opening = protocol.EpochAfter(s.pool.CreationTimestamp.Time, s.restored.named())
		} else {
			st.Opening = s.nextEpoch(st)
		}
		st.Waited = ""
	}
	st.Leasing = v1alpha1.LeasingOpen
	s.ready(st, metav1.ConditionTrue, v1alpha1.ReasonOpen, fmt.Sprintf("blocks of %v may be leased", now))
	pending := ""
	if !now.equal(want) {
		pending = fmt.Sprintf("blocks have %v until the pool has no lease; then they will have %v", now, want)
	}
	s.flag(st, ConditionBlockSizePending, "LeasesWithEarlierSize", pending)
	return plan{}
}

// nextEpoch returns an epoch that begins now. What a registration says must not close the pool once
// more.
func (s seen) nextEpoch(st *v1alpha1.IPPoolStatus) string {
	return protocol.EpochAfter(s.now, s.lastEpoch, st.Opening, st.Waited, s.restored.named())
}

// waiting are the reasons for which a pool waits after a restore, and stays in its epoch: for the
// nodes, or for leases that stand in its way.
var waiting = []string{v1alpha1.ReasonRestored, v1alpha1.ReasonBlockSizeChanging, v1alpha1.ReasonEarlierPool}

// shut closes the pool. If it has waited after a restore, and stays closed for another reason, an
// epoch begins, so that the nodes know that it waits no more.
func (s seen) shut(st *v1alpha1.IPPoolStatus, reason, message string) plan {
	if s.restored != nil && !slices.Contains(waiting, reason) {
		st.Waited = s.nextEpoch(st)
	}
	st.Leasing = v1alpha1.LeasingClosed
	s.ready(st, metav1.ConditionFalse, reason, message)
	return plan{}
}

// busy reports whether there are leases of one of these families.
func (s seen) busy(families []allocator.Family) bool {
	return slices.ContainsFunc(families, func(f allocator.Family) bool { return s.tally.blocks[f] > 0 })
}

// describe fills in what st says about the pool's addresses, and reports whether
// that includes the counts.
func (s seen) describe(st *v1alpha1.IPPoolStatus) (counted bool) {
	s.tellWithheld(st)
	if s.shape == nil {
		return false
	}
	counts := s.tally.counts(s.shape)
	// Who has widened a pool looks what that has given, also when it is given a moment later.
	due := s.countsDue || s.edited() || st.Counts != nil && st.Counts.Capacity != counts.Capacity
	if due {
		st.Counts = &counts
	}
	st.Pressure = s.tally.pressure(st.Pressure, s.shape)
	if s.starved || s.pool.Spec.Allocation == v1alpha1.AllocationStopped { // nodes give back what is free
		st.Pressure = v1alpha1.PressureExhausted
	}
	s.describeParts(st, due)
	s.setExhausted(st)
	s.tellForeign(st)
	s.tellTwoOwners(st)
	s.tellOverlaps(st)
	outside := ""
	if s.tally.outside > 0 {
		outside = fmt.Sprintf("addresses in use, or granted, that the ranges do not have: %d; they will not be given again", s.tally.outside)
	}
	s.flag(st, ConditionDraining, "AddressesOutsideRanges", outside)
	reason, strangers := aboutStrangers(s.strangers)
	s.flag(st, v1alpha1.PoolStrangers, reason, strangers)
	s.flag(st, v1alpha1.PoolPinsTaken, v1alpha1.ReasonLeasedElsewhere, strings.Join(few(s.pinsTaken, "subnets"), "; "))
	s.flag(st, ConditionDefinitionsDisagree, "DefinitionsDiffer", strings.Join(few(s.disagreements, "disagreements"), "; "))
	return due
}

func (s seen) ready(st *v1alpha1.IPPoolStatus, status metav1.ConditionStatus, reason, message string) {
	s.set(st, v1alpha1.PoolReady, status, reason, message)
}

// flag sets a condition while there is something to say, and removes it when there
// is not.
func (s seen) flag(st *v1alpha1.IPPoolStatus, kind, reason, message string) {
	if message == "" {
		meta.RemoveStatusCondition(&st.Conditions, kind)
		return
	}
	s.set(st, kind, metav1.ConditionTrue, reason, message)
}

func (s seen) set(st *v1alpha1.IPPoolStatus, kind string, status metav1.ConditionStatus, reason, message string) {
	const most = 32768 // what the schema admits
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "")
	}
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: s.pool.Generation,
		LastTransitionTime: metav1.NewTime(s.now.Truncate(time.Second)),
	})
}
