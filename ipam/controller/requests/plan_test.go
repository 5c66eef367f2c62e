package requests

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// asks is a request that has not been answered, for one address of each of these
// ranges.
func asks(ranges ...string) protocol.SubLease {
	s := protocol.SubLease{
		Meta: protocol.Meta{Name: "r", UID: "u1", Revision: "10"}, Protocol: protocol.Version, Node: "n1", Term: 1,
		Request: &protocol.Request{Pod: protocol.PodRef{Namespace: "ns", Name: "p"}, Interface: "net1"},
	}
	for _, r := range ranges {
		s.Request.Wants = append(s.Request.Wants, protocol.Wanted{Pool: "lan", Ranges: strings.Split(r, ",")})
	}
	return s
}

const anyV4 = "10.0.0.1-10.0.0.9"

// grantedTo is a request whose status names these addresses.
func grantedTo(addrs ...string) protocol.SubLease {
	s := asks(anyV4)
	for _, a := range addrs {
		s.Granted = append(s.Granted, protocol.Granted{Addr: netip.MustParseAddr(a), Lease: leaseOf(held(a)[0])})
	}
	return s
}

// held are grants; one that ends in "!" is marked.
func held(addrs ...string) []grants.Held {
	var out []grants.Held
	for _, a := range addrs {
		text, freeing := strings.CutSuffix(a, "!")
		addr := netip.MustParseAddr(text)
		out = append(out, grants.Held{
			Pool: "lan", Block: netip.PrefixFrom(addr, addr.BitLen()),
			Grant: protocol.Grant{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: "u1", Name: "r"}, Freeing: freeing},
		})
	}
	return out
}

// gave is the broker's answer that these were granted, to one want after the other.
func gave(stamp protocol.Revision, addrs ...string) *grants.Answer {
	a := &grants.Answer{Stamp: stamp}
	for i, text := range addrs {
		a.Granted = append(a.Granted, grants.Granted{Addr: netip.MustParseAddr(text), Source: i})
	}
	return a
}

func problem(r grants.Reason) *grants.Answer {
	return &grants.Answer{Problem: grants.Problem{Reason: r, Message: "words", Addr: netip.MustParseAddr("10.0.0.5"), Lease: "lan.0a000004.30"}}
}

func deleting(s protocol.SubLease) protocol.SubLease {
	s.Deleting = true
	return s
}

// has is a lease of a node's that has ceded some addresses and granted one to
// somebody, and what it has published.
func has(holder protocol.Holder, to *protocol.Grant, ceded ...string) *taken {
	t := &taken{there: true, lease: protocol.Lease{
		Pool: "lan", Block: netip.MustParsePrefix("10.0.0.4/30"), Holder: holder,
		Published: protocol.Publication{Allocations: []string{"10.0.0.50 ns/other net1", "10.0.0.5 ns/mary net1"}},
	}}
	if to != nil {
		t.lease.Grants = []protocol.Grant{*to}
	}
	for _, c := range ceded {
		t.lease.Ceded = append(t.lease.Ceded, netip.MustParseAddr(c))
	}
	return t
}

func to(uid protocol.UID, freeing bool) *protocol.Grant {
	return &protocol.Grant{
		Addr: netip.MustParseAddr("10.0.0.5"), Freeing: freeing,
		To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: uid, Namespace: "ns", Name: "vm"},
	}
}

// text says what a plan is.
func text(p plan) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	list := func(what string, hh []grants.Held) {
		for _, h := range hh {
			add("%s %v", what, h.Grant.Addr)
		}
	}
	if p.ask != nil {
		add("ask")
		for _, src := range p.ask.From {
			if src.Addr.IsValid() {
				add("for %v", src.Addr)
			} else {
				add("for %v", src.View)
			}
		}
	}
	if p.prove != nil {
		add("verify the ask at %s", p.prove.Stamp)
	}
	if len(p.verify) > 0 {
		add("verify %s", strings.Join(p.verify, " "))
	}
	if p.live {
		add("read live")
	}
	if p.taken != nil {
		add("read %s", p.taken.Lease)
	}
	if a := p.answer; a != nil {
		for _, g := range a.Granted {
			add("grant %v", g.Addr)
		}
		if a.Refused != nil {
			add("refuse %s: %s", a.Refused.Reason, a.Refused.Message)
		}
	}
	list("give back", p.giveBack)
	list("drop", p.drop)
	list("unmark", p.unmark)
	if p.done {
		add("done")
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	const v6 = "fd00::1-fd00::9"
	later, use := asks(anyV4), asks(anyV4)
	later.Protocol++
	use.Request, use.Use = nil, &protocol.Use{}
	refused := asks(anyV4)
	refused.Refused = &protocol.Refusal{Reason: "InUse"}
	lasting := problem(grants.PoolNotReady)
	lasting.Problem.Lasting = true
	node, cluster := protocol.Holder{Node: "n2"}, protocol.Holder{Cluster: true}
	named := asks("10.0.0.5-10.0.0.5")
	onSubLease := has(node, to("u2", false))
	onSubLease.pod, onSubLease.node = protocol.PodRef{Namespace: "ns", Name: "joe"}, "n3"

	rolled := asks("10.0.0.5-10.0.0.5")
	rolled.Request.Pod = protocol.PodRef{Namespace: "ns", Name: "web-7d4b8-abcde", Owner: protocol.OwnerRef{Kind: "ReplicaSet", Name: "web-7d4b8"}}
	byOld := has(node, nil)
	byOld.lease.Published.Allocations = []string{"10.0.0.5 ns/web-6f9c5-abcde net1"}

	tests := []struct {
		name string
		seen seen
		want string
	}{
		{"new", seen{sub: asks(anyV4, v6)}, "ask, for 10.0.0.1-10.0.0.9, for fd00::1-fd00::9"},
		{"one address", seen{sub: named}, "ask, for 10.0.0.5"},
		{"several ranges", seen{sub: asks("10.0.0.1-10.0.0.2,10.0.0.5-10.0.0.5")}, "ask, for 10.0.0.1-10.0.0.2,10.0.0.5-10.0.0.5"},
		{"both families in one want", seen{sub: asks(anyV4 + "," + v6)}, "refuse NotAssignable: pool lan: one want has ranges of both families"},
		{"no range", seen{sub: asks("")}, `refuse NotAssignable: pool lan: "" is not a range of addresses`},
		{"upside down", seen{sub: asks("10.0.0.9-10.0.0.1")}, `refuse NotAssignable: pool lan: "10.0.0.9-10.0.0.1" is not a range of addresses of one family, the lower first`},
		{"of a later version", seen{sub: later}, ""},
		{"a use", seen{sub: use}, ""},
		{"being deleted", seen{sub: deleting(asks(anyV4)), held: held("10.0.0.1")}, "done"},

		{"granted", seen{sub: asks(anyV4), answer: gave("10", "10.0.0.1"), held: held("10.0.0.1")}, "grant 10.0.0.1"},
		{"granted in the order of the wants", seen{sub: asks(v6, anyV4), answer: gave("10", "fd00::1", "10.0.0.1"), held: held("10.0.0.1", "fd00::1")},
			"grant fd00::1, grant 10.0.0.1"},
		{"granted before this version was read", seen{sub: asks(anyV4), answer: gave("9", "10.0.0.1"), held: held("10.0.0.1")}, "verify the ask at 10"},
		{"granted, and nobody knows since when", seen{sub: asks(anyV4), answer: gave("", "10.0.0.1"), held: held("10.0.0.1")}, "verify the ask at 10"},
		{"granted, and gone since", seen{sub: asks(anyV4), answer: gave("10", "10.0.0.1")}, ""},

		{"being worked on", seen{sub: asks(anyV4), answer: problem(grants.NoProblem)}, ""},
		{"the pool may come", seen{sub: asks(anyV4), answer: problem(grants.PoolMissing)}, ""},
		{"the pool may open", seen{sub: asks(anyV4), answer: problem(grants.PoolNotReady)}, ""},
		{"the pool goes", seen{sub: asks(anyV4), answer: lasting}, "refuse PoolNotReady: words"},
		{"exhausted is never refused", seen{sub: asks(anyV4), answer: problem(grants.Exhausted)}, ""},
		{"exhausted with half of it", seen{sub: asks(anyV4, v6), answer: problem(grants.Exhausted), held: held("fd00::1")}, "give back fd00::1"},
		{"somebody gives back (0008)", seen{sub: asks(anyV4, v6), held: held("fd00::1!", "10.0.0.1")}, "give back fd00::1"},
		{"a holder is silent", seen{sub: named, answer: problem(grants.Silent)}, ""},
		{"not the pool's", seen{sub: named, answer: problem(grants.Unassignable), held: held("10.0.0.1")}, "refuse NotAssignable: words, drop 10.0.0.1"},
		{"a call failed", seen{sub: asks(anyV4), answer: problem(grants.Failed)}, ""},

		{"taken", seen{sub: named, answer: problem(grants.Taken)}, "read lan.0a000004.30"},
		{"taken, and free by now", seen{sub: named, answer: problem(grants.Taken), taken: &taken{}}, ""},
		{"taken by a claim", seen{sub: named, answer: problem(grants.Taken), taken: has(cluster, to("u2", false))},
			"refuse InUse: 10.0.0.5 of pool lan belongs to claim ns/vm"},
		{"taken by a request", seen{sub: named, answer: problem(grants.Taken), taken: onSubLease},
			"refuse InUse: 10.0.0.5 of pool lan belongs to pod ns/joe on node n3"},
		{"taken, and being freed", seen{sub: named, answer: problem(grants.Taken), taken: has(cluster, to("u2", true))}, ""},
		{"taken by itself", seen{sub: named, answer: problem(grants.Taken), taken: has(cluster, to("u1", false))}, ""},
		{"taken by a pod", seen{sub: named, answer: problem(grants.Taken), taken: has(node, nil)},
			"refuse InUse: 10.0.0.5 of pool lan is in use by pod ns/mary net1 on node n2"},
		{"taken by the pod that it is to replace", seen{sub: rolled, answer: problem(grants.Taken), taken: byOld},
			"refuse InUse: 10.0.0.5 of pool lan is in use by pod ns/web-6f9c5-abcde net1 on node n2" + rolled.Request.Pod.Standoff(protocol.PodRef{Namespace: "ns", Name: "web-6f9c5-abcde"})},
		{"ceded by now", seen{sub: named, answer: problem(grants.Taken), taken: has(node, nil, "10.0.0.5")}, ""},
		{"the cluster's by now", seen{sub: named, answer: problem(grants.Taken), taken: has(cluster, nil)}, ""},

		{"answered", seen{sub: grantedTo("10.0.0.1"), held: held("10.0.0.1")}, "done"},
		{"answered, with more", seen{sub: grantedTo("10.0.0.1"), held: held("10.0.0.1", "10.0.0.2")}, "read live"},
		{"answered, with more, as read live", seen{sub: grantedTo("10.0.0.1"), held: held("10.0.0.1", "10.0.0.2"), live: true}, "drop 10.0.0.2, done"},
		{"answered, while somebody gives back", seen{sub: grantedTo("10.0.0.1"), held: held("10.0.0.1!"), live: true}, "unmark 10.0.0.1, done"},
		{"refused, with some", seen{sub: refused, held: held("10.0.0.2"), live: true}, "drop 10.0.0.2, done"},
		{"answered, and not seen granted", seen{sub: grantedTo("10.0.0.1")}, "verify lan.0a000001.32"},
		{"answered, and its lease deleted by hand", seen{sub: grantedTo("10.0.0.1"), verified: true}, "ask, for 10.0.0.1"},
		{"the same, waiting", seen{sub: grantedTo("10.0.0.1"), verified: true, answer: problem(grants.Taken)}, ""},
		{"the same, granted again", seen{sub: grantedTo("10.0.0.1"), held: held("10.0.0.1"), verified: true, answer: gave("", "10.0.0.1")}, "done"},
		{"answered, and going", seen{sub: deleting(grantedTo("10.0.0.1"))}, "done"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(decide(tt.seen)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestAskOf: the fixed order of families is the broker's; the wants keep theirs.
func TestAskOf(t *testing.T) {
	ask, err := askOf(asks("fd00::1-fd00::9", anyV4))
	if err != nil {
		t.Fatal(err)
	}
	if ask.To != (protocol.Grantee{Kind: protocol.GranteeSubLease, UID: "u1", Name: "r"}) || ask.Stamp != "10" || len(ask.From) != 2 {
		t.Errorf("ask %+v; want it to the sub-lease's UID, with its revision, for two addresses", ask)
	}
	s := asks(anyV4)
	s.Request.Pod.UID = "p"
	if ask, err := askOf(s); err != nil || ask.Pod.UID != "p" || ask.Pod.Node != "n1" {
		t.Errorf("it is for pod %+v, error %v; want p on node n1", ask.Pod, err)
	}
	for i, f := range []allocator.Family{allocator.IPv6, allocator.IPv4} {
		if got := ask.From[i].Families; len(got) != 1 || got[0] != f {
			t.Errorf("want %d is of families %v; want %v", i, got, f)
		}
	}
}

func TestClip(t *testing.T) {
	if got := clip(strings.Repeat("ä", 600)); len(got) > 1024 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("a message of 1200 bytes is clipped to %d, %q…", len(got), got[len(got)-8:])
	}
}
