package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

type handler func(agentapi.Request) agentapi.Response

func (h handler) Serve(_ context.Context, req agentapi.Request) agentapi.Response { return h(req) }

// calling returns a call whose agent answers by h until the test ends.
func calling(t *testing.T, h handler) *call {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	limits := agentapi.DefaultLimits()
	limits.UID = uint32(os.Getuid())
	go func() { ended <- agentapi.Serve(ctx, ln, h, limits, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c := &call{Plugin: Plugin{Stderr: &bytes.Buffer{}, Now: time.Now}, socket: socket, state: journal.Dir{Path: filepath.Join(dir, "state")}}
	t.Cleanup(c.hangUp)
	return c
}

// TestReachForgetsWhatCameLate: the answer to a question that was given up is none to a
// report.
func TestReachForgetsWhatCameLate(t *testing.T) {
	for _, earlier := range []string{"none", "called", "announced"} {
		t.Run(earlier, func(t *testing.T) {
			give := make(chan struct{})
			free := sync.OnceFunc(func() { close(give) })
			c := calling(t, func(req agentapi.Request) agentapi.Response {
				if req.Verb == agentapi.Facts {
					<-give
					return agentapi.Response{Facts: json.RawMessage(`{}`)}
				}
				return agentapi.Response{}
			})
			t.Cleanup(free) // else the agent would not end
			ctx, question := t.Context(), agentapi.Request{Verb: agentapi.Facts}
			switch earlier {
			case "called":
				_, err := c.reach(ctx, time.Now().Add(time.Minute), agentapi.Request{Verb: agentapi.Ping})
				check(t, err)
			case "announced":
				c.announce(ctx, 50*time.Millisecond, question)
			}
			if _, err := c.reach(ctx, time.Now().Add(50*time.Millisecond), question); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a question without an answer: %v; want DeadlineExceeded", err)
			}
			free()
			resp, err := c.reach(ctx, time.Now().Add(time.Minute), agentapi.Request{Verb: agentapi.Report})
			if err != nil || resp.Facts != nil || resp.Error != nil {
				t.Errorf("a report's answer: %+v, %v; want its own", resp, err)
			}
		})
	}
}

// TestSettle: when the runtime is answered, the agent has the report, or a mark tells of it.
func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		name           string
		refuse         *agentapi.Error
		ahead, noRoom  bool
		marked, toSend bool
	}{
		{name: "accepted", ahead: true},
		{name: "refused", ahead: true, refuse: &agentapi.Error{Code: agentapi.CodeTryAgainLater, Msg: "not now"}, marked: true, toSend: true},
		{name: "not announced", marked: true, toSend: true},
		{name: "not announced, and no mark to be had", noRoom: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := calling(t, func(agentapi.Request) agentapi.Response { return agentapi.Response{Error: tt.refuse} })
			check(t, os.Mkdir(c.state.Path, 0o700))
			if tt.noRoom {
				check(t, os.WriteFile(filepath.Join(c.state.Path, "unsent"), nil, 0o600))
			}
			c.queueNews(key("own"), aReport(key("own")))
			if tt.ahead {
				c.announceNews(t.Context())
			}
			if err := c.settleNews(t.Context()); err != nil != tt.noRoom {
				t.Errorf("settle: %v; want an error: %v", err, tt.noRoom)
			}
			marks, _ := atomicfile.Names(filepath.Join(c.state.Path, "unsent"))
			if len(marks) > 0 != tt.marked || len(c.news) > 0 != tt.toSend {
				t.Errorf("marks %v, to be sent still %d; want some: %v, %v", marks, len(c.news), tt.marked, tt.toSend)
			}
		})
	}
}

// TestTellOnASlowDisk: the search for earlier reports takes longer than the agent has, and
// costs neither the call's own report nor those that it finds their time.
func TestTellOnASlowDisk(t *testing.T) {
	var mu sync.Mutex
	var reports int
	c := calling(t, func(agentapi.Request) agentapi.Response {
		mu.Lock()
		defer mu.Unlock()
		reports++
		return agentapi.Response{}
	})
	c.Now = func() time.Time { // asked for by the search
		time.Sleep(2 * reportTimeout)
		return time.Now()
	}
	const tries = 20 // the agent may be late by itself, on a busy machine
	for try := 1; ; try++ {
		earlier, own := key("earlier"), key("own")
		for _, k := range []journal.Key{earlier, own} {
			attached(t, c.state, k)
		}
		old := time.Now().Add(-time.Hour)
		check(t, os.Chtimes(filepath.Join(c.state.Path, "unsent", earlier.FileName()), old, old))
		mu.Lock()
		reports = 0
		mu.Unlock()
		c.news, c.searched = nil, false
		stderr := &bytes.Buffer{}
		c.Stderr = stderr
		c.queueNews(own, aReport(own))
		c.tell(t.Context())
		left, err := atomicfile.Names(filepath.Join(c.state.Path, "unsent"))
		check(t, err)
		mu.Lock()
		got := reports
		mu.Unlock()
		if got == 2 && len(left) == 0 && stderr.Len() == 0 {
			return
		}
		if try == tries {
			t.Fatalf("%d reports, still marked %v, standard error %q; want 2 reports and nothing left", got, left, stderr)
		}
		c.hangUp()
		check(t, errors.Join(c.state.Remove(earlier), c.state.Remove(own)))
	}
}

// TestSendGoesOn: one report that the agent refuses, or that is too large for it, costs no
// other one.
func TestSendGoesOn(t *testing.T) {
	c := calling(t, func(req agentapi.Request) agentapi.Response {
		if bytes.Contains(req.Ask, []byte("refused")) {
			return agentapi.Response{Error: &agentapi.Error{Code: agentapi.CodeTryAgainLater, Msg: "not this one"}}
		}
		return agentapi.Response{}
	})
	for _, name := range []string{"refused", "large", "own"} {
		k := key(name)
		attached(t, c.state, k)
		r := aReport(k)
		if name == "large" {
			r.Warnings = []facts.Warning{{Message: strings.Repeat("x", agentapi.MaxFrame)}}
		}
		c.queueNews(k, r)
	}
	err := c.send(t.Context(), time.Now().Add(time.Minute)) // a busy machine needs more than tell has
	left, errNames := atomicfile.Names(filepath.Join(c.state.Path, "unsent"))
	check(t, errNames)
	slices.Sort(left)
	if want := []string{key("large").FileName(), key("refused").FileName()}; !slices.Equal(left, want) || err == nil || !strings.Contains(err.Error(), "not this one") {
		t.Errorf("not sent: %v, %v; want the two that cannot be", left, err)
	}
}

func key(container string) journal.Key {
	return journal.Key{ContainerID: container, Network: "tenure", IfName: "eth0"}
}

func aReport(k journal.Key) facts.Report {
	return facts.Report{Pod: facts.PodRef{Namespace: "ns", Name: k.ContainerID}, ContainerID: k.ContainerID, Status: json.RawMessage(`[]`)}
}

// attached writes the journal of an ADD that was answered.
func attached(t *testing.T, d journal.Dir, k journal.Key) {
	t.Helper()
	log, err := d.Create(journal.Head{Key: k, Plan: plan.Plan{Steps: []plan.Step{{Name: "a", Default: true, List: json.RawMessage(`{}`)}}}})
	check(t, err)
	check(t, errors.Join(log.Answer(aReport(k)), d.MarkUnsent(k), log.Close()))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
