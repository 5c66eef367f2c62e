package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/ipam/history"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// envDir has the test binary be an agent that is killed.
const envDir = "HISTORY_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		dieBetweenCommitAndLine(dir)
	}
	os.Exit(m.Run())
}

func attachmentOf(container, addr string, created time.Time) store.Attachment {
	return store.Attachment{
		Key: store.Key{Network: "lan", ContainerID: container, IfName: "net1"}, Pod: protocol.PodRef{Namespace: "shop", Name: container, UID: protocol.UID("uid-" + container)},
		Created: created, Addresses: []store.Address{{Addr: netip.MustParseAddr(addr), Bits: 24, Pool: "lan"}},
	}
}

// past returns a recorder of a daemon in dir, and its store.
func past(dir string, o store.Options) (*recorder, *store.Store, error) {
	d := Daemon{cfg: Config{Store: filepath.Join(dir, "store.db"), HistoryBounds: history.DefaultBounds}, log: slog.New(slog.DiscardHandler)}
	d.cfg.Agent.Node = "n1"
	d.cfg.PlaceBesideStore()
	r := d.recorder()
	o.Committed = r.committed
	st, err := store.Open(d.cfg.Store, o)
	r.Held = func() ([]history.Span, error) { return held(st, "n1") }
	return r, st, err
}

// dieBetweenCommitAndLine gives two addresses, waits until that is written, gives one of them to
// another, and is killed with that in the store and in no line.
func dieBetweenCommitAndLine(dir string) {
	die := false
	r, st, err := past(dir, store.Options{Fail: func(point string) {
		if die && point == "before-answer" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	update := func(fn func(*store.Tx) error) {
		if err == nil {
			err = st.Update(context.Background(), fn)
		}
	}
	go r.Run(context.Background())
	update(func(tx *store.Tx) error { return tx.PutAttachment(attachmentOf("a", "10.0.0.1", time.Now())) })
	update(func(tx *store.Tx) error { return tx.PutAttachment(attachmentOf("b", "10.0.0.2", time.Now())) })
	for err == nil && !written(dir, "10.0.0.1", "10.0.0.2") {
		time.Sleep(10 * time.Millisecond)
	}
	die = true
	update(func(tx *store.Tx) error {
		if err := tx.DeleteAttachment(attachmentOf("a", "10.0.0.1", time.Time{}).Key); err != nil {
			return err
		}
		return tx.PutAttachment(attachmentOf("c", "10.0.0.1", time.Now()))
	})
	fmt.Println("not killed", err)
	os.Exit(1)
}

// written reports whether the history in dir has lines of these addresses.
func written(dir string, addrs ...string) bool {
	text, _ := os.ReadFile(filepath.Join(dir, "history", "0000000001.jsonl")) // not there yet
	return !slices.ContainsFunc(addrs, func(a string) bool { return !strings.Contains(string(text), strconv.Quote(a)) })
}

// TestKilledBetweenCommitAndLine: what an agent committed and did not write the next one finds,
// once, however often it starts; and what was written is not written again.
func TestKilledBetweenCommitAndLine(t *testing.T) {
	dir := t.TempDir()
	self := exec.CommandContext(t.Context(), os.Args[0])
	self.Env = append(os.Environ(), envDir+"="+dir)
	if out, err := self.CombinedOutput(); err == nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	began := time.Now()
	var lines string
	for range 3 {
		r, st, err := past(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r.Run(ended)
		r.Close(ended)
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "history", "0000000001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if lines != "" && lines != string(text) {
			t.Errorf("another start has written more: %s, before %s", text, lines)
		}
		lines = string(text)
	}
	answer, err := history.Read(filepath.Join(dir, "history"), netip.MustParseAddr("10.0.0.1"), time.Time{}, time.Now())
	if err != nil || len(answer.Spans) != 2 {
		t.Fatalf("%+v, %v; want what a had and c has", answer, err)
	}
	a, c := answer.Spans[0], answer.Spans[1]
	if a.Pod != "a" || !a.Late || a.To != c.From || a.To.After(began) || c.Pod != "c" || !c.To.IsZero() || c.Late {
		t.Errorf("a had it %v to %v (late %v), c %v to %v", a.From, a.To, a.Late, c.From, c.To)
	}
	answer, err = history.Read(filepath.Join(dir, "history"), netip.MustParseAddr("10.0.0.2"), time.Time{}, time.Now())
	if err != nil || len(answer.Spans) != 1 || !answer.Spans[0].To.IsZero() {
		t.Errorf("%+v, %v; want what b has", answer, err)
	}
}

// TestEventsOf: what an attachment has kept is no event, and one that is read back has had its
// addresses since its ADD.
func TestEventsOf(t *testing.T) {
	now := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	a := attachmentOf("a", "10.0.0.1", now.Add(-5*time.Second))
	renewed := a
	renewed.Netns, renewed.Generation = "/run/netns/x", 7
	other := attachmentOf("a", "10.0.0.9", now)
	other.Claim = &protocol.ClaimRef{Namespace: "shop", Name: "db", UID: "uid-db"}
	back := attachmentOf("a", "10.0.0.1", now.Add(-time.Hour))
	for _, tt := range []struct {
		name   string
		change store.Change
		want   string
	}{
		{"given", store.Change{After: a}, "12:00:00 given 10.0.0.1 shop/a; "},
		{"freed", store.Change{Before: a}, "12:00:00 freed 10.0.0.1 shop/a; "},
		{"kept", store.Change{Before: a, After: renewed}, ""},
		{"another address", store.Change{Before: a, After: other}, "12:00:00 freed 10.0.0.1 shop/a; 12:00:00 given 10.0.0.9 shop/a shop/db; "},
		{"read back", store.Change{After: back}, "11:00:00 given 10.0.0.1 shop/a; "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, e := range eventsOf([]store.Change{tt.change}, "n1", now) {
				claim := e.Claim
				if claim != "" {
					claim = " " + claim
				}
				got += fmt.Sprintf("%s %s %v %s/%s%s; ", e.Time.Format(time.TimeOnly), e.What, e.Address, e.Namespace, e.Pod, claim)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
