package endpoints

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/names"
)

// TestWithAddresses: an endpoint has one address, so a pod is shown once for each of a family, and
// the pod of the cache is as it was.
func TestWithAddresses(t *testing.T) {
	for _, tt := range []struct{ addrs, want string }{
		{"", ""},
		{"10.9.0.5", "10.9.0.5"},
		{"10.9.0.5 fd00::5", "10.9.0.5+fd00::5"},
		{"fd00::5 10.9.0.5 10.9.0.6", "fd00::5+10.9.0.5 10.9.0.6"},
		{"fd00::5 fd00::6 fd00::7 10.9.0.5", "fd00::5+10.9.0.5 fd00::6 fd00::7"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{PodIP: "10.1.0.2", PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}}}}
		var addrs []netip.Addr
		for text := range strings.FieldsSeq(tt.addrs) {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		var got []string
		for _, shown := range withAddresses(pod, addrs) {
			var ips []string
			for _, ip := range shown.Status.PodIPs {
				ips = append(ips, ip.IP)
			}
			if got = append(got, strings.Join(ips, "+")); shown.Name != "p" || shown.Status.PodIP != "" {
				t.Errorf("%s: shown is %+v", tt.addrs, shown)
			}
		}
		if strings.Join(got, " ") != tt.want || len(pod.Status.PodIPs) != 1 {
			t.Errorf("%s: shown %q of %v; want %q", tt.addrs, got, pod.Status, tt.want)
		}
	}
}

// running returns a pod as a kubelet and who attaches it have it.
func running() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1", Labels: map[string]string{"app": "db"}, Finalizers: []string{"f"},
			Annotations: map[string]string{npwg.AnnotationNetworks: "lan", npwg.AnnotationStatus: `[{"name":"shop/lan","ips":["10.9.0.5"]}]`, "other": "x"},
		},
		Spec: corev1.PodSpec{
			NodeName: "a", Hostname: "db-0", Subdomain: "db", ServiceAccountName: "default",
			Containers: []corev1.Container{{Name: "sidecar"}, {Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}}, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}, {Type: corev1.PodScheduled},
			},
		},
	}
}

// TestCondensePod: what decides about a slice is kept, and what does not is no change.
func TestCondensePod(t *testing.T) {
	before := running()
	for range 2 { // a cache may do it again
		condensePod(before)
	}
	lan := names.Network{Definition: "shop/lan"}
	if got := fmt.Sprint(lan.Addresses(before)); got != "[10.9.0.5]" || len(before.Annotations) != 2 || len(before.Spec.Containers) != 1 || before.Spec.ServiceAccountName != "" {
		t.Errorf("kept is %+v, with addresses %s", before, got)
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		counts bool
	}{
		"another version": {func(p *corev1.Pod) { p.ResourceVersion = "2" }, false},
		"an annotation":   {func(p *corev1.Pod) { p.Annotations["other"] = "y" }, false},
		"the time of a condition": {func(p *corev1.Pod) {
			p.Status.Conditions[0].LastTransitionTime, p.Status.Conditions[1].Status = metav1.NewTime(time.Unix(2, 0)), corev1.ConditionTrue
		}, false},
		"a container's state": {func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }, false},
		"its status":          {func(p *corev1.Pod) { p.Annotations[npwg.AnnotationStatus] = "[]" }, true},
		"what it selects":     {func(p *corev1.Pod) { p.Annotations[npwg.AnnotationNetworks] = "wan" }, true},
		"readiness":           {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"a label":             {func(p *corev1.Pod) { p.Labels["app"] = "x" }, true},
		"its end":             {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, true},
		"its addresses":       {func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "10.1.0.3" }, true},
		"its phase":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"another pod":         {func(p *corev1.Pod) { p.UID = "v" }, true},
		"a port":              {func(p *corev1.Pod) { p.Spec.Containers[1].Ports[0].ContainerPort = 1 }, true},
	} {
		after := running()
		tt.change(after)
		if condensePod(after); podChanged(before, after) != tt.counts {
			t.Errorf("%s: counts is %t; want %t", name, !tt.counts, tt.counts)
		}
	}
}

// TestCondenseWithoutStatus: of a pod that has no second network hardly anything is kept.
func TestCondenseWithoutStatus(t *testing.T) {
	p := running()
	delete(p.Annotations, npwg.AnnotationStatus)
	if condensePod(p); len(p.Labels)+len(p.Annotations)+len(p.Spec.Containers)+len(p.Status.PodIPs) > 0 || p.Name != "db-0" || p.UID != "u" {
		t.Errorf("kept is %+v", p)
	}
}

// TestCondenseService: one that asks for nothing is known by its name.
func TestCondenseService(t *testing.T) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec:       corev1.ServiceSpec{ClusterIP: "None"},
	}
	asks := s.DeepCopy()
	asks.Annotations[names.AnnotationNetwork] = "lan"
	if condenseService(s); len(s.Labels)+len(s.Annotations) > 0 || s.Spec.ClusterIP != "" || s.Name != "db" || s.UID != "u" {
		t.Errorf("kept is %+v", s)
	}
	if condenseService(asks); len(asks.Labels) != 1 || asks.Spec.ClusterIP != "None" {
		t.Errorf("of one that asks kept is %+v", asks)
	}
}
