package store

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func sampleAttachment(n int) Attachment {
	a := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	return Attachment{
		Key:     Key{Network: "vlan-prod", ContainerID: fmt.Sprintf("%064x", n), IfName: "net1"},
		Pod:     protocol.PodRef{Namespace: "default", Name: fmt.Sprintf("web-%d", n), UID: protocol.UID(fmt.Sprintf("6f1d3c1e-95a0-4b0f-8b9d-%012x", n)), Owner: protocol.OwnerRef{Kind: "StatefulSet", Name: "web", UID: "0b7e2f9a-95a0-4b0f-8b9d-000000000001"}},
		Netns:   "/var/run/netns/cni-0a1b2c3d-1111-2222-3333-444455556666",
		NetnsID: "4:4026532281", Boot: "6f1d3c1e-95a0-4b0f-8b9d-aaaabbbbcccc", Created: time.Unix(1700000000, 12345678).UTC(),
		Addresses: []Address{{Addr: a, Bits: 8, Gateway: netip.MustParseAddr("10.0.0.1"), Pool: "vlan-prod", Lease: "vlan-prod.0a000000.26"}},
	}
}

func benchUpdate(b *testing.B, callers int, o Options) {
	s, err := Open(filepath.Join(b.TempDir(), "store.db"), o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var n atomic.Int64
	b.ResetTimer()
	done := make(chan error, callers)
	for range callers {
		go func() {
			for {
				i := int(n.Add(1))
				if i > b.N {
					done <- nil
					return
				}
				err := s.Update(b.Context(), func(tx *Tx) error { return addLike(tx, i%4096) })
				if err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
}

// addLike reads three records and writes three, as an ADD does: the
// attachment, its index entry, and the block that the address is taken of.
func addLike(tx *Tx, i int) error {
	a := sampleAttachment(i)
	if _, _, err := tx.Attachment(a.Key); err != nil {
		return err
	}
	for _, err := range tx.OfPod(a.Pod.UID, a.IfName) {
		if err != nil {
			return err
		}
	}
	t := tx.Table("vlan-prod")
	key := []byte{1, 10, 0, byte(i >> 8), byte(i) & 0xc0}
	block := make([]byte, 64)
	copy(block, t.Get(key))
	block[i%64]++
	if err := t.Put(key, block); err != nil {
		return err
	}
	return tx.PutAttachment(a)
}

func BenchmarkUpdate(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) { benchUpdate(b, callers, Options{}) })
	}
}

func BenchmarkOpenUpdateClose(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	i := 0
	for b.Loop() {
		s, err := OpenLocal(b.Context(), path, Options{})
		if err != nil {
			b.Fatal(err)
		}
		i++
		if err := s.Update(b.Context(), func(tx *Tx) error { return addLike(tx, i%256) }); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
