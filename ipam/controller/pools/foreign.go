package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Foreign says what other IPAMs may have given of a pool: a Looker of package looker.
type Foreign interface {
	Of(pool protocol.PoolName) foreign.Verdict
}

// verdict returns what the looker found out about the pool; ok is false if that is about an earlier
// state of the pool, or nothing.
func (s seen) verdict() (v foreign.Verdict, ok bool) {
	if s.foreign == nil {
		return v, false
	}
	return *s.foreign, s.foreign.Of == foreign.StateOf(s.pool)
}

// takeOver decides whether other IPAMs keep a pool closed that nothing else does. If wait is true
// the pool waits, and p closes it. First the block sizes and the fence are written, then a look
// finds what pods have by other IPAMs, then the pool is opened: to keep addresses for pods takes
// the block sizes, and a look finds only what was given before the fence.
func (s seen) takeOver(st *v1alpha1.IPPoolStatus) (p plan, wait bool) {
	if s.foreign == nil {
		return plan{}, false
	}
	if st.Opening == "" {
		st.Withheld = nil // all of the pool is closed
	}
	v, known := s.verdict()
	closed := st.Opening == "" || s.givenAway()
	others, first := closed && known && len(v.Others) > 0, v.Yields()
	if !closed || !known {
		first = nil
	}
	yields := slices.ContainsFunc(first, func(b foreign.Beside) bool { return b.Lease == "" })
	switch { // pods that were bound before FencedSince may have addresses by another IPAM
	case others || yields || s.edited():
		st.FencedSince = nil // set when no other definition is left
	case known && (st.FencedSince == nil || !slices.Equal(v.Fence, st.Fenced)):
		s.takeOverNow(st, st.FencedSince == nil || v.FenceIsNew)
		st.Fenced = v.Fence
	}
	switch {
	case !known && s.givenAway():
		p = s.shut(st, v1alpha1.ReasonForeignIPAM, "it is being found out whether another IPAM may give the pool's addresses, and which of them its pods have")
	case !known:
		p = s.shut(st, v1alpha1.ReasonForeignLook, "it is being found out which of the pool's addresses pods of other IPAMs have")
	case len(first) > 0:
		p = s.shut(st, v1alpha1.ReasonOverlap, besideText(s.pool, first, false))
	case others:
		p = s.shut(st, v1alpha1.ReasonForeignIPAM, "the pool is not opened while another IPAM may give its addresses: see the condition ForeignIPAM")
	case !v.Clear():
		p = s.shut(st, v1alpha1.ReasonForeignLook, "before the pool is opened, what pods of other IPAMs have of it is kept for them: "+v.Why)
	default:
		if closed && v.Blocked != nil { // what lies in the block of a node that does not answer
			var b netipx.IPSetBuilder
			b.AddSet(v.Blocked)
			b.Intersect(s.whole.Usable())
			set, _ := b.IPSet() // of sets alone
			st.Withheld = spans(set)
		}
		return plan{}, false
	}
	p.after = recheckAfter
	return p, true
}

// givenAway reports whether the pool is stopped, as by an export, or has been closed since it was.
// Like a pool that never was open, it is not opened while another IPAM may give its addresses.
func (s seen) givenAway() bool {
	switch {
	case s.pool.Status.Opening == "":
		return false
	case s.pool.Spec.Allocation == v1alpha1.AllocationStopped, kube.GivenAway(s.pool):
		return true
	}
	// A controller that knew no condition for it may have stopped the pool.
	c := meta.FindStatusCondition(s.pool.Status.Conditions, v1alpha1.PoolReady)
	return c != nil && (c.Reason == v1alpha1.ReasonStopped || c.Reason == v1alpha1.ReasonForeignIPAM)
}

// withhold sets st.Withheld. Addresses that an edit has added are withheld until a look has found
// which of them pods of other IPAMs have. If it is not known what the pool had before the edit, all
// of it is withheld. A pool that was open and is closed for a while goes on withholding what
// another IPAM may give. Of one that was stopped nothing is given before all of it has been looked
// at: see [seen.givenAway].
func (s seen) withhold(st *v1alpha1.IPPoolStatus) {
	switch {
	case s.pool.Spec.Allocation == v1alpha1.AllocationStopped: // another IPAM may be about to give its addresses
		st.Fenced, st.FencedSince, st.Withheld = nil, nil, nil
		return
	case s.givenAway():
		st.Withheld = nil
		return
	}
	if s.foreign == nil || s.pool.Status.Leasing != v1alpha1.LeasingOpen && s.pool.Status.Opening == "" || s.whole == nil {
		return
	}
	v, known := s.verdict()
	var left netipx.IPSetBuilder
	for _, text := range s.pool.Status.Withheld {
		if r, err := netipx.ParseIPRange(text); err == nil {
			left.AddRange(r)
		}
	}
	switch {
	case s.edited():
		var added netipx.IPSetBuilder
		added.AddSet(s.whole.Usable())
		if s.before != nil {
			added.RemoveSet(s.before.Usable())
		}
		set, _ := added.IPSet() // of sets alone
		left.AddSet(set)
	case known && (s.fewerOthers() || len(s.pool.Status.Withheld) > 0 && !slices.Equal(v.Fence, st.Fenced)):
		s.takeOverNow(st, st.FencedSince == nil || v.FenceIsNew)
		st.Fenced = v.Fence
	case s.pool.Status.Leasing == v1alpha1.LeasingOpen && known && !slices.Equal(v.Fence, st.Fenced):
		st.Fenced = v.Fence // of what it has given: nothing waits for that
	case known && v.Clear() && v.Blocked != nil:
		left.Intersect(v.Blocked)
	}
	left.Intersect(s.whole.Usable())
	set, _ := left.IPSet()
	st.Withheld = spans(set)
	s.takeOverNow(st, s.fewerOthers()) // also by a look at the pool as it was: the condition goes by that, too
}

// takeOverNow notes, if it is so, that the pool takes addresses over now: what pods that were bound
// before have of them is looked for.
func (s seen) takeOverNow(st *v1alpha1.IPPoolStatus, so bool) {
	if so {
		st.FencedSince = new(metav1.NewTime(s.now.Truncate(time.Second)))
	}
}

// fewerOthers reports whether the definitions by which another IPAM may give addresses of the pool
// are others than the condition ForeignIPAM names: one was switched, and ADDs by it may be under
// way.
func (s seen) fewerOthers() bool {
	c := meta.FindStatusCondition(s.pool.Status.Conditions, v1alpha1.PoolForeignIPAM)
	return c != nil && s.foreign.Of != "" && c.Message != othersText(s.pool, *s.foreign, s.pool.Status.Leasing)
}

// othersText says by which definitions another IPAM may give addresses of the pool, and what to
// do about it; it is empty if there are none.
func othersText(p *v1alpha1.IPPool, v foreign.Verdict, leasing v1alpha1.Leasing) string {
	if len(v.Others) == 0 {
		return ""
	}
	var names, elsewhere []string
	for _, d := range v.Others {
		names = append(names, fmt.Sprintf("%s (%s)", d, d.By()))
		if d.Unnamed && !poolspec.InDefaultDomain(p.Name, p.Spec.Domain) || !d.Unnamed && !slices.Contains(d.PoolsThen, p.Name) {
			elsewhere = append(elsewhere, d.String())
		}
	}
	byHand := ""
	if len(elsewhere) > 0 {
		byHand = fmt.Sprintf(", and write the ipam section of %s by hand as {\"type\": \"tenure\", \"pool\": %q}: what it has now is not for this pool", strings.Join(few(elsewhere, "definitions"), ", "), p.Name)
	}
	text := fmt.Sprintf("network attachment definitions may give addresses of the pool by another IPAM: %s. Switch them to Tenure (kubectl tenure import)%s; "+
		"or exclude their part from the pool, and name them in spec.shareWith, which says that the other IPAM gives none of its addresses", strings.Join(few(names, "definitions"), ", "), byHand)
	if leasing == v1alpha1.LeasingOpen {
		text += ". The pool stays open, and keeps for their pods what these show; two IPAMs that share a range cannot be kept apart for certain"
	}
	return text
}

// maxWithheld is how many ranges the status takes.
const maxWithheld = 256

// spans writes a set as ranges. If there are more than the status takes, neighbours are joined:
// then more addresses are withheld than must be, never fewer.
func spans(set *netipx.IPSet) []string {
	ranges := set.Ranges()
	for len(ranges) > maxWithheld {
		var joined []netipx.IPRange
		for i := 0; i < len(ranges); i += 2 {
			r := ranges[i]
			if i+1 < len(ranges) && ranges[i+1].From().Is4() == r.From().Is4() {
				r = netipx.IPRangeFrom(r.From(), ranges[i+1].To())
			} else if i+1 < len(ranges) {
				joined = append(joined, r)
				r = ranges[i+1]
			}
			joined = append(joined, r)
		}
		if len(joined) == len(ranges) {
			break
		}
		ranges = joined
	}
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return texts
}

// tellWithheld fills in the condition about addresses that are not given yet.
func (s seen) tellWithheld(st *v1alpha1.IPPoolStatus) {
	if s.foreign == nil {
		return
	}
	if st.Leasing != v1alpha1.LeasingOpen && s.givenAway() {
		s.flag(st, v1alpha1.PoolWithheld, v1alpha1.ReasonGivenAway, "the pool was stopped: another IPAM may have given its addresses since, and the pool gives none before it is open again")
		return
	}
	withheld := ""
	if len(st.Withheld) > 0 {
		why := "it is being found out which of them pods of other IPAMs have"
		switch {
		case s.foreign.Why != "":
			why = s.foreign.Why
		case len(s.foreign.Yields()) > 0:
			why = "another pool gives them: see the condition Overlapping"
		case len(s.foreign.Others) > 0:
			why = "another IPAM may give them: see the condition ForeignIPAM"
		case len(s.foreign.Conflicts) > 0:
			why = "pods of other IPAMs have them, and they lie in blocks of nodes that do not answer: see the condition TwoOwners"
		}
		withheld = fmt.Sprintf("some addresses are not given yet (%s): %s", strings.Join(few(st.Withheld, "ranges"), ", "), why)
	}
	s.flag(st, v1alpha1.PoolWithheld, v1alpha1.ReasonNotLookedAt, withheld)
}

// tellForeign fills in the conditions about other IPAMs.
func (s seen) tellForeign(st *v1alpha1.IPPoolStatus) {
	if s.foreign == nil {
		return
	}
	v := *s.foreign
	if v.Of != "" { // else nothing is known yet of others
		s.flag(st, v1alpha1.PoolForeignIPAM, "OtherDefinitions", othersText(s.pool, v, st.Leasing))
	}
	var kept []string
	reason := "OldPods"
	if s.tally.foreign > 0 {
		kept = append(kept, fmt.Sprintf("addresses that are kept for pods to which another IPAM has given them: %d. Each comes free when its pod is gone", s.tally.foreign))
	}
	if len(v.Held) > 0 {
		reason = "NodesCannotTell"
		kept = append(kept, "some stay kept although no pod is said to have them any more, since an agent cannot read all that pods have: "+foreign.Unread(protocol.PoolName(s.pool.Name), v.Held))
	}
	if len(v.NoAgent) > 0 {
		reason = "NodesCannotTell"
		kept = append(kept, fmt.Sprintf("some stay kept although no pod is said to have them any more, since no agent answers on nodes %s. Have tenured run there; "+
			"or, if a node is gone for good, delete its Node (kubectl tenure release-node first gives back what it holds)", foreign.Few(v.NoAgent)))
	}
	if len(v.PassedOver) > 0 {
		reason = "NodesPassedOver"
		kept = append(kept, fmt.Sprintf("nodes %s were not waited for: their agents beat, and do not say what their pods have by another IPAM, which may be given to others. "+
			"See what tenured logs there", foreign.Few(v.PassedOver)))
	}
	s.flag(st, v1alpha1.PoolForeignAddresses, reason, strings.Join(kept, "; "))
}

// tellTwoOwners fills in the condition about addresses that two have: somebody by the pool, and
// somebody else.
func (s seen) tellTwoOwners(st *v1alpha1.IPPoolStatus) {
	var reason string
	var sentences []string
	add := func(why string, found []string, remedy string) {
		if len(found) == 0 {
			return
		}
		reason = cmp.Or(reason, why)
		sentences = append(sentences, few(found, "addresses")...)
		if remedy != "" {
			sentences = append(sentences, remedy)
		}
	}
	if s.foreign != nil {
		var conflicts []string
		for _, c := range s.foreign.Conflicts {
			conflicts = append(conflicts, c.String())
		}
		add("OfTwoIPAMs", conflicts, "delete one of the pods of each: its new one gets another address; or, if host-local gave both and each node has a network of its own, write the definition for host-local again")
	}
	add(v1alpha1.ReasonPortTaken, s.stolen, "")
	add(v1alpha1.ReasonRouterTaken, s.routed, "delete the pod, or the claim, that has it: the next one gets another address; or name another gateway")
	s.flag(st, v1alpha1.PoolTwoOwners, reason, strings.Join(sentences, "; "))
}
