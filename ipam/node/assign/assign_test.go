package assign

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var cmpAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// openStore opens a store that must be consistent when the test ends.
func openStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Check(); err != nil {
			t.Errorf("store inconsistent after the test: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func shapeOf(t *testing.T, cidrs ...string) *allocator.Shape {
	t.Helper()
	var ranges []allocator.Range
	for _, c := range cidrs {
		p := netip.MustParsePrefix(c)
		r := allocator.Range{Prefix: p}
		if !p.IsSingleIP() {
			r.Gateway = p.Addr().Next()
		}
		ranges = append(ranges, r)
	}
	s, err := allocator.NewShape(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pool is a pool under test: all of its blocks are open, and no leases.
type pool struct {
	name  protocol.PoolName
	shape *allocator.Shape
}

func openPool(t *testing.T, st *store.Store, name protocol.PoolName, cidrs ...string) pool {
	t.Helper()
	p := pool{name, shapeOf(t, cidrs...)}
	update(t, st, func(tx *store.Tx) error {
		sp := allocator.NewSpace(tx.Table(name), p.shape)
		for _, c := range cidrs {
			if err := sp.Open(netip.MustParsePrefix(c)); err != nil {
				return err
			}
		}
		return nil
	})
	return p
}

func (p pool) any(f allocator.Family) Slot { return Slot{Pool: p.name, Shape: p.shape, Family: f} }

func (p pool) exact(a string) Slot {
	return Slot{Pool: p.name, Shape: p.shape, Exact: netip.MustParseAddr(a)}
}

func update(t *testing.T, st *store.Store, fn func(*store.Tx) error) {
	t.Helper()
	if err := st.Update(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

// hold is one ADD.
func hold(st *store.Store, a Demand) (got store.Attachment, err error) {
	err = st.Update(context.Background(), func(tx *store.Tx) error {
		got, err = Hold(tx, a)
		return err
	})
	return got, err
}

func mustHold(t *testing.T, st *store.Store, a Demand) store.Attachment {
	t.Helper()
	got, err := hold(st, a)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func release(t *testing.T, st *store.Store, k store.Key) (ok bool) {
	t.Helper()
	update(t, st, func(tx *store.Tx) (err error) {
		_, ok, err = Release(tx, k)
		return err
	})
	return ok
}

func key(container, ifName string) store.Key {
	return store.Key{Network: "net", ContainerID: container, IfName: ifName}
}

// demand is an ADD of some slots by a pod of its own.
func demand(container string, slots ...Slot) Demand {
	return Demand{
		Key: key(container, "net1"), Netns: "/run/netns/" + container, NetnsID: "4:" + container, Boot: "boot", Now: start,
		Pod:   protocol.PodRef{Namespace: "ns", Name: "pod-" + container, UID: protocol.UID("uid-" + container)},
		Slots: slots,
	}
}

func addrs(a store.Attachment) string {
	var s []string
	for _, x := range a.Addresses {
		s = append(s, netip.PrefixFrom(x.Addr, x.Bits).String())
	}
	return strings.Join(s, " ")
}

// goneNS is a Gone that knows which namespaces are gone.
func goneNS(paths ...string) func(store.Attachment) bool {
	return func(a store.Attachment) bool { return slices.Contains(paths, a.Netns) }
}

func viewOf(t *testing.T, ranges ...string) allocator.View {
	t.Helper()
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(netipx.MustParseIPRange(r))
	}
	set, err := b.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	return allocator.NewView(set)
}
