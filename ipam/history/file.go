package history

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// Bounds are how much of a history is kept.
type Bounds struct {
	// Size is how many bytes the files may have. Zero keeps none.
	Size int64
	// Age is after which time a line may go; it does within a thirty-second part of Age. What is
	// still held is written again. Zero keeps none.
	Age time.Duration
}

// DefaultBounds are what an agent keeps unless it is told otherwise.
var DefaultBounds = Bounds{Size: 64 << 20, Age: 90 * 24 * time.Hour}

// MinSize is the smallest Size beside 0.
const MinSize = 1 << 20

// Off reports whether nothing is kept.
func (b Bounds) Off() bool { return b.Size == 0 || b.Age == 0 }

// Validate reports what of b cannot be.
func (b Bounds) Validate() error {
	if b.Size != 0 && b.Size < MinSize {
		return fmt.Errorf("the history's size is %d bytes: give %d (1Mi) or more, or 0 to keep none", b.Size, MinSize)
	}
	if b.Age != 0 && b.Age < time.Hour {
		return fmt.Errorf("the history's age is %v: give 1h or more, or 0 to keep none", b.Age)
	}
	return nil
}

// Of what a history may have, a segment has these parts: what is removed at a time.
const (
	partsOfSize = 8
	partsOfAge  = 32
)

// A File is the files of a history, to be written by one process. Make one with [OpenFile]. After
// an error it can only be closed, and opened again.
type File struct {
	dir      string
	node     string
	bounds   Bounds
	segments []segment // ascending; the last is written
	f        *os.File  // of the last segment
	open     map[key]openSpan
}

// An openSpan is a holding that has not ended, and the segment that has the line of its beginning.
type openSpan struct {
	Span
	in uint64
}

// OpenFile opens the history of a node in dir, which it makes, with a first segment if there is
// none. It reads all of it.
func OpenFile(dir, node string, bounds Bounds, now time.Time) (*File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	numbers, err := segmentsIn(dir)
	if err != nil {
		return nil, err
	}
	h := &File{dir: dir, node: node, bounds: bounds, open: map[key]openSpan{}}
	for _, n := range numbers {
		seg := segment{number: n, begun: now}
		whole, err := readSegment(dir, n, func(e Event) {
			if e.What == Begun {
				seg.begun = e.Time
			}
			h.follow(e, n)
		})
		if err != nil {
			return nil, err
		}
		seg.size = whole
		h.segments = append(h.segments, seg)
	}
	if len(numbers) == 0 {
		err = h.begin(1, now)
	} else {
		err = h.resume(now)
	}
	if err != nil && h.f != nil {
		err = errors.Join(err, h.f.Close())
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// resume opens the last segment and cuts off what is no whole line. If its first line was not
// written, it is now.
func (h *File) resume(now time.Time) (err error) {
	last := h.segments[len(h.segments)-1]
	if h.f, err = os.OpenFile(pathOf(h.dir, last.number), os.O_WRONLY, 0); err != nil {
		return err
	}
	if err = h.f.Truncate(last.size); err == nil {
		_, err = h.f.Seek(last.size, io.SeekStart)
	}
	if err == nil && last.size == 0 {
		err = h.write([]Event{h.begun(now)})
	}
	return err
}

// begun is the first line of a segment.
func (h *File) begun(now time.Time) Event {
	return Event{Time: now, What: Begun, Holding: Holding{Node: h.node}}
}

// begin begins a segment.
func (h *File) begin(number uint64, now time.Time) error {
	f, err := os.OpenFile(pathOf(h.dir, number), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if h.f != nil {
		if err := h.f.Close(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	h.f = f
	h.segments = append(h.segments, segment{number: number, begun: now})
	if err := h.write([]Event{h.begun(now)}); err != nil {
		return err
	}
	dir, err := os.Open(h.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Append writes events durably, and removes what the bounds do not allow any more. It is to be
// called without events as well, from time to time.
func (h *File) Append(events []Event, now time.Time) error {
	if err := h.write(events); err != nil {
		return err
	}
	last := h.segments[len(h.segments)-1]
	if last.size > h.bounds.Size/partsOfSize || now.Sub(last.begun) > h.bounds.Age/partsOfAge {
		if err := h.begin(last.number+1, now); err != nil {
			return err
		}
	}
	for h.tooMuch(now) {
		if err := h.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// tooMuch reports whether the oldest segment has to go: there is more than the size allows, or the
// segment ended too long ago.
func (h *File) tooMuch(now time.Time) bool {
	if len(h.segments) < 2 {
		return false
	}
	var size int64
	for _, s := range h.segments {
		size += s.size
	}
	return size > h.bounds.Size || now.Sub(h.segments[1].begun) > h.bounds.Age
}

// dropOldest removes the oldest segment, when what is open of it has been written again.
func (h *File) dropOldest() error {
	oldest := h.segments[0]
	var again []Event
	for _, o := range h.open {
		if o.in == oldest.number {
			again = append(again, o.given())
		}
	}
	if err := h.write(again); err != nil {
		return err
	}
	if err := os.Remove(pathOf(h.dir, oldest.number)); err != nil {
		return err
	}
	h.segments = h.segments[1:]
	return nil
}

// write appends events to the last segment, durably.
func (h *File) write(events []Event) (err error) {
	if len(events) == 0 {
		return nil
	}
	var lines []byte
	for _, e := range events {
		if lines, err = appendLine(lines, e); err != nil {
			return err
		}
	}
	last := &h.segments[len(h.segments)-1]
	if _, err := h.f.Write(lines); err != nil {
		return err
	}
	if err := h.f.Sync(); err != nil {
		return err
	}
	last.size += int64(len(lines))
	for _, e := range events {
		h.follow(e, last.number)
	}
	return nil
}

// follow keeps what is open by an event in the segment of that number.
func (h *File) follow(e Event, number uint64) {
	switch e.What {
	case Given:
		if was, ok := h.open[e.key()]; ok { // it is written again
			e.Time = was.From
		}
		h.open[e.key()] = openSpan{Span{Holding: e.Holding, From: e.Time}, number}
	case Freed:
		delete(h.open, e.key())
	case Begun:
	}
}

// News returns those of events that say something new, in their order.
func (h *File) News(events []Event) (news []Event) {
	open := map[key]bool{}
	for _, e := range events {
		is, seen := open[e.key()]
		if !seen {
			_, is = h.open[e.key()]
		}
		if is != (e.What == Given) {
			news = append(news, e)
		}
		open[e.key()] = e.What == Given
	}
	return news
}

// OpenAfter returns the holdings that are open when events will have been written.
func (h *File) OpenAfter(events []Event) (open []Span) {
	after := File{open: maps.Clone(h.open)}
	for _, e := range events {
		after.follow(e, 0)
	}
	for _, o := range after.open {
		open = append(open, o.Span)
	}
	Sort(open)
	return open
}

// Close closes the file.
func (h *File) Close() error { return h.f.Close() }
