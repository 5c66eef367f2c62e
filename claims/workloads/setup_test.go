package workloads

import (
	"maps"
	"reflect"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestCondensedIsReadAlike: the cache has what a plan is made of, and nothing of a StatefulSet
// that asks for no claims.
func TestCondensedIsReadAlike(t *testing.T) {
	replicas := int32(3)
	full := appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{workload.AnnotationRetention: "whenScaled=Delete", "other": "x"},
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Ordinals: &appsv1.StatefulSetOrdinals{Start: 4}, ServiceName: "web",
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					workload.AnnotationClaims: "lan", npwg.AnnotationNetworks: "lan", workload.AnnotationRequested: "10.0.0.1-10.0.0.9", "other": "x",
				}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
			},
		},
		Status: appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 1},
	}
	condensed := *full.DeepCopy()
	Condense(&condensed)
	want, _, err := kube.SetOf(&full)
	if err != nil {
		t.Fatal(err)
	}
	got, asks, err := kube.SetOf(&condensed)
	if err != nil || !asks || got.First != want.First || got.Count != want.Count || got.Retention != want.Retention ||
		got.Requested(5, got.Elements[0]) != "10.0.0.2" {
		t.Errorf("condensed it reads as %+v, %v; want %+v", got, err, want)
	}
	if condensed.Labels != nil || len(condensed.Annotations) != 1 || len(condensed.Spec.Template.Annotations) != 3 || condensed.Spec.Template.Spec.Containers != nil || !reflect.DeepEqual(condensed.Status, appsv1.StatefulSetStatus{Replicas: 2}) {
		t.Errorf("condensed it has %+v", condensed)
	}
	delete(full.Spec.Template.Annotations, workload.AnnotationClaims)
	Condense(&full)
	if full.Spec.Replicas != nil || full.Annotations != nil || full.Spec.Template.Annotations != nil {
		t.Errorf("one that asks for none has %+v", full)
	}
}

func TestCondensedClaim(t *testing.T) {
	owners := []metav1.OwnerReference{ref("StatefulSet", "web", "u")}
	const vm = kube.VMLabel
	for name, tt := range map[string]struct {
		labels, want map[string]string
		owners       []metav1.OwnerReference
		ips          []string
		left         int // owners
	}{
		"a StatefulSet's":                       {map[string]string{workload.LabelSet: "web", "a": "b"}, map[string]string{workload.LabelSet: "web"}, owners, []string{"10.0.0.5/24"}, 1},
		"a pod's":                               {map[string]string{vif.LabelClaim: "u", "a": "b"}, map[string]string{vif.LabelClaim: "u"}, owners, []string{"10.0.0.5/24"}, 1},
		"another":                               {map[string]string{"a": "b"}, nil, owners, []string{"10.0.0.5/24"}, 0},
		"another without addresses":             {map[string]string{"a": "b"}, nil, owners, nil, 1},
		"a machine's":                           {map[string]string{vm: "db"}, nil, owners, []string{"10.0.0.5/24"}, 0},
		"a machine's that nobody owns":          {map[string]string{vm: "db", "a": "b"}, map[string]string{vm: "db"}, nil, []string{"10.0.0.5/24"}, 0},
		"a machine's, without owner or address": {map[string]string{vm: "db"}, map[string]string{vm: "db"}, nil, nil, 0},
	} {
		c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{
			Labels: tt.labels, OwnerReferences: tt.owners, Annotations: map[string]string{workload.AnnotationRequested: "10.0.0.5", "other": "x"},
		}, Status: ipamclaims.IPAMClaimStatus{IPs: tt.ips}}
		for range 2 { // a cache may do it again
			CondenseClaim(c)
		}
		if !maps.Equal(c.Labels, tt.want) || len(c.OwnerReferences) != tt.left {
			t.Errorf("%s has labels %v and owners %v; want %v and %d", name, c.Labels, c.OwnerReferences, tt.want, tt.left)
		}
		if len(c.Annotations) != 1 || c.Annotations[workload.AnnotationRequested] != "10.0.0.5" {
			t.Errorf("%s has annotations %v; want what it asks for alone", name, c.Annotations)
		}
	}
}
