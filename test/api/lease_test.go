package api_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	nodeHeld    = "protocol: 1, pool: lan, poolUID: u1, holder: {kind: Node, node: a}, store: s1, term: 3, turn: 7"
	clusterHeld = "protocol: 1, pool: lan, poolUID: u1, holder: {kind: Cluster}, turn: 7"
)

// lease is the text of a lease under the name that its block asks for.
func lease(block, fields string) string {
	return leaseNamed(protocol.LeaseName("lan", netip.MustParsePrefix(block)), block, fields)
}

func leaseNamed(name, block, fields string) string {
	return object("IPLease", name, fmt.Sprintf("{block: %q, %s}", block, fields))
}

func grant(address, uid string) string {
	return fmt.Sprintf("{address: %q, to: {kind: Claim, uid: %s, namespace: ns, name: vm}}", address, uid)
}

// fullBlock lists the addresses of a block of 256, as ceded and as grants.
func fullBlock(first netip.Addr) (ceded, grants string) {
	var c, g []string
	for a := first; len(c) < 256; a = a.Next() {
		c, g = append(c, fmt.Sprintf("%q", a)), append(g, grant(a.String(), "6e0d6c2e-6d5c-4c0e-9d9c-0c5a3f3a9b1e"))
	}
	return strings.Join(c, ","), strings.Join(g, ",")
}

func TestLeaseAccepted(t *testing.T) {
	ceded4, grants4 := fullBlock(netip.MustParseAddr("10.111.222.0"))
	ceded6, grants6 := fullBlock(netip.MustParseAddr("fd00:aaaa:bbbb:cccc:dddd:eeee:1111:2200"))
	tests := []struct{ name, text string }{
		{"of a node", lease("10.0.0.64/26", nodeHeld)},
		{"of the cluster", lease("10.0.0.64/26", clusterHeld)},
		{"one address", lease("10.0.0.65/32", nodeHeld)},
		{"256 addresses", lease("10.0.1.0/24", nodeHeld)},
		{"IPv6", lease("fd00::40/122", nodeHeld)},
		{"IPv6, one address", lease("fd00::41/128", nodeHeld)},
		{"term and turn left out", lease("10.0.0.64/26", "protocol: 1, pool: lan, poolUID: u1, holder: {kind: Node, node: a}, store: s1")},
		{"granted out of a ceded address", lease("10.0.0.64/26", nodeHeld+`, ceded: [10.0.0.65, 10.0.0.66], grants: [`+grant("10.0.0.66", "c1")+`]`)},
		{"two addresses of one claim", lease("10.0.0.64/26", clusterHeld+`, grants: [`+grant("10.0.0.65", "c1")+","+grant("10.0.0.66", "c1")+`]`)},
		{"freeing", lease("10.0.0.64/26", clusterHeld+`, grants: [{address: 10.0.0.65, freeing: true, to: {kind: SubLease, uid: s, name: n-1}}]`)},
		{"all 256 ceded and granted", lease("10.111.222.0/24", nodeHeld+", ceded: ["+ceded4+"], grants: ["+grants4+"]")},
		{"all 256 ceded and granted, IPv6", lease("fd00:aaaa:bbbb:cccc:dddd:eeee:1111:2200/120", nodeHeld+", ceded: ["+ceded6+"], grants: ["+grants6+"]")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkAccepted(t, dryRun(t, leases, tt.text)) })
	}
}

// TestLeaseName shows that the schema computes a lease's name as the protocol
// does, for every way in which an address can be written, and takes no other.
func TestLeaseName(t *testing.T) {
	const want = "metadata.name must be spec.pool, the base address of spec.block in hex"
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 60 {
		block := randomBlock(rng)
		name := protocol.LeaseName("lan", block)
		if err := dryRun(t, leases, leaseNamed(name, block.String(), nodeHeld)); err != nil {
			t.Errorf("seed %d, block %v: lease %s is refused: %v", seed, block, name, err)
		}
		// One character of the base address is changed.
		at := len("lan.") + rng.IntN(2*block.Addr().BitLen()/8)
		wrong := []byte(name)
		wrong[at] = "0123456789abcdefg"[rng.IntN(17)]
		if string(wrong) != name {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				checkRefused(t, dryRun(t, leases, leaseNamed(string(wrong), block.String(), nodeHeld)), want)
			})
		}
	}
	for _, name := range []string{
		"lan", "lan.0a000040", "lan.0a000040.26.1", "lan.0a000040.27", "lan.0a000040.026", "lan.0a000040.6", "lan.a000040.26", "lan.00a000040.26",
		"lan.0a0000040.26", "lan-0a000040.26", "la.0a000040.26", "lan2.0a000040.26", "lan.0a000040-26", "lan.a.000040.26", "lan.0000000a000040.26",
	} {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, dryRun(t, leases, leaseNamed(name, "10.0.0.64/26", nodeHeld)), want)
		})
	}
}

// randomBlock returns a block of either family; IPv6 ones have zeros in all
// places, so that they are written in all ways.
func randomBlock(rng *rand.Rand) netip.Prefix {
	var raw [16]byte
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	if rng.IntN(2) == 0 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(raw[:4])), 24+rng.IntN(9)).Masked()
	}
	for i := 0; i < 16; i += 2 {
		switch rng.IntN(4) {
		case 0, 1:
			raw[i], raw[i+1] = 0, 0
		case 2:
			raw[i] = 0
		}
	}
	raw[0] = 0xfd
	return netip.PrefixFrom(netip.AddrFrom16(raw), 120+rng.IntN(9)).Masked()
}

func TestLeaseRefused(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"block a word", leaseNamed("lan.0a000040.26", "first", nodeHeld), []string{"spec.block", "is not a CIDR in canonical form", "write one such as"}},
		{"block with host bits", leaseNamed("lan.0a000040.26", "10.0.0.65/26", nodeHeld), []string{"spec.block", "canonical form"}},
		{"block in capitals", leaseNamed("lan.fd000000000000000000000000000040.122", "FD00::40/122", nodeHeld), []string{"spec.block", "canonical form"}},
		{"block in long form", leaseNamed("lan.fd000000000000000000000000000040.122", "fd00:0::40/122", nodeHeld), []string{"spec.block", "canonical form"}},
		{"block too large", lease("10.0.0.0/23", nodeHeld), []string{"spec.block", "more than 256 addresses", "lease smaller blocks"}},
		{"block too large, IPv6", lease("fd00::/119", nodeHeld), []string{"spec.block", "more than 256 addresses"}},
		{"protocol 0", lease("10.0.0.64/26", strings.Replace(nodeHeld, "protocol: 1", "protocol: 0", 1)), []string{"spec.protocol", "greater than or equal to 1"}},
		{"no protocol", lease("10.0.0.64/26", strings.Replace(nodeHeld, "protocol: 1, ", "", 1)), []string{"spec.protocol: Required"}},
		{"no holder", lease("10.0.0.64/26", "protocol: 1, pool: lan, poolUID: u1, store: s1"), []string{"spec.holder: Required"}},
		{"node without its name", lease("10.0.0.64/26", strings.Replace(nodeHeld, ", node: a", "", 1)), []string{"spec.holder", "node is set where kind is Node, and only there"}},
		{"cluster with a node", lease("10.0.0.64/26", strings.Replace(nodeHeld, "Node", "Cluster", 1)), []string{"spec.holder", "node is set where kind is Node, and only there"}},
		{"node without a store", lease("10.0.0.64/26", strings.Replace(nodeHeld, "store: s1, ", "", 1)), []string{"spec.store", "is set where holder.kind is Node"}},
		{"cluster with a store", lease("10.0.0.64/26", clusterHeld+", store: s1"), []string{"spec.store", "is set where holder.kind is Node, and only there"}},
		{"cluster with a term", lease("10.0.0.64/26", clusterHeld+", term: 1"), []string{"spec.term", "is 0 where holder.kind is Cluster"}},
		{"term below zero", lease("10.0.0.64/26", strings.Replace(nodeHeld, "term: 3", "term: -3", 1)), []string{"spec.term", "greater than or equal to 0"}},
		{"ceded outside", lease("10.0.0.64/26", nodeHeld+", ceded: [10.0.0.63]"), []string{"spec.ceded", "outside block"}},
		{"ceded malformed", lease("10.0.0.64/26", nodeHeld+", ceded: [10.0.0.64/32]"), []string{"spec.ceded[0]", "canonical form"}},
		{"ceded not canonical", lease("fd00::40/122", nodeHeld+`, ceded: ["fd00::0041"]`), []string{"spec.ceded[0]", "canonical form"}},
		{"granted outside", lease("10.0.0.64/26", clusterHeld+", grants: ["+grant("10.0.0.128", "c1")+"]"), []string{"spec.grants", "outside block"}},
		{"granted malformed", lease("10.0.0.64/26", clusterHeld+", grants: ["+grant("ten", "c1")+"]"), []string{"spec.grants[0].address", "canonical form"}},
		{"granted twice (I1)", lease("10.0.0.64/26", clusterHeld+", grants: ["+grant("10.0.0.65", "c1")+","+grant("10.0.0.66", "c1")+","+grant("10.0.0.65", "c2")+"]"),
			[]string{"spec.grants", "one address twice", "an address has one owner"}},
		{"granted though not ceded (I1)", lease("10.0.0.64/26", nodeHeld+", ceded: [10.0.0.65], grants: ["+grant("10.0.0.66", "c1")+"]"), []string{"spec.grants", "not ceded"}},
		{"granted though nothing is ceded (I1)", lease("10.0.0.64/26", nodeHeld+", grants: ["+grant("10.0.0.66", "c1")+"]"), []string{"spec.grants", "not ceded"}},
		{"granted to a service", lease("10.0.0.64/26", clusterHeld+", grants: [{address: 10.0.0.65, to: {kind: Service, uid: u, name: s}}]"), []string{"spec.grants[0].to.kind", "supported values"}},
		{"granted to a claim on a node", lease("10.0.0.64/26", clusterHeld+", grants: [{address: 10.0.0.65, to: {kind: Claim, uid: u, namespace: ns, name: c, node: a}}]"), []string{"node is set where kind is Pod"}},
		{"freeing false", lease("10.0.0.64/26", clusterHeld+", grants: [{address: 10.0.0.65, freeing: false, to: {kind: SubLease, uid: s, name: n}}]"), []string{"spec.grants[0].freeing", "supported values"}},
		{"too many ceded", lease("10.0.0.0/24", nodeHeld+", ceded: ["+strings.Repeat("10.0.0.1,", 257)+"]"), []string{"spec.ceded", "at most 256"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkRefused(t, dryRun(t, leases, tt.text), tt.want...) })
	}
}

func TestLeaseUpdate(t *testing.T) {
	const name = "lan.0a000040.26"
	create(t, leases, lease("10.0.0.64/26", nodeHeld))
	steps := []struct {
		name, patch string
		want        []string
	}{
		{"fencing write", `{spec: {term: 4, turn: 8}}`, nil},
		{"another pool", `{spec: {pool: wan}}`, []string{"spec.pool", "is immutable"}},
		{"another pool UID", `{spec: {poolUID: u2}}`, []string{"spec.poolUID", "is immutable"}},
		{"another block", `{spec: {block: 10.0.0.0/26}}`, []string{"spec.block", "is immutable"}},
		{"to another node", `{spec: {holder: {node: b}}}`, []string{"spec.holder", "nodes never hand leases to each other"}},
		{"to another store", `{spec: {store: s2}}`, []string{"spec.store", "a new store leases anew"}},
		{"cede", `{spec: {ceded: [10.0.0.65, 10.0.0.66]}}`, nil},
		{"grant", `{spec: {grants: [` + grant("10.0.0.65", "c1") + `]}}`, nil},
		{"take back what is granted (I1)", `{spec: {ceded: [10.0.0.66]}}`, []string{"spec.grants", "not taken back while granted"}},
		{"take back the rest", `{spec: {ceded: [10.0.0.65]}}`, nil},
		{"newer protocol", `{spec: {protocol: 2}}`, nil},
		{"older protocol", `{spec: {protocol: 1}}`, []string{"spec.protocol", "must not fall", "newer program"}},
		{"to the cluster with the node's store", `{spec: {holder: {kind: Cluster, node: null}, term: 0}}`, []string{"spec.store", "only there"}},
		{"to the cluster", `{spec: {holder: {kind: Cluster, node: null}, store: null, term: 0, turn: 9}}`, nil},
		{"the grant stayed, another comes", `{spec: {grants: [` + grant("10.0.0.65", "c1") + "," + grant("10.0.0.99", "c2") + `]}}`, nil},
		{"back to a node", `{spec: {holder: {kind: Node, node: a}, store: s1}}`, []string{"spec.holder", "must not change but to the cluster"}},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) { checkStep(t, change(t, leases, name, s.patch), s.want) })
	}
	t.Run("publish", func(t *testing.T) {
		checkAccepted(t, change(t, leases, name, `{status: {used: 1, free: 0, published: "2026-01-02T03:04:05Z", allocations: ["10.0.0.70 ns/pod net1"]}}`, "status"))
	})
}
