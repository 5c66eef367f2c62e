package names

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// service returns a headless Service of namespace shop. Annotations whose value is "-" are left
// out.
func service(network, selector string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Annotations: map[string]string{AnnotationNetwork: network, AnnotationSelector: selector}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone},
	}
	for key, value := range s.Annotations {
		if value == "-" {
			delete(s.Annotations, key)
		}
	}
	return s
}

func TestRead(t *testing.T) {
	for _, tt := range []struct{ network, selector, definition, pods string }{
		{"lan", "app=db", "shop/lan (short)", "app=db"},
		{" infra/lan.v1 ", "app in (db,cache), tier!=x", "infra/lan.v1", "app in (cache,db),tier!=x"},
	} {
		q, err := Read(service(tt.network, tt.selector))
		if err != nil {
			t.Errorf("%s, %s: %v", tt.network, tt.selector, err)
			continue
		}
		got := q.Definition()
		if q.Short {
			got += " (short)"
		}
		if got != tt.definition || q.Pods.String() != tt.pods {
			t.Errorf("%s, %s: network %s of pods %s; want %s of %s", tt.network, tt.selector, got, q.Pods, tt.definition, tt.pods)
		}
	}
}

// TestReadRefuses: each Service that gets nothing says why, and what to do.
func TestReadRefuses(t *testing.T) {
	changed := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		s := service("lan", "app=db")
		change(&s.Spec)
		return s
	}
	for words, s := range map[string]*corev1.Service{
		"cluster IP":                     changed(func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.9" }),
		"it has a cluster IP":            changed(func(s *corev1.ServiceSpec) { s.ClusterIP = "" }),
		"of type ExternalName":           changed(func(s *corev1.ServiceSpec) { s.Type, s.ClusterIP = corev1.ServiceTypeExternalName, "" }),
		"it has spec.selector":           changed(func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "db"} }),
		"has no effect without":          service("-", "app=db"),
		"it selects no pods":             service("lan", "-"),
		"such as app=db":                 service("lan", " "),
		"want a label selector":          service("lan", "app in db"),
		`"" is no name of a definition`:  service("", "app=db"),
		`"Lan" is no name`:               service("Lan", "app=db"),
		`"a/b" is no name`:               service("infra/a/b", "app=db"),
		`"Infra" is no name of a namesp`: service("Infra/lan", "app=db"),
	} {
		if !Asks(s) {
			t.Errorf("%s: does not ask", words)
		}
		if _, err := Read(s); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: %v; want %q", s.Annotations, err, words)
		}
	}
	if Asks(service("-", "-")) {
		t.Error("a Service without annotations asks")
	}
}

// TestReadTakesWhatSelects: an empty selector would select every pod.
func TestReadTakesWhatSelects(t *testing.T) {
	q, err := Read(service("lan", "!canary"))
	if err != nil || q.Pods.Matches(labels.Set{"canary": ""}) || !q.Pods.Matches(labels.Set{}) {
		t.Errorf("%v, %v; want the pods without label canary", q.Pods, err)
	}
}

const own = `{"name":"cluster","default":true,"ips":["10.1.0.2"]}`

// pod returns a pod that selects networks, with a status of the cluster's network and more.
func pod(networks string, more ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", Annotations: map[string]string{
			npwg.AnnotationNetworks: networks, npwg.AnnotationStatus: "[" + strings.Join(append([]string{own}, more...), ",") + "]",
		}},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}}},
	}
}

func TestAddresses(t *testing.T) {
	const lan = `{"name":"shop/lan","interface":"net1","ips":["10.9.0.5","fd00::5"]}`
	lanOf := Network{Definition: "shop/lan"}
	restarted, host, unready := pod("lan", lan), pod("lan", lan), pod("lan", lan)
	restarted.Status.PodIPs[0].IP, host.Spec.HostNetwork, unready.Status.PodIPs = "10.1.0.3", true, nil
	for _, tt := range []struct {
		name string
		of   Network
		pod  *corev1.Pod
		want string
	}{
		{"both families", lanOf, pod("lan", lan), "[10.9.0.5 fd00::5]"},
		{"with prefix lengths", lanOf, pod("shop/lan", `{"name":"shop/lan","ips":["10.9.0.5/24"]}`), "[10.9.0.5]"},
		{"of two interfaces", lanOf, pod("lan,lan", lan, `{"name":"shop/lan","interface":"net2","ips":["10.9.0.6","10.9.0.5"]}`), "[10.9.0.5 fd00::5 10.9.0.6]"},
		{"another network", Network{Definition: "infra/lan"}, pod("lan", lan), "[]"},
		{"not selected", lanOf, pod("wan", lan), "[]"},
		{"selected no more", lanOf, pod("", lan), "[]"},
		{"of an earlier sandbox", lanOf, restarted, "[]"},
		{"on the node's network", lanOf, host, "[]"},
		{"without a sandbox", lanOf, unready, "[]"},
		{"addresses that no slice may have", lanOf, pod("lan", `{"name":"shop/lan","ips":["127.0.0.1","169.254.1.1","fe80::1","224.0.0.1","0.0.0.0","::1","x","::ffff:10.9.0.7"]}`), "[10.9.0.7]"},
		{"no JSON", lanOf, pod("lan", "{"), "[]"},
	} {
		if got := fmt.Sprint(tt.of.Addresses(tt.pod)); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestAddressesOfPodNetwork(t *testing.T) {
	listed := pod("")
	listed.Annotations[podnetwork.AnnotationNetworks] = `[{"podNetworkName":"lan"}]`
	listed.Annotations[podnetwork.AnnotationIPs] = `[{"ip":"10.9.0.5","podNetwork":"lan","interfaceName":"net1"},{"ip":"10.8.0.5","podNetwork":"wan","interfaceName":"net2"},{"ip":"fe80::1","podNetwork":"lan","interfaceName":"net1"}]`
	lan := Network{PodNetwork: "lan"}
	if got := fmt.Sprint(lan.Addresses(listed)); got != "[10.9.0.5]" {
		t.Errorf("addresses %s; want [10.9.0.5]", got)
	}
	restarted := listed.DeepCopy()
	restarted.Status.PodIPs[0].IP = "10.1.0.3"
	if got := lan.Addresses(restarted); got != nil {
		t.Errorf("of an earlier sandbox: %v; want none", got)
	}
	delete(listed.Annotations, podnetwork.AnnotationNetworks)
	if got := lan.Addresses(listed); got != nil {
		t.Errorf("of a pod that lists nothing: %v; want none", got)
	}
}
