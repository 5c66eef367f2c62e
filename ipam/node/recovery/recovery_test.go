package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// lan is the lost lease of most tests, with the pool's one range about it.
var lan = protocol.Right{
	Kind: protocol.RightLease, Name: "lan.0a000000.28", Phase: protocol.Frozen, Store: "lost", LeaseRight: protocol.LeaseRight{Pool: "lan", Block: netip.MustParsePrefix("10.0.0.0/28")}, UID: "u1",
}

func frozen(rights ...protocol.Right) Frozen {
	f := Frozen{Netns: map[string]string{"/run/netns/here": "4:1"}, Boot: "boot"}
	for _, r := range rights {
		if r.Kind == protocol.RightLease {
			f.Leases = append(f.Leases, r)
		} else {
			f.Uses = append(f.Uses, r)
		}
	}
	shape, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}})
	if err != nil {
		panic(err)
	}
	f.Shape = func(pool protocol.PoolName) *allocator.Shape {
		return map[protocol.PoolName]*allocator.Shape{"lan": shape}[pool]
	}
	return f
}

// entry is a cached result of container's net1.
func entry(container, pod, netns, ip string) cniresults.Entry {
	return cniresults.Entry{
		Network: "net", ContainerID: container, IfName: "net1", Netns: netns, Written: now,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=" + pod,
		IPAM: []json.RawMessage{
			json.RawMessage(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}`),
			json.RawMessage(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure","pool":"lan"}}`),
		},
		IPs: []cniresults.IP{{Address: netip.MustParsePrefix(ip), Gateway: netip.MustParseAddr("10.0.0.1")}},
	}
}

// describe returns who has what, in the order of found.
func describe(found []store.Attachment) (lines []string) {
	for _, att := range found {
		line := fmt.Sprintf("%s %s/%s of %s", att.ContainerID, att.Network, att.IfName, att.Pod.UID)
		for _, x := range att.Addresses {
			line += fmt.Sprintf(" %s/%d gw %s in %s", x.Addr, x.Bits, x.Gateway, x.Lease)
		}
		if att.Use != "" {
			line += " by " + att.Use
		}
		lines = append(lines, line)
	}
	return lines
}

func TestFind(t *testing.T) {
	use := protocol.Right{Kind: protocol.RightUse, Name: "claim.0", Phase: protocol.Frozen, Store: "lost", SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Interface: "net1", Pod: protocol.PodRef{UID: "p1"}}}}
	request := protocol.Right{
		Kind: protocol.RightRequest, Name: "req", Phase: protocol.Frozen, Store: "lost", SubLeaseRight: protocol.SubLeaseRight{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.77")}, Request: &protocol.Request{Interface: "net1", Pod: protocol.PodRef{UID: "p1"}}},
	}
	wanted := request
	wanted.Request = &protocol.Request{Interface: "net1", Pod: protocol.PodRef{UID: "p1"}, Wants: []protocol.Wanted{{Pool: "lan"}}}
	byLabel := func(container, pod, ip string) cniresults.Entry {
		e := entry(container, pod, "", ip)
		e.IPAM[1] = json.RawMessage(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure","pools":{"byNamespace":"tenure.dev/pool"}}}`)
		return e
	}
	later := entry("c2", "p2", "", "10.0.0.5/24")
	later.Written = now.Add(time.Hour)
	for _, tt := range []struct {
		name   string
		rights []protocol.Right
		cached []cniresults.Entry
		want   []string
	}{
		{
			name: "a result", rights: []protocol.Right{lan}, cached: []cniresults.Entry{entry("c1", "p1", "", "10.0.0.5/24")},
			want: []string{"c1 net/net1 of p1 10.0.0.5/24 gw 10.0.0.1 in lan.0a000000.28"},
		},
		{
			name: "of a pool that a label names", rights: []protocol.Right{lan, wanted}, cached: []cniresults.Entry{byLabel("c1", "p2", "10.0.0.5/24"), byLabel("c2", "p1", "10.0.0.77/24")},
			want: []string{"c1 net/net1 of p2 10.0.0.5/24 gw 10.0.0.1 in lan.0a000000.28", "c2 net/net1 of p1 10.0.0.77/24 gw 10.0.0.1 in  by req"},
		},
		{
			name: "of another block", rights: []protocol.Right{lan}, cached: []cniresults.Entry{entry("c1", "p1", "", "10.0.0.99/24")},
		},
		{
			name: "of a claim, wherever it lies", rights: []protocol.Right{lan, use}, cached: []cniresults.Entry{entry("c1", "p1", "", "10.0.0.99/24")},
			want: []string{"c1 net/net1 of p1 10.0.0.99/24 gw 10.0.0.1 in  by claim.0"},
		},
		{
			name: "granted on request", rights: []protocol.Right{lan, request}, cached: []cniresults.Entry{entry("c1", "p1", "", "10.0.0.77/24")},
			want: []string{"c1 net/net1 of p1 10.0.0.77/24 gw 10.0.0.1 in  by req"},
		},
		{
			name: "not what was granted", rights: []protocol.Right{lan, request}, cached: []cniresults.Entry{entry("c1", "p1", "", "10.0.0.78/24")},
		},
		{
			name: "two say that they have it: the namespace that is there, then the latest", rights: []protocol.Right{lan},
			cached: []cniresults.Entry{entry("c1", "p1", "", "10.0.0.5/24"), later, entry("c3", "p3", "/run/netns/here", "10.0.0.5/24")},
			want: []string{
				"c3 net/net1 of p3 10.0.0.5/24 gw 10.0.0.1 in lan.0a000000.28", "c2 net/net1 of p2 10.0.0.5/24 gw 10.0.0.1 in lan.0a000000.28",
				"c1 net/net1 of p1 10.0.0.5/24 gw 10.0.0.1 in lan.0a000000.28",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, unknown := frozen(tt.rights...).Find(tt.cached, nil)
			if d := cmp.Diff(tt.want, describe(found)); d != "" || len(unknown) > 0 {
				t.Errorf("waits for %v; found (-want +got):\n%s", unknown, d)
			}
		})
	}
}

// TestFindWhole: an attachment of which one pool is not known now is not found with its other
// address alone, and whoever asks learns which pool it waits for.
func TestFindWhole(t *testing.T) {
	use := protocol.Right{Kind: protocol.RightUse, Name: "claim.0", Phase: protocol.Frozen, Store: "lost", SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Interface: "net1", Pod: protocol.PodRef{UID: "p1"}}}}
	both := entry("c1", "p1", "", "10.0.0.5/24")
	both.IPAM[1] = json.RawMessage(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure","pools":["lan","lan6"]}}`)
	both.IPs = append(both.IPs, cniresults.IP{Address: netip.MustParsePrefix("fd00::5/64")})
	f := frozen(use)
	found, unknown := f.Find([]cniresults.Entry{both, entry("c2", "p1", "", "10.0.0.6/24")}, nil)
	if got := describe(found); len(got) != 1 || found[0].ContainerID != "c2" || !slices.Equal(unknown, []protocol.PoolName{"lan6"}) {
		t.Errorf("found %v, which waits for %v; want c2 alone, and that c1 waits for lan6", got, unknown)
	}
	six, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("fd00::/64")}})
	if err != nil {
		t.Fatal(err)
	}
	lan := f.Shape("lan")
	f.Shape = func(pool protocol.PoolName) *allocator.Shape {
		return map[protocol.PoolName]*allocator.Shape{"lan": lan, "lan6": six}[pool]
	}
	found, unknown = f.Find([]cniresults.Entry{both}, nil)
	if len(found) != 1 || len(found[0].Addresses) != 2 || len(unknown) > 0 {
		t.Errorf("when lan6 is known: found %v, which waits for %v; want both addresses", describe(found), unknown)
	}
}

// newStore returns a store that has lan.
func newStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	update(t, st, func(tx *store.Tx) error {
		shape, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}})
		return errors.Join(err, tx.PutRight(lan), allocator.NewSpace(tx.Table("lan"), shape).Open(lan.Block))
	})
	return st
}

func update(t *testing.T, st *store.Store, fn func(*store.Tx) error) {
	t.Helper()
	if err := st.Update(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

// TestRecord: of two that say that they have an address the first is recorded, and
// nobody twice.
func TestRecord(t *testing.T) {
	st := newStore(t)
	other := lan
	other.Phase, other.Name, other.Block = protocol.Releasing, "lan.0a000010.28", netip.MustParsePrefix("10.0.0.16/28")
	update(t, st, func(tx *store.Tx) error { return tx.PutRight(other) })
	att := func(container, pod, ip string, lease protocol.Right) store.Attachment {
		return store.Attachment{
			Key: store.Key{Network: "net", ContainerID: container, IfName: "net1"}, Pod: protocol.PodRef{UID: protocol.UID(pod)},
			Addresses: []store.Address{{Addr: netip.MustParseAddr(ip), Bits: 24, Pool: "lan", Lease: lease.Name}},
		}
	}
	use, gone := att("c5", "p5", "10.0.0.99", protocol.Right{}), att("c6", "p6", "10.0.0.98", protocol.Right{})
	claim := protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}
	use.Use, use.Claim, gone.Use, gone.Claim = "claim.0", &claim, "claim.1", &claim
	update(t, st, func(tx *store.Tx) error {
		return tx.PutRight(protocol.Right{Kind: protocol.RightUse, Name: use.Use, Phase: protocol.Frozen, Store: "lost", UID: "u3", SubLeaseRight: protocol.SubLeaseRight{Use: &protocol.Use{Claim: claim}}})
	})
	for _, step := range []struct {
		what string
		att  store.Attachment
		want error
	}{
		{"of a use", use, nil},
		{"of a use that was given back", gone, ErrKnown},
		{"the first", att("c1", "p1", "10.0.0.5", lan), nil},
		{"the same again", att("c1", "p1", "10.0.0.5", lan), ErrKnown},
		{"another with its address", att("c2", "p2", "10.0.0.5", lan), ErrKnown},
		{"another with another address", att("c3", "p3", "10.0.0.6", lan), nil},
		{"of a lease that is given back", att("c4", "p4", "10.0.0.17", other), ErrKnown},
	} {
		err := st.Update(context.Background(), func(tx *store.Tx) error { return Record(tx, step.att) })
		if !errors.Is(err, step.want) {
			t.Errorf("%s: %v; want %v", step.what, err, step.want)
		}
	}
	if err := st.Check(); err != nil {
		t.Error(err)
	}
}
