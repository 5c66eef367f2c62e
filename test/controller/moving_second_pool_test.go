package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestSecondPoolOfOneRange (I1): a definition of whereabouts' beside a person's pool has its one
// word changed by hand, against what the condition says, and gets a pool of its own. That is not
// opened; both say what to do. What its pods have is kept of the person's pool, from before that is
// open, or is wider. A pool of another domain, which a person has written as well, is another
// segment. Once the pools' owners say so of the second pool, too, that is opened.
func TestSecondPoolOfOneRange(t *testing.T) {
	start(t)
	ns, name, blue := namespace(t), fleet.Unique("pool"), fleet.Unique("blue")
	definition(t, ns, "a", fleet.Unique("a"), ofPool(name))
	const theirs = `{"type":"whereabouts","range":"10.89.0.0/24","network_name":%q}`
	b := definition(t, ns, "b", fleet.Unique("b"), fmt.Sprintf(theirs, blue))
	running(t, ns, "old-a", "nowhere", "a", "10.89.0.4")
	running(t, ns, "old-b", "nowhere", "b", "10.89.0.5")
	running(t, ns, "late-b", "nowhere", "b", "10.89.0.200")
	vlan20 := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("vlan20")}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.89.0.0/24"}}, Domain: "vlan20"}}
	fleet.Create(t, kc, vlan20)
	definition(t, ns, "c", fleet.Unique("c"), ofPool(vlan20.Name))
	running(t, ns, "old-c", "nowhere", "c", "10.89.0.6")

	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: []v1alpha1.Range{{CIDR: "10.89.0.0/24", End: "10.89.0.127"}}}}
	fleet.Create(t, kc, p)
	time.Sleep(1100 * time.Millisecond) // creation times have whole seconds
	says := func(p *v1alpha1.IPPool, kind string, status metav1.ConditionStatus, reason string, texts ...string) {
		t.Helper()
		eventually(t, 60*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			return condition(p.Status.Conditions, kind, status, reason, texts...)
		})
	}
	says(p, v1alpha1.PoolForeignIPAM, metav1.ConditionTrue, "OtherDefinitions", ns+"/b (whereabouts)", "by hand")
	fleet.Edit(t, kc, b, func() { b.Spec.Config = strings.Replace(b.Spec.Config, "whereabouts", "tenure", 1) })
	opened(t, p)
	if got, want := kept(t, name), []string{"10.89.0.4 old-a", "10.89.0.5 old-b"}; !slices.Equal(got, want) {
		t.Errorf("the pool is open and keeps %q; want %q", got, want)
	}
	second := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: blue}}
	says(second, v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonOverlap, "pool "+name, `{"type": "tenure", "pool": "`+name+`"}`, "name pool "+blue+" in spec.shareWith of pool "+name)
	fleet.Edit(t, kc, p, func() { p.Spec.Ranges[0].End = "" })
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		if p.Status.ObservedGeneration != p.Generation || len(p.Status.Withheld) > 0 {
			return fmt.Errorf("withholds %q", p.Status.Withheld)
		}
		return nil
	})
	says(p, v1alpha1.PoolOverlapping, metav1.ConditionFalse, v1alpha1.ReasonDisjoint, "pool "+blue+" has them as well, and is not opened")
	if got, want := kept(t, name), []string{"10.89.0.200 late-b", "10.89.0.4 old-a", "10.89.0.5 old-b"}; !slices.Equal(got, want) {
		t.Errorf("the pool is wider and keeps %q; want %q", got, want)
	}
	opened(t, vlan20)
	if got, want := kept(t, vlan20.Name), []string{"10.89.0.200 late-b", "10.89.0.5 old-b", "10.89.0.6 old-c"}; !slices.Equal(got, want) {
		t.Errorf("the pool of another domain keeps %q; want %q: nothing of the person's other pool", got, want)
	}

	// The word that the networks are two.
	for _, p := range []*v1alpha1.IPPool{p, vlan20} {
		fleet.Edit(t, kc, p, func() { p.Spec.ShareWith = []string{blue} })
	}
	awaitOpen(t, blue)
	if got, own := kept(t, blue), []string{"10.89.0.200 late-b", "10.89.0.5 old-b"}; !slices.Contains(got, own[0]) || !slices.Contains(got, own[1]) {
		t.Errorf("the second pool is open and keeps %q; want %q among them", got, own)
	}
}
