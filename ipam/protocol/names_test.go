package protocol

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestLeaseName(t *testing.T) {
	for _, tt := range []struct{ pool, block, want string }{
		{"lan", "10.0.0.64/26", "lan.0a000040.26"},
		{"lan", "10.0.0.1/32", "lan.0a000001.32"},
		{"p-10", "0.0.0.0/8", "p-10.00000000.8"},
		{"lan", "fd00::40/122", "lan.fd000000000000000000000000000040.122"},
		{"a.b", "10.0.0.64/26", "a.b.0a000040.26"},
	} {
		block := netip.MustParsePrefix(tt.block)
		if got := LeaseName(PoolName(tt.pool), block); got != tt.want {
			t.Errorf("%s, %s: got %q; want %q", tt.pool, tt.block, got, tt.want)
		}
		pool, parsed, err := ParseLeaseName(tt.want)
		if err != nil || string(pool) != tt.pool || parsed != block {
			t.Errorf("%q: got %q, %v, %v; want %q, %v", tt.want, pool, parsed, err, tt.pool, block)
		}
	}
}

// A block has one name, and a name that is not it is nobody's.
func TestParseLeaseNameRefuses(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", "lan", "lan.26", ".0a000040.26", "lan.0a000040", "lan.0a000040.", "lan..26",
		"lan.0A000040.26", "lan.a000040.26", "lan.0a0000400.26", "lan.0x0a000040.26", "lan. 0a000040.26", "lan.0a000040 .26",
		"lan.0a000040.026", "lan.0a000040.+26", "lan.0a000040.-1", "lan.0a000040.33", "lan.0a000040.99999999999999999999",
		"lan.0a000041.26",                          // not the block's first address
		"lan.00000000000000000000ffff0a000040.122", // IPv4 in IPv6: another name of an IPv4 block
		"lan.fd000000000000000000000000000040.129",
	} {
		if pool, block, err := ParseLeaseName(name); err == nil {
			t.Errorf("%q: got %q, %v; want an error", name, pool, block)
		} else if !strings.Contains(err.Error(), "lease name") {
			t.Errorf("%q: error %q does not say what is wrong", name, err)
		}
	}
}

func FuzzParseLeaseName(f *testing.F) {
	f.Add("lan.0a000040.26")
	f.Add("a.b.fd000000000000000000000000000040.122")
	f.Add("lan.00000000000000000000ffff0a000040.122")
	f.Fuzz(func(t *testing.T, name string) {
		pool, block, err := ParseLeaseName(name)
		if err != nil {
			return
		}
		if got := LeaseName(pool, block); got != name {
			t.Errorf("%q parses to %q, %v, whose name is %q", name, pool, block, got)
		}
		if pool == "" || !block.IsValid() || block != block.Masked() || block.Addr().Is4In6() {
			t.Errorf("%q parses to %q, %v", name, pool, block)
		}
	})
}

func FuzzLeaseName(f *testing.F) {
	f.Add("lan", []byte{10, 0, 0, 64}, uint8(26))
	f.Add("a.b", []byte{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40}, uint8(122))
	f.Fuzz(func(t *testing.T, pool string, raw []byte, bits uint8) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok || pool == "" {
			return
		}
		block, err := addr.Unmap().Prefix(int(bits))
		if err != nil {
			return
		}
		gotPool, gotBlock, err := ParseLeaseName(LeaseName(PoolName(pool), block))
		if err != nil || string(gotPool) != pool || gotBlock != block {
			t.Errorf("%q, %v: got %q, %v, %v", pool, block, gotPool, gotBlock, err)
		}
	})
}

func TestTexts(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Holder{Node: "n1"}.String(), "node n1"},
		{Holder{Cluster: true}.String(), "the cluster"},
		{Holder{}.String(), "nobody"},
		{Grantee{Kind: GranteeClaim, Namespace: "ns", Name: "c"}.String(), "claim ns/c"},
		{Grantee{Kind: GranteeSubLease, Name: "s"}.String(), "sub-lease s"},
		{UseName("c", 1), "c.1"},
		{CallFence.String(), "Fence"},
		{Call(9).String(), "Call(9)"},
		{EventRenew.String(), "Renew"},
		{EventKind(9).String(), "EventKind(9)"},
		{VerdictGone.String(), "Gone"},
		{Verdict(9).String(), "Verdict(9)"},
		{Refused.String(), "Refused"},
		{Outcome(9).String(), "Outcome(9)"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q; want %q", tt.got, tt.want)
		}
	}
	if Phase("").Valid() || Phase("Thawed").Valid() || !Lost.Valid() {
		t.Error("a phase that is none is valid, or the reverse")
	}
}

// What the protocol reads of an object says whose it is, and what of it bars it
// from being taken for the right's.
func TestObjectOf(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/26")
	r := Right{Kind: RightLease, Name: LeaseName("lan", block), LeaseRight: LeaseRight{Pool: "lan", Block: block}}
	l := Lease{Meta: Meta{Name: r.Name, UID: "u", Revision: "3"}, Protocol: 1, Pool: "lan", Block: block, Holder: Holder{Node: "a"}, Store: "s", Term: 2, Writes: 4}
	want := Object{Meta: l.Meta, Protocol: 1, Node: "a", Store: "s", Term: 2, Writes: 4, Matches: true}
	if got := r.ObjectOf(l); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	granted, elsewhere, resized := l, l, l
	granted.Grants = []Grant{{Addr: block.Addr()}}
	elsewhere.Pool = "wan"
	resized.Block = netip.MustParsePrefix("10.0.0.0/27")
	if !r.ObjectOf(granted).Granted {
		t.Error("a lease with a grant is not granted")
	}
	if r.ObjectOf(elsewhere).Matches || r.ObjectOf(resized).Matches {
		t.Error("a lease of another pool or block matches")
	}

	use := Use{Claim: ClaimRef{Namespace: "ns", Name: "c", UID: "c"}, Pod: db0, Interface: "net1"}
	r = Right{Kind: RightUse, Name: UseName("c", 0), SubLeaseRight: SubLeaseRight{Use: &use}}
	sub := func(change func(*Use)) SubLease {
		other := use
		change(&other)
		return SubLease{Meta: Meta{Name: r.Name}, Node: "a", Use: &other}
	}
	for _, tt := range []struct {
		name           string
		s              SubLease
		matches, stale bool
	}{
		{"the same", sub(func(*Use) {}), true, false},
		{"another pod", sub(func(u *Use) { u.Pod.UID = "p9" }), true, true},
		{"another owner of the pod", sub(func(u *Use) { u.Pod.Owner.UID = "x" }), true, true},
		{"another interface", sub(func(u *Use) { u.Interface = "net2" }), true, true},
		{"another claim", sub(func(u *Use) { u.Claim.UID = "d" }), false, false},
		{"a request", SubLease{Request: &Request{}}, false, false},
	} {
		if o := r.ObjectOfUse(tt.s); o.Matches != tt.matches || o.Stale != tt.stale {
			t.Errorf("%s: got matches %v, stale %v; want %v, %v", tt.name, o.Matches, o.Stale, tt.matches, tt.stale)
		}
	}
}
