package resolve

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// tell reports a status of pod ns/p.
func tell(t *testing.T, r *Resolver, uid, text string, warnings ...facts.Warning) {
	t.Helper()
	raw, err := json.Marshal(facts.Report{Pod: facts.PodRef{Namespace: "ns", Name: "p", UID: uid}, Status: json.RawMessage(text), Warnings: warnings})
	if err != nil {
		t.Fatal(err)
	}
	if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: raw}); resp.Error != nil {
		t.Fatal(resp.Error)
	}
}

// written checks what pods were annotated with, in order.
func (w *world) written(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.annotated, want) {
		t.Errorf("written: %q; want %q", w.annotated, want)
	}
}

func status1(uid, text string) string {
	return "ns/p " + uid + " k8s.v1.cni.cncf.io/network-status=" + text
}

// kept counts the files of statuses that are on their way, and that pods have got.
func kept(t *testing.T, dir string) (letters, shown int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == shownSuffix {
			shown++
		} else {
			letters++
		}
	}
	return letters, shown
}

// TestStatusIsWritten (N47).
func TestStatusIsWritten(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", ""))
		w.answers = []protocol.Outcome{protocol.Unknown}
		tell(t, r, "u1", `[{"name":"a"}]`)
		synctest.Wait()
		if n, _ := kept(t, r.cfg.Reports); n != 1 {
			t.Errorf("%d files are kept of a status that is not written yet; want 1", n)
		}
		w.took()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.written(t, status1("u1", `[{"name":"a"}]`))
		if n, shown := kept(t, r.cfg.Reports); n != 0 || shown != 1 || r.outbox.size() != 0 {
			t.Errorf("%d files and %d letters are left of a written status, and %d remember it; want 1 that does", n, r.outbox.size(), shown)
		}
	})
}

func TestStatusIsTriedAgain(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", ""))
		w.answers = []protocol.Outcome{protocol.Unknown, protocol.Conflict, protocol.Refused, protocol.Unknown}
		tell(t, r, "u1", `[1]`)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.written(t, status1("u1", `[1]`))
	})
}

func TestLatestStatusWins(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", ""))
		w.answers = slices.Repeat([]protocol.Outcome{protocol.Unknown}, 8) // some 25 s
		tell(t, r, "u1", `[1]`)
		time.Sleep(time.Second)
		tell(t, r, "u1", `[2]`)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		w.written(t, status1("u1", `[2]`))
		if n, _ := kept(t, r.cfg.Reports); n != 0 {
			t.Errorf("%d files are left", n)
		}
	})
}

func TestStatusOfAPodThatIsGoneIsDropped(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after func(w *world)
	}{
		{"deleted", func(w *world) { clear(w.pods) }},
		{"created anew", func(w *world) { w.pods[podName{"ns", "p"}] = podOf("p", "u2", "") }},
		{"created anew, and seen", func(w *world) {
			w.pods[podName{"ns", "p"}], w.cached[podName{"ns", "p"}] = podOf("p", "u2", ""), podOf("p", "u2", "")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			run(t, w, func(t *testing.T, r *Resolver) {
				w.seen(r, podOf("p", "u1", ""))
				tt.after(w)
				tell(t, r, "u1", `[1]`)
				time.Sleep(time.Minute)
				synctest.Wait()
				w.written(t)
				if n, shown := kept(t, r.cfg.Reports); n+shown != 0 || r.outbox.size() != 0 {
					t.Errorf("%d files and %d letters are left of a pod that is gone", n+shown, r.outbox.size())
				}
			})
		})
	}
}

func TestStatusOfAStaticPodIsItsMirrors(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		p := podOf("p", "mirror", "")
		p.MirrorOf = "kubelets"
		w.seen(r, p)
		tell(t, r, "kubelets", `[1]`, facts.Warning{Reason: "Odd", Message: "look"})
		synctest.Wait()
		w.written(t, status1("mirror", `[1]`))
		if want := []string{"ns/p mirror Odd: look"}; !slices.Equal(w.said, want) {
			t.Errorf("said %q; want %q", w.said, want)
		}
	})
}

// made is a report of pod ns/p, of a boot and a time in it.
func made(uid, text, boot string, after int64) json.RawMessage {
	return facts.Report{
		Pod: facts.PodRef{Namespace: "ns", Name: "p", UID: uid}, Status: json.RawMessage(text), Made: facts.Made{Boot: boot, After: after},
	}.AppendTo(nil)
}

// TestOlderReportDoesNotReplaceANewerOne: of two sandboxes of a pod the earlier one's
// report may come late, before the later one's is written or after.
func TestOlderReportDoesNotReplaceANewerOne(t *testing.T) {
	for name, before := range map[string]time.Duration{"not written yet": 0, "written": time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			run(t, w, func(t *testing.T, r *Resolver) {
				r.outbox.boot = "now"
				w.seen(r, podOf("p", "u1", ""))
				w.answers = []protocol.Outcome{protocol.Unknown}
				for i, ask := range []json.RawMessage{
					made("u1", `["second"]`, "now", 20), made("u1", `["first"]`, "now", 10), made("u1", `["before"]`, "earlier", 99),
				} {
					if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: ask}); resp.Error != nil {
						t.Fatal(i, resp.Error)
					}
					time.Sleep(before)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				w.written(t, status1("u1", `["second"]`))
				r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: made("u1", `["third"]`, "now", 30)})
				synctest.Wait()
				w.written(t, status1("u1", `["second"]`), status1("u1", `["third"]`))
				r.PodChanged(podOf("p", "u1", ""), false)
				if n, shown := kept(t, r.cfg.Reports); n+shown+len(r.outbox.shown) != 0 {
					t.Errorf("%d statuses and %d files are remembered of a pod that is gone", len(r.outbox.shown), n+shown)
				}
			})
		})
	}
}

// TestNewMirrorGetsTheStatus: the kubelet makes the mirror of a static pod anew when
// somebody deletes it, and the pod goes on.
func TestNewMirrorGetsTheStatus(t *testing.T) {
	mirror := func(uid string) Pod {
		p := podOf("p", uid, "")
		p.MirrorOf = "kubelets"
		return p
	}
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, mirror("m1"))
		tell(t, r, "kubelets", `[1]`)
		synctest.Wait()
		r.PodChanged(mirror("m1"), false)
		time.Sleep(time.Minute)
		w.seen(r, mirror("m2"))
		w.seen(r, mirror("m2"))
		synctest.Wait()
		w.written(t, status1("m1", `[1]`), status1("m2", `[1]`))
		if n, _ := kept(t, r.cfg.Reports); n != 0 {
			t.Errorf("%d files are left", n)
		}
		r.PodChanged(mirror("m2"), false) // for good
		time.Sleep(maxLost)
		r.PodChanged(podOf("another", "u", ""), false)
		if n, shown := kept(t, r.cfg.Reports); n+shown+len(r.outbox.shown) != 0 {
			t.Errorf("%d statuses and %d files are remembered of a static pod that is gone", len(r.outbox.shown), n+shown)
		}
	})
}

// TestNewMirrorGetsTheStatusThoughTheDiskIsFull: what is remembered of the pod is not dropped for
// want of room to note that it is on its way again, and the agent's next start sends it as well.
func TestNewMirrorGetsTheStatusThoughTheDiskIsFull(t *testing.T) {
	mirror := func(uid string) Pod {
		p := podOf("p", uid, "")
		p.MirrorOf = "kubelets"
		return p
	}
	w, dir := newWorld(), t.TempDir()
	full := func(yes bool) { // whatever runs as root writes also where it may not
		t.Helper()
		from, to := filepath.Join(dir, "reports"), filepath.Join(dir, "away")
		if !yes {
			if err := os.Remove(from); err != nil {
				t.Fatal(err)
			}
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		if yes {
			if err := os.WriteFile(from, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	reports := filepath.Join(dir, "reports")
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, reports, "now")
		w.seen(r, mirror("m1"))
		if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: made("kubelets", `[1]`, "now", 10)}); resp.Error != nil {
			t.Fatal(resp.Error)
		}
		synctest.Wait()
		full(true)
		w.seen(r, mirror("m2"))
		synctest.Wait()
		w.seen(r, mirror("m3"))
		synctest.Wait()
		w.written(t, status1("m1", `[1]`), status1("m2", `[1]`), status1("m3", `[1]`))
		w.down = errors.New("away") // the agent ends with the next one on its way
		w.answers = slices.Repeat([]protocol.Outcome{protocol.Unknown}, 2)
		w.seen(r, mirror("m4"))
		synctest.Wait()
		stop()
	})
	full(false)
	w.down, w.answers = nil, nil
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, reports, "now")
		synctest.Wait()
		w.seen(r, mirror("m4"))
		synctest.Wait()
		stop()
		w.written(t, status1("m1", `[1]`), status1("m2", `[1]`), status1("m3", `[1]`), status1("m4", `[1]`))
	})
}

// TestStatusThatHasNoRoomIsGivenUp: the pod is told once, an earlier status is taken off, it is not
// tried again, and the next status is written if it has room.
func TestStatusThatHasNoRoomIsGivenUp(t *testing.T) {
	w := newWorld()
	w.room = 20
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", ""))
		long := `["` + strings.Repeat("x", 40) + `"]`
		tell(t, r, "u1", long)
		time.Sleep(time.Hour)
		w.seen(r, podOf("p", "u1", ""))
		synctest.Wait()
		w.written(t, status1("u1", ""), "ns/p u1 tenure.dev/pod-ips=")
		if w.tries != 1 || r.outbox.size() != 0 {
			t.Errorf("it was tried %d times, and %d statuses wait; want one try", w.tries, r.outbox.size())
		}
		if len(w.said) != 1 || !strings.HasPrefix(w.said[0], "ns/p u1 NetworkStatusTooLarge: the network status, of 44 bytes, is not written: all annotations of a pod may have 262144 bytes") {
			t.Errorf("said %q; want that it is too large", w.said)
		}
		tell(t, r, "u1", `[1]`)
		synctest.Wait()
		w.written(t, status1("u1", ""), "ns/p u1 tenure.dev/pod-ips=", status1("u1", `[1]`))
	})
}

func TestStatusWithoutUIDIsThePodsThatThereIs(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "old", ""))
		w.pods[podName{"ns", "p"}] = podOf("p", "new", "")
		tell(t, r, "", `[1]`)
		synctest.Wait()
		w.written(t, status1("new", `[1]`))
	})
}

// TestWarningsAloneAreSaid (N20, A1).
func TestWarningsAloneAreSaid(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		tell(t, r, "u1", ``, facts.Warning{Reason: "InvalidNetworkAnnotation", Message: "ips is empty"})
		synctest.Wait()
		w.written(t)
		if want := []string{"ns/p u1 InvalidNetworkAnnotation: ips is empty"}; !slices.Equal(w.said, want) {
			t.Errorf("said %q; want %q", w.said, want)
		}
	})
}

// starts starts a resolver in a boot of the machine, and returns what ends it.
func starts(t *testing.T, w *world, dir, boot string) (*Resolver, func()) {
	cfg := DefaultConfig(dir)
	cfg.Boot = boot
	r, err := New(cfg, w.cluster(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestRestartKeepsTheOrder: an agent that starts again knows what its pods show. An older
// report that comes then does not take its place, whatever comes first: the report, the
// watch, or the agent's own start. A newer one does.
func TestRestartKeepsTheOrder(t *testing.T) {
	for _, first := range []string{"the start", "the report", "the watch"} {
		t.Run(first, func(t *testing.T) {
			w, dir := newWorld(), t.TempDir()
			report := func(t *testing.T, r *Resolver, text string, after int64) {
				if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: made("u1", text, "now", after)}); resp.Error != nil {
					t.Fatal(resp.Error)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				r, stop := starts(t, w, dir, "now")
				w.seen(r, podOf("p", "u1", ""))
				report(t, r, `["second"]`, 20)
				synctest.Wait()
				stop()
			})
			synctest.Test(t, func(t *testing.T) {
				clear(w.cached)
				cfg := DefaultConfig(dir)
				cfg.Boot = "now"
				r, err := New(cfg, w.cluster(), slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				run := func() { go func() { done <- r.Run(ctx) }(); synctest.Wait() }
				switch first {
				case "the start":
					run()
					w.seen(r, podOf("p", "u1", ""))
					report(t, r, `["first"]`, 10)
				case "the watch":
					w.seen(r, podOf("p", "u1", ""))
					run()
					report(t, r, `["first"]`, 10)
				case "the report":
					report(t, r, `["first"]`, 10)
					run()
					w.seen(r, podOf("p", "u1", ""))
				}
				synctest.Wait()
				w.written(t, status1("u1", `["second"]`))
				report(t, r, `["third"]`, 30)
				synctest.Wait()
				w.written(t, status1("u1", `["second"]`), status1("u1", `["third"]`))
				r.PodChanged(podOf("p", "u1", ""), false)
				if n, shown := kept(t, dir); n+shown != 0 {
					t.Errorf("%d files are left of a pod that is gone", n+shown)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestRestartKeepsMirrors: a static pod's next mirror gets the status also where the
// agent was started again meanwhile, and where it was made while there was none; not in
// the next boot, in which every sandbox is another.
func TestRestartKeepsMirrors(t *testing.T) {
	mirror := func(uid string) Pod {
		p := podOf("p", uid, "")
		p.MirrorOf = "kubelets"
		return p
	}
	w, dir := newWorld(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, dir, "now")
		w.seen(r, mirror("m1"))
		if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: made("kubelets", `[1]`, "now", 10)}); resp.Error != nil {
			t.Fatal(resp.Error)
		}
		synctest.Wait()
		stop()
		w.written(t, status1("m1", `[1]`))
	})
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, dir, "now")
		synctest.Wait()
		w.seen(r, mirror("m2"))
		w.seen(r, mirror("m2"))
		synctest.Wait()
		w.written(t, status1("m1", `[1]`), status1("m2", `[1]`))
		r.PodChanged(mirror("m2"), false)
		w.seen(r, mirror("m3"))
		synctest.Wait()
		stop()
		w.written(t, status1("m1", `[1]`), status1("m2", `[1]`), status1("m3", `[1]`))
	})
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, dir, "next")
		synctest.Wait()
		w.seen(r, mirror("m4"))
		synctest.Wait()
		stop()
		w.written(t, status1("m1", `[1]`), status1("m2", `[1]`), status1("m3", `[1]`))
		if n, shown := kept(t, dir); n+shown != 0 {
			t.Errorf("%d files are left of another boot", n+shown)
		}
	})
}

// TestRestartForgetsPodsThatAreGone: what pods showed that were deleted while there was
// no agent is not kept for ever.
func TestRestartForgetsPodsThatAreGone(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, dir, "now")
		w.seen(r, podOf("p", "u1", ""))
		if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: made("u1", `[1]`, "now", 10)}); resp.Error != nil {
			t.Fatal(resp.Error)
		}
		synctest.Wait()
		stop()
		if _, shown := kept(t, dir); shown != 1 {
			t.Fatalf("%d files remember what the pod shows; want 1", shown)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, stop := starts(t, w, dir, "now")
		synctest.Wait()
		time.Sleep(maxLost)
		r.PodChanged(podOf("another", "u", ""), true)
		if n, shown := kept(t, dir); n+shown+len(r.outbox.shown) != 0 {
			t.Errorf("%d statuses and %d files are remembered of a pod that is gone", len(r.outbox.shown), n+shown)
		}
		stop()
	})
}

func TestAcceptedStatusSurvivesARestart(t *testing.T) {
	w := newWorld()
	w.pods[podName{"ns", "p"}] = podOf("p", "u1", "")
	dir := t.TempDir()
	start := func(t *testing.T) (*Resolver, func()) { return starts(t, w, dir, "") }
	synctest.Test(t, func(t *testing.T) {
		w.down = errors.New("away")
		r, stop := start(t)
		tell(t, r, "u1", `[1]`)
		time.Sleep(time.Second)
		stop()
		w.written(t)
	})
	// What a crash leaves of a status that was not accepted, and what is not ours.
	for name, text := range map[string]string{"x.json": `{"pod":`, "y.json": `{"pod":{"namespace":"ns","name":"q"},"text":"[]"}`, "z.json.new": ``} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w.down = nil
		_, stop := start(t)
		synctest.Wait()
		stop()
		w.written(t, status1("u1", `[1]`))
	})
}

func TestStatusThatCannotBeKeptIsNotAccepted(t *testing.T) {
	w := newWorld()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := New(DefaultConfig(filepath.Join(file, "below")), w.cluster(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: json.RawMessage(`{"pod":{"namespace":"ns","name":"p"},"status":[]}`)})
	if resp.Error == nil {
		t.Error("it was accepted")
	}
}

func TestBackOffIsBounded(t *testing.T) {
	for tries, want := range map[int]time.Duration{0: firstPause, 1: 2 * firstPause, 9: 512 * firstPause, 10: lastPause, 1000: lastPause} {
		if got := backOff(tries); got != want {
			t.Errorf("after %d tries: got %v; want %v", tries, got, want)
		}
	}
}

// A pod that the watch has is written to without a read.
func TestStatusTakesNoReadOfAKnownPod(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", ""))
		tell(t, r, "u1", `[]`)
		synctest.Wait()
		w.written(t, status1("u1", `[]`))
		if reads := w.took(); len(reads) > 0 {
			t.Errorf("it took %q", reads)
		}
	})
}
