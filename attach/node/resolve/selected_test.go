package resolve

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// selecting is a pod of the node that selects networks.
func selecting(name, uid, selects string) Pod {
	return Pod{Namespace: "ns", Name: name, UID: protocol.UID(uid), Annotations: map[string]string{npwg.AnnotationNetworks: selects, "other": selects + "!"}}
}

// askSelected asks which pods select other networks since the last answer.
func askSelected(ctx context.Context, t *testing.T, r *Resolver, since facts.Since) (pods []string, next facts.Since) {
	t.Helper()
	text, err := json.Marshal(since)
	if err != nil {
		t.Fatal(err)
	}
	resp := r.Serve(ctx, agentapi.Request{Verb: agentapi.Selected, Ask: text})
	if resp.Error != nil {
		t.Fatal(resp.Error)
	}
	var answer facts.Selected
	if err := json.Unmarshal(resp.Facts, &answer); err != nil {
		t.Fatal(err)
	}
	for _, p := range answer.Pods {
		pods = append(pods, p.Name+" "+p.UID)
	}
	slices.Sort(pods)
	return pods, facts.Since{Of: answer.Of, Revision: answer.Revision}
}

// TestSelected: who changes running pods is told of each pod when it selects other networks, once,
// and of all when he or the agent is new.
func TestSelected(t *testing.T) {
	r, err := New(DefaultConfig(t.TempDir()), newWorld().cluster(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	want := func(what string, since facts.Since, want ...string) facts.Since {
		t.Helper()
		pods, next := askSelected(over, t, r, since)
		if !slices.Equal(pods, want) {
			t.Errorf("%s: told of %q; want %q", what, pods, want)
		}
		return next
	}
	r.PodChanged(selecting("a", "1", "x"), true)
	r.PodChanged(selecting("b", "2", ""), true)
	first := want("at first", facts.Since{}, "a 1", "b 2")
	want("nothing has changed", first)
	r.PodChanged(selecting("a", "1", "x"), true)
	want("something else has changed", first)
	r.PodChanged(selecting("a", "1", "x,y"), true)
	r.PodChanged(selecting("a", "1", "x,z"), true)
	second := want("it selects others", first, "a 1")
	want("of before", first, "a 1")
	r.PodChanged(Pod{Namespace: "ns", Name: "a", UID: "1"}, true)
	third := want("it selects none", second, "a 1")
	r.PodChanged(selecting("a", "1", ""), false)
	r.PodChanged(selecting("b", "3", ""), true)
	want("one is gone, and another has a new name's owner", third, "b 3")
	want("another run of the agent", facts.Since{Of: "another", Revision: 100}, "b 3")
}

// TestSelectedWaits: the answer comes as soon as there is something to say, and when the agent
// stops.
func TestSelectedWaits(t *testing.T) {
	r, err := New(DefaultConfig(t.TempDir()), newWorld().cluster(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	got := make(chan []string)
	var since facts.Since
	go func() {
		for range 2 {
			var pods []string
			pods, since = askSelected(t.Context(), t, r, since)
			got <- pods
		}
	}()
	began := time.Now()
	r.PodChanged(selecting("a", "1", "x"), true)
	if pods := <-got; !slices.Equal(pods, []string{"a 1"}) {
		t.Errorf("told of %q; want a", pods)
	}
	cancel()
	if pods := <-got; len(pods) > 0 || time.Since(began) >= selectedWait {
		t.Errorf("told of %q after %v; want nothing, when the agent stops", pods, time.Since(began))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNotes: what went as it was asked for is an event that is no warning.
func TestNotes(t *testing.T) {
	w := newWorld()
	r, err := New(DefaultConfig(t.TempDir()), w.cluster(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	rep := facts.Report{Pod: facts.PodRef{Namespace: "ns", Name: "p", UID: "u"}, Notes: []facts.Warning{{Reason: "InterfaceAttached", Message: "net2"}}}
	if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Report, Ask: rep.AppendTo(nil)}); resp.Error != nil {
		t.Fatal(resp.Error)
	}
	if len(w.said) != 1 || !strings.HasSuffix(w.said[0], "note InterfaceAttached: net2") {
		t.Errorf("said %q; want a note", w.said)
	}
}
