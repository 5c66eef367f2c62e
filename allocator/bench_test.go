package allocator

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
)

// fills are how much of a pool is taken, in thousandths.
var fills = []struct {
	name     string
	thousand int64
}{{"1%", 10}, {"50%", 500}, {"99.9%", 999}}

// BenchmarkTake is the steady state of a holder of a whole pool at some fill: a
// random one of its taken addresses is freed, and the next one found and taken.
// It holds as many blocks as the fill needs, so that the fuller pool has the
// larger Table, too; held-B/addr is that Table in bytes per taken address.
//
// The fill must not matter: 99.9 % may cost twice what 1 % does, no more.
func BenchmarkTake(b *testing.B) {
	pools := []struct {
		name   string
		f      Family
		ranges []Range
	}{
		{"24", IPv4, []Range{{Prefix: prefix("10.0.0.0/24")}}},
		{"16", IPv4, []Range{{Prefix: prefix("10.0.0.0/16")}}},
		{"8", IPv4, []Range{{Prefix: prefix("10.0.0.0/8")}}},
		{"64-1000-fragments", IPv6, fragments(prefix("2001:db8::/64"), 1000, 640)},
	}
	for _, pool := range pools {
		for _, fill := range fills {
			b.Run(pool.name+"/"+fill.name, func(b *testing.B) {
				benchmarkTake(b, mustShape(b, pool.ranges...), pool.f, fill.thousand)
			})
		}
	}
}

func benchmarkTake(b *testing.B, shape *Shape, f Family, thousandths int64) {
	n := int(max(shape.Capacity(f)*thousandths/1000, 1))
	before := heap()
	s := NewSpace(NewMem(), shape)
	fill(b, s, f, n)
	held := heap() - before

	rng := rand.New(rand.NewPCG(1, 1))
	pods := sample(b, s, f, n, min(n, 1<<16), rng)
	cycle := func() { // without must: its Helper call would be a quarter of it
		i := rng.IntN(len(pods))
		if err := s.Free(pods[i]); err != nil {
			b.Fatal(err)
		}
		a, ok, err := s.Find(f, View{})
		if err != nil || !ok {
			b.Fatalf("Find = %v, %v, %v", a, ok, err)
		}
		if err := s.Take(a); err != nil {
			b.Fatal(err)
		}
		pods[i] = a
	}
	for range 100_000 { // until free addresses are scattered as in an old pool
		cycle()
	}
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
	b.ReportMetric(float64(held)/float64(n), "held-B/addr")
	runtime.KeepAlive(s)
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// sample returns count of the n taken addresses, spread evenly and shuffled.
func sample(b *testing.B, s Space, f Family, n, count int, rng *rand.Rand) []netip.Addr {
	var pods []netip.Addr
	i, step := 0, max(n/count, 1)
	for block, err := range s.Blocks(f) {
		must(b, err)
		if i%step+block.Taken < step { // none of this block's is next
			i += block.Taken
			continue
		}
		for a, err := range s.Addresses(block.Prefix) {
			must(b, err)
			if i%step == 0 {
				pods = append(pods, a)
			}
			i++
		}
	}
	rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return pods
}

// BenchmarkFindInView finds the longest-freed address within one of 256 views
// of a full /16, of which every block has freed addresses.
func BenchmarkFindInView(b *testing.B) {
	s := NewSpace(NewMem(), mustShape(b, Range{Prefix: prefix("10.0.0.0/16")}))
	fill(b, s, IPv4, 1<<16-2)
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(1023) {
		must(b, s.Free(blockAddr(i+1, 0)))
	}
	var views []View
	for i := range 256 {
		views = append(views, view(fmt.Sprintf("10.0.%d.0/24", i)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if a, ok, err := s.Find(IPv4, views[i%256]); err != nil || !ok {
			b.Fatalf("Find = %v, %v, %v", a, ok, err)
		}
	}
}

// BenchmarkNextBlock finds blocks in a /64 of ever more fragments.
func BenchmarkNextBlock(b *testing.B) {
	for _, n := range []int{1, 1000, 50_000} {
		b.Run(fmt.Sprintf("%d-fragments", n), func(b *testing.B) {
			rr := fragments(prefix("2001:db8::/64"), n, 64)
			s := mustShape(b, rr...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := s.NextBlock(IPv6, 122, View{}, rr[i*7919%n].Start); !ok {
					b.Fatal("no block")
				}
			}
		})
	}
}
