package allocator

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestBitmapRange(t *testing.T) {
	for from := range MaxBlockSize {
		for to := from; to < MaxBlockSize; to++ {
			var got, want bitmap
			got.setRange(from, to)
			for i := from; i <= to; i++ {
				want.set(i)
			}
			if first, ok := got.first(); got != want || first != from || !ok || got.count() != to-from+1 {
				t.Fatalf("setRange(%d, %d) = %x, first %d, count %d; want %x", from, to, got, first, got.count(), want)
			}
		}
	}
}

func TestBitmapBytes(t *testing.T) {
	c := seeded(1)
	for log := range maxLog + 1 {
		b := make([]byte, bitmapLen(log))
		for i := range b {
			b[i] = byte(c(256))
		}
		m := loadBitmap(b)
		for off := range len(b) * 8 {
			if want := b[off/8]>>(off%8)&1 != 0; m.has(off) != want {
				t.Errorf("%d bytes, offset %d: %v; want %v", len(b), off, m.has(off), want)
			}
		}
		got := make([]byte, len(b))
		if m.store(got); !bytes.Equal(got, b) {
			t.Errorf("stored %x; want %x", got, b)
		}
	}
}

func TestOffsets(t *testing.T) {
	for _, s := range []string{"10.0.0.0/24", "10.0.0.64/26", "10.0.0.77/32", "2001:db8::7f00/120", "2001:db8::70/124", "::/128"} {
		p := prefix(s)
		a := p.Addr()
		for off := range 1 << (a.BitLen() - p.Bits()) {
			if got := offset(p, a); got != off || at(p, off) != a {
				t.Errorf("%v in %v: offset %d, back %v; want %d", a, p, got, at(p, off), off)
			}
			a = a.Next()
		}
	}
}

// keyOf returns the key of a block.
func keyOf(b block) []byte {
	return new(key).addr(tagBlock, FamilyOf(b.last), b.last)
}

func TestBlockDecodeFaults(t *testing.T) {
	whole := func() block {
		var m bitmap
		m.setRange(0, 3)
		b := newBlock(prefix("10.0.0.4/30"), m)
		b.take(0)
		b.take(1)
		b.take(2)
		b.free(0, 7)
		b.free(1, 9)
		return b
	}
	tests := []struct {
		name    string
		change  func(b block) []byte
		resealt bool // the fault is behind a right checksum
		want    string
	}{
		{"empty", func(block) []byte { return nil }, false, "truncated"},
		{"header only", func(b block) []byte { return b.raw[:blockHeader] }, true, "wrong size"},
		{"newer version", func(b block) []byte { b.raw[0] = 2; return b.raw }, true, "has version 2; this program knows 1"},
		{"wrong checksum", func(b block) []byte { b.raw[3]++; return b.raw }, false, "checksum"},
		{"too large", func(b block) []byte { b.raw[1] = 9; return b.raw }, true, "wrong size"},
		{"not where it ends", func(b block) []byte { b.raw[1] = 4; return append(b.raw, make([]byte, 6)...) }, true, "does not end at"},
		{"ordinary outside", func(b block) []byte { b.raw[6] |= 0x10; return b.raw }, true, "outside itself"},
		{"taken outside", func(b block) []byte { b.raw[7] |= 0x80; return b.raw }, true, "outside itself"},
		{"barred outside", func(b block) []byte { b.raw[8] |= 0x10; return b.raw }, true, "outside itself"},
		{"taken and barred", func(b block) []byte { b.set(mapBarred, 2); return b.raw }, true, "both taken and barred"},
		{"freed and taken", func(b block) []byte { b.set(mapTaken, 0); return b.raw }, true, "order of freed"},
		{"freed cut off", func(b block) []byte { return b.raw[:len(b.raw)-1] }, true, "wrong length"},
		{"freed twice", func(b block) []byte { b.free(1, 10); return b.raw }, true, "order of freed"},
		{"freed out of order", func(b block) []byte { b.free(2, 9); return b.raw }, true, "order of freed"},
		{"freed as nothing", func(b block) []byte { b.raw = b.raw[:9]; b.free(2, 0); return b.raw }, true, "order of freed"},
		{"freed past the end", func(b block) []byte { b.free(2, maxSeq+1); return b.raw }, true, "order of freed"},
		{"freed outside", func(b block) []byte { b.free(2, 10); b.raw[len(b.raw)-9] = 4; return b.raw }, true, "order of freed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := whole()
			key := keyOf(b)
			b.seal(key)
			if _, err := decodeBlock(key, b.last, b.raw); err != nil {
				t.Fatalf("the block without fault: %v", err)
			}
			raw := tt.change(b)
			if tt.resealt {
				binary.BigEndian.PutUint32(raw[2:], checksum(key, raw))
			}
			if _, err := decodeBlock(key, b.last, raw); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("decodeBlock(%x) = %v; want %q", raw, err, tt.want)
			}
		})
	}
	t.Run("another key", func(t *testing.T) {
		b := whole()
		raw := b.seal(keyOf(b))
		other := prefix("10.0.0.8/30")
		moved := newBlock(other, bitmap{})
		if _, err := decodeBlock(keyOf(moved), moved.last, raw); err == nil {
			t.Errorf("the block of %v decodes as %v; want an error", b.prefix, other)
		}
	})
}

// FuzzBlockDecode: whatever bytes are decoded without error are a block whose
// parts make the same bytes again.
func FuzzBlockDecode(f *testing.F) {
	b := newBlock(prefix("10.0.0.0/28"), bitmap{0xFFFE})
	b.take(3)
	b.take(4)
	b.free(3, 1)
	f.Add(b.raw, byte(15))
	f.Add(newBlock(prefix("10.0.0.0/24"), bitmap{1}).raw, byte(255))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 1, 1, 0}, byte(0))
	f.Fuzz(func(t *testing.T, raw []byte, end byte) {
		last := netip.AddrFrom4([4]byte{10, 0, 0, end})
		key := new(key).addr(tagBlock, IPv4, last)
		if len(raw) >= blockHeader {
			raw = slices.Clone(raw) // the fuzzer does not find checksums
			binary.BigEndian.PutUint32(raw[2:], checksum(key, raw))
		}
		b, err := decodeBlock(key, last, raw)
		if err != nil {
			return
		}
		again := newBlock(b.prefix, b.bitmap(mapOrdinary))
		again.setBitmap(mapTaken, b.bitmap(mapTaken))
		again.setBitmap(mapBarred, b.bitmap(mapBarred))
		for i := range b.freedLen() {
			off, seq := b.freedAt(i)
			again.free(off, seq)
		}
		if got := again.seal(key); !bytes.Equal(got, raw) {
			t.Errorf("decoded %x, made %x", raw, got)
		}
		if n := b.tally(); n.taken+n.free > int64(b.size()) || b.last != last || !b.prefix.Contains(last) {
			t.Errorf("block %v that ends at %v has %+v", b.prefix, b.last, n)
		}
	})
}
