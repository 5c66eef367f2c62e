package nodes_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// newNamespace makes a namespace in which pods can be created.
func newNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	fleet.Create(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	fleet.Create(t, kc, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}})
}

// podIn creates a pod of a namespace, on a node and without selections, and returns its
// first interface. Its network namespace is a file.
func podIn(t *testing.T, node, namespace, name string, i fleet.Interface) fleet.Interface {
	t.Helper()
	i.Netns = file(t, name)
	return ofPod(makePod(t, node, namespace, name, nil), i)
}

// again is i in a new sandbox, after the old one has gone.
func again(t *testing.T, i fleet.Interface) fleet.Interface {
	t.Helper()
	must(t, os.Remove(i.Netns))
	i.Sandbox += "'"
	i.Netns = file(t, i.Pod+"'")
	return i
}

// limit changes who may use a pool.
func limit(t *testing.T, pool, spec string) {
	t.Helper()
	fleet.Patch(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}, `{"spec":`+spec+`}`)
	// The controller has looked at the edit: until then agents lease nothing of a pool.
	setStatus(t, pool, func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation })
}

// patient has an ADD that waits wait until the test fails for another reason: one that
// is refused at once is told from it without a look at the clock.
func patient(c *daemon.Config) { c.Agent.Wait = 10 * time.Minute }

// callsOf returns how many requests of a verb for a resource the API server has answered.
func callsOf(t *testing.T, verb, resource string) (n float64) {
	t.Helper()
	all, err := cp.Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for r, count := range all {
		if r.Verb == verb && r.Resource == resource {
			n += count
		}
	}
	return n
}

// eventuallyRefused makes ADDs of pods that make returns until one is refused so.
func eventuallyRefused(t *testing.T, n *fleet.Node, code agentapi.Code, text string, make func(try int) fleet.Interface) {
	t.Helper()
	try := 0
	eventually(t, 15*time.Second, func() error {
		try++
		i := make(try)
		_, err := n.Insist(i)
		if err == nil {
			mustDel(t, n, i)
			return fmt.Errorf("%s was served", i.Pod)
		}
		fleet.WantCode(t, err, code, text)
		return nil
	})
}

func TestOnlySelectedNamespacesUseAPool(t *testing.T) {
	openPool(t, "sel", cidr("10.61.0.0/20"))
	limit(t, "sel", `{"namespaceSelector":{"matchLabels":{"team":"blue"}}}`)
	newNamespace(t, "sel-blue", map[string]string{"team": "blue"})
	newNamespace(t, "sel-red", map[string]string{"team": "red"})
	n := newFleet(t, patient).Start("sel")
	const refusal = "namespace sel-red may not use pool sel: the IPPool's spec.namespaceSelector (team=blue) does not select it"

	blue := podIn(t, "sel", "sel-blue", "blue", onPool("sel", "c1", "eth0"))
	its := mustAdd(t, n, blue)
	red := podIn(t, "sel", "sel-red", "red", onPool("sel", "c2", "eth0"))
	_, err := n.Insist(red)
	fleet.WantCode(t, err, agent.CodePoolRefused, refusal)

	_, err = n.Insist(podIn(t, "sel", "sel-red", "static", naming(onPool("sel", "c3", "eth0"), "10.61.7.7/20")))
	fleet.WantCode(t, err, agent.CodePoolRefused, refusal)

	_, err = n.Insist(onPool("sel", "c4", "eth0")) // a runtime that does not say for whom
	fleet.WantCode(t, err, agent.CodePoolRefused, "pool sel may not be used: the IPPool says which namespaces may")

	// The labels are known from a watch: another ADD of a namespace asks for nothing.
	before := callsOf(t, "GET", "namespaces")
	for i := range 10 {
		mustAdd(t, n, podIn(t, "sel", "sel-blue", fmt.Sprint("more-", i), onPool("sel", fmt.Sprint("m", i), "eth0")))
	}
	if got := callsOf(t, "GET", "namespaces") - before; got > 0 {
		t.Errorf("10 ADDs of a namespace that is known made %v reads of it; want none", got)
	}

	// A label is enough, and a change of the rule takes nothing away.
	fleet.Patch(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sel-red"}}, `{"metadata":{"labels":{"team":"blue"}}}`)
	retried(t, 15*time.Second, n, red)
	limit(t, "sel", `{"namespaceSelector":{"matchLabels":{"team":"green"}}}`)
	eventuallyRefused(t, n, agent.CodePoolRefused, "(team=green) does not select it", func(try int) fleet.Interface {
		return podIn(t, "sel", "sel-red", fmt.Sprint("late-", try), onPool("sel", fmt.Sprint("late-", try), "eth0"))
	})
	has := mustAdd(t, n, red)
	if got := mustAdd(t, n, again(t, red)); got[0] != has[0] {
		t.Errorf("a new sandbox of a pod that is attached got %v; want its %v", got, has)
	}
	if err := n.CheckAdd(blue.With(its)); err != nil {
		t.Errorf("CHECK of a pod that is attached: %v", err)
	}
}

// allow lets the service accounts of a namespace use a pool.
func allow(t *testing.T, namespace, pool string) {
	t.Helper()
	name := "use-" + pool + "-" + namespace
	fleet.Create(t, kc, &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{"tenure.dev"}, Resources: []string{"ippools"}, ResourceNames: []string{pool}, Verbs: []string{"use"}},
	}})
	fleet.Create(t, kc, &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.GroupKind, Name: access.Group(namespace)}},
	})
}

// W9: who may use a pool is asked of RBAC, seldom.
func TestOnlyThoseWhoAreAllowedUseAPool(t *testing.T) {
	openPool(t, "verb", cidr("10.62.0.0/20"))
	limit(t, "verb", `{"access":"RBAC"}`)
	newNamespace(t, "verb-yes", nil)
	newNamespace(t, "verb-no", nil)
	n := newFleet(t, patient).Start("verb")
	const refusal = "group system:serviceaccounts:verb-no is not allowed the verb use on ippools.tenure.dev/verb"

	pod := podIn(t, "verb", "verb-yes", "first", onPool("verb", "c1", "eth0"))
	_, err := n.Insist(pod)
	fleet.WantCode(t, err, agent.CodePoolRefused, "namespace verb-yes may not use pool verb")
	// A binding in the namespace itself, which whoever rules there can make, does not count.
	fleet.Create(t, kc, &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everything", Namespace: "verb-no"}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.GroupKind, Name: access.Group("verb-no")}},
	})
	other := podIn(t, "verb", "verb-no", "other", onPool("verb", "c2", "eth0"))
	_, err = n.Insist(other)
	fleet.WantCode(t, err, agent.CodePoolRefused, refusal)

	allow(t, "verb-yes", "verb")
	retried(t, 15*time.Second, n, pod)
	before := callsOf(t, "POST", "subjectaccessreviews")
	const many = 20
	for i := range many {
		mustAdd(t, n, podIn(t, "verb", "verb-yes", fmt.Sprint("more-", i), onPool("verb", fmt.Sprint("m", i), "eth0")))
	}
	if got := callsOf(t, "POST", "subjectaccessreviews") - before; got > 1 { // a minute may have passed
		t.Errorf("%d ADDs of a namespace that is allowed asked %v times; want its answer kept", many, got)
	}
}

// While the API server is away an answer holds for its time; then who has something is
// served, and nobody else (W9).
func TestWithoutAnAPIServerAnswersHold(t *testing.T) {
	openPool(t, "hold", cidr("10.63.0.0/20"))
	limit(t, "hold", `{"access":"RBAC"}`)
	newNamespace(t, "hold-yes", nil)
	newNamespace(t, "hold-new", nil)
	allow(t, "hold-yes", "hold")
	allow(t, "hold-new", "hold")
	f := newFleet(t)
	n := f.Start("hold")
	has := podIn(t, "hold", "hold-yes", "has", onPool("hold", "c1", "eth0"))
	retried(t, 15*time.Second, n, has) // the authorizer's own watch may be behind
	comes := podIn(t, "hold", "hold-yes", "comes", onPool("hold", "c2", "eth0"))
	late := podIn(t, "hold", "hold-yes", "late", onPool("hold", "c3", "eth0"))
	unasked := podIn(t, "hold", "hold-new", "unasked", onPool("hold", "c4", "eth0"))
	seen := podIn(t, "hold", "hold-yes", "seen", onPool("hold", "c5", "eth0"))
	eventually(t, 10*time.Second, func() error { // the node's watch has all of them
		before := callsOf(t, "GET", "pods")
		mustAdd(t, n, seen)
		mustDel(t, n, seen)
		if callsOf(t, "GET", "pods") > before {
			return fmt.Errorf("the node reads its pods live")
		}
		return nil
	})

	must(t, cp.StopAPIServer())
	started := false
	start := func() {
		if !started {
			started = true
			must(t, cp.StartAPIServer(context.Background()))
		}
	}
	defer start()
	mustAdd(t, n, comes) // by the answer that is kept
	n.Refused(t, unasked, "it cannot be told whether namespace hold-new may use pool hold, by its spec.access RBAC: ask the API server who may use pool hold")
	// A new start forgets answers, as time does.
	n.Stop()
	n = f.Start("hold")
	mustAdd(t, n, has)
	mustAdd(t, n, again(t, comes))
	n.Refused(t, late, "pod hold-yes/late cannot be read")
	start()
	retried(t, 15*time.Second, n, late)
	retried(t, 15*time.Second, n, unasked)
}
