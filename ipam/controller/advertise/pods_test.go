package advertise

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// container asks for n of the pool lan.
func container(n int64) corev1.Container {
	if n == 0 {
		return corev1.Container{}
	}
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"tenure.dev/lan": *resource.NewQuantity(n, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1")}}}
}

func sidecar(n int64) corev1.Container {
	c := container(n)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

// asking is a pod that asks for n of the pool lan, bound to a node, or to none.
func asking(name, node string, n int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{}, container(n)}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// TestRequests: a pod asks for what the scheduler counts.
func TestRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		spec corev1.PodSpec
		want int64
	}{
		"nothing":                       {corev1.PodSpec{Containers: []corev1.Container{{}, {}}}, 0},
		"containers add up":             {corev1.PodSpec{Containers: []corev1.Container{container(1), container(2)}}, 3},
		"an init container has its own": {corev1.PodSpec{InitContainers: []corev1.Container{container(5), container(2)}, Containers: []corev1.Container{container(1)}}, 5},
		"sidecars stay":                 {corev1.PodSpec{InitContainers: []corev1.Container{sidecar(2), container(3)}, Containers: []corev1.Container{container(4)}}, 6},
		"also while another starts":     {corev1.PodSpec{InitContainers: []corev1.Container{sidecar(2), container(3)}, Containers: []corev1.Container{container(1)}}, 5},
	} {
		got := requestsOf(&corev1.Pod{Spec: tt.spec})["lan"]
		if got != tt.want {
			t.Errorf("%s: %d; want %d", name, got, tt.want)
		}
	}
}

func TestTolerates(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: value, Effect: effect}}
	}
	for name, tt := range map[string]struct {
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		want        bool
	}{
		"no taint":              {nil, nil, true},
		"a wish":                {nil, taint("a", "", corev1.TaintEffectPreferNoSchedule), true},
		"not tolerated":         {[]corev1.Toleration{{Key: "b", Operator: corev1.TolerationOpExists}}, taint("a", "", corev1.TaintEffectNoSchedule), false},
		"by its key":            {[]corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}, taint("a", "x", corev1.TaintEffectNoExecute), true},
		"by its value":          {[]corev1.Toleration{{Key: "a", Value: "x"}}, taint("a", "x", corev1.TaintEffectNoSchedule), true},
		"another value":         {[]corev1.Toleration{{Key: "a", Value: "y"}}, taint("a", "x", corev1.TaintEffectNoSchedule), false},
		"another effect":        {[]corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}, taint("a", "", corev1.TaintEffectNoSchedule), false},
		"whatever":              {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, taint("a", "x", corev1.TaintEffectNoSchedule), true},
		"one of two is too few": {[]corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}, append(taint("a", "", corev1.TaintEffectNoSchedule), taint("b", "", corev1.TaintEffectNoSchedule)...), false},
	} {
		if got := tolerates(tt.tolerations, tt.taints); got != tt.want {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}

// watched are pods, a clock, and the pools of which something was heard.
type watched struct {
	*Pods
	now   time.Time
	heard []string
}

func newWatched(t *testing.T, all ...*corev1.Pod) *watched {
	t.Helper()
	w := &watched{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.Pods = &Pods{Changed: func(pool string) { w.heard = append(w.heard, pool) }, Now: func() time.Time { return w.now }}
	if _, ok := w.asked("lan", nil); ok {
		t.Error("before the pods were seen, it is known what they ask for")
	}
	list := make([]any, len(all))
	for i := range all {
		list[i] = all[i]
	}
	if err := w.Replace(list, ""); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watched) see(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := w.Update(p); err != nil {
		t.Fatal(err)
	}
}

func (w *watched) lan(t *testing.T, claims ...string) asked {
	t.Helper()
	all := map[types.NamespacedName]bool{}
	for _, c := range claims {
		all[types.NamespacedName{Namespace: "ns", Name: c}] = true
	}
	a, ok := w.asked("lan", all)
	if !ok {
		t.Fatal("it is not known what pods ask for")
	}
	return a
}

// TestPods: counted is what pods ask for that are bound and have not ended; what went a moment ago
// is remembered, and where a pod was bound a moment ago.
func TestPods(t *testing.T) {
	failed := asking("failed", "a", 1)
	failed.Status.Phase = corev1.PodFailed
	w := newWatched(t, asking("p", "a", 1), asking("q", "a", 2), asking("r", "", 1), asking("none", "a", 0), failed)
	if len(w.pods) != 3 || !slices.Equal(w.heard, []string{"lan"}) {
		t.Errorf("remembered are %v, heard of %q; want three, and lan", w.pods, w.heard)
	}
	check := func(what string, byNode, ended map[string]int64, busy map[string]bool) {
		t.Helper()
		a := w.lan(t)
		if d := cmp.Diff([]any{byNode, byNode, ended, busy}, []any{a.byNode, a.plain, a.ended, a.busy}); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	check("at first", map[string]int64{"a": 3}, map[string]int64{}, map[string]bool{"a": false})

	w.see(t, asking("r", "b", 1))
	check("one is bound", map[string]int64{"a": 3, "b": 1}, map[string]int64{}, map[string]bool{"a": false, "b": true})
	w.now = w.now.Add(quiet)
	w.heard = nil
	w.see(t, asking("r", "b", 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
	if len(w.heard) > 0 {
		t.Error("somebody was told of what does not matter")
	}
	check("a while later", map[string]int64{"a": 3, "b": 1}, map[string]int64{}, map[string]bool{"a": false, "b": false})

	done := asking("q", "a", 2)
	done.Status.Phase = corev1.PodSucceeded
	w.see(t, done)
	if err := w.Delete(asking("p", "a", 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(asking("none", "a", 0)); err != nil {
		t.Fatal(err)
	}
	check("two have ended", map[string]int64{"b": 1}, map[string]int64{"a": 3}, map[string]bool{"b": false})

	w.see(t, asking("r", "", 1))
	check("one was replaced", map[string]int64{}, map[string]int64{"a": 3, "b": 1}, map[string]bool{})
	w.now = w.now.Add(stale)
	if err := w.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	check("later nobody is left", map[string]int64{}, map[string]int64{}, map[string]bool{})
	if len(w.pods)+len(w.of)+len(w.gone)+len(w.bound) > 0 {
		t.Errorf("remembered are %v %v %v %v", w.pods, w.of, w.gone, w.bound)
	}
}

// TestPodsWithClaims: of pods that claims have addresses for, those that are bound need none of
// what is free, and others one that is offered beyond that.
func TestPodsWithClaims(t *testing.T) {
	names := func(claim string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{npwg.AnnotationNetworks: `[{"name": "lan", "ipam-claim-reference": "` + claim + `"}]`}
		}
	}
	w := newWatched(t, asking("db-0", "a", 1), asking("db-1", "", 1), asking("vm", "a", 1, names("vm.lan")), asking("vm-2", "", 1, names("vm.lan")), asking("plain", "a", 1), asking("db-2", "", 1))
	a := w.lan(t, "db-0.lan", "db-0.other.net2", "db-1.lan", "vm.lan", "elsewhere.lan")
	if a.byNode["a"] != 3 || a.plain["a"] != 1 || a.waiting != 2 {
		t.Errorf("asked for %v, of that without a claim %v, with one and nowhere %d; want 3, 1 and 2", a.byNode, a.plain, a.waiting)
	}
}

// TestTolerationsOnce: pods with the tolerations that the API server gives to all of them are one
// kind, though each tolerates for a time of its own.
func TestTolerationsOnce(t *testing.T) {
	for5m := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))}}
	}
	all := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	a := newWatched(t, asking("p", "", 1, for5m), asking("q", "", 1, for5m), asking("r", "", 1, for5m), asking("s", "", 1, all)).lan(t)
	if len(a.tolerations) != 2 {
		t.Errorf("%d kinds of tolerations %v; want two", len(a.tolerations), a.tolerations)
	}
}

// TestLeft: what is free is less what pods ask for that have no address yet, by what nodes have
// published, and more by what pods had that went.
func TestLeft(t *testing.T) {
	v4 := func(n int64) map[allocator.Family]int64 { return map[allocator.Family]int64{allocator.IPv4: n} }
	both := func(n, m int64) map[allocator.Family]int64 {
		return map[allocator.Family]int64{allocator.IPv4: n, allocator.IPv6: m}
	}
	for name, tt := range map[string]struct {
		free map[allocator.Family]int64
		used map[allocator.Family]int64 // on node a
		a    asked
		want int64
	}{
		"all is free":               {v4(14), nil, asked{}, 14},
		"no ordinary address":       {nil, nil, asked{}, 0},
		"bound, and no address yet": {v4(14), nil, asked{plain: map[string]int64{"a": 5}}, 9},
		"some have theirs":          {v4(11), v4(3), asked{plain: map[string]int64{"a": 5}}, 9},
		"all have, and others too":  {v4(7), v4(7), asked{plain: map[string]int64{"a": 5}}, 7},
		"more than there are":       {v4(3), nil, asked{plain: map[string]int64{"a": 5}}, 0},
		"gone, and not told yet":    {v4(7), v4(7), asked{plain: map[string]int64{"a": 5}, ended: map[string]int64{"a": 2}}, 9},
		"gone, and told":            {v4(9), v4(5), asked{plain: map[string]int64{"a": 5}, ended: map[string]int64{"a": 2}}, 9},
		"claims wait":               {v4(0), nil, asked{waiting: 2}, 2},
		"the scarcer family":        {both(14, 3), nil, asked{plain: map[string]int64{"a": 1}}, 2},
		"without end":               {both(14, endless), both(2, 2), asked{plain: map[string]int64{"a": 3}, ended: map[string]int64{"a": 9}, waiting: 1}, 14},
	} {
		g := group{free: tt.free, nodes: []node{{name: "a"}}}
		if got := g.left(map[protocol.NodeName]map[allocator.Family]int64{"a": tt.used}, tt.a); got != tt.want {
			t.Errorf("%s: %d; want %d", name, got, tt.want)
		}
	}
}

// TestGrouped: what a part of a pool has is shared by the nodes that it is for; those with the same
// parts are one group, and a node where no pod may be scheduled gets no share.
func TestGrouped(t *testing.T) {
	part := func(v4, v6 int64) pools.PartRoom {
		free := map[allocator.Family]int64{}
		for f, n := range map[allocator.Family]int64{allocator.IPv4: v4, allocator.IPv6: v6} {
			if n > 0 {
				free[f] = n
			}
		}
		return pools.PartRoom{Free: free}
	}
	at := func(name string, parts ...int) node { return node{name: name, parts: parts, serves: true} }
	nodes := []node{at("a", 0, 2), at("b", 0, 2), at("c", 1, 2), at("d", 1, 2).with(off), at("e", 2)}
	got := map[string]map[allocator.Family]int64{}
	for _, g := range grouped([]pools.PartRoom{part(10, 0), part(7, 0), part(5, 1<<63-1)}, nodes) {
		var names string
		for _, o := range g.nodes {
			names += o.name
		}
		got[names] = g.free
	}
	v4 := func(n, m int64) map[allocator.Family]int64 {
		return map[allocator.Family]int64{allocator.IPv4: n, allocator.IPv6: m}
	}
	// Of five addresses for all, two nodes of four get three, and of those without end half.
	want := map[string]map[allocator.Family]int64{"ab": v4(10+3, endless/2), "cd": v4(7+1, endless/4), "e": v4(1, endless/4)}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestCondense: of a Node's status is kept what this reads, once and again.
func TestCondense(t *testing.T) {
	q := func(s string) resource.Quantity { return resource.MustParse(s) }
	o := &corev1.Node{Status: corev1.NodeStatus{
		Capacity:   corev1.ResourceList{"cpu": q("4"), "tenure.dev/lan": q("7"), "tenure.dev/wan": q("0")},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "x"}},
		Images:     []corev1.ContainerImage{{Names: []string{"x"}}},
	}}
	for range 2 {
		Condense(o)
	}
	if len(o.Status.Capacity) != 2 || len(o.Status.Conditions) != 1 || o.Status.Images != nil || !schedulable(o) || !slices.Equal(slices.Sorted(slices.Values(poolsOn(o))), []string{"lan", "wan"}) {
		t.Errorf("kept is %+v", o.Status)
	}
	if shown, has := shownBy(o, "lan"); shown != 7 || !has {
		t.Errorf("of lan it shows %d, %v; want 7", shown, has)
	}
	if shown, has := shownBy(o, "wan"); shown != 0 || !has {
		t.Errorf("of wan it shows %d, %v; want nothing left", shown, has)
	}
	if _, has := shownBy(o, "other"); has {
		t.Error("of another pool it shows something")
	}
	o.Spec.Unschedulable = true
	if schedulable(o) {
		t.Error("pods may be scheduled on a node that is cordoned")
	}
}
