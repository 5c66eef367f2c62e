package networks_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// The four forms of the specification's section 3.2, and what the agent tells of them (N1, N2, N3,
// N4, N5).
func TestDefinitionsOfEveryForm(t *testing.T) {
	ns := namespace(t, nil)
	configs := map[string]string{}
	for name, spec := range map[string]string{
		"single": `spec: {config: '{"cniVersion": "0.3.0", "type": "awesome-plugin"}'}`,
		"list":   `spec: {config: '{"cniVersion": "0.3.0", "name": "l", "plugins": [{"type": "awesome-plugin"}]}'}`,
		"empty":  `spec: {}`,
		"none":   ``,
		"kuryr":  `metadata: {annotations: {openstack.org/kuryr-config: '{"subnetId": "1"}'}}`,
	} {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n"+spec), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetName(name)
		o.SetNamespace(ns)
		create(t, &o)
		configs[name], _, _ = unstructured.NestedString(o.Object, "spec", "config")
	}
	pod := newPod(t, ns, "p", "forms", "single,list,empty,none,kuryr")
	n := node(t, "forms")
	for _, d := range mustAsk(t, n, pod).Networks {
		got := ""
		if d.Config != nil {
			got = *d.Config
		}
		if d.Missing != "" || got != configs[d.Name] || (d.Config == nil) != (configs[d.Name] == "") {
			t.Errorf("%s: got config %q, missing %q; want %q", d.Name, got, d.Missing, configs[d.Name])
		}
		if want := map[bool]int{true: 1}[d.Name == "kuryr"]; len(d.Annotations) != want {
			t.Errorf("%s: annotations %v; want %d that decide about networks", d.Name, d.Annotations, want)
		}
	}
}

// While the API server is away, pods that the node has already are known, with all
// that they select: an ADD for a new sandbox of theirs is not held up.
func TestKnownPodsNeedNoAPIServer(t *testing.T) {
	ns := namespace(t, map[string]string{"team": "blue"})
	define(t, ns, "a", `{"type":"a"}`, nil)
	define(t, "default", "b", `{"type":"b"}`, map[string]string{npwg.AnnotationSelector: "team=blue"})
	pod := newPod(t, ns, "p", "away", `[{"name":"a"},{"name":"b","namespace":"default"}]`)
	n := node(t, "away")
	named := []facts.Ref{{Namespace: "kube-system", Name: "no-definition-but-a-file"}}
	before := mustAsk(t, n, pod, named...)
	if len(before.Networks) != 3 || before.Networks[0].Missing == "" || before.Pod.NamespaceLabels["team"] != "blue" {
		t.Fatalf("got %+v", before)
	}
	// The first answer may have come before the watches that it began.
	fleet.Eventually(t, minute, func() error { return noLiveReads(n, pod, named...) })

	alone(t)
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.StartAPIServer(context.Background()); err != nil { // the test's context has ended
			t.Error(err)
		}
	})
	after := mustAsk(t, n, pod, named...)
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("with the API server away (-before +after):\n%s", d)
	}
	_, err := ask(n, facts.Question{Pod: facts.PodRef{Namespace: ns, Name: "unknown", UID: "u"}})
	if err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a pod that the node does not know: got %v; want it said that it cannot be read", err)
	}
}

// noLiveReads asks about a pod, and returns an error if that took a live read.
func noLiveReads(n *fleet.Node, pod *corev1.Pod, named ...facts.Ref) error {
	read := func() (string, error) { return metric(n, "tenure_attach_live_reads_total") }
	before, err := read()
	if err != nil {
		return err
	}
	if _, err := ask(n, facts.Question{Pod: refOf(pod), Networks: named, DefaultNamespace: "kube-system"}); err != nil {
		return err
	}
	after, err := read()
	if err == nil && before != after {
		err = fmt.Errorf("it took live reads:\n%s\nbefore, after:\n%s", before, after)
	}
	return err
}

// A change of what decides is seen: the annotation of a pod, the configuration of a
// definition, the labels of a namespace (N15, N77).
func TestChangesAreSeen(t *testing.T) {
	ns := namespace(t, map[string]string{"team": "red"})
	define(t, ns, "a", `{"type":"a"}`, map[string]string{npwg.AnnotationSelector: "team=blue"})
	define(t, ns, "b", `{"type":"b"}`, nil)
	pod := newPod(t, ns, "p", "changes", "a")
	n := node(t, "changes")
	if a := mustAsk(t, n, pod); len(a.Networks) != 1 || a.Pod.NamespaceLabels["team"] != "red" {
		t.Fatalf("got %+v", a)
	}
	fleet.Patch(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"metadata":{"labels":{"team":"blue"}}}`)
	fleet.Patch(t, kc, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}, `{"spec":{"config":"{\"type\":\"z\"}"}}`)
	fleet.Patch(t, kc, pod.DeepCopy(), `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":"a,b,missing"}}}`)
	fleet.Eventually(t, minute, func() error {
		a := mustAsk(t, n, pod)
		if len(a.Networks) != 3 || *a.Networks[0].Config != `{"type":"z"}` || a.Networks[2].Missing == "" || a.Pod.NamespaceLabels["team"] != "blue" {
			return fmt.Errorf("got %+v", a)
		}
		return nil
	})
	create(t, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "missing"}})
	if a := mustAsk(t, n, pod); a.Networks[2].Missing != "" {
		t.Errorf("a definition made a moment ago: got %q", a.Networks[2].Missing)
	}
}

// A pod that was deleted and created anew under its name is another pod.
func TestPodCreatedAnewUnderItsName(t *testing.T) {
	ns := namespace(t, nil)
	old := newPod(t, ns, "web-0", "anew", "a")
	n := node(t, "anew")
	mustAsk(t, n, old)
	remove(t, old)
	young := newPod(t, ns, "web-0", "anew", "b")
	if a := mustAsk(t, n, young); a.Networks[0].Name != "b" || a.Pod.UID != string(young.UID) {
		t.Errorf("got %+v; want what the new pod selects", a)
	}
	if a, err := ask(n, facts.Question{Pod: refOf(old)}); err == nil {
		t.Errorf("the old pod: got %+v; want it refused", a)
	}
	// What is reported of the old one late does not reach the new one.
	report(t, n, facts.Report{Pod: refOf(old), Status: []byte(`["old"]`)})
	report(t, n, facts.Report{Pod: refOf(young), Status: []byte(`["new"]`)})
	awaitStatus(t, young, `["new"]`)
	fleet.Eventually(t, minute, func() error { return settled(n) })
	awaitStatus(t, young, `["new"]`)
}

// A static pod is known to the runtime by the kubelet's UID, to the API server by its
// mirror (N66).
func TestStaticPod(t *testing.T) {
	ns := namespace(t, nil)
	define(t, ns, "a", `{"type":"a"}`, nil)
	const uid = "0123456789abcdef0123456789abcdef"
	n := node(t, "static")
	ref := facts.PodRef{Namespace: ns, Name: "static", UID: uid}
	if _, err := ask(n, facts.Question{Pod: ref}); err == nil || !strings.Contains(err.Error(), "mirror") {
		t.Errorf("before the mirror: got %v; want it said", err)
	}
	mirror := newPod(t, ns, "static", "static", "a", func(p *corev1.Pod) {
		p.Annotations[corev1.MirrorPodAnnotationKey] = uid
	})
	a, err := ask(n, facts.Question{Pod: ref})
	if err != nil || a.Pod.UID != uid || len(a.Networks) != 1 {
		t.Errorf("got %+v, %v", a, err)
	}
	report(t, n, facts.Report{Pod: ref, Status: []byte(`[{"name":"a"}]`)})
	awaitStatus(t, mirror, `[{"name":"a"}]`)
}

// The agent's memory per pod (issue 5): 300 pods on three networks each, of 20, and
// with annotations of other programs, which it must not keep.
func TestMemoryPerPod(t *testing.T) {
	proof.Only(t)
	const pods, limit = 300, 20 << 10
	ns := namespace(t, nil)
	for i := range 20 {
		define(t, ns, fmt.Sprintf("net-%d", i), fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net-%d","type":"macvlan","master":"eth1","ipam":{"type":"tenure","pool":"p%d"}}`, i, i), nil)
	}
	alone(t) // it would have the pods, too
	n := node(t, "memory")
	before := heap()
	var last *corev1.Pod
	for i := range pods { // none is kept here: the test's memory is the agent's
		last = podOn(ns, fmt.Sprintf("p-%d", i), "memory", fmt.Sprintf("net-%d,net-%d,net-%d", i%20, (i+1)%20, (i+2)%20))
		last.Annotations["example.org/applied"] = strings.Repeat("x", 64<<10)
		if err := kc.Create(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	fleet.Eventually(t, minute, func() error { return noLiveReads(n, last) })
	if each := (heap() - before) / pods; each > limit {
		t.Errorf("the agent takes %d bytes per pod; want at most %d", each, limit)
	} else {
		t.Logf("%d bytes per pod, the 20 networks' watches included", each)
	}
}

// heap returns the bytes in use by this process.
func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers have let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) + int(m.StackInuse)
}
