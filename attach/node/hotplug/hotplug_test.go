package hotplug

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// TestInstalled: of the runtime's configurations that of tenure-attach is taken, whatever else lies
// there.
func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("00-other.conflist", `{"name": "other", "plugins": [{"type": "bridge"}]}`)
	write("01-old.conflist.bak", `tenure-attach`)
	if _, err := Installed(dir); err == nil || !strings.Contains(err.Error(), "attach.enabled") {
		t.Errorf("%v; want it to say that there is none", err)
	}
	write("10-tenure.conflist", `{"name": "tenure", "plugins": [{"type": "tenure-attach", "defaultNetwork": "x", "stateDir": "/s"}]}`)
	if c, err := Installed(dir); err != nil || c.StateDir != "/s" {
		t.Errorf("%+v, %v; want that of 10-tenure.conflist", c, err)
	}
	write("05-tenure.conf", `{"type": "tenure-attach"}`)
	if _, err := Installed(dir); err == nil || !strings.Contains(err.Error(), "05-tenure.conf") {
		t.Errorf("%v; want it to name the file that the runtime would take", err)
	}
}

// TestAttachmentOf: a pod's last sandbox counts, and no other pod's of that name.
func TestAttachmentOf(t *testing.T) {
	entry := func(id, uid string, after int64, answered bool) *journal.Entry {
		e := &journal.Entry{Answered: answered, Report: &facts.Report{Made: facts.Made{Boot: "b", After: after}}}
		e.ContainerID, e.Boot, e.Plan.Pod = id, "b", facts.PodRef{Namespace: "ns", Name: "p", UID: uid}
		return e
	}
	entries := []*journal.Entry{entry("before", "u0", 9, true), entry("second", "u1", 2, true), entry("first", "u1", 1, true), entry("begun", "u1", 3, false)}
	if k, ok, begun := attachmentOf(facts.PodRef{Namespace: "ns", Name: "p", UID: "u1"}, entries); !ok || k.ContainerID != "second" || !begun {
		t.Errorf("%+v, %t, %t; want the second sandbox, and that an ADD has begun", k, ok, begun)
	}
	if k, ok, begun := attachmentOf(facts.PodRef{Namespace: "ns", Name: "p", UID: "u2"}, entries); ok || begun {
		t.Errorf("%+v, %t; want none", k, begun)
	}
}

// told is an agent that has told of pods.
type told struct {
	t    *testing.T
	asks chan facts.Since
	pods chan []facts.PodRef
}

func (a told) Serve(ctx context.Context, req agentapi.Request) agentapi.Response {
	var since facts.Since
	if err := json.Unmarshal(req.Ask, &since); err != nil || req.Verb != agentapi.Selected {
		a.t.Errorf("asked %s, %v", req.Verb, err)
	}
	a.asks <- since
	answer := facts.Selected{Of: "run", Revision: since.Revision}
	select {
	case answer.Pods = <-a.pods:
		answer.Revision++
	case <-ctx.Done():
	}
	text, err := json.Marshal(answer)
	if err != nil {
		a.t.Error(err)
	}
	return agentapi.Response{Version: agentapi.Version, Facts: text}
}

// attached returns a runtime's directory, whose tenure-attach has attached pods by the journals of
// these keys. The agent's socket is s in it.
func attached(t *testing.T, pods map[journal.Key]facts.PodRef) (dir string) {
	t.Helper()
	dir = t.TempDir()
	conf := `{"name": "tenure", "plugins": [{"type": "tenure-attach", "defaultNetwork": "x", "stateDir": "` + dir + `/state", "socket": "` + dir + `/s"}]}`
	err := os.WriteFile(filepath.Join(dir, "tenure.conflist"), []byte(conf), 0o600)
	for key, pod := range pods {
		var log *journal.Log
		if err == nil {
			log, err = journal.Dir{Path: filepath.Join(dir, "state")}.Create(journal.Head{Key: key, Boot: "b", Plan: plan.Plan{Pod: pod}})
		}
		if err == nil {
			err = log.Answer(facts.Report{Pod: pod})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestService: the pods that the agent tells of are changed, and it is asked for what comes after.
func TestService(t *testing.T) {
	pod := facts.PodRef{Namespace: "ns", Name: "p", UID: "u"}
	key := journal.Key{ContainerID: "c", Network: "tenure", IfName: "eth0"}
	dir := attached(t, map[journal.Key]facts.PodRef{key: pod})
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	agent := told{t: t, asks: make(chan facts.Since, 8), pods: make(chan []facts.PodRef, 1)}
	changed := make(chan journal.Key)
	s := &Service{
		ConfDir: dir, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Change: func(_ context.Context, _ *plan.Config, k journal.Key) (bool, error) { changed <- k; return false, nil },
	}
	ended := make(chan error, 2)
	go func() {
		ended <- agentapi.Serve(ctx, ln, agent, agentapi.DefaultLimits(), slog.New(slog.DiscardHandler))
	}()
	go func() { ended <- s.Run(ctx) }()
	agent.pods <- []facts.PodRef{{Namespace: "ns", Name: "of another plugin"}, pod}
	if k := <-changed; k != key {
		t.Errorf("%+v is changed; want %+v", k, key)
	}
	if got, want := []facts.Since{<-agent.asks, <-agent.asks}, []facts.Since{{}, {Of: "run", Revision: 1}}; !slices.Equal(got, want) {
		t.Errorf("it asked %+v; want %+v", got, want)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestSoManyAtOnce: of many pods a few are changed at once, and all of them in the end.
func TestSoManyAtOnce(t *testing.T) {
	pods := map[journal.Key]facts.PodRef{}
	for i := range 3 * parallel {
		pods[journal.Key{ContainerID: fmt.Sprint("c", i), Network: "tenure", IfName: "eth0"}] = facts.PodRef{Namespace: "ns", Name: fmt.Sprint("p", i), UID: "u"}
	}
	dir := attached(t, pods)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var begun atomic.Int32
		goOn := make(chan struct{})
		s := &Service{
			ConfDir: dir, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Change: func(context.Context, *plan.Config, journal.Key) (bool, error) {
				begun.Add(1)
				<-goOn
				return false, nil
			},
		}
		told, ended := make(chan []facts.PodRef), make(chan struct{})
		go func() { s.work(ctx, told); close(ended) }()
		told <- slices.Collect(maps.Values(pods))
		synctest.Wait()
		if n := begun.Load(); n != parallel {
			t.Errorf("%d pods are changed at once; want %d", n, parallel)
		}
		close(goOn)
		synctest.Wait()
		if n := begun.Load(); int(n) != len(pods) {
			t.Errorf("%d pods were changed; want %d", n, len(pods))
		}
		cancel()
		<-ended
	})
}
