package history

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// every is how often what was noted is written.
	every = time.Second
	// again is how long a file that could not be written is left alone.
	again = time.Minute
	// maxNoted is how many events wait at most to be written. With more the recorder compares what
	// was written with what the node has now, as after a crash.
	maxNoted = 1 << 15
)

// A Recorder writes down what is noted, once a second, and logs it. Nobody who notes waits for a
// disk. The zero values of Dir and Bounds are of one that logs alone.
type Recorder struct {
	Dir    string
	Node   string
	Bounds Bounds
	// Held returns what has an address of the node now, and since when.
	Held func() ([]Span, error)
	Log  *slog.Logger

	mu    sync.Mutex
	noted []Event // guarded by mu
	// missed says that something happened that was not noted. Guarded by mu.
	missed bool

	// Of who calls Run or flush.
	file    *File
	retryAt time.Time // when the file is opened again
	askAt   time.Time // when the node is asked again what it has
}

// Note has events written and logged soon. It does not wait.
func (r *Recorder) Note(events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.noted)+len(events) > maxNoted {
		r.noted, r.missed = nil, true
		return
	}
	r.noted = append(r.noted, events...)
}

// Miss says that it is not known what has happened.
func (r *Recorder) Miss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = true
}

// Run writes what is noted until ctx ends. What is noted later is written by Close. Where nothing
// is to be kept, it removes what was.
func (r *Recorder) Run(ctx context.Context) {
	if r.Bounds.Off() && r.Dir != "" {
		if some, err := remove(r.Dir); err != nil {
			r.Log.WarnContext(ctx, "history is off, and what there was of it is not removed", "directory", r.Dir, "error", err)
		} else if some {
			r.Log.InfoContext(ctx, "history is off, and what there was of it is removed", "directory", r.Dir)
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r.flush(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close writes the rest, after Run has returned.
func (r *Recorder) Close(ctx context.Context) {
	r.flush(ctx, time.Now())
	if r.file != nil {
		r.fail(ctx, r.file.Close(), time.Now())
		r.file = nil
	}
}

// take returns what was noted since the last call, and whether something was missed.
func (r *Recorder) take() (events []Event, missed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, missed = r.noted, r.missed
	r.noted, r.missed = nil, false
	return events, missed
}

// flush writes and logs what was noted.
func (r *Recorder) flush(ctx context.Context, now time.Time) {
	events, missed := r.take()
	if r.Bounds.Off() {
		if missed {
			r.Log.WarnContext(ctx, "addresses were given or freed without a line here: there were too many at once")
		}
		r.log(ctx, events)
		return
	}
	if r.file == nil && !now.Before(r.retryAt) {
		file, err := OpenFile(r.Dir, r.Node, r.Bounds, now)
		if err != nil {
			r.fail(ctx, err, now)
		}
		r.file, missed = file, true
	}
	if r.file == nil {
		r.log(ctx, events) // when the file is opened, it learns of them as after a crash
		return
	}
	events = r.file.News(events)
	if missed {
		events = append(events, r.missing(ctx, events, now)...)
	}
	r.log(ctx, events)
	if err := r.file.Append(events, now); err != nil {
		r.fail(ctx, err, now)
	}
}

// missing returns what leads to what the node has now, from what is known with news.
func (r *Recorder) missing(ctx context.Context, news []Event, now time.Time) []Event {
	if now.Before(r.askAt) {
		r.Miss()
		return nil
	}
	held, err := r.Held()
	if err != nil {
		r.Log.WarnContext(ctx, "history waits for the store", "error", err, "again", again)
		r.askAt = now.Add(again)
		r.Miss()
		return nil
	}
	return Missing(r.file.OpenAfter(news), held, now)
}

// fail gives up a file for a while, if there is an error.
func (r *Recorder) fail(ctx context.Context, err error, now time.Time) {
	if err == nil {
		return
	}
	r.Log.ErrorContext(ctx, "history not written: who has which address is not in its file until it can be; it is tried again",
		"directory", r.Dir, "error", err, "after", again)
	if r.file != nil {
		_ = r.file.Close() // it has failed already
		r.file = nil
	}
	r.retryAt = now.Add(again)
}

// log logs events at their times, with the keys that the file has.
func (r *Recorder) log(ctx context.Context, events []Event) {
	h := r.Log.Handler()
	if !h.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for _, e := range events {
		line := slog.NewRecord(e.Time, slog.LevelInfo, "address "+string(e.What), 0)
		for _, a := range [...]struct{ key, value string }{
			{"address", e.Address.String()}, {"pool", e.Pool}, {"network", e.Network}, {"namespace", e.Namespace}, {"pod", e.Pod}, {"podUID", e.PodUID},
			{"container", e.Container}, {"interface", e.Interface}, {"claim", e.Claim}, {"resourceClaim", e.ResourceClaim}, {"node", e.Node},
		} {
			if a.value != "" {
				line.AddAttrs(slog.String(a.key, a.value))
			}
		}
		if e.Late {
			line.AddAttrs(slog.Bool("late", true))
		}
		_ = h.Handle(ctx, line) // as every other line of a log
	}
}
