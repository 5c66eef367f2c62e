package pools

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// awaken has the controller look as it does while a pool waits, until so long after noon.
func (l *registrations) awaken(until time.Duration) {
	for !l.last.IsZero() && l.last.Before(noon.Add(until)) {
		l.tick(l.last.Add(min(recheckAfter, noon.Add(until).Sub(l.last))))
	}
}

// TestLook: looks that end in another order than they began count once, and a clock that
// is set back does not stop the count.
func TestLook(t *testing.T) {
	var l registrations
	var got []time.Duration
	for _, at := range []time.Duration{0, 10 * time.Second, 7 * time.Second, 12 * time.Second, time.Hour, -time.Hour, -time.Hour + time.Second} {
		l.tick(noon.Add(at))
		got = append(got, l.awake)
	}
	if want := "[0s 10s 10s 12s 1m12s 1m12s 1m13s]"; fmt.Sprint(got) != want {
		t.Errorf("awake for %v; want %s", got, want)
	}
}

// TestSleepIsNotSilence: a pool is closed for more than F/2 and waits for a node when the
// controller sleeps, and perhaps all nodes with it. When it wakes it waits for the node on.
func TestSleepIsNotSilence(t *testing.T) {
	var l registrations
	l.observe(saying(regAt("a", 0), false, "5"), noon)
	l.awaken(9 * time.Minute)
	const slept = 40 * time.Minute
	if why, _ := l.restoration("5", epochs{}, true, noon.Add(slept)).wait(10 * time.Minute); !strings.Contains(why, "waits for a") {
		t.Errorf("after the sleep it waits: %q; want for a", why)
	}
	l.awaken(slept + 7*time.Minute)
	if why, _ := l.restoration("5", epochs{}, true, noon.Add(slept+7*time.Minute)).wait(15 * time.Minute); why != "" {
		t.Errorf("when a has been silent for its F it waits: %q", why)
	}
}

// TestCompared: whoever has beaten twice since a pool was closed, and says nothing of a
// restored API server, is not waited for, also where F is never: it uses no pool, or
// those it uses have been opened before this one.
func TestCompared(t *testing.T) {
	epoch := protocol.EpochAfter(noon.Add(-time.Hour))
	seen, back := protocol.Restoration{Epoch: epoch}.String(), protocol.Restoration{Back: true, Epoch: epoch}.String()
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
		{"the first is what the registration showed", []beat{{after: time.Second}, {after: 2 * time.Minute}}, 8 * time.Minute, true},
		{"the second says that it has seen it", []beat{{after: -time.Minute}, {after: time.Minute}, {2 * time.Minute, seen, ""}}, 8 * time.Minute, true},
		{"another store since", []beat{{after: -time.Minute}, {after: time.Minute}, {2 * time.Minute, "", "anew"}, {3 * time.Minute, "", "anew"}}, 8 * time.Minute, true},
		{"another store, that has beaten twice", []beat{{after: -time.Minute}, {time.Minute, "", "anew"}, {2 * time.Minute, "", "anew"}, {3 * time.Minute, "", "anew"}}, 8 * time.Minute, false},
	}
	for _, fence := range []time.Duration{0, 15 * time.Minute} {
		for _, tt := range tests {
			t.Run(fmt.Sprint(tt.name, ", F ", fence), func(t *testing.T) {
				var l registrations
				hear := func(node string, b beat) {
					s := regAt(node, 0)
					s.Beat, s.Fence, s.Restored = noon.Add(b.after), fence, b.says
					if b.store != "" {
						s.Store = b.store
					}
					l.awaken(b.after)
					l.observe(s, noon.Add(b.after))
				}
				for _, b := range tt.beats {
					hear("a", b)
				}
				l.awaken(tt.at - time.Second)
				hear("b", beat{after: tt.at - time.Second, says: back})
				why, _ := l.restoration(epoch, epochs{last: epoch}, true, noon.Add(tt.at)).wait(tt.at)
				if strings.Contains(why, "waits for a") != tt.want || !tt.want && why != "" {
					t.Errorf("waits: %q; want that it waits for a: %v", why, tt.want)
				}
				if why, _ := l.restoration(epoch, epochs{last: epoch}, false, noon.Add(tt.at)).wait(0); !tt.want && !strings.Contains(why, "waits for a") {
					t.Errorf("a pool that is about to be closed waits: %q; want for a, which may have compared nothing yet", why)
				}
			})
		}
	}
}

// TestOpenedBefore: a pool that was opened since is not closed again by what registrations
// still say; nor is one that was made since, when another has been opened.
func TestOpenedBefore(t *testing.T) {
	epoch := func(hour int) string {
		if hour == 0 {
			return ""
		}
		return protocol.EpochAfter(noon.Add(time.Duration(hour) * time.Hour))
	}
	for _, tt := range []struct {
		restored, epoch, last, made int
		want                        bool
	}{
		{0, 5, 5, 2, false},
		{5, 5, 5, 2, true},
		{5, 3, 9, 2, true},
		{5, 6, 6, 2, false},
		{5, 0, 5, 2, true}, // never opened, and no other has been opened again
		{5, 0, 5, 6, true},
		{5, 0, 0, 6, true},
		{5, 0, 6, 2, true}, // it may have been opened since the backup
		{5, 0, 6, 6, false},
	} {
		p := pool("10.0.0.0/24")
		p.Status.Opening, p.CreationTimestamp = epoch(tt.epoch), metav1.NewTime(noon.Add(time.Duration(tt.made)*time.Hour))
		if got := openedBefore(epoch(tt.restored), epochs{last: epoch(tt.last)}.of(p)); got != tt.want {
			t.Errorf("opened at %d, made at %d, the last of all opened at %d, the API server went back in %d: %v; want %v", tt.epoch, tt.made, tt.last, tt.restored, got, tt.want)
		}
	}
}

// TestFirstOpeningAfterRestore: a pool was made before a restore, and is opened for the
// first time when all others have long been opened again, while some registration still says that
// it is back. It waits as the others did, and is not closed again when it is open.
func TestFirstOpeningAfterRestore(t *testing.T) {
	for _, fence := range []time.Duration{0, 15 * time.Minute} {
		var l registrations
		hear := func(node, says string, at time.Duration) {
			s := regAt(node, 0)
			s.Beat, s.Fence, s.Restored = noon.Add(at), fence, says
			l.observe(s, noon.Add(at))
		}
		last := epochs{last: protocol.EpochAfter(noon.Add(-2 * time.Hour))}
		q := pool("10.0.0.0/24")
		q.CreationTimestamp = metav1.NewTime(noon.Add(-4 * time.Hour))
		for at := -time.Hour; at <= 0; at += time.Minute {
			hear("a", "", at)
			hear("off", protocol.Restoration{Back: true, Epoch: protocol.EpochAfter(noon.Add(-3 * time.Hour))}.String(), -2*time.Hour)
		}
		s := seen{pool: q, now: noon, lastEpoch: last.last, restored: l.restoration(last.of(q), last, false, noon)}
		if why, _ := s.waits(); !strings.Contains(why, "waits for a") {
			t.Errorf("F is %v: at first it waits: %q; want for a", fence, why)
		}
		s.closedFor = 10 * time.Minute
		if why, _ := s.waits(); why != "" {
			t.Errorf("F is %v: then it waits: %q", fence, why)
		}
		s.open(&q.Status, sizes{}, sizes{})
		if l.restoration(last.of(q), last, false, noon) != nil {
			t.Errorf("F is %v: opened by %s it is closed at once", fence, q.Status.Opening)
		}
	}
}

// TestClockOfTheAPIServer: a pool that was made when the API server's clock was days ahead
// was opened by a word of that time. What its agents say after a restore counts.
func TestClockOfTheAPIServer(t *testing.T) {
	var l registrations
	q := pool("10.0.0.0/24")
	q.CreationTimestamp = metav1.NewTime(noon.Add(3 * clockSkew))
	st := q.Status.DeepCopy()
	seen{pool: q, now: noon}.open(st, sizes{}, sizes{})
	l.observe(saying(regAt("a", 0), false, st.Opening), noon)
	if all := epochsOf([]v1alpha1.IPPool{*q}); l.restoration(all.of(q), all, false, noon) == nil {
		t.Errorf("nothing is concluded from %s; want that the pool waits for its agents", st.Opening)
	}
}
