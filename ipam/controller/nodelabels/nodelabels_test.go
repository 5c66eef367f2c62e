package nodelabels

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// cluster is what a cache has: one node, its registration, and pools.
type cluster struct {
	client.Reader
	labels, annotations map[string]string
	pools               []v1alpha1.IPPool
}

func (c cluster) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.Node:
		o.Name, o.Labels = key.Name, c.labels
	case *coordination.Lease:
		o.Name, o.UID, o.Annotations = key.Name, "r1", c.annotations
	}
	return nil
}

func (c cluster) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	l.(*v1alpha1.IPPoolList).Items = c.pools //nolint:forcetypeassert // nothing else is listed
	return nil
}

// told notes what is written to registrations.
type told []string

func (t *told) TellLabels(_ context.Context, m protocol.Meta, labels string) (protocol.Outcome, error) {
	*t = append(*t, fmt.Sprintf("%s/%s: %s", m.Name, m.UID, labels))
	return protocol.Done, nil
}

func poolOf(keys ...string) v1alpha1.IPPool {
	p := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/24"}}}}
	for _, key := range keys {
		p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{NodeSelector: &v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{{Key: key, Operator: "Exists"}}}})
	}
	return p
}

// TestTells: the registration gets the labels that pools name, those that the node lacks too, no
// others, and only when they are not there yet.
func TestTells(t *testing.T) {
	many := make([]string, 400)
	for i := range many {
		many[i] = fmt.Sprintf("example.org/label-with-a-name-%0*d", 40, i)
	}
	for _, tt := range []struct {
		name  string
		has   string
		pools []v1alpha1.IPPool
		want  string
	}{
		{"no pool names labels", "", []v1alpha1.IPPool{poolOf()}, ""},
		{"two pools do", "", []v1alpha1.IPPool{poolOf("zone", "rack"), poolOf("rack")}, `n1/r1: {"rack":"a","zone":null}`},
		{"told already", `{"rack":"a"}`, []v1alpha1.IPPool{poolOf("rack")}, ""},
		{"told before the node was relabelled", `{"rack":"b"}`, []v1alpha1.IPPool{poolOf("rack")}, `n1/r1: {"rack":"a"}`},
		{"no pool names them any more", `{"rack":"a"}`, nil, `n1/r1: `},
		{"more than there is room for", "", []v1alpha1.IPPool{poolOf(many...)}, `n1/r1: {"example.org/`},
	} {
		var got told
		r := &Reconciler{
			Cache: cluster{labels: map[string]string{"rack": "a", "other": "x"}, annotations: map[string]string{"tenure.dev/boot": "b", "tenure.dev/labels": tt.has}, pools: tt.pools},
			Live:  &got, Log: slog.New(slog.DiscardHandler),
		}
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(got, "; ")
		if (tt.want == "") != (text == "") || !strings.HasPrefix(text, tt.want) || len(text) > mostText+100 {
			t.Errorf("%s: told %.100q, %d bytes; want %q", tt.name, text, len(text), tt.want)
		}
	}
}

// TestSomeOtherLease: a lease that is no registration, such as a leader's, is left alone.
func TestSomeOtherLease(t *testing.T) {
	var got told
	r := &Reconciler{Cache: cluster{pools: []v1alpha1.IPPool{poolOf("rack")}}, Live: &got, Log: slog.New(slog.DiscardHandler)}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "leader"}}); err != nil || len(got) > 0 {
		t.Errorf("told %v, error %v", got, err)
	}
}
