package state

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// TestMissed: which pods lack the networks that they select, by what the API server knows.
func TestMissed(t *testing.T) {
	const status = `[{"name":"cbr0","interface":"eth0","ips":["10.1.0.2"],"default":true},{"name":"shop/lan","interface":"net1","ips":["10.2.0.2"]}]`
	began := metav1.NewTime(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	for what, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"nobody has said anything":       {func(*corev1.Pod) {}, []string{"shop/lan"}},
		"it has them":                    {func(p *corev1.Pod) { p.Annotations[npwg.AnnotationStatus] = status }, nil},
		"an earlier sandbox had them":    {func(p *corev1.Pod) { p.Annotations[npwg.AnnotationStatus] = status; p.Status.PodIPs[0].IP = "10.1.0.3" }, []string{"shop/lan"}},
		"it has no sandbox yet":          {func(p *corev1.Pod) { p.Status.PodIPs = nil }, nil},
		"it has no sandbox any more":     {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, nil},
		"it has the network of its node": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, nil},
		"it selects nothing":             {func(p *corev1.Pod) { p.Annotations = nil }, nil},
	} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{npwg.AnnotationNetworks: "lan"}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}}, StartTime: new(metav1.NewTime(began.Add(-time.Minute))),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: began}},
			},
		}
		tt.change(p)
		got, since := Missed(p)
		if !slices.Equal(got, tt.want) || len(got) > 0 && !since.Equal(began.Time) {
			t.Errorf("%s: it lacks %q since %v; want %q", what, got, since, tt.want)
		}
	}
}
