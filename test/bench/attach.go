package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/process"
)

// What is measured of the meta-plugin: a pod with a default network and two more,
// whose delegates do nothing.
const (
	oneDelegate name = "one do-nothing plugin"
	byHand      name = "the three delegates alone"
	attached    name = "tenure-attach"
	delegates        = 3
)

// attach measures what the meta-plugin adds to the time of its delegates.
func (b *bench) attach(ctx context.Context) {
	dir, err := os.MkdirTemp(b.dir, "attach")
	b.Must(err)
	facts, err := serveFacts(ctx, filepath.Join(dir, "agent.sock"))
	b.Must(err)
	defer func() { b.Must(facts.Stop()) }()
	calls := b.attachCalls(dir)
	got := measured{}
	b.attachOne(ctx, calls, got)
	b.attachBursts(ctx, calls, got)
	b.report.attach(got)
}

// An attachCall is one of the things that are compared.
type attachCall struct {
	name name
	run  func(verb string, s sandboxOf) (sample, error)
}

// attachCalls are what is compared: all of them on the same program and standard
// input for a delegate.
func (b *bench) attachCalls(dir string) []attachCall {
	network := func(name string) map[string]any {
		return map[string]any{"cniVersion": "1.1.0", "name": name, "type": "recorder", "recorder": map[string]any{"ips": []string{"10.200.0.5/16"}}}
	}
	both := func(config map[string]any) (map[string][]byte, error) {
		text, err := json.Marshal(config)
		return map[string][]byte{"ADD": text, "DEL": text}, err
	}
	delegate, err := both(network("default"))
	b.Must(err)
	confDir := filepath.Join(dir, "net.d") // as an installation has it
	b.Must(errors.Join(os.Mkdir(confDir, 0o700), os.WriteFile(filepath.Join(confDir, "10-default.conf"), delegate["ADD"], 0o600)))
	meta, err := both(map[string]any{
		"cniVersion": "1.1.0", "name": "tenure", "type": "tenure-attach", "socket": filepath.Join(dir, "agent.sock"),
		"stateDir": filepath.Join(dir, "state"), "binDir": b.pluginDir(), "defaultNetwork": confDir,
	})
	b.Must(err)
	one := candidate{name: oneDelegate, path: b.program("recorder"), config: delegate}
	plugin := candidate{name: attached, path: b.program("tenure-attach"), config: meta}
	return []attachCall{
		{oneDelegate, one.call},
		{byHand, func(verb string, s sandboxOf) (all sample, err error) {
			for range delegates {
				x, err := one.call(verb, s)
				if err != nil {
					return all, err
				}
				all.wall += x.wall
				all.cpu += x.cpu
			}
			return all, nil
		}},
		{attached, plugin.call},
	}
}

// attachBoxes returns sandboxes of pods that only the facts know.
func (b *bench) attachBoxes(count int) []sandboxOf {
	b.generation++
	out := make([]sandboxOf, count)
	for i := range out {
		out[i] = sandboxOf{
			id: fmt.Sprintf("%032x%032x", b.generation, i), netns: "/run/netns/none",
			pod: pod{name: fmt.Sprintf("pod-%d", i), uid: fmt.Sprintf("uid-%d", i)},
		}
	}
	return out
}

// attachOne measures one ADD and one DEL at a time, the calls taking turns.
func (b *bench) attachOne(ctx context.Context, calls []attachCall, got measured) {
	for round := range oneRounds + 1 {
		count := max(10, b.samples(onePerRound))
		if round == 0 {
			count = warmUpPerKind
		}
		for i, box := range b.attachBoxes(count) {
			for j := range calls {
				c := calls[(i+j)%len(calls)]
				for _, verb := range verbs {
					b.Must(context.Cause(ctx))
					s, err := c.run(verb, box)
					b.Must(err)
					if round > 0 {
						got.add(c.name, verb, round-1, s)
					}
				}
			}
		}
	}
}

// attachBursts measures 16 at once: the delegates alone, and the meta-plugin.
func (b *bench) attachBursts(ctx context.Context, calls []attachCall, got measured) {
	for round := range burstRounds {
		boxes := b.attachBoxes(max(4*burstWorkers, b.samples(burstSize)))
		for j := range calls {
			c := calls[(round+j)%len(calls)]
			for _, verb := range verbs {
				samples, took, err := burst(ctx, c.run, verb, boxes, burstWorkers)
				b.Must(err)
				got.add("16 "+c.name, verb, round, samples...)
				got.took("16 "+c.name, verb, round, took)
			}
		}
	}
}

// attach reports the meta-plugin's own share.
func (r *report) attach(m measured) {
	t := table{title: "a pod with three networks, delegates that do nothing", columns: []string{
		"", "ADD p50 ms", "ADD p99 ms", "DEL p50 ms", "16 at once: ADD/s", "p99 ms", "DEL/s",
	}}
	for _, n := range []name{oneDelegate, byHand, attached} {
		base, add, del, adds, dels := "attach/"+string(n), m[n]["ADD"], m[n]["DEL"], m["16 "+n]["ADD"], m["16 "+n]["DEL"]
		t.rows = append(t.rows, []string{
			string(n),
			r.note(newFigure(base+"/ADD/p50", "ms", add.wall(50))), r.note(newFigure(base+"/ADD/p99", "ms", add.pooled(99))),
			r.note(newFigure(base+"/DEL/p50", "ms", del.wall(50))),
			r.note(newFigure(base+"/16/ADD/rate", "/s", adds.rate())), r.note(newFigure(base+"/16/ADD/p99", "ms", adds.wall(99))),
			r.note(newFigure(base+"/16/DEL/rate", "/s", dels.rate())),
		})
	}
	r.tables = append(r.tables, t)
	own := m[attached]["ADD"].wall(50)
	for i, alone := range m[byHand]["ADD"].wall(50) {
		own[i] -= alone
	}
	r.note(newFigure("attach/own/p50", "×", ratios(own, m[oneDelegate]["ADD"].wall(50))).
		aimed("meta-plugin, three delegates: its own share of an ADD, to one do-nothing plugin's time", atMost(2)))
	r.note(newFigure("attach/16/rate", "×", ratios(m["16 "+attached]["ADD"].rate(), m["16 "+byHand]["ADD"].rate())).
		aimed("meta-plugin, 16 pods at once: rate, to that of the delegates alone", atLeast(0.45)))
	r.explain("three networks", "the meta-plugin reads its default network from a directory, asks a node socket that answers from memory, journals the plan with fsync, runs the delegates, "+
		"and reports; alone the delegates run one after the other, as whole processes; its own share is the difference of the medians of a round")
}

// serveFacts answers the meta-plugin on socket until it is stopped, as the agent does
// from what it watches: each pod selects two networks.
func serveFacts(ctx context.Context, socket string) (*process.Task, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return process.Go(ctx, func(ctx context.Context) error {
		return agentapi.Serve(ctx, ln, factsHandler{}, agentapi.DefaultLimits(), slog.New(slog.DiscardHandler))
	}), nil
}

type factsHandler struct{}

// Serve answers a question with facts, and accepts reports.
func (factsHandler) Serve(_ context.Context, req agentapi.Request) agentapi.Response {
	if req.Verb != agentapi.Facts {
		return agentapi.Response{Version: agentapi.Version}
	}
	var q facts.Question
	err := json.Unmarshal(req.Ask, &q)
	a := facts.Answer{Pod: facts.Pod{PodRef: q.Pod, Annotations: map[string]string{
		npwg.AnnotationNetworks: `[{"name":"a","interface":"a"},{"name":"b","interface":"b"}]`,
	}}}
	for _, name := range []string{"a", "b"} {
		config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"recorder","recorder":{"ips":["10.200.0.5/16"]}}`, name)
		a.Networks = append(a.Networks, facts.Definition{Ref: facts.Ref{Namespace: podNamespace, Name: name}, Config: &config})
	}
	text, encodeErr := json.Marshal(a)
	if err = errors.Join(err, encodeErr); err != nil {
		return agentapi.Fail(agentapi.CodeInternal, "%v", err)
	}
	return agentapi.Response{Version: agentapi.Version, Facts: text}
}
