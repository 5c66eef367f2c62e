package protocol

import (
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
)

// A lease with addresses that come and go between its holder and the cluster, as
// its holder's store has it.
var (
	cedeA, cedeB = netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("10.0.0.5")
	cedeSelf     = Self{Node: "a", Store: "s", Term: 2}
)

func ceding() (Right, Object) {
	r := recordNamed(RightLease, "held")
	return r, Object{Meta: Meta{Name: r.Name, UID: "u1", Revision: "2"}, Protocol: Version, Node: "a", Store: "s", Term: 2, Writes: 2, Matches: true}
}

func answerTo(c Call, out Outcome, o Object) Event {
	return Event{Kind: EventAnswer, Call: c, Outcome: out, Object: o, Now: walkNow}
}

// What is ceded is noted before it is told, and told until an answer shows it.
func TestCedeIsDiskFirst(t *testing.T) {
	r, o := ceding()
	res := Step(r, cedeSelf, Event{Kind: EventCede, Addrs: []netip.Addr{cedeB, cedeA, cedeB}})
	if want := []netip.Addr{cedeA, cedeB}; !slices.Equal(res.Next.Ceded, want) || !slices.Equal(res.Next.CededNext(), want) || res.Call != CallFence {
		t.Fatalf("got %+v; want %v noted, and told by a fencing write", res, want)
	}
	o.Ceded = []netip.Addr{cedeA} // the read shows an earlier state
	res = Step(res.Next, cedeSelf, answerTo(CallRead, Done, o))
	if res.Call != CallFence {
		t.Errorf("got %+v; want the fencing write again: the lease does not say all that is ceded", res)
	}
}

// Only an answered write gives a ceded address back to its holder.
func TestTakeBackWaitsForItsAnswer(t *testing.T) {
	r, o := ceding()
	r.Ceded = []netip.Addr{cedeA, cedeB}
	res := Step(r, cedeSelf, Event{Kind: EventTakeBack, Addrs: []netip.Addr{cedeA}})
	if want := []netip.Addr{cedeB}; !slices.Equal(res.Next.CededNext(), want) || res.Call != CallFence {
		t.Fatalf("got %+v; want a fencing write that tells %v", res, want)
	}
	taking := res.Next
	if got := Step(taking, cedeSelf, answerTo(CallFence, Unknown, Object{})).Next; len(got.Ceded) != 2 {
		t.Errorf("a write without an answer gave %v back", cedeA)
	}
	o.Ceded = []netip.Addr{cedeB}
	if got := Step(taking, cedeSelf, answerTo(CallRead, Done, o)).Next; len(got.Ceded) != 2 {
		t.Errorf("a read gave %v back: the write that it shows may be followed by an older one's landing", cedeA)
	}
	done := Step(taking, cedeSelf, answerTo(CallFence, Done, o))
	if want := []netip.Addr{cedeB}; !slices.Equal(done.Next.Ceded, want) || len(done.Next.Taking) > 0 || done.Verdict != VerdictUsable {
		t.Errorf("got %+v; want %v ceded, and served", done, want)
	}
}

// TestTakesBackWhatIsInUse (I1): the restored data have ceded what was taken back since,
// and a pod has it: the write that says the lease again takes it back, unless it is granted.
func TestTakesBackWhatIsInUse(t *testing.T) {
	for _, granted := range []bool{false, true} {
		r, o := ceding()
		r.Asserted, r.Term = 1, 1
		o.Term, o.Ceded, o.Used = 1, []netip.Addr{cedeA, cedeB}, []netip.Addr{cedeA}
		want := []netip.Addr{cedeB}
		if granted {
			o.Grants, o.Granted, want = []netip.Addr{cedeA}, true, o.Ceded
		}
		res := Step(r, cedeSelf, answerTo(CallRead, Done, o))
		if res.Call != CallFence || !slices.Equal(res.Next.CededNext(), want) || !slices.Equal(res.Next.Ceded, o.Ceded) {
			t.Fatalf("granted %v: got %+v; want a fencing write that leaves %v ceded", granted, res, want)
		}
		o.Term, o.Ceded, o.Used = 2, want, nil
		if granted {
			o.Used = []netip.Addr{cedeA}
		}
		done := Step(res.Next, cedeSelf, answerTo(CallFence, Done, o))
		if !slices.Equal(done.Next.Ceded, want) || len(done.Next.Taking) > 0 {
			t.Errorf("granted %v: got %+v; want %v ceded", granted, done, want)
		}
	}
}

// A granted address is not taken back, whether the grant was known before or made
// the write miss.
func TestTakeBackNeverTakesWhatIsGranted(t *testing.T) {
	r, o := ceding()
	r.Ceded, r.Grants, r.Granted = []netip.Addr{cedeA, cedeB}, []netip.Addr{cedeA}, true
	if res := Step(r, cedeSelf, Event{Kind: EventTakeBack, Addrs: []netip.Addr{cedeA}}); res.Call != CallNone || res.Verdict != VerdictLater {
		t.Errorf("got %+v; want that nothing can be taken back", res)
	}
	r.Grants, r.Granted = nil, false
	res := Step(r, cedeSelf, Event{Kind: EventTakeBack, Addrs: []netip.Addr{cedeA, cedeB}})
	res = Step(res.Next, cedeSelf, answerTo(CallFence, Conflict, Object{}))
	o.Ceded, o.Grants, o.Granted = []netip.Addr{cedeA, cedeB}, []netip.Addr{cedeA}, true
	res = Step(res.Next, cedeSelf, answerTo(CallRead, Done, o))
	if want := []netip.Addr{cedeA}; res.Call != CallFence || !slices.Equal(res.Next.CededNext(), want) {
		t.Errorf("got %+v; want a fencing write that leaves %v ceded", res, want)
	}
}

// What is ceded while a write is under way is not undone by that write's answer.
func TestCedeDuringAWrite(t *testing.T) {
	r, o := ceding()
	res := Step(r, cedeSelf, Event{Kind: EventCede, Addrs: []netip.Addr{cedeA}})
	more := res.Next
	more.Ceded = []netip.Addr{cedeA, cedeB}
	o.Ceded = []netip.Addr{cedeA}
	res = Step(more, cedeSelf, answerTo(CallFence, Done, o))
	if len(res.Next.Ceded) != 2 || res.Call != CallFence {
		t.Errorf("got %+v; want both ceded, and the second one told", res)
	}
}

// A lease that had vanished waits for a closed pool; a new one is refused.
func TestConfirmationOfAVanishedLease(t *testing.T) {
	r, _ := ceding()
	pool := Pool{Meta: Meta{Name: "lan", UID: r.PoolUID}, Bits4: 26, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(r.Block)}}
	fresh := r
	fresh.Phase = Noted
	last := netipx.PrefixLastIP(r.Block)
	part := []netipx.IPRange{netipx.IPRangeFrom(last, last.Next())}
	elsewhere := []netipx.IPRange{netipx.IPRangeFrom(last.Next(), last.Next())}
	for _, tt := range []struct {
		name    string
		r       Right
		change  func(*Pool)
		outcome Outcome
		want    Outcome
	}{
		{"held, open", r, func(p *Pool) { p.Open = true }, Done, Done},
		{"held, closed", r, func(*Pool) {}, Done, Unknown},
		{"new, closed", fresh, func(*Pool) {}, Done, Refused},
		{"new, edited and not looked at", fresh, func(p *Pool) { p.Open, p.Edited = true, true }, Done, Unknown},
		{"held, edited and not looked at", r, func(p *Pool) { p.Open, p.Edited = true, true }, Done, Unknown},
		{"held, its addresses another pool's by now", r, func(p *Pool) { p.Open, p.Ranges = true, elsewhere }, Done, Refused},
		{"new, its addresses another pool's by now", fresh, func(p *Pool) { p.Open, p.Ranges = true, elsewhere }, Done, Refused},
		{"held, in part of the pool", r, func(p *Pool) { p.Open, p.Ranges = true, part }, Done, Done},
		{"new, edited and deleted", fresh, func(p *Pool) { p.Open, p.Edited, p.Deleting = true, true, true }, Done, Refused},
		{"held, being deleted", r, func(p *Pool) { p.Deleting = true }, Done, Refused},
		{"held, another pool of that name", r, func(p *Pool) { p.UID = "other" }, Done, Refused},
		{"held, other blocks", r, func(p *Pool) { p.Open, p.Bits4 = true, 28 }, Done, Refused},
		{"held, closed, other blocks", r, func(p *Pool) { p.Bits4 = 28 }, Done, Refused},
		{"held, no pool", r, func(p *Pool) { *p = Pool{} }, NotFound, Refused},
	} {
		p := pool
		tt.change(&p)
		if got, why := Confirmation(tt.r, p, tt.outcome); got != tt.want || (why == "") != (got == Done) {
			t.Errorf("%s: got %v, %q; want %v", tt.name, got, why, tt.want)
		}
	}
}

// A request has what its answer says, or the reason why not.
func TestConfirmRequest(t *testing.T) {
	had := Right{Kind: RightRequest, Name: "r", SubLeaseRight: SubLeaseRight{Addrs: []netip.Addr{cedeA}}}
	for _, tt := range []struct {
		name     string
		r        Right
		restored bool
		want     Outcome
	}{
		{"not answered", Right{}, false, Unknown},
		{"not answered, while pools are closed", Right{}, true, Unknown},
		{"not answered any more, while pools are closed", had, true, Unknown},
		{"not answered any more", had, false, Refused},
	} {
		if _, _, out, why := ConfirmRequest(tt.r, SubLease{}, tt.restored); out != tt.want || why == "" {
			t.Errorf("%s: got %v, %q; want %v, and why", tt.name, out, why, tt.want)
		}
	}
	if _, _, out, why := ConfirmRequest(had, SubLease{Refused: &Refusal{Reason: "InUse", Message: "10.0.0.4 is taken"}}, false); out != Refused || why != "10.0.0.4 is taken" {
		t.Errorf("refused: got %v, %q", out, why)
	}
	addrs, leases, out, _ := ConfirmRequest(Right{}, SubLease{Granted: []Granted{{cedeB, "l1"}, {cedeA, "l0"}}}, false)
	if out != Done || !slices.Equal(addrs, []netip.Addr{cedeB, cedeA}) || !slices.Equal(leases, []string{"l1", "l0"}) {
		t.Errorf("granted: got %v of %v, %v; want what was wanted, in that order", addrs, leases, out)
	}
}

// Another answer than before is not believed: the status is written once.
func TestRequestKeepsItsAnswer(t *testing.T) {
	r := recordNamed(RightRequest, "held, old term")
	r.Addrs = []netip.Addr{cedeA}
	ev := answerTo(CallConfirm, Done, Object{})
	ev.Addrs = []netip.Addr{cedeB}
	if res := Step(r, cedeSelf, ev); res.Next.Phase != Lost || res.Verdict != VerdictTaken {
		t.Errorf("got %+v; want it lost", res)
	}
}

// A thawed lease with grants on it cannot be given back: it becomes this store's,
// and serves after a confirmation.
func TestThawedLeaseWithGrantsIsAdopted(t *testing.T) {
	r := recordNamed(RightLease, "frozen")
	r.Granted, r.Grants, r.Ceded = true, []netip.Addr{cedeA}, []netip.Addr{cedeA}
	_, o := ceding()
	o.Granted, o.Grants, o.Ceded, o.Store = true, r.Grants, r.Ceded, lostStore
	res := Step(r, cedeSelf, Event{Kind: EventLetGo, Now: walkNow})
	for _, ev := range []Event{answerTo(CallRead, Done, o), answerTo(CallFence, Done, func() Object { p := o; p.Store = "s"; return p }()), answerTo(CallConfirm, Done, Object{})} {
		if res.Call != ev.Call {
			t.Fatalf("got %+v; want the call %v", res, ev.Call)
		}
		res = Step(res.Next, cedeSelf, ev)
	}
	if !res.Next.Usable(2) || res.Next.Store != "" || !slices.Equal(res.Next.Ceded, r.Ceded) {
		t.Errorf("got %+v; want it served, this store's own, with the same addresses ceded", res.Next)
	}
}
