package pools

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestH9Compared: whoever has beaten twice since a pool was closed, and says nothing of a
// restored API server, is not waited for, also where F is never: it uses no pool, or
// those it uses have been opened before this one.
func TestH9Compared(t *testing.T) {
	word := protocol.OpeningAfter(noon.Add(-time.Hour))
	seen, back := protocol.Restoration{Opening: word}.String(), protocol.Restoration{Back: true, Opening: word}.String()
	type beat struct {
		after time.Duration // since the pool was closed
		says  string
		store protocol.StoreID
	}
	tests := []struct {
		name  string
		beats []beat
		at    time.Duration
		want  bool // that it is waited for
	}{
		{"two heartbeats", []beat{{after: -time.Minute}, {after: time.Minute}, {after: 2 * time.Minute}}, 8 * time.Minute, false},
		{"it was back, and has its pools again", []beat{{after: 0, says: seen}, {time.Second, back, ""}, {after: 2 * time.Second}, {after: 4 * time.Minute}}, 8 * time.Minute, false},
		{"the first is of before", []beat{{after: -2 * time.Minute}, {after: -time.Minute}, {after: 2 * time.Minute}}, 8 * time.Minute, true},
		{"one heartbeat", []beat{{after: -time.Minute}, {after: 2 * time.Minute}}, 8 * time.Minute, true},
		{"the first is what the seat showed", []beat{{after: time.Second}, {after: 2 * time.Minute}}, 8 * time.Minute, true},
		{"the second says that it has seen it", []beat{{after: -time.Minute}, {after: time.Minute}, {2 * time.Minute, seen, ""}}, 8 * time.Minute, true},
		{"another store since", []beat{{after: -time.Minute}, {after: time.Minute}, {2 * time.Minute, "", "anew"}, {3 * time.Minute, "", "anew"}}, 8 * time.Minute, true},
		{"another store, that has beaten twice", []beat{{after: -time.Minute}, {time.Minute, "", "anew"}, {2 * time.Minute, "", "anew"}, {3 * time.Minute, "", "anew"}}, 8 * time.Minute, false},
	}
	for _, fence := range []time.Duration{0, 15 * time.Minute} {
		for _, tt := range tests {
			t.Run(fmt.Sprint(tt.name, ", F ", fence), func(t *testing.T) {
				var l lookout
				hear := func(node string, b beat) {
					s := seatAt(node, 0)
					s.Beat, s.Fence, s.Restored = noon.Add(b.after), fence, b.says
					if b.store != "" {
						s.Store = b.store
					}
					l.hear(s, noon.Add(b.after))
				}
				for _, b := range tt.beats {
					hear("a", b)
				}
				hear("b", beat{after: tt.at - time.Second, says: back})
				why, _ := l.restoration(word, word, true, noon.Add(tt.at)).wait(tt.at)
				if strings.Contains(why, "waits for a") != tt.want || !tt.want && why != "" {
					t.Errorf("waits: %q; want that it waits for a: %v", why, tt.want)
				}
				if why, _ := l.restoration(word, word, false, noon.Add(tt.at)).wait(0); !tt.want && !strings.Contains(why, "waits for a") {
					t.Errorf("a pool that is about to be closed waits: %q; want for a, which may have compared nothing yet", why)
				}
			})
		}
	}
}
