package resolve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// world is a cluster that a test changes as it likes.
type world struct {
	mu          sync.Mutex
	cached      map[podName]Pod                 // what the watch of pods has
	pods        map[podName]Pod                 // what the API server has
	definitions map[facts.Ref]facts.Definition  // likewise
	labels      map[string]map[string]string    // likewise
	devices     map[podName]map[string][]string // what the kubelet has
	deaf        map[facts.Ref]bool              // what no watch shows
	reads       []string                        // live reads, and what follows begin with
	down        error                           // why the API server does not answer
	kubelet     error                           // why the kubelet does not
	hang        bool                            // reads do not end before their context
	annotated   []string
	answers     []protocol.Outcome // of Annotate, before it works
	room        int                // how long an annotation may be; 0: any length
	tries       int                // of Annotate that found no room
	said        []string
	changed     map[facts.Ref][]func() // tells the watches of a definition
}

func newWorld() *world {
	return &world{
		cached: map[podName]Pod{}, pods: map[podName]Pod{}, definitions: map[facts.Ref]facts.Definition{},
		labels: map[string]map[string]string{}, devices: map[podName]map[string][]string{},
		deaf: map[facts.Ref]bool{}, changed: map[facts.Ref][]func(){},
	}
}

func (w *world) cluster() Cluster {
	say := func(kind string) func(protocol.PodRef, string, string) {
		return func(pod protocol.PodRef, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.said = append(w.said, fmt.Sprintf("%s %s %s%s: %s", pod, pod.UID, kind, reason, message))
		}
	}
	return Cluster{Pods: w, Definitions: w, Namespaces: w, Devices: w, Warn: say(""), Note: say("note ")}
}

// read notes a live read, and waits or fails as the API server does.
func (w *world) read(ctx context.Context, what string) (protocol.Outcome, error) {
	w.mu.Lock()
	w.reads = append(w.reads, what)
	down, hang := w.down, w.hang
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return protocol.Unknown, context.Cause(ctx)
	}
	if down != nil {
		return protocol.Unknown, down
	}
	return protocol.Done, nil
}

func found[V any](v V, ok bool) (V, protocol.Outcome, error) {
	if !ok {
		return v, protocol.NotFound, errors.New("not found")
	}
	return v, protocol.Done, nil
}

// Cached implements Pods.
func (w *world) Cached(namespace, name string) (Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.cached[podName{namespace, name}]
	return p, ok
}

// ReadPod implements Pods.
func (w *world) ReadPod(ctx context.Context, namespace, name string) (Pod, protocol.Outcome, error) {
	if out, err := w.read(ctx, "pod "+namespace+"/"+name); err != nil {
		return Pod{}, out, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pods[podName{namespace, name}]
	return found(p, ok)
}

// Annotate implements Pods.
func (w *world) Annotate(_ context.Context, pod protocol.PodRef, annotations map[string]string) (protocol.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) > 0 {
		out := w.answers[0]
		w.answers = w.answers[1:]
		return out, errors.New(out.String())
	}
	p, ok := w.pods[podName{pod.Namespace, pod.Name}]
	switch {
	case !ok:
		return protocol.NotFound, errors.New("not found")
	case p.UID != pod.UID:
		return protocol.Conflict, errors.New("another UID")
	}
	for key, text := range annotations {
		if w.room > 0 && len(text) > w.room {
			w.tries++
			return protocol.Refused, fmt.Errorf("%w: %s", ErrTooLarge, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		w.annotated = append(w.annotated, fmt.Sprintf("%s %s %s=%s", pod, pod.UID, key, annotations[key]))
	}
	return protocol.Done, nil
}

// ReadDefinition implements Definitions.
func (w *world) ReadDefinition(ctx context.Context, ref facts.Ref) (facts.Definition, protocol.Outcome, error) {
	if out, err := w.read(ctx, "definition "+ref.String()); err != nil {
		return facts.Definition{}, out, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.definitions[ref]
	return found(d, ok)
}

// FollowDefinition implements Definitions.
func (w *world) FollowDefinition(ctx context.Context, ref facts.Ref, changed func(facts.Definition, bool)) error {
	tell := func() {
		d, ok := w.definitions[ref]
		changed(d, ok)
	}
	w.mu.Lock()
	w.reads = append(w.reads, "follow "+ref.String())
	if !w.deaf[ref] {
		w.changed[ref] = append(w.changed[ref], tell)
		tell()
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.reads = append(w.reads, "left "+ref.String())
	w.mu.Unlock()
	return nil
}

// ReadLabels implements Namespaces.
func (w *world) ReadLabels(ctx context.Context, namespace string) (map[string]string, protocol.Outcome, error) {
	if out, err := w.read(ctx, "namespace "+namespace); err != nil {
		return nil, out, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.labels[namespace]
	return found(l, ok)
}

// FollowLabels implements Namespaces.
func (w *world) FollowLabels(ctx context.Context, namespace string, changed func(map[string]string, bool)) error {
	w.mu.Lock()
	w.reads = append(w.reads, "follow namespace "+namespace)
	labels, ok := w.labels[namespace]
	w.mu.Unlock()
	changed(labels, ok)
	<-ctx.Done()
	return nil
}

// DevicesOf implements Devices.
func (w *world) DevicesOf(_ context.Context, namespace, pod string) (map[string][]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = append(w.reads, "kubelet")
	return w.devices[podName{namespace, pod}], w.kubelet
}

// took returns the reads since it was called last.
func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	reads := w.reads
	w.reads = nil
	return reads
}

// define makes a definition, and tells its watches.
func (w *world) define(ref facts.Ref, config string, annotations ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := facts.Definition{Ref: ref, Config: &config, Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		d.Annotations[annotations[i]] = annotations[i+1]
	}
	w.definitions[ref] = d
	for _, tell := range w.changed[ref] {
		tell()
	}
}

const networksKey = "k8s.v1.cni.cncf.io/networks"

// podOf makes a pod of namespace ns that selects networks.
func podOf(name, uid, networks string) Pod {
	return Pod{Namespace: "ns", Name: name, UID: protocol.UID(uid), Annotations: map[string]string{networksKey: networks, "example.org/note": "of no interest"}}
}

// seen puts a pod where the watch has it as well.
func (w *world) seen(r *Resolver, p Pod) {
	w.mu.Lock()
	w.pods[podName{p.Namespace, p.Name}], w.cached[podName{p.Namespace, p.Name}] = p, p
	w.mu.Unlock()
	r.PodChanged(p, true)
}

// run runs a resolver over w within a bubble, where time passes as needed.
func run(t *testing.T, w *world, test func(t *testing.T, r *Resolver)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, err := New(DefaultConfig(dir), w.cluster(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		test(t, r)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// ask asks what is known of a pod of namespace ns.
func ask(t *testing.T, r *Resolver, q facts.Question) (facts.Answer, *agentapi.Error) {
	t.Helper()
	raw, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Facts, Ask: raw})
	var a facts.Answer
	if resp.Error == nil {
		if err := json.Unmarshal(resp.Facts, &a); err != nil {
			t.Fatal(err)
		}
	}
	return a, resp.Error
}

func mustAsk(t *testing.T, r *Resolver, q facts.Question) facts.Answer {
	t.Helper()
	a, err := ask(t, r, q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func question(name, uid string, networks ...facts.Ref) facts.Question {
	return facts.Question{Pod: facts.PodRef{Namespace: "ns", Name: name, UID: uid}, Networks: networks, DefaultNamespace: "kube-system"}
}

var (
	netA = facts.Ref{Namespace: "ns", Name: "net-a"}
	netB = facts.Ref{Namespace: "other", Name: "net-b"}
	base = facts.Ref{Namespace: "kube-system", Name: "base"}
)

// TestAnswersWithoutTheAPIServer (N14, N15, N19).
func TestAnswersWithoutTheAPIServer(t *testing.T) {
	for _, networks := range []string{`net-a, other/net-b@eth7,net-a`, `[{"name":"net-a"},{"name":"net-b","namespace":"other"},{"name":"net-a","namespace":""}]`} {
		t.Run(networks, func(t *testing.T) {
			w := newWorld()
			w.define(netA, `{"a":1}`, "k8s.v1.cni.cncf.io/resourceName", "a/nic", "example.org/note", "of no interest to be sent")
			w.define(netB, `{"b":1}`)
			run(t, w, func(t *testing.T, r *Resolver) {
				w.devices[podName{"ns", "p"}] = map[string][]string{"a/nic": {"a/nic=d1", "c/nic=d2"}, "b/gpu": {"b/gpu=g"}}
				w.seen(r, podOf("p", "u1", networks))
				mustAsk(t, r, question("p", "u1", base)) // base is followed from now on
				synctest.Wait()
				w.took()

				got := mustAsk(t, r, question("p", "u1", base))
				a, b := `{"a":1}`, `{"b":1}`
				want := facts.Answer{
					Pod: facts.Pod{PodRef: facts.PodRef{Namespace: "ns", Name: "p", UID: "u1"}, Annotations: map[string]string{networksKey: networks}},
					Networks: []facts.Definition{
						Missing(base),
						{Ref: netA, Config: &a, Annotations: w.definitions[netA].Annotations, Devices: []string{"d1", "d2"}, DeviceNames: []string{"a/nic=d1", "c/nic=d2"}},
						{Ref: netB, Config: &b},
					},
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				if reads := w.took(); !slices.Equal(reads, []string{"kubelet"}) {
					t.Errorf("the answer took %q; want the kubelet alone", reads)
				}
			})
		})
	}
}

// TestAddressesAreNoDevices: the kubelet is not asked about a resource that counts addresses, and
// whether it answers does not matter.
func TestAddressesAreNoDevices(t *testing.T) {
	w := newWorld()
	w.define(netA, `{}`, "k8s.v1.cni.cncf.io/resourceName", "tenure.dev/lan")
	run(t, w, func(t *testing.T, r *Resolver) {
		w.kubelet = errors.New("starting")
		w.seen(r, podOf("p", "u1", "net-a"))
		synctest.Wait()
		w.took()
		got := mustAsk(t, r, question("p", "u1"))
		if reads := w.took(); len(reads) > 0 || len(got.Networks) != 1 || got.Networks[0].Devices != nil {
			t.Errorf("the answer %+v took %q; want no devices, and nobody asked", got.Networks, reads)
		}
	})
}

func TestWatchesArePreparedBeforeTheFirstQuestion(t *testing.T) {
	w := newWorld()
	w.define(netA, `{}`)
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", "net-a"))
		synctest.Wait()
		w.took()
		mustAsk(t, r, question("p", "u1"))
		if reads := w.took(); len(reads) > 0 {
			t.Errorf("the first answer took %q; want nothing", reads)
		}
	})
}

func TestWhatNoWatchHasIsReadOnce(t *testing.T) {
	w := newWorld()
	w.define(netA, `{}`)
	run(t, w, func(t *testing.T, r *Resolver) {
		w.pods[podName{"ns", "p"}] = podOf("p", "u1", "net-a,other/net-b") // the watch is behind
		a := mustAsk(t, r, question("p", "u1"))
		if len(a.Networks) != 2 || a.Networks[0].Missing != "" || !strings.Contains(a.Networks[1].Missing, "net-b") {
			t.Errorf("got %+v; want net-a, and net-b missing", a.Networks)
		}
		reads := w.took()
		for _, want := range []string{"pod ns/p", "definition ns/net-a", "definition other/net-b"} {
			if n := len(slices.DeleteFunc(slices.Clone(reads), func(s string) bool { return s != want })); n != 1 {
				t.Errorf("%s was read %d times; want once: %q", want, n, reads)
			}
		}
	})
}

// Nothing is taken from a running pod by what the watch of an agent shows that is behind.
func TestALiveQuestionIsAnsweredByTheAPIServer(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", "net-a"))
		w.pods[podName{"ns", "p"}] = podOf("p", "u1", "other/net-b") // without telling the watch
		q := question("p", "u1")
		if a := mustAsk(t, r, q); a.Networks[0].Ref != netA {
			t.Errorf("got %+v; want what the watch shows", a.Networks)
		}
		q.Live = true
		if a := mustAsk(t, r, q); a.Networks[0].Ref != netB {
			t.Errorf("got %+v; want what the API server has", a.Networks)
		}
	})
}

// A definition may have been made a moment before the pod that selects it: to refuse,
// the watch is not enough (N11).
func TestASelectedDefinitionIsNotMissingBecauseAWatchIsBehind(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", "net-a"))
		synctest.Wait()
		config := `{}`
		w.definitions[netA] = facts.Definition{Ref: netA, Config: &config} // without telling the watch
		if a := mustAsk(t, r, question("p", "u1")); a.Networks[0].Missing != "" {
			t.Errorf("got %+v; want the definition", a.Networks)
		}
	})
}

func TestRecreatedPodIsNotTakenForTheOldOne(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "old", "net-a"))
		w.pods[podName{"ns", "p"}] = podOf("p", "new", "other/net-b")
		for _, uid := range []string{"new", ""} { // a runtime that names no UID means the one there is
			if a := mustAsk(t, r, question("p", uid)); a.Pod.UID != "new" || a.Networks[0].Ref != netB {
				t.Errorf("asked for %q: got %+v; want the new pod", uid, a)
			}
		}
		delete(w.cached, podName{"ns", "p"})
		_, err := ask(t, r, question("p", "old"))
		if err == nil || err.Code != agentapi.CodeTryAgainLater || !strings.Contains(err.Msg, "UID new") {
			t.Errorf("asked for the old pod: got %v; want code 11 that names both", err)
		}
	})
}

// TestStaticPodIsFoundByItsMirror (N66).
func TestStaticPodIsFoundByItsMirror(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		p := podOf("p", "mirror", "net-a")
		p.MirrorOf = "kubelets"
		w.seen(r, p)
		if a := mustAsk(t, r, question("p", "kubelets")); a.Pod.UID != "kubelets" {
			t.Errorf("got UID %q; want the kubelet's", a.Pod.UID)
		}
		if a := mustAsk(t, r, question("p", "")); a.Pod.UID != "kubelets" {
			t.Errorf("a runtime that names no UID: got %q; want the kubelet's", a.Pod.UID)
		}
	})
}

func TestWhatCannotBeKnownIsForLater(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*world)
		want  string
	}{
		{"no pod", func(w *world) { clear(w.pods) }, "pod ns/p does not exist"},
		{"API server away", func(w *world) { w.down = errors.New("connection refused") }, "pod ns/p cannot be read: connection refused"},
		{"API server silent", func(w *world) { w.hang = true }, "was not there within 5s"},
		{"definition not read", func(w *world) {
			w.cached[podName{"ns", "p"}], w.down = podOf("p", "u1", "net-a"), errors.New("refused")
		}, "definition ns/net-a cannot be read: refused"},
		{"namespace not read", func(w *world) {
			w.define(netA, `{}`, npwg.AnnotationSelector, "a=b")
		}, "namespace ns cannot be read"},
		{"kubelet away", func(w *world) {
			w.define(netA, `{}`, "k8s.v1.cni.cncf.io/resourceName", "a/nic")
			w.kubelet = errors.New("starting")
		}, "the kubelet does not say which devices it gave: starting"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			run(t, w, func(t *testing.T, r *Resolver) {
				w.pods[podName{"ns", "p"}] = podOf("p", "u1", "net-a")
				tt.spoil(w)
				_, err := ask(t, r, question("p", "u1"))
				if err == nil || err.Code != agentapi.CodeTryAgainLater || !strings.Contains(err.Msg, tt.want) {
					t.Errorf("got %v; want code 11 with %q", err, tt.want)
				}
			})
		})
	}
}

// What cannot be a name is not looked up: the annotation is invalid, and the pod gets
// its default network whatever the API server says (N6, N18, N20).
func TestInvalidNamesAreNotLookedUp(t *testing.T) {
	for _, networks := range []string{"a/b/c", "Net_A", "../x", "/", ",", `[{"name":"../x"}]`, `[{"name":"a","namespace":"B/c"}]`, `[{"name":5}]`, `[{}]`, `{"name":"a"`} {
		t.Run(networks, func(t *testing.T) {
			w := newWorld()
			run(t, w, func(t *testing.T, r *Resolver) {
				w.seen(r, podOf("p", "u1", networks))
				w.down = errors.New("away")
				for _, d := range mustAsk(t, r, question("p", "u1")).Networks {
					t.Errorf("%s was looked up", d.Ref)
				}
			})
		})
	}
}

// Of many definitions that do not exist the first are looked up: the pod is attached to nothing.
func TestMissingDefinitionsAreNotAllLookedUp(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		var names []string
		for i := range 256 {
			names = append(names, fmt.Sprintf("none-%d", i))
		}
		w.pods[podName{"ns", "p"}] = podOf("p", "u1", strings.Join(names, ","))
		answer := mustAsk(t, r, question("p", "u1"))
		reads := slices.DeleteFunc(w.took(), func(read string) bool { return !strings.HasPrefix(read, "definition ") })
		if n := len(reads); n < maxMissing || n >= maxMissing+parallel {
			t.Errorf("%d definitions were read; want %d, and no more than were under way", n, maxMissing)
		}
		for _, d := range answer.Networks {
			if d.Missing == "" {
				t.Errorf("%s is not missing", d.Ref)
			}
		}
	})
}

// TestMovingPod: the plugin is told that a virtual machine moves to the pod.
func TestMovingPod(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		moving := podOf("p", "u1", "")
		moving.Moving = true
		w.seen(r, moving)
		w.seen(r, podOf("q", "u2", ""))
		for name, uid := range map[string]string{"p": "u1", "q": "u2"} {
			if a := mustAsk(t, r, question(name, uid)); a.Pod.Moving != (name == "p") {
				t.Errorf("of pod %s it is told that a machine moves there: %t", name, a.Pod.Moving)
			}
		}
	})
}

// TestNamespaceLabelsWhereADefinitionAsksForThem (N77).
func TestNamespaceLabelsWhereADefinitionAsksForThem(t *testing.T) {
	w := newWorld()
	w.labels["ns"] = map[string]string{"team": "blue"}
	w.define(netA, `{}`)
	w.define(netB, `{}`, npwg.AnnotationSelector, "team=blue")
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, podOf("p", "u1", "net-a"))
		w.seen(r, podOf("q", "u2", "other/net-b"))
		if a := mustAsk(t, r, question("p", "u1")); a.Pod.NamespaceLabels != nil {
			t.Errorf("got labels %v, which nobody asks for", a.Pod.NamespaceLabels)
		}
		mustAsk(t, r, question("q", "u2"))
		synctest.Wait()
		w.took()
		if a := mustAsk(t, r, question("q", "u2")); a.Pod.NamespaceLabels["team"] != "blue" {
			t.Errorf("got labels %v; want team=blue", a.Pod.NamespaceLabels)
		}
		if reads := w.took(); len(reads) > 0 {
			t.Errorf("the second answer took %q", reads)
		}
	})
}

// A node follows what its own pods select, and for a while what they did.
func TestFollowsWhatPodsSelect(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		p := podOf("p", "u1", "net-a")
		w.seen(r, p)
		w.seen(r, podOf("q", "u2", "net-a"))
		synctest.Wait()
		if got := w.took(); !slices.Equal(got, []string{"follow ns/net-a"}) {
			t.Fatalf("two pods: %q; want net-a followed once", got)
		}
		r.PodChanged(podOf("q", "u2", "net-a"), false)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := w.took(); len(got) > 0 {
			t.Errorf("one pod is left: %q", got)
		}
		w.seen(r, podOf("p", "u1", "other/net-b")) // its annotation has changed
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		if got := w.took(); !slices.Equal(got, []string{"follow other/net-b"}) {
			t.Errorf("a moment after no pod selects it: %q; want it followed still", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := w.took(); !slices.Equal(got, []string{"left ns/net-a"}) {
			t.Errorf("long after no pod selects it: %q; want it left", got)
		}
	})
}

func TestFollowsOnlySoMuch(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		var many []string
		for i := range maxDefinitionsPod + 5 {
			many = append(many, fmt.Sprintf("n%d", i))
		}
		w.seen(r, podOf("p", "u1", strings.Join(many, ",")))
		synctest.Wait()
		if n := r.definitions.size(); n != maxDefinitionsPod {
			t.Errorf("%d definitions are followed for one pod; want %d", n, maxDefinitionsPod)
		}
		if a := mustAsk(t, r, question("p", "u1")); len(a.Networks) != len(many) {
			t.Errorf("the answer has %d networks; want all %d", len(a.Networks), len(many))
		}
		for i := range maxDefinitions {
			r.definitions.get(facts.Ref{Namespace: "x", Name: fmt.Sprint(i)})
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := r.definitions.size(); n != maxDefinitions {
			t.Errorf("%d are followed in all; want %d", n, maxDefinitions)
		}
		w.took()
		mustAsk(t, r, question("p", "u1"))
		if got := slices.DeleteFunc(w.took(), func(s string) bool { return !strings.HasPrefix(s, "follow ns/n0") }); len(got) > 0 {
			t.Errorf("what a pod selects has made room for what nobody does: %q", got)
		}
	})
}

func TestWordsThatAreNotUnderstood(t *testing.T) {
	w := newWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		for _, tt := range []struct {
			verb agentapi.Verb
			ask  string
		}{
			{agentapi.Facts, `[]`},
			{agentapi.Facts, `{"pod":{"name":"p"}}`},
			{agentapi.Facts, `{"pod":{"namespace":"ns"}}`},
			{agentapi.Report, `1`},
			{agentapi.Report, `{"pod":{"name":"p"},"status":[]}`},
			{agentapi.Report, `{"pod":{"namespace":"ns","name":"p"},"status":{"name":"x"}}`},
		} {
			if resp := r.Serve(t.Context(), agentapi.Request{Verb: tt.verb, Ask: json.RawMessage(tt.ask)}); resp.Error == nil || resp.Error.Code != agentapi.CodeDecoding {
				t.Errorf("%s %s: got %v; want code %d", tt.verb, tt.ask, resp.Error, agentapi.CodeDecoding)
			}
		}
		if resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Add}); resp.Error == nil {
			t.Error("an ADD was served")
		}
	})
}

// TestDefinitionOf: what says nothing about networks is left out, and an empty
// configuration is none.
func TestDefinitionOf(t *testing.T) {
	ref, config := facts.Ref{Namespace: "ns", Name: "lan"}, `{"type":"bridge"}`
	of := map[string]string{"tenure.dev/namespaces": "*", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	want := facts.Definition{Ref: ref, Config: &config, Annotations: map[string]string{"tenure.dev/namespaces": "*"}}
	if diff := cmp.Diff(want, DefinitionOf(ref, of, config)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(of) != 2 {
		t.Errorf("the definition's own annotations have become %v", of)
	}
	if d := DefinitionOf(ref, nil, ""); d.Config != nil {
		t.Errorf("without a configuration it has %q", *d.Config)
	}
}
