package allocator

import (
	"math"
	"testing"
)

func TestPressureText(t *testing.T) {
	for _, p := range []Pressure{PressureLow, PressureHigh, PressureExhausted} {
		got, err := ParsePressure(p.String())
		if got != p || err != nil {
			t.Errorf("ParsePressure(%q) = %v, %v; want %v, nil", p.String(), got, err, p)
		}
	}
	for _, s := range []string{"", "low", "Pressure(3)"} {
		if got, err := ParsePressure(s); err == nil {
			t.Errorf("ParsePressure(%q) = %v, nil; want an error", s, got)
		}
	}
	if got, want := Pressure(3).String(), "Pressure(3)"; got != want {
		t.Errorf("Pressure(3).String() = %q; want %q", got, want)
	}
}

func TestNextPressure(t *testing.T) {
	const low, high, exhausted = PressureLow, PressureHigh, PressureExhausted
	tests := []struct {
		name           string
		now            Pressure
		capacity, free int64
		want           Pressure
	}{
		{"enters high below 10 %", low, 254, 25, high},
		{"stays low at 10 %", low, 250, 25, low},
		{"stays high at 15 %", high, 200, 30, high},
		{"stays high between", high, 254, 30, high},
		{"leaves high above 15 %", high, 254, 39, low},
		{"enters exhausted at none", low, 254, 0, exhausted},
		{"enters exhausted from high", high, 254, 0, exhausted},
		{"stays exhausted at 2 %", exhausted, 250, 5, exhausted},
		{"leaves exhausted above 2 %", exhausted, 254, 6, high},
		{"leaves exhausted for low", exhausted, 254, 100, low},
		{"one of few is no news", exhausted, 14, 1, exhausted},
		{"two of few are", exhausted, 14, 2, high},
		{"a small pool keeps no reserve near its end", low, 6, 3, high},
		{"a small pool is not near it at 4", low, 14, 4, low},
		{"a small pool is not far from it at 8", high, 14, 8, high},
		{"a small pool is at 9", high, 14, 9, low},
		{"a small pool starts low", low, 6, 6, low},
		{"a small pool is low again when empty", high, 6, 6, low},
		{"one address, taken", low, 1, 0, exhausted},
		{"one address, free again", exhausted, 1, 1, low},
		{"no addresses", low, 0, 0, exhausted},
		{"more free than there are", high, 0, 5, low},
		{"a negative count", low, 10, -1, exhausted},
		{"saturated", low, math.MaxInt64, math.MaxInt64, low},
		{"saturated, 9.99 %", low, math.MaxInt64, math.MaxInt64 / 1001 * 100, high},
		{"saturated, 14 %", high, math.MaxInt64, math.MaxInt64 / 100 * 14, high},
		{"saturated, 16 %", high, math.MaxInt64, math.MaxInt64 / 100 * 16, low},
		{"an unknown word counts as not low", Pressure(9), 254, 30, high},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := NextPressure(tt.now, tt.capacity, tt.free); got != tt.want {
				t.Errorf("NextPressure(%v, %d, %d) = %v; want %v", tt.now, tt.capacity, tt.free, got, tt.want)
			}
		})
	}
}

// TestNextPressureSettles: with counts that stand still the word does too, and
// one address more or less never turns a word into another and back.
func TestNextPressureSettles(t *testing.T) {
	for capacity := int64(1); capacity < 600; capacity++ {
		for free := int64(0); free < capacity; free++ {
			for now := PressureLow; now <= PressureExhausted; now++ {
				p := NextPressure(now, capacity, free)
				if again := NextPressure(p, capacity, free); again != p {
					t.Fatalf("capacity %d, free %d: %v then %v then %v", capacity, free, now, p, again)
				}
				if free == 0 || p == now || free+1 == capacity {
					continue
				}
				for _, near := range []int64{free - 1, free + 1} {
					if back := NextPressure(p, capacity, near); back == now {
						t.Fatalf("capacity %d: %v at free %d is %v, and %v again at %d", capacity, now, free, p, back, near)
					}
				}
			}
		}
	}
}

func TestWanted(t *testing.T) {
	tests := []struct {
		name             string
		used, free, size int
		p                Pressure
		want             int
	}{
		{"a pool not in use", 0, 0, 64, PressureLow, 0},
		{"blocks of one", 1, 0, 1, PressureLow, 2},
		{"one of two kept", 1, 1, 1, PressureLow, 1},
		{"enough in the block", 1, 63, 64, PressureLow, 0},
		{"a full block", 64, 0, 64, PressureLow, 1},
		{"a quarter", 40, 9, 1, PressureLow, 1},
		{"at most 16", 1000, 0, 1, PressureLow, 16},
		{"rounded up", 100, 3, 4, PressureLow, 4},
		{"high", 100, 3, 4, PressureHigh, 0},
		{"exhausted", 100, 0, 4, PressureExhausted, 0},
		{"no block size yet", 100, 0, 0, PressureLow, 0},
		{"a count below zero is none", 8, -5, 1, PressureLow, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Wanted(tt.used, tt.free, tt.size, tt.p); got != tt.want {
				t.Errorf("Wanted(%d, %d, %d, %v) = %d; want %d", tt.used, tt.free, tt.size, tt.p, got, tt.want)
			}
		})
	}
}

// TestWantedKeepsReserve: acquiring what is wanted reaches the reserve, and one
// block fewer would not.
func TestWantedKeepsReserve(t *testing.T) {
	for used := range 100 {
		for free := range 20 {
			for size := 1; size <= MaxBlockSize; size *= 2 {
				n, reserve := Wanted(used, free, size, PressureLow), Reserve(used, PressureLow)
				if free+n*size < reserve || n > 0 && free+(n-1)*size >= reserve {
					t.Fatalf("Wanted(%d, %d, %d) = %d blocks; reserve is %d", used, free, size, n, reserve)
				}
			}
		}
	}
}
