package claims

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func fresh() claim {
	return claim{key: grants.ClaimKey{Namespace: "ns", Name: "vm.lan"}, uid: "u1", revision: "10", generation: 1, network: "lan"}
}

// shows is a claim whose status has these addresses.
func shows(ips ...string) claim {
	c := fresh()
	c.ips = ips
	return c
}

// with adds the condition IPsAllocated.
func (c claim) with(status metav1.ConditionStatus, reason, message string) claim {
	c.conditions = []metav1.Condition{{Type: kube.ConditionIPsAllocated, Status: status, Reason: reason, Message: message}}
	return c
}

func (c claim) happy() claim {
	return c.with(metav1.ConditionTrue, ReasonAllocated, "addresses are allocated")
}

func held(addrs ...string) []grants.Held {
	var out []grants.Held
	for _, a := range addrs {
		text, freeing := strings.CutSuffix(a, "!")
		addr := netip.MustParseAddr(text)
		out = append(out, grants.Held{
			Pool: "p", Block: netip.PrefixFrom(addr, addr.BitLen()),
			Grant: protocol.Grant{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "u1"}, Freeing: freeing},
		})
	}
	return out
}

func known(sources ...poolspec.Source) *networks.Resolution {
	if len(sources) == 0 {
		sources = []poolspec.Source{{Pool: "p"}}
	}
	return &networks.Resolution{Verdict: networks.Known, Network: networks.Network{Sources: sources}}
}

func verdict(v networks.Verdict) *networks.Resolution {
	return &networks.Resolution{Verdict: v, Message: "because"}
}

func granted(stamp protocol.Revision, cidrs ...string) *grants.Answer {
	a := &grants.Answer{Stamp: stamp}
	for _, c := range cidrs {
		p := netip.MustParsePrefix(c)
		a.Granted = append(a.Granted, grants.Granted{Addr: p.Addr(), Range: allocator.Range{Prefix: p.Masked()}})
	}
	return a
}

func waits(r grants.Reason, since time.Time) *grants.Answer {
	return &grants.Answer{Problem: grants.Problem{Reason: r, Message: "no room", Since: since}}
}

// in tells a plan in a few words.
func (p plan) in() string {
	var words []string
	say := func(on bool, word string) {
		if on {
			words = append(words, word)
		}
	}
	say(p.resolve, "resolve")
	say(p.admit, "admit")
	say(p.readMachine, "read machine")
	say(p.withdraw, "withdraw")
	say(p.verify != nil, "verify")
	if p.ask != nil {
		say(len(p.ask.Exactly) == 0 && len(p.ask.Requested) == 0, "ask")
		say(len(p.ask.Requested) > 0, "ask with "+join(p.ask.Requested))
		say(len(p.ask.Exactly) > 0, "ask for "+join(p.ask.Exactly))
	}
	say(len(p.unmark) > 0, "unmark "+join(addrsOf(p.unmark)))
	say(len(p.giveBack) > 0, "give back "+join(addrsOf(p.giveBack)))
	if p.status != nil {
		c := seen{claim: claim{conditions: p.status.conditions}}.condition()
		words = append(words, "write "+c.Reason+" ["+strings.Join(p.status.ips, " ")+"]")
		if c := meta.FindStatusCondition(p.status.conditions, ConditionRequestedIPs); c != nil {
			words = append(words, "requested "+c.Reason)
		}
		say(p.status.ownerPod != "", "owner "+p.status.ownerPod)
		say(p.status.news != nil, "event")
	}
	say(len(p.free) > 0, "free "+join(addrsOf(p.free)))
	say(p.tellUndefined, "tell that its network is undefined")
	say(p.after > 0, "after "+p.after.String())
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func TestDecide(t *testing.T) {
	deleting := func(c claim) claim { c.deleting = true; return c }
	owned := func(c claim, pod string) claim { c.ownerPod = pod; return c }
	machines := func(c claim) claim { c.machine = "vm"; return c }
	requests := func(c claim, text string) claim { c.requested = text; return c }
	pods := func(names ...string) (out []use) {
		for i, name := range names {
			out = append(out, use{pod: name, created: noon.Add(time.Duration(i) * time.Second), name: "u1." + string(rune('0'+i))})
		}
		return out
	}
	since := func(age time.Duration) claim {
		c := fresh()
		c.created = noon.Add(-age)
		return c
	}
	undefined := &networks.Resolution{Undefined: true}
	tests := []struct {
		name string
		seen seen
		want string
	}{
		// A claim without addresses.
		{"new", seen{claim: fresh()}, "resolve"},
		{"no definition has the network", seen{claim: since(silence), network: undefined}, "withdraw, tell that its network is undefined, after 30m0s"},
		{"none has it yet", seen{claim: since(silence - time.Minute), network: undefined}, "withdraw, after 1m0s"},
		{"none has it, and another IPAM has written", seen{claim: since(silence).with(metav1.ConditionFalse, "Theirs", ""), network: undefined}, "withdraw"},
		{"one has it, which is another IPAM's", seen{claim: since(silence), network: verdict(networks.Unknown)}, "withdraw"},
		{"network unknown, or another IPAM's", seen{claim: fresh(), network: verdict(networks.Unknown)}, "withdraw"},
		{"network ambiguous", seen{claim: fresh(), network: verdict(networks.Ambiguous)}, "withdraw, write NetworkAmbiguous [], event"},
		{"network faulty", seen{claim: fresh(), network: verdict(networks.Faulty)}, "withdraw, write NetworkFaulty [], event"},
		{"network still ambiguous", seen{claim: fresh().with(metav1.ConditionFalse, ReasonNetworkAmbiguous, "because"), network: verdict(networks.Ambiguous)}, "withdraw"},
		{"network known", seen{claim: fresh(), network: known()}, "ask"},
		{"addresses requested", seen{claim: requests(fresh(), "fd00::7/64, 10.0.0.5"), network: known()}, "ask with fd00::7, 10.0.0.5"},
		{"ten thousand addresses requested", seen{claim: requests(fresh(), manyAddresses(10_000)), network: known()}, "withdraw, write RequestedIPsInvalid [], event"},
		{"an address requested twice", seen{claim: requests(fresh(), "10.0.0.5,10.0.0.5/24"), network: known()}, "withdraw, write RequestedIPsInvalid [], event"},
		{"no address requested", seen{claim: requests(fresh(), "10.0.0.5,lan"), network: known()}, "withdraw, write RequestedIPsInvalid [], event"},
		{"a requested address is another's", seen{claim: requests(fresh(), "10.0.0.5"), network: known(), answer: waits(grants.Taken, noon)},
			"write RequestedIPsTaken [], event"},
		{"a requested address is a gateway", seen{claim: requests(fresh(), "10.0.0.1"), network: known(), answer: waits(grants.Unassignable, noon)},
			"write RequestedIPsInvalid [], event"},
		{"a request granted", seen{claim: requests(fresh(), "10.0.0.5"), network: known(), answer: granted("10", "10.0.0.5/24"), held: held("10.0.0.5")},
			"write SuccessfulAllocation [10.0.0.5/24], requested Honoured"},
		{"a request that came too late", seen{claim: requests(shows("10.0.0.5/24").with(metav1.ConditionTrue, ReasonAllocated, "addresses are allocated"), "10.0.0.6"), held: held("10.0.0.5")},
			"write SuccessfulAllocation [10.0.0.5/24], requested Differs"},
		{"a status that was emptied, of a claim that asks for others since", seen{claim: machines(requests(fresh().happy(), "10.0.0.9")), network: known(), held: held("10.0.0.5")}, "ask"},
		{"an address asked for that somebody frees", seen{claim: requests(fresh(), "10.0.0.5"), network: known(), answer: granted("10", "10.0.0.5/24"), held: held("10.0.0.5!")},
			"unmark 10.0.0.5, write SuccessfulAllocation [10.0.0.5/24], requested Honoured"},
		{"one address of two, of which the other is another's", seen{claim: requests(fresh(), "10.0.0.5,fd00::5"), network: known(), answer: waits(grants.Taken, noon), held: held("10.0.0.5")},
			"give back 10.0.0.5, write RequestedIPsTaken [], event"},
		{"a machine's claim", seen{claim: machines(fresh()), network: known()}, "read machine"},
		{"a machine that asks for nothing", seen{claim: machines(fresh()), network: known(), byMachine: &request{}}, "ask"},
		{"a machine that asks", seen{claim: machines(fresh()), network: known(), byMachine: &request{text: "10.0.0.7/24"}}, "ask with 10.0.0.7"},
		{"a machine that cannot be understood", seen{claim: machines(fresh()), network: known(), byMachine: &request{fault: kube.ErrMachineAddresses}},
			"withdraw, write RequestedIPsInvalid [], event, after 30s"},
		{"being granted", seen{claim: fresh(), network: known(), answer: &grants.Answer{}}, "nothing"},
		{"granted", seen{claim: fresh(), network: known(), answer: granted("10", "10.0.0.5/24", "fd00::5/64"), held: held("10.0.0.5", "fd00::5")},
			"write SuccessfulAllocation [10.0.0.5/24 fd00::5/64]"},
		{"granted before a crash", seen{claim: fresh(), network: known(), answer: granted("", "10.0.0.5/24"), held: held("10.0.0.5")}, "verify"},
		{"granted for an older version of the claim", seen{claim: fresh(), network: known(), answer: granted("9", "10.0.0.5/24"), held: held("10.0.0.5")}, "verify"},
		{"verified", seen{claim: fresh(), network: known(), answer: granted("10", "10.0.0.5/24"), held: held("10.0.0.5")},
			"write SuccessfulAllocation [10.0.0.5/24]"},
		{"granted after a failure", seen{claim: fresh().with(metav1.ConditionFalse, ReasonExhausted, "no room"), network: known(), answer: granted("10", "10.0.0.5/24")},
			"write SuccessfulAllocation [10.0.0.5/24], event"},
		{"in use already", seen{claim: fresh(), network: known(), answer: granted("10", "10.0.0.5/24"), uses: pods("a")},
			"write SuccessfulAllocation [10.0.0.5/24], owner a"},
		{"exhausted", seen{claim: fresh(), network: known(), answer: waits(grants.Exhausted, noon)}, "write SubnetExhausted [], event"},
		{"still exhausted", seen{claim: fresh().with(metav1.ConditionFalse, ReasonExhausted, "no room"), network: known(), answer: waits(grants.Exhausted, noon)}, "nothing"},
		{"exhausted in other words", seen{claim: fresh().with(metav1.ConditionFalse, ReasonExhausted, "full"), network: known(), answer: waits(grants.Exhausted, noon)},
			"write SubnetExhausted []"},
		{"exhausted, and part of it granted", seen{claim: fresh(), network: known(), answer: waits(grants.Exhausted, noon), held: held("fd00::5")},
			"give back fd00::5, write SubnetExhausted [], event"},
		{"exhausted, and a pod uses the part that is granted", seen{claim: fresh(), network: known(), answer: waits(grants.Exhausted, noon), held: held("fd00::5"), uses: pods("a")},
			"write SubnetExhausted [], event, after 10s"},
		{"pool missing for a moment", seen{claim: fresh(), network: known(), answer: waits(grants.PoolMissing, noon.Add(-time.Second))}, "after 2s"},
		{"pool missing", seen{claim: fresh(), network: known(), answer: waits(grants.PoolMissing, noon.Add(-time.Minute))}, "write PoolNotFound [], event"},
		{"pool closed", seen{claim: fresh(), network: known(), answer: waits(grants.PoolNotReady, noon.Add(-time.Minute))}, "write PoolNotReady [], event"},
		{"pool closed, over part of what it wants", seen{claim: fresh(), network: known(),
			answer: waits(grants.PoolNotReady, noon.Add(-time.Minute)), held: held("10.0.0.5")}, "write PoolNotReady [], event"},
		{"pool closed, over all that was granted (the status was emptied)", seen{claim: fresh().happy(), network: known(),
			answer: waits(grants.PoolNotReady, noon.Add(-time.Minute)), held: held("10.0.0.5")}, "write IPAddressConflict [], event"},
		{"calls fail", seen{claim: fresh(), network: known(), answer: waits(grants.Failed, noon.Add(-time.Minute))}, "write InternalError [], event"},
		{"being deleted", seen{claim: deleting(fresh())}, "withdraw"},

		// A claim that has its addresses.
		{"agreed", seen{claim: shows("10.0.0.5/24").happy(), held: held("10.0.0.5")}, "nothing"},
		{"agreed, the definition is gone", seen{claim: shows("10.0.0.5/24").happy(), held: held("10.0.0.5"), network: verdict(networks.Unknown)}, "nothing"},
		{"agreed, being deleted", seen{claim: deleting(shows("10.0.0.5/24").happy()), held: held("10.0.0.5")}, "nothing"},
		{"agreed, condition lost", seen{claim: shows("10.0.0.5/24"), held: held("10.0.0.5")}, "write SuccessfulAllocation [10.0.0.5/24]"},
		{"agreed after a conflict", seen{claim: shows("10.0.0.5/24").with(metav1.ConditionFalse, ReasonConflict, "x"), held: held("10.0.0.5")},
			"write SuccessfulAllocation [10.0.0.5/24], event"},
		{"a pod comes", seen{claim: shows("10.0.0.5/24").happy(), held: held("10.0.0.5"), uses: pods("a")}, "write SuccessfulAllocation [10.0.0.5/24], owner a"},
		{"migration: the newer pod", seen{claim: owned(shows("10.0.0.5/24").happy(), "a"), held: held("10.0.0.5"), uses: pods("a", "b")},
			"write SuccessfulAllocation [10.0.0.5/24], owner b"},
		{"migration failed: the older pod", seen{claim: owned(shows("10.0.0.5/24").happy(), "b"), held: held("10.0.0.5"), uses: pods("a")},
			"write SuccessfulAllocation [10.0.0.5/24], owner a"},
		{"the last pod goes", seen{claim: owned(shows("10.0.0.5/24").happy(), "a"), held: held("10.0.0.5")}, "write SuccessfulAllocation [10.0.0.5/24]"},
		{"two controllers granted", seen{claim: shows("10.0.0.5/24").happy(), held: held("10.0.0.5", "10.0.0.6")}, "free 10.0.0.6"},
		{"marked, but named", seen{claim: shows("10.0.0.5/24").happy(), held: held("10.0.0.5!")}, "unmark 10.0.0.5"},

		// A status that disagrees with the leases.
		{"N87 another implementation's claim", seen{claim: shows("192.168.0.5/24"), network: verdict(networks.Unknown)}, "withdraw"},
		{"written by hand, or restored", seen{claim: shows("10.0.0.7/24"), network: known()}, "ask for 10.0.0.7"},
		{"restored", seen{claim: shows("10.0.0.7/24"), network: known(), answer: granted("", "10.0.0.7/24"), held: held("10.0.0.7")},
			"write SuccessfulAllocation [10.0.0.7/24]"},
		{"outside the pool", seen{claim: shows("192.168.0.5/24"), network: known(), answer: waits(grants.Unassignable, noon)},
			"write IPAddressConflict [192.168.0.5/24], event"},
		{"another claim's", seen{claim: shows("10.0.0.7/24"), network: known(), answer: waits(grants.Taken, noon)}, "write IPAddressConflict [10.0.0.7/24], event"},
		{"another than granted", seen{claim: shows("10.0.0.7/24").happy(), held: held("10.0.0.5"), network: known()}, "withdraw, write IPAddressConflict [10.0.0.7/24], event"},
		{"part of it was lost", seen{claim: shows("10.0.0.7/24", "fd00::7/64").happy(), held: held("10.0.0.7"), network: known()}, "ask for 10.0.0.7, fd00::7"},
		{"no address", seen{claim: shows("many"), network: known()}, "withdraw, write IPAddressConflict [many], event"},
		{"no address, nobody's network", seen{claim: shows("many"), network: verdict(networks.Unknown)}, "withdraw"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.seen.network == nil && tt.want != "resolve" && len(tt.seen.claim.ips) == 0 && !tt.seen.claim.deleting {
				t.Fatal("the case says nothing about the network")
			}
			tt.seen.now = noon
			if tt.seen.network != nil { // who may use the pool is the matter of TestAdmission
				tt.seen.admission = &admission{}
			}
			if got := decide(tt.seen).in(); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

// TestWhoAsks: the machine that owns a claim is asked, unless the claim asks itself, or has
// addresses.
func TestWhoAsks(t *testing.T) {
	owner := []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "vm", UID: "u"}}
	asks := map[string]string{workload.AnnotationRequested: "10.0.0.5"}
	for name, tt := range map[string]struct {
		claim ipamclaims.IPAMClaim
		want  string
	}{
		"a machine's":                 {ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner}}, "vm"},
		"nobody's":                    {ipamclaims.IPAMClaim{}, ""},
		"a machine's that asks":       {ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner, Annotations: asks}}, ""},
		"a machine's, with addresses": {ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner}, Status: ipamclaims.IPAMClaimStatus{IPs: []string{"10.0.0.5/24"}}}, ""},
	} {
		if got := read(&tt.claim).machine; got != tt.want {
			t.Errorf("%s: %q is asked; want %q", name, got, tt.want)
		}
	}
}

func TestFence(t *testing.T) {
	s := seen{claim: fresh(), network: known(), admission: &admission{}, answer: waits(grants.Exhausted, noon), held: held("fd00::5"), now: noon}
	for range 4 {
		p := decide(s)
		if p.status == nil {
			t.Fatalf("status %v is not written again", s.claim.conditions)
		}
		before := s.condition()
		s.claim.conditions = p.status.conditions
		if after := s.condition(); before != nil && before.Message == after.Message {
			t.Errorf("the status is the same: %q", after.Message)
		}
	}
}

// TestGivingBackWaitsForPods shows that what a pod uses is not given back, which is said
// once: a write for each look, and a look for each write, would have no end.
func TestGivingBackWaitsForPods(t *testing.T) {
	denied := &admission{err: &access.DeniedError{Namespace: "ns", Pool: "p", Rule: "a rule"}}
	for _, tt := range []struct {
		name  string
		claim claim
		asked *admission
		again string
	}{
		{"exhausted", fresh().happy(), &admission{}, "after 10s"},
		{"denied", fresh().with(metav1.ConditionFalse, ReasonPoolNotAllowed, "x"), denied, "withdraw, after 10s"},
	} {
		s := seen{claim: tt.claim, network: known(), admission: tt.asked, answer: waits(grants.Exhausted, noon), held: held("fd00::5"), uses: []use{{pod: "a"}}, now: noon}
		first := decide(s)
		if first.status == nil || len(first.giveBack) > 0 {
			t.Fatalf("%s: got %s; want it said, and nothing given back", tt.name, first.in())
		}
		s.claim.conditions = first.status.conditions
		if got := decide(s).in(); got != tt.again {
			t.Errorf("%s, when it was said: got %s; want %s", tt.name, got, tt.again)
		}
		s.uses = nil
		if got := decide(s); len(got.giveBack) == 0 {
			t.Errorf("%s, when the pod is gone: got %s; want it given back", tt.name, got.in())
		}
	}
}

func TestAskOrder(t *testing.T) {
	six, four := poolspec.Source{Pool: "six", Families: []allocator.Family{allocator.IPv6}}, poolspec.Source{Pool: "four"}
	s := seen{claim: fresh(), network: known(six, four)}
	got := s.ask(nil, nil)
	if got.To.UID != "u1" || got.To.Name != "vm.lan" || got.Stamp != "10" || len(got.From) != 2 || got.From[0].Pool != "six" {
		t.Errorf("ask %+v; want one for claim u1 at revision 10, of pools six and four", got)
	}
}

// TestPrefixOfTheNetworksOwnRange writes the length that the pod will have, which
// may be another than the pool's.
func TestPrefixOfTheNetworksOwnRange(t *testing.T) {
	n := networks.Read("ns", "lan", noon, `{"name":"lan","type":"bridge","ipam":{"type":"tenure","range":"10.0.0.0/25"}}`)
	s := seen{claim: fresh(), network: &networks.Resolution{Verdict: networks.Known, Network: n}}
	got := s.cidrs([]grants.Granted{{Addr: netip.MustParseAddr("10.0.0.5"), Range: allocator.Range{Prefix: netip.MustParsePrefix("10.0.0.0/24")}}})
	if len(got) != 1 || got[0] != "10.0.0.5/25" {
		t.Errorf("got %v; want 10.0.0.5/25", got)
	}
}

func TestPatch(t *testing.T) {
	ready := []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue, Reason: "X"}}
	tests := []struct {
		name   string
		claim  claim
		status status
		want   string
	}{
		{"ips is never null", fresh(), status{conditions: ready},
			`{"metadata":{"resourceVersion":"10","uid":"u1"},"status":{"conditions":[{"type":"Other","status":"True","lastTransitionTime":null,"reason":"X","message":""}],"ips":[],"ownerPod":null}}`},
		{"ips are written", fresh(), status{ips: []string{"10.0.0.5/24"}, ownerPod: "a"},
			`{"metadata":{"resourceVersion":"10","uid":"u1"},"status":{"conditions":null,"ips":["10.0.0.5/24"],"ownerPod":{"name":"a"}}}`},
		{"N87 ips are never overwritten", shows("10.0.0.9/24"), status{ips: []string{"10.0.0.5/24"}},
			`{"metadata":{"resourceVersion":"10","uid":"u1"},"status":{"conditions":null,"ownerPod":null}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patch, err := tt.status.patch(tt.claim)
			if err != nil {
				t.Fatal(err)
			}
			got, err := patch.Data(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid(got) || string(got) != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

// manyAddresses is a request for so many addresses.
func manyAddresses(n int) string {
	var all []string
	for a := netip.MustParseAddr("fd00::1"); len(all) < n; a = a.Next() {
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}
