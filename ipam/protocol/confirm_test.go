package protocol

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
)

func TestConfirmLease(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.0.0.64/26"), netip.MustParsePrefix("fd00::40/122")
	open := Pool{
		Meta: Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 26, Bits6: 122,
		Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.100-10.0.0.110"), netipx.MustParseIPRange("fd00::7f-fd00::80")},
	}
	with := func(change func(*Pool)) Pool {
		p := open
		change(&p)
		return p
	}
	tests := []struct {
		name  string
		block netip.Prefix
		pool  Pool
		out   Outcome
		why   string // in the reason; empty: confirmed
	}{
		{"open", v4, open, Done, ""},
		{"open, IPv6", v6, open, Done, ""},
		{"gone", v4, Pool{}, NotFound, "does not exist"},
		{"deleted and created again", v4, with(func(p *Pool) { p.UID = "q" }), Done, "created again"},
		{"being deleted", v4, with(func(p *Pool) { p.Deleting = true }), Done, "being deleted"},
		{"closed", v4, with(func(p *Pool) { p.Open = false }), Done, "closed"},
		{"smaller blocks", v4, with(func(p *Pool) { p.Bits4 = 28 }), Done, "other blocks"},
		{"larger blocks", v6, with(func(p *Pool) { p.Bits6 = 120 }), Done, "other blocks"},
		{"block size not decided", v4, with(func(p *Pool) { p.Bits4 = 0 }), Done, "other blocks"},
		{"not of its ranges any more", netip.MustParsePrefix("10.0.0.128/26"), open, Done, "no address of"},
		{"the other family's size", v6, with(func(p *Pool) { p.Bits4, p.Bits6 = 122, 26 }), Done, "other blocks"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Right{Kind: RightLease, LeaseRight: LeaseRight{Pool: "lan", PoolUID: "p", Block: tt.block}}
			ok, why := ConfirmLease(r.LeaseRight, tt.pool, tt.out)
			wantWhy(t, ok, why, tt.why)
		})
	}
}

// wantWhy compares a decision with the reason that is wanted, empty for none.
func wantWhy(t *testing.T, ok bool, why, want string) {
	t.Helper()
	if ok != (want == "") || ok != (why == "") || !strings.Contains(why, want) {
		t.Errorf("got %v, %q; want a reason with %q", ok, why, want)
	}
}

var (
	vmi    = OwnerRef{Kind: "VirtualMachineInstance", Name: "vm", UID: "vmi1"}
	sts    = OwnerRef{Kind: "StatefulSet", Name: "db", UID: "sts"}
	rs     = OwnerRef{Kind: "ReplicaSet", Name: "web-5f", UID: "rs"}
	source = PodRef{Namespace: "ns", Name: "virt-launcher-a", UID: "p1", Owner: vmi}
	target = PodRef{Namespace: "ns", Name: "virt-launcher-b", UID: "p2", Owner: vmi}
	db0    = PodRef{Namespace: "ns", Name: "db-0", UID: "p3", Owner: sts}
)

func TestConfirmUse(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd00::1")
	to := Grantee{Kind: GranteeClaim, UID: "c", Namespace: "ns", Name: "claim"}
	block4 := Lease{Pool: "lan", Block: netip.MustParsePrefix("10.9.0.0/26"), Holder: Holder{Cluster: true}, Grants: []Grant{{Addr: v4, To: to}}}
	block6 := Lease{Pool: "lan", Block: netip.MustParsePrefix("fd00::/122"), Holder: Holder{Cluster: true}, Grants: []Grant{{Addr: v6, To: to}}}
	all := func() UseEvidence {
		return UseEvidence{
			Own: Use{Claim: ClaimRef{Namespace: "ns", Name: "claim", UID: "c"}, Pod: target, Interface: "net1"},
			Claim: Claim{
				Meta: Meta{Name: "claim", UID: "c"}, Namespace: "ns", Owner: OwnerRef{Kind: "VirtualMachine", Name: "vm", UID: "vm1"},
				IPs: []netip.Prefix{netip.PrefixFrom(v4, 24), netip.PrefixFrom(v6, 64)},
			},
			Leases: []Lease{block4.Clone(), block6.Clone()},
		}
	}
	other := func(node NodeName, pod PodRef) *SubLease {
		return &SubLease{Meta: Meta{Name: UseName("c", 0)}, Node: node, Use: &Use{Claim: ClaimRef{Namespace: "ns", Name: "claim", UID: "c"}, Pod: pod}}
	}
	tests := []struct {
		name   string
		change func(*UseEvidence)
		why    string
	}{
		{"granted, the only user", func(*UseEvidence) {}, ""},
		{"claim deleted", func(e *UseEvidence) { e.Claim = Claim{} }, "was deleted"},
		{"claim deleted and made again", func(e *UseEvidence) { e.Claim.UID = "d" }, "was deleted"},
		{"claim being deleted", func(e *UseEvidence) { e.Claim.Deleting = true }, "being deleted"},
		{"kept for a pod that is said to have the claim's UID", func(e *UseEvidence) { e.Leases[0].Grants[0].To.Kind = GranteePod }, "not granted"},
		{"no addresses any more", func(e *UseEvidence) { e.Addrs, e.Claim.IPs = []netip.Addr{v4}, nil }, "no addresses"},
		{"no addresses yet", func(e *UseEvidence) { e.Claim.IPs = nil }, "no addresses yet"},
		{"a sibling on another node (N88)", func(e *UseEvidence) { e.Other = other("n2", source) }, ""},
		{"a stranger on another node", func(e *UseEvidence) { e.Other = other("n2", db0) }, "not the same workload"},
		{"an earlier use of this node's", func(e *UseEvidence) { e.Other = other("n1", source) }, "node n1 has not given back yet the use c.0"},
		{"an earlier use of this node's, for a stranger", func(e *UseEvidence) { e.Other = other("n1", db0) }, "node n1 has not given back yet the use c.0"},
		{"an earlier use of this node's, and being freed", func(e *UseEvidence) { e.Other, e.Leases[0].Grants[0].Freeing = other("n1", source), true }, "being freed"},
		{"the other name is another claim's", func(e *UseEvidence) { e.Other = other("n2", db0); e.Other.Use.Claim.UID = "d" }, ""},
		{"the other name is a request's", func(e *UseEvidence) { e.Other = &SubLease{Node: "n2", Request: &Request{}} }, ""},
		{"status names what is not granted (N87)", func(e *UseEvidence) { e.Claim.IPs[0] = netip.MustParsePrefix("10.9.0.2/24") }, "not granted"},
		{"status names another claim's address (N87)", func(e *UseEvidence) { e.Leases[0].Grants[0].To.UID = "d" }, "not granted"},
		{"one of two addresses is not granted", func(e *UseEvidence) { e.Leases = e.Leases[:1] }, "not granted"},
		{"being freed", func(e *UseEvidence) { e.Leases[0].Grants[0].Freeing = true }, "being freed"},
		{"the second being freed", func(e *UseEvidence) { e.Leases[1].Grants[0].Freeing = true }, "being freed"},
		{"on a node's block, ceded", func(e *UseEvidence) {
			e.Leases[0].Holder, e.Leases[0].Ceded = Holder{Node: "n2"}, []netip.Addr{v4}
		}, ""},
		{"on a node's block, not ceded", func(e *UseEvidence) { e.Leases[0].Holder = Holder{Node: "n2"} }, "not granted"},
		{"answered with what the claim has", func(e *UseEvidence) { e.Addrs = []netip.Addr{v6, v4} }, ""},
		{"answered with what the claim had before", func(e *UseEvidence) { e.Addrs = []netip.Addr{netip.MustParseAddr("10.9.0.3")} }, "not any more"},
		{"emptied, and allocated anew", func(e *UseEvidence) {
			e.Addrs, e.Claim.IPs = []netip.Addr{v4}, []netip.Prefix{netip.MustParsePrefix("10.9.7.1/24")}
		}, "not granted to it"},
		{"a lease that does not hold the address", func(e *UseEvidence) { e.Leases[0].Block = netip.MustParsePrefix("10.9.1.0/26") }, "not granted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := all()
			tt.change(&e)
			got := ConfirmUse(Self{Node: "n1", Store: "s", Term: 1}, e)
			wantWhy(t, got.Outcome == Done, got.Why, tt.why)
			want := Refused
			switch {
			case tt.why == "":
				want = Done
			case strings.Contains(tt.why, "yet"):
				want = Unknown
			}
			final := tt.name != "emptied, and allocated anew" && slices.ContainsFunc([]string{"is being deleted", "not the same workload", "not granted"}, func(why string) bool { return strings.Contains(got.Why, why) })
			if got.Outcome != want || want == Refused && got.Passes == final {
				t.Errorf("%v, passes: %v; want %v, and a final refusal: %v", got.Outcome, got.Passes, want, final)
			}
		})
	}
}

// TestPickUse: of a node's two uses of a claim that is used by which pods have its addresses.
func TestPickUse(t *testing.T) {
	for _, tt := range []struct{ first, second, want Phase }{
		{Held, Releasing, Held}, {Releasing, Held, Held}, {Noted, Held, Held}, {Frozen, Held, Held}, {Lost, Noted, Lost}, {Noted, Frozen, Frozen}, {Releasing, Noted, Releasing}, {Noted, "", Noted},
	} {
		recorded := []Right{{Phase: tt.first}}
		if tt.second != "" {
			recorded = append(recorded, Right{Phase: tt.second})
		}
		if got := PickUse(recorded).Phase; got != tt.want {
			t.Errorf("%s and %s: %s; want %s", tt.first, tt.second, got, tt.want)
		}
	}
}

func TestSiblings(t *testing.T) {
	podSet := OwnerRef{Kind: "PodSet", Name: "k", UID: "ps"}
	vmClaim := Claim{Owner: OwnerRef{Kind: "VirtualMachine", Name: "vm", UID: "vm1"}}
	vmiClaim := Claim{Owner: vmi}
	label := Claim{VM: "vm"}
	with := func(p PodRef, change func(*PodRef)) PodRef {
		change(&p)
		return p
	}
	tests := []struct {
		name  string
		a, b  PodRef
		claim Claim
		want  bool
	}{
		{"a live migration of the claim's VM", source, target, vmClaim, true},
		{"a live migration of the claim's VMI", source, target, vmiClaim, true},
		{"a live migration, by the claim's label", source, target, label, true},
		{"two pods of another VM", source, target, Claim{Owner: OwnerRef{Kind: "VirtualMachine", Name: "wm", UID: "vm2"}}, false},
		{"two pods of an earlier instance of the VMI", source, target, Claim{Owner: OwnerRef{Kind: vmi.Kind, Name: "vm", UID: "vmi0"}}, false},
		{"two pods of a VM, a claim of nobody", source, target, Claim{}, false},
		{"pods of two instances of one VM", source, with(target, func(p *PodRef) { p.Owner.UID = "vmi2" }), vmClaim, false},
		{"the same pod of a StatefulSet", db0, with(db0, func(p *PodRef) { p.UID = "p4" }), Claim{Owner: sts}, true},
		{"two pods of a StatefulSet", db0, with(db0, func(p *PodRef) { p.Name = "db-1" }), Claim{Owner: sts}, false},
		{"the same name under another StatefulSet", db0, with(db0, func(p *PodRef) { p.Owner.UID = "sts2" }), Claim{}, false},
		{"the same name in another namespace", db0, with(db0, func(p *PodRef) { p.Namespace = "ms" }), Claim{}, false},
		{"two replicas", PodRef{Namespace: "ns", Name: "web-1", Owner: rs}, PodRef{Namespace: "ns", Name: "web-2", Owner: rs}, Claim{}, false},
		{"the same pod of a claim by its name", PodRef{Namespace: "ns", Name: "k-0", UID: "1", Owner: podSet}, PodRef{Namespace: "ns", Name: "k-0", UID: "2", Owner: podSet}, Claim{ByName: "ps"}, true},
		{"two pods of one owner, and a claim by name", PodRef{Namespace: "ns", Name: "k-0", Owner: podSet}, PodRef{Namespace: "ns", Name: "k-1", Owner: podSet}, Claim{ByName: "ps"}, false},
		{"two pods of nobody, of one name", PodRef{Namespace: "ns", Name: "x"}, PodRef{Namespace: "ns", Name: "x"}, Claim{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := siblings(tt.a, tt.b, tt.claim); got != tt.want {
				t.Errorf("got %v; want %v", got, tt.want)
			}
			if got := siblings(tt.b, tt.a, tt.claim); got != tt.want {
				t.Errorf("the other way: got %v; want %v", got, tt.want)
			}
		})
	}
}

func TestBelongsTo(t *testing.T) {
	owned := func(kind, name string, uid UID) Claim {
		return Claim{Meta: Meta{Name: "c"}, Namespace: "ns", Owner: OwnerRef{Kind: kind, Name: name, UID: uid}}
	}
	ofSet := func(set, kind string, uid UID) Claim {
		c := owned(kind, set, uid)
		c.StatefulSet = set
		return c
	}
	replica := PodRef{Namespace: "ns", Name: "web-5f-x", UID: "p5", Owner: rs}
	odd := replica
	odd.Owner.Name = "web"
	tests := []struct {
		name  string
		pod   PodRef
		claim Claim
		want  bool
	}{
		{"nobody's claim", db0, Claim{}, true},
		{"the pod's own", db0, owned("Pod", "db-0", "p3"), true},
		{"another pod's", db0, owned("Pod", "db-1", "p9"), false},
		{"its StatefulSet's", db0, owned("StatefulSet", "db", "sts"), true},
		{"another StatefulSet's", db0, owned("StatefulSet", "db", "sts0"), false},
		{"its VMI's", source, owned("VirtualMachineInstance", "vm", "vmi1"), true},
		{"its VM's", source, owned("VirtualMachine", "vm", "vm1"), true},
		{"another VM's", source, owned("VirtualMachine", "wm", "vm2"), false},
		{"a VM's of the StatefulSet's name", db0, owned("VirtualMachine", "db", "vm2"), false},
		{"its Deployment's", replica, owned("Deployment", "web", "d"), true},
		{"another Deployment's", replica, owned("Deployment", "api", "d"), false},
		{"a Deployment's whose name begins its Deployment's",
			PodRef{Namespace: "ns", Name: "p", Owner: OwnerRef{Kind: "ReplicaSet", Name: "web-frontend-5f", UID: "rs2"}}, owned("Deployment", "web", "d"), false},
		{"a Deployment's whose name its Deployment's begins", replica, owned("Deployment", "web-5f", "d"), false},
		{"a Deployment's of its ReplicaSet's name", odd, owned("Deployment", "web", "d"), false},
		{"by its name, of its owner", db0, Claim{ByName: "sts", Owner: OwnerRef{Kind: "PodSet", UID: "sts"}}, true},
		{"by its name, of another owner", db0, Claim{ByName: "ps", Owner: OwnerRef{Kind: "PodSet", Name: "k", UID: "ps"}}, false},
		{"by its name, orphaned", db0, Claim{ByName: "ps"}, false},
		{"a claim of an unknown kind's", db0, owned("Database", "main", "x"), true},
		{"a Job's", db0, owned("Job", "j", "j"), false},
		{"retained for its StatefulSet", db0, Claim{StatefulSet: "db"}, true},
		{"retained for its StatefulSet, which owns it", db0, ofSet("db", "StatefulSet", "sts"), true},
		{"its own, condemned", db0, ofSet("db", "Pod", "p3"), true},
		{"retained for another StatefulSet", db0, ofSet("web", "", ""), false},
		{"retained for a StatefulSet, and of the pod's", db0, ofSet("web", "StatefulSet", "sts"), false},
		{"retained for its StatefulSet, and another's", db0, ofSet("db", "StatefulSet", "sts0"), false},
		{"retained for a StatefulSet, a pod of nobody's", PodRef{Namespace: "ns", Name: "web-0", UID: "p7"}, ofSet("web", "", ""), false},
		{"retained for a StatefulSet of its ReplicaSet's name", replica, ofSet(replica.Owner.Name, "", ""), false},
		{"a pod of nobody's, a claim of somebody's", PodRef{Namespace: "ns", Name: "p", UID: "p7"}, owned("StatefulSet", "db", "sts"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ok, why := BelongsTo(tt.pod, tt.claim)
			want := ""
			if !tt.want {
				want = cmp.Or(tt.claim.Owner.Name, tt.claim.StatefulSet, string(tt.claim.ByName))
			}
			wantWhy(t, ok, why, want)
		})
	}
}

// What a use was answered with is its pod's as long as it is granted to the claim,
// whatever else is so by now. Of a use that had vanished a mark may be older than the
// use, and a pod of another workload may have come to use the claim.
func TestUseKeeps(t *testing.T) {
	a, b := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	to := Grantee{Kind: GranteeClaim, UID: "c", Namespace: "ns", Name: "claim"}
	block := netip.MustParsePrefix("10.9.0.0/26")
	for _, tt := range []struct {
		name     string
		addrs    []netip.Addr
		grants   []Grant
		stranger bool
		want     bool
		vanished bool // what is wanted of one that had vanished
	}{
		{"granted", []netip.Addr{a, b}, []Grant{{Addr: a, To: to}, {Addr: b, To: to}}, false, true, true},
		{"being freed", []netip.Addr{a}, []Grant{{Addr: a, To: to, Freeing: true, Mark: "m"}}, false, true, false},
		{"with a stranger", []netip.Addr{a}, []Grant{{Addr: a, To: to}}, true, true, false},
		{"one of two", []netip.Addr{a, b}, []Grant{{Addr: a, To: to}}, false, false, false},
		{"another claim's", []netip.Addr{a}, []Grant{{Addr: a, To: Grantee{Kind: GranteeClaim, UID: "d"}}}, false, false, false},
		{"not known which", nil, []Grant{{Addr: a, To: to}}, false, false, false},
	} {
		e := UseEvidence{
			Own: Use{Claim: ClaimRef{Namespace: "ns", Name: "claim", UID: "c"}}, Addrs: tt.addrs,
			Leases: []Lease{{Block: block, Holder: Holder{Cluster: true}, Grants: tt.grants}},
		}
		if tt.stranger {
			e.Other = &SubLease{Use: &Use{Claim: e.Own.Claim, Pod: PodRef{Namespace: "ns", Name: "other"}}}
		}
		if got := e.Keeps(); got != tt.want {
			t.Errorf("%s: keeps %v; want %v", tt.name, got, tt.want)
		}
		if e.Vanished = true; e.Keeps() != tt.vanished {
			t.Errorf("%s, and the use had vanished: keeps %v; want %v", tt.name, !tt.vanished, tt.vanished)
		}
	}
}
