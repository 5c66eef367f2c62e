package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// TestPodsInTheCache (K1): what is read for VIFs is kept where these are served, beside what is
// read for PodNetworks, and of no pod that selects nothing.
func TestPodsInTheCache(t *testing.T) {
	for name, tt := range map[string]struct {
		networks string
		served   bool
		want     int // annotations
	}{
		"K1 served": {"lan", true, 2}, "K1 not served": {"lan", false, 1}, "selects nothing": {"", true, 1},
	} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podnetwork.AnnotationNetworks: "[]", "other": "x"}},
			Spec:       corev1.PodSpec{HostNetwork: true, NodeName: "a"},
		}
		if tt.networks != "" {
			p.Annotations[npwg.AnnotationNetworks] = tt.networks
		}
		for range 2 { // a cache may do it again
			condensePod(p, tt.served)
		}
		if len(p.Annotations) != tt.want || p.Spec.HostNetwork != (tt.want == 2) || p.Spec.NodeName != "a" {
			t.Errorf("%s: kept are %v of %+v; want %d", name, p.Annotations, p.Spec, tt.want)
		}
	}
}
