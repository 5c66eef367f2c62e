package history

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var compare = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// at returns noon and so many seconds.
func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// of returns a holding of an address by the sandbox of that ID.
func of(container, address string) Holding {
	return Holding{
		Address: netip.MustParseAddr(address), Pool: "lan", Network: "lan", Namespace: "shop", Pod: "web-" + container, PodUID: "uid-" + container,
		Container: container, Interface: "net1", Node: "n1",
	}
}

func given(seconds int, h Holding) Event { return Event{Time: at(seconds), What: Given, Holding: h} }
func freed(seconds int, h Holding) Event { return Event{Time: at(seconds), What: Freed, Holding: h} }
func late(e Event) Event                 { e.Late = true; return e }

func TestSpans(t *testing.T) {
	a, b := of("a", "10.0.0.1"), of("b", "10.0.0.1")
	for _, tt := range []struct {
		name   string
		events []Event
		want   []Span
	}{
		{"one after the other", []Event{given(0, a), freed(5, a), given(6, b)}, []Span{{Holding: a, From: at(0), To: at(5)}, {Holding: b, From: at(6)}}},
		{"what is written again is one", []Event{given(0, a), given(0, a), freed(5, a), freed(7, a)}, []Span{{Holding: a, From: at(0), To: at(5)}}},
		{"one interface has it twice", []Event{given(0, a), freed(5, a), given(8, a)}, []Span{{Holding: a, From: at(0), To: at(5)}, {Holding: a, From: at(8)}}},
		{"an end that was not seen", []Event{given(0, a), late(freed(5, a))}, []Span{{Holding: a, From: at(0), To: at(5), Late: true}}},
		{"an end that was none: a store was lost and read back", []Event{given(0, a), late(freed(5, a)), given(1, a)}, []Span{{Holding: a, From: at(0)}}},
		{"its beginning is in no line", []Event{freed(5, a)}, []Span{{Holding: a, To: at(5)}}},
		{"a clock goes back", []Event{given(5, a), freed(2, a)}, []Span{{Holding: a, From: at(5), To: at(5)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s Spans
			for _, e := range tt.events {
				s.Add(e)
			}
			if diff := cmp.Diff(tt.want, s.All(), compare); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	s := Span{From: at(10), To: at(20)}
	for _, tt := range []struct {
		s        Span
		from, to int
		want     bool
	}{
		{s, 9, 9, false}, {s, 10, 10, true}, {s, 19, 19, true}, {s, 20, 20, false}, {s, 0, 9, false}, {s, 0, 10, true}, {s, 15, 99, true}, {s, 20, 99, false},
		{Span{From: at(10)}, 99, 99, true}, {Span{To: at(20)}, 0, 0, true},
	} {
		if got := tt.s.Overlaps(at(tt.from), at(tt.to)); got != tt.want {
			t.Errorf("%v overlaps %d to %d: %v", tt.s, tt.from, tt.to, got)
		}
	}
}

// TestMissing: what happened while nobody wrote is told by what there was and what there is.
func TestMissing(t *testing.T) {
	a, b, c := of("a", "10.0.0.1"), of("b", "10.0.0.1"), of("c", "10.0.0.2")
	claimed := b
	claimed.Claim = "shop/db"
	for _, tt := range []struct {
		name       string
		open, held []Span
		want       []Event
	}{
		{"nothing", []Span{{Holding: a, From: at(0)}}, []Span{{Holding: a, From: at(1)}}, nil},
		{"an end", []Span{{Holding: a, From: at(0)}, {Holding: c, From: at(0)}}, []Span{{Holding: a, From: at(0)}}, []Event{late(freed(60, c))}},
		{"a beginning", nil, []Span{{Holding: a, From: at(3)}}, []Event{given(3, a)}},
		{"the next one has it", []Span{{Holding: a, From: at(0)}}, []Span{{Holding: b, From: at(5)}}, []Event{late(freed(5, a)), given(5, b)}},
		{"the next one has it by a claim, which several may use", []Span{{Holding: a, From: at(0)}}, []Span{{Holding: claimed, From: at(5)}}, []Event{late(freed(60, a)), given(5, claimed)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Missing(tt.open, tt.held, at(60)), compare); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2026-11-17T14:00":          time.Date(2026, 11, 17, 14, 0, 0, 0, zone),
		"2026-11-17T14:00:30":       time.Date(2026, 11, 17, 14, 0, 30, 0, zone),
		"2026-11-17T14:00Z":         time.Date(2026, 11, 17, 14, 0, 0, 0, time.UTC),
		"2026-11-17T14:00:00Z":      time.Date(2026, 11, 17, 14, 0, 0, 0, time.UTC),
		"2026-11-17T14:00:00+02:00": time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC),
		"2026-11-17":                time.Date(2026, 11, 17, 0, 0, 0, 0, zone),
		"7d":                        now.Add(-7 * 24 * time.Hour),
		"1.5d":                      now.Add(-36 * time.Hour),
		"36h":                       now.Add(-36 * time.Hour),
		"2026-11-20T08:01":          now.Add(time.Minute), // by a clock that is ahead
	} {
		if got, err := ParseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "-7d", "-1h", "7", "14:00", "2026-13-01", "NaNd", "1e300d", "17.11.2026"} {
		if got, err := ParseTime(text, now); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestParsePeriod(t *testing.T) {
	for _, tt := range []struct{ at, since, want string }{
		{"", "", "give --at or --since"}, {"1h", "1h", "give one of"}, {"x", "", `--at: "x" is no time`}, {"", "x", `--since: "x" is no time`},
		{"1h", "", fmt.Sprint(at(-3600), at(-3600))}, {"", "1h", fmt.Sprint(at(-3600), at(0))},
	} {
		from, to, err := ParsePeriod(tt.at, tt.since, noon)
		got := fmt.Sprint(from, to)
		if err != nil {
			got = err.Error()
		}
		if len(got) < len(tt.want) || got[:len(tt.want)] != tt.want {
			t.Errorf("--at=%s --since=%s: %s; want %s", tt.at, tt.since, got, tt.want)
		}
	}
}
