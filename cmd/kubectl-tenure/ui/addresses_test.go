package ui

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// aLease returns the lease of a block; node is empty where the cluster holds.
func aLease(block, node string) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: block}, Spec: v1alpha1.IPLeaseSpec{Block: block, Holder: v1alpha1.Holder{Kind: v1alpha1.HolderCluster}}}
	if node != "" {
		l.Spec.Holder, l.Spec.Store = v1alpha1.Holder{Kind: v1alpha1.HolderNode, Node: node}, "s"
	}
	return l
}

// somebody is a pool of which each kind of owner has an address.
func somebody() facts {
	at := func(address string, kind v1alpha1.GranteeKind, namespace, name, uid string) v1alpha1.Grant {
		return v1alpha1.Grant{Address: address, To: v1alpha1.Grantee{Kind: kind, Namespace: namespace, Name: name, UID: uid}}
	}
	a := aLease("10.1.0.0/29", "a")
	a.Status.Allocations = []string{"10.1.0.2 shop/web net1", "10.1.0.3 bank/vault net1", "not an allocation"}
	a.Spec.Ceded = []string{"10.1.0.4", "10.1.0.5"}
	a.Spec.Grants = []v1alpha1.Grant{at("10.1.0.5", v1alpha1.GranteeClaim, "bank", "db-0", "u-claim")}
	c := aLease("10.1.0.8/29", "")
	c.Spec.Grants = []v1alpha1.Grant{
		at("10.1.0.8", v1alpha1.GranteeSubLease, "", "sub", "u-sub"), at("10.1.0.9", v1alpha1.GranteePod, "shop", "old", "u-old"),
		at("10.1.0.10", v1alpha1.GranteeReservation, "", "printer", "u-r"),
	}
	silent := aLease("10.1.0.16/29", "gone")
	earlier := aLease("10.9.0.0/30", "a")
	earlier.Status.Allocations = []string{"10.9.0.1 shop/older net1"}
	return facts{
		pool:   &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.1.0.0/27", Gateway: "10.1.0.1"}}}},
		leases: []*v1alpha1.IPLease{silent, c, a, earlier},
		known:  state.Known{Now: time.Now(), Registrations: map[protocol.NodeName]protocol.Registration{"a": {Node: "a", Store: "s", Beat: time.Now(), Fence: time.Minute}}},
		pods: map[string]state.Use{
			"u-claim": {Node: "b", Namespace: "bank", Pod: "db-0", Interface: "net1"}, "u-sub": {Node: "b", Namespace: "shop", Pod: "asks", Interface: "net1"},
		},
	}
}

// TestDraw: each address has the letter of who has it, and who the filter leaves out the capital.
func TestDraw(t *testing.T) {
	for _, tt := range []struct {
		name  string
		of    filter
		cells string
	}{
		{"all", filter{}, "xxppec..qkr....................x"},
		{"of a namespace", filter{namespace: "shop"}, "xxpPEC,,qkR,,,,,,,,,,,,,,,,,,,,x"},
		{"of a node", filter{node: "a"}, "xxppeC..QKR,,,,,,,,,,,,,,,,,,,,x"},
		{"of the node of a claim's pod", filter{node: "b"}, "xxPPEc,,qKR,,,,,,,,,,,,,,,,,,,,x"},
	} {
		m := draw(somebody(), tt.of)
		if len(m.Ranges) != 2 || len(m.Ranges[0].Rows) != 1 || m.Ranges[0].Rows[0].Cells != tt.cells || !m.Ranges[0].Whole {
			t.Errorf("%s: got %+v; want %s", tt.name, m.Ranges, tt.cells)
		}
		if !slices.Equal(m.Nodes, []string{"a", "b", "gone"}) || !slices.Equal(m.Namespaces, []string{"bank", "shop"}) {
			t.Errorf("%s: nodes %q, namespaces %q", tt.name, m.Nodes, m.Namespaces)
		}
	}
	m := draw(somebody(), filter{})
	want := []leaseMap{{At: 0, Size: 8, Node: "a"}, {At: 16, Size: 8, Node: "gone", Unreachable: "no agent is registered for the node: none runs there"}, {At: 8, Size: 8}}
	if got := m.Ranges[0].Rows[0].Leases; !slices.Equal(got, want) {
		t.Errorf("leases %+v; want %+v", got, want)
	}
	if outside := m.Ranges[1]; outside.CIDR != "" || len(outside.Rows) != 1 || outside.Rows[0].First != "10.9.0.0" || !strings.Contains(outside.Rows[0].Cells, "p") {
		t.Errorf("outside of the ranges: %+v", outside)
	}
}

// TestRows: small ranges are drawn whole, at both ends of what there is, and of large ones what is
// leased.
func TestRows(t *testing.T) {
	for _, tt := range []struct {
		cidr  string
		whole bool
		rows  int
		last  string
	}{
		{"10.0.0.0/16", true, 256, "10.0.255.0"},
		{"10.0.0.64/26", true, 1, "10.0.0.64"},
		{"255.255.254.0/23", true, 2, "255.255.255.0"},
		{"0.0.0.0/0", false, 2, "203.0.113.0"},
		{"10.0.0.0/8", false, 1, "10.7.7.0"},
		{"fd00::/120", true, 1, "fd00::"},
		{"fd00::/64", false, 1, "fd00::100"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120", true, 1, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00"},
	} {
		f := facts{pool: &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: tt.cidr}}}}, known: state.Known{Hidden: true}}
		f.leases = []*v1alpha1.IPLease{aLease("10.7.7.0/28", "a"), aLease("203.0.113.0/28", "a"), aLease("fd00::100/124", "a")}
		r := draw(f, filter{}).Ranges[0]
		if r.Whole != tt.whole || len(r.Rows) != tt.rows || r.Rows[len(r.Rows)-1].First != tt.last {
			t.Errorf("%s: whole %v, %d rows, the last %q; want %v, %d, %q", tt.cidr, r.Whole, len(r.Rows), r.Rows[len(r.Rows)-1].First, tt.whole, tt.rows, tt.last)
		}
	}
}

// TestRangesOfOneRow: ranges that share a row have each its part of the leases there, and what none
// of them has is outside of all.
func TestRangesOfOneRow(t *testing.T) {
	f := somebody()
	f.pool.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.1.0.0/29"}, {CIDR: "10.1.0.8/29", End: "10.1.0.9"}, {CIDR: "10.1.0.8/29", Start: "10.1.0.12"}}
	var got []string
	for _, r := range draw(f, filter{}).Ranges {
		for _, row := range r.Rows {
			got = append(got, strings.TrimSpace(fmt.Sprint(r.CIDR, " ", row.First, " ", row.Cells, " ", len(row.Leases))))
		}
	}
	want := []string{"10.1.0.0/29 10.1.0.0 x.ppec.x 1", "10.1.0.8/29 10.1.0.8 qkrx...x 1", "10.1.0.16 xxxxxxxx 1", "10.9.0.0 xpxx 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOwners: the table names who has what the map shows.
func TestOwners(t *testing.T) {
	var got []string
	for _, a := range owners(somebody(), netip.MustParsePrefix("10.1.0.0/24")) {
		got = append(got, fmt.Sprint(a.Address, " ", a.Cell, " ", a.Owner, " on ", a.Node))
	}
	want := []string{
		"10.1.0.2 p pod shop/web net1 on a", "10.1.0.3 p pod bank/vault net1 on a", "10.1.0.4 e nobody: ceded to the cluster on a",
		"10.1.0.5 c claim bank/db-0, pod bank/db-0 net1 on b", "10.1.0.8 q pod shop/asks net1 on b", "10.1.0.9 k pod shop/old, by another IPAM on ",
		"10.1.0.10 r reservation printer on ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// BenchmarkDraw: a pool of 65,536 addresses, all of which pods have.
func BenchmarkDraw(b *testing.B) {
	f := facts{pool: &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/16"}}}}, known: state.Known{Hidden: true}}
	for i := range 1024 {
		l := aLease(fmt.Sprintf("10.0.%d.%d/26", i/4, i%4*64), fmt.Sprint("node-", i%200))
		for j := range 64 {
			l.Status.Allocations = append(l.Status.Allocations, fmt.Sprintf("10.0.%d.%d shop/web-%d net1", i/4, i%4*64+j, i))
		}
		f.leases = append(f.leases, l)
	}
	for b.Loop() {
		draw(f, filter{namespace: "shop"})
	}
}
