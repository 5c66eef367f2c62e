package attach_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// waitLimit is how long a test waits for what must come.
const waitLimit = time.Minute

// A node is a host with the meta-plugin, its agent, and the plugins' records.
type node struct {
	t     *testing.T
	dir   string
	agent *agent
	// config is the meta-plugin's configuration; nil values are left out.
	config map[string]any
	stop   func()
}

// newNode makes a node whose default network is a recorder's.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), agent: &agent{definitions: map[facts.Ref]facts.Definition{}, annotations: map[string]map[string]string{}}}
	for _, dir := range []string{"log", "conf"} {
		must(t, os.Mkdir(filepath.Join(n.dir, dir), 0o755))
	}
	n.config = map[string]any{
		"cniVersion": "1.1.0", "name": "tenure", "type": "tenure-attach", "socket": n.path("agent.sock"), "stateDir": n.path("state"),
		"confDir": n.path("conf"), "binDir": pluginDirs[0],
		"defaultNetwork": n.recorder("default", map[string]any{"ips": []string{"10.1.0.5/24"}}),
	}
	n.startAgent()
	return n
}

func (n *node) path(elements ...string) string {
	return filepath.Join(append([]string{n.dir}, elements...)...)
}

// recorder is a network of the recorder; instructions as the recorder reads them.
func (n *node) recorder(name string, instructions map[string]any) map[string]any {
	return map[string]any{"cniVersion": "1.1.0", "name": name, "plugins": []any{n.plugin(instructions)}}
}

// plugin is the recorder's configuration in a list.
func (n *node) plugin(instructions map[string]any) map[string]any {
	all := map[string]any{"log": n.path("log")}
	maps.Copy(all, instructions)
	return map[string]any{"type": "recorder", "recorder": all}
}

// define gives the cluster a NetworkAttachmentDefinition. A nil config is none.
func (n *node) define(namespace, name string, config any, annotations ...string) {
	n.t.Helper()
	d := facts.Definition{Ref: facts.Ref{Namespace: namespace, Name: name}, Annotations: map[string]string{}}
	switch c := config.(type) {
	case nil:
	case string:
		d.Config = &c
	default:
		text := string(encoded(n.t, config))
		d.Config = &text
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		d.Annotations[annotations[i]] = annotations[i+1]
	}
	n.agent.mu.Lock()
	defer n.agent.mu.Unlock()
	n.agent.definitions[d.Ref] = d
}

// selects has the pod select networks.
func (n *node) selects(pod, annotation string) { n.annotate(pod, npwg.AnnotationNetworks, annotation) }

func (n *node) annotate(pod, key, value string) {
	n.agent.mu.Lock()
	defer n.agent.mu.Unlock()
	if n.agent.annotations[pod] == nil {
		n.agent.annotations[pod] = map[string]string{}
	}
	n.agent.annotations[pod][key] = value
}

// watchShows has the agent's watch be behind: it shows that pods select these networks.
func (n *node) watchShows(annotation string) {
	n.agent.mu.Lock()
	defer n.agent.mu.Unlock()
	n.agent.behind = map[string]string{npwg.AnnotationNetworks: annotation}
}

// onDisk writes a file of confDir.
func (n *node) onDisk(name string, content any) {
	n.t.Helper()
	text, ok := content.(string)
	if !ok {
		text = string(encoded(n.t, content))
	}
	must(n.t, os.MkdirAll(filepath.Dir(n.path("conf", name)), 0o755))
	must(n.t, os.WriteFile(n.path("conf", name), []byte(text), 0o600))
}

// A sandboxOf is a pod's sandbox. Container and network namespace have the pod's
// name unless they are given.
type sandboxOf struct {
	pod, container, netns, ifName string
	args                          string         // instead of the usual CNI_ARGS
	env                           []string       // further variables
	config                        map[string]any // further members of the configuration
}

func pod(name string) sandboxOf { return sandboxOf{pod: name} }

// An outcome is how a call has ended.
type outcome struct {
	status         int
	stdout, stderr string
}

// failure is a CNI error.
type failure struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// command is a call of the plugin for the sandbox.
func (n *node) command(ctx context.Context, verb string, s sandboxOf) *exec.Cmd {
	n.t.Helper()
	container, netns, ifName, args := s.container, s.netns, s.ifName, s.args
	if container == "" {
		container = "c-" + s.pod
	}
	if netns == "" {
		netns = "/run/netns/" + s.pod
	}
	if ifName == "" {
		ifName = "eth0"
	}
	if args == "" {
		args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + s.pod + ";K8S_POD_INFRA_CONTAINER_ID=" + container + ";K8S_POD_UID=uid-" + s.pod
	}
	config := maps.Clone(n.config)
	maps.Copy(config, s.config)
	maps.DeleteFunc(config, func(_ string, v any) bool { return v == nil })
	cmd := exec.CommandContext(ctx, tenureAttach)
	cmd.Stdin = bytes.NewReader(encoded(n.t, config))
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_COMMAND=" + verb, "CNI_PATH=" + strings.Join(pluginDirs, ":")}
	if verb != "GC" && verb != "STATUS" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+container, "CNI_IFNAME="+ifName, "CNI_ARGS="+args)
	}
	if (verb == "ADD" || verb == "CHECK" || verb == "DEL") && netns != "none" {
		cmd.Env = append(cmd.Env, "CNI_NETNS="+netns)
	}
	cmd.Env = append(cmd.Env, s.env...) // of a variable that is there twice, the last counts
	return cmd
}

// call runs the plugin to its end.
func (n *node) call(verb string, s sandboxOf) outcome {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 3*waitLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := n.command(ctx, verb, s)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		n.t.Fatalf("run %s: %v", verb, err)
	}
	return o
}

// ok fails the test unless the call has succeeded, and returns it.
func (n *node) ok(verb string, s sandboxOf) outcome {
	n.t.Helper()
	o := n.call(verb, s)
	if o.status != 0 {
		n.t.Fatalf("%s of %s: status %d\n%s\n%s", verb, s.pod, o.status, o.stdout, o.stderr)
	}
	return o
}

// fails fails the test unless the call fails as CNI has it, with a message that has
// every one of the texts.
func (n *node) fails(verb string, s sandboxOf, texts ...string) failure {
	n.t.Helper()
	o := n.call(verb, s)
	var f failure
	if err := json.Unmarshal([]byte(o.stdout), &f); o.status != 1 || err != nil || f.Code == 0 || f.CNIVersion == "" {
		n.t.Fatalf("%s of %s: status %d, %v; want a CNI error\n%s\n%s", verb, s.pod, o.status, err, o.stdout, o.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(f.Msg+" "+f.Details, text) {
			n.t.Errorf("%s of %s: %+v; want it to say %q", verb, s.pod, f, text)
		}
	}
	return f
}

// A record is a call of the recorder.
type record struct {
	Verb       string
	Env        map[string]string
	Stdin      map[string]any
	Begin, End int64
}

// id says which attachment the record is of, and what was done to it.
func (r record) id() string {
	return fmt.Sprintf("%s %v %s", r.Verb, r.Stdin["name"], r.Env["CNI_IFNAME"])
}

// at returns a member of the record's stdin by its path.
func (r record) at(path ...string) any {
	var v any = r.Stdin
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// records returns the recorders' calls in their order, and forgets them.
func (n *node) records() (all []record) {
	n.t.Helper()
	names, err := filepath.Glob(n.path("log", "*.json"))
	must(n.t, err)
	slices.Sort(names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(n.t, err)
		var r record
		must(n.t, json.Unmarshal(text, &r))
		all = append(all, r)
		must(n.t, os.Remove(name))
	}
	return all
}

// called fails the test unless the recorders were called just so, in this order.
func (n *node) called(want ...string) []record {
	n.t.Helper()
	got := n.records()
	ids := make([]string, len(got))
	for i, r := range got {
		ids[i] = r.id()
	}
	if !slices.Equal(ids, want) {
		n.t.Errorf("delegates were called:\n  %s\nwant:\n  %s", strings.Join(ids, "\n  "), strings.Join(want, "\n  "))
		n.t.FailNow()
	}
	return got
}

// clean fails the test unless nothing is kept of any container.
func (n *node) clean() {
	n.t.Helper()
	for _, dir := range []string{"attachments", "results", "unsent", "locks"} {
		names, err := filepath.Glob(n.path("state", dir, "[^.]*"))
		must(n.t, err)
		if len(names) > 0 {
			n.t.Errorf("kept: %v; want nothing", names)
		}
	}
}

// journals are the journals' files.
func (n *node) journals() []string {
	n.t.Helper()
	names, err := filepath.Glob(n.path("state", "attachments", "*"))
	must(n.t, err)
	return names
}

// An agent answers what it was told of pods and definitions, and keeps the reports.
type agent struct {
	mu          sync.Mutex
	definitions map[facts.Ref]facts.Definition
	annotations map[string]map[string]string // by pod
	labels      map[string]string            // of the pods' namespace
	podNetworks []facts.PodNetwork           // of any pod that lists some
	moving      bool                         // a virtual machine moves to any pod
	behind      map[string]string            // what its watch shows of any pod's annotations, if it is behind
	answer      *agentapi.Response           // instead of the facts
	refuse      bool                         // refuse reports
	questions   []facts.Question
	reports     []facts.Report
	unproved    []agentapi.Unproved // what is to be asked for on the segment
	probes      []agentapi.ProbeAsk // what came of it
}

// startAgent has the agent listen until the test ends or stop is called.
func (n *node) startAgent() {
	n.t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(n.t.Context(), "unix", n.path("agent.sock"))
	must(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agentapi.Serve(ctx, ln, n.agent, agentapi.DefaultLimits(), slog.New(slog.DiscardHandler))
	}()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(n.stop)
}

// Serve answers the meta-plugin.
func (a *agent) Serve(_ context.Context, req agentapi.Request) agentapi.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch req.Verb {
	case agentapi.Facts:
		var q facts.Question
		if err := json.Unmarshal(req.Ask, &q); err != nil {
			return agentapi.Fail(agentapi.CodeDecoding, "%v", err)
		}
		a.questions = append(a.questions, q)
		if a.answer != nil {
			return *a.answer
		}
		text, err := json.Marshal(a.factsOf(q))
		if err != nil {
			return agentapi.Fail(agentapi.CodeInternal, "%v", err)
		}
		return agentapi.Response{Version: agentapi.Version, Facts: text}
	case agentapi.Report:
		var r facts.Report
		if err := json.Unmarshal(req.Ask, &r); err != nil {
			return agentapi.Fail(agentapi.CodeDecoding, "%v", err)
		}
		if a.refuse {
			return agentapi.Fail(agentapi.CodeTryAgainLater, "not now")
		}
		a.reports = append(a.reports, r)
		return agentapi.Response{Version: agentapi.Version}
	case agentapi.Probe:
		return a.probe(req)
	default:
		return agentapi.Fail(agentapi.CodeInternal, "%s is not what the meta-plugin asks", req.Verb)
	}
}

// probe answers what is to be asked for, and keeps what came of it.
func (a *agent) probe(req agentapi.Request) agentapi.Response {
	var p agentapi.ProbeAsk
	if err := json.Unmarshal(req.Ask, &p); err != nil {
		return agentapi.Fail(agentapi.CodeDecoding, "%v", err)
	}
	if len(p.Of) == 0 {
		a.probes = append(a.probes, p)
		return agentapi.Response{Version: agentapi.Version}
	}
	if len(a.unproved) == 0 {
		return agentapi.Response{Version: agentapi.Version}
	}
	text, err := json.Marshal(a.unproved)
	if err != nil {
		return agentapi.Fail(agentapi.CodeInternal, "%v", err)
	}
	return agentapi.Response{Version: agentapi.Version, Facts: text}
}

// told returns what came of asking on the segment.
func (a *agent) told() []agentapi.ProbeAsk {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.probes)
}

func (a *agent) factsOf(q facts.Question) facts.Answer {
	answer := facts.Answer{Pod: facts.Pod{PodRef: q.Pod, Annotations: a.annotations[q.Pod.Name], Moving: a.moving, NamespaceLabels: a.labels}}
	if a.behind != nil && !q.Live {
		answer.Pod.Annotations = a.behind
	}
	if answer.Pod.Annotations[podnetwork.AnnotationNetworks] != "" {
		answer.PodNetworks = a.podNetworks
	}
	for _, d := range a.definitions {
		answer.Networks = append(answer.Networks, d)
	}
	return answer
}

// reported returns the reports, and forgets them, when there are as many.
func (n *node) reported(count int) []facts.Report {
	n.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		n.agent.mu.Lock()
		reports := n.agent.reports
		if len(reports) >= count || time.Now().After(deadline) {
			n.agent.reports = nil
			n.agent.mu.Unlock()
			if len(reports) != count {
				n.t.Fatalf("%d reports; want %d", len(reports), count)
			}
			return reports
		}
		n.agent.mu.Unlock()
	}
}

// statusOf returns the status annotation of the only report.
func (n *node) statusOf() (list []map[string]any) {
	n.t.Helper()
	must(n.t, json.Unmarshal(n.reported(1)[0].Status, &list))
	return list
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}
