package allocator

import "fmt"

// Pressure says how full a pool is, in a word that seldom changes. The zero
// Pressure is low.
type Pressure uint8

// The pressures.
const (
	PressureLow       Pressure = iota // reserves are kept ahead of need
	PressureHigh                      // no reserves
	PressureExhausted                 // freed addresses go back to the cluster at once
)

// String returns "Low", "High" or "Exhausted".
func (p Pressure) String() string {
	switch p {
	case PressureLow:
		return "Low"
	case PressureHigh:
		return "High"
	case PressureExhausted:
		return "Exhausted"
	default:
		return fmt.Sprintf("Pressure(%d)", uint8(p))
	}
}

// ParsePressure is the inverse of [Pressure.String].
func ParsePressure(s string) (Pressure, error) {
	for _, p := range []Pressure{PressureLow, PressureHigh, PressureExhausted} {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf("pressure %q: want Low, High or Exhausted", s)
}

// NextPressure returns the pressure of a pool after now, where free of its
// capacity addresses are left. Each word is left later than it is entered, so
// that a pool at an edge does not change its status with every pod:
//
//	            entered at free                left at free
//	Exhausted   0                              above 2 % and above 1
//	High        below 10 %, or below 4         above 15 % and above 8
//
// The absolute numbers are for small pools, where a percentage is less than one
// pod. A pool that is empty again (free = capacity) leaves both words:
//
//	now=Low        capacity=254 free=25 -> High         (below 25.4)
//	now=High       capacity=254 free=30 -> High
//	now=High       capacity=254 free=39 -> Low          (above 38.1)
//	now=Exhausted  capacity=254 free=5  -> Exhausted
//	now=Exhausted  capacity=254 free=6  -> High         (above 5.08)
//	now=Low        capacity=6   free=3  -> High
//	now=Exhausted  capacity=1   free=1  -> Low
//
// A pool without addresses is exhausted.
func NextPressure(now Pressure, capacity, free int64) Pressure {
	switch {
	case free <= 0:
		return PressureExhausted
	case free >= capacity:
		return PressureLow
	case now == PressureExhausted && !above(free, capacity, 2, 1):
		return PressureExhausted
	case now != PressureLow && !above(free, capacity, 15, 8):
		return PressureHigh
	case below(free, capacity, 10, 4):
		return PressureHigh
	default:
		return PressureLow
	}
}

// above reports whether free is more than percent of capacity and more than n.
func above(free, capacity, percent, n int64) bool {
	whole, _ := share(capacity, percent)
	return free > whole && free > n
}

// below reports whether free is less than percent of capacity or less than n.
func below(free, capacity, percent, n int64) bool {
	whole, rest := share(capacity, percent)
	return free < whole || free == whole && rest > 0 || free < n
}

// share returns percent of capacity as whole addresses and hundredths of one.
// It does not overflow: the hundreds are divided first.
func share(capacity, percent int64) (whole, hundredths int64) {
	part := capacity % 100 * percent
	return capacity/100*percent + part/100, part % 100
}

// Reserve returns how many free addresses a node keeps ahead of need in a pool
// in which it uses used: a quarter, at least 2 and at most 16. It keeps none in a
// pool that it does not use, or that is not at low pressure. An idle block whose
// release would leave fewer is kept; see [Wanted].
func Reserve(used int, p Pressure) int {
	if p != PressureLow || used <= 0 {
		return 0
	}
	return min(max(used/4, 2), 16)
}

// Wanted returns how many blocks of blockSize addresses a node should acquire
// ahead of need, with used addresses in use and free ones left in its blocks, so
// that [Reserve] is kept:
//
//	used=0   free=0  size=64  Low  -> 0
//	used=1   free=0  size=1   Low  -> 2
//	used=1   free=63 size=64  Low  -> 0
//	used=64  free=0  size=64  Low  -> 1
//	used=100 free=3  size=4   Low  -> 4
//	used=100 free=3  size=4   High -> 0
func Wanted(used, free, blockSize int, p Pressure) int {
	lacking := Reserve(used, p) - max(free, 0)
	if lacking <= 0 || blockSize <= 0 {
		return 0
	}
	return (lacking + blockSize - 1) / blockSize
}
