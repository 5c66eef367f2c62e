package install

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestDeletePools: all pools go, whatever the controller would have done first. What it would have
// deleted in Neutron is named.
func TestDeletePools(t *testing.T) {
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	plain := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan", Finalizers: []string{v1alpha1.LeasesFinalizer}}}
	made := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: "vif-1", Finalizers: []string{"tenure.dev/neutron-subnet", v1alpha1.LeasesFinalizer},
			Annotations: map[string]string{"tenure.dev/subnet-of": "team-a/lab"},
		},
		Spec: v1alpha1.IPPoolSpec{Source: &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{"5d0f4a3e"}}}},
	}
	var out bytes.Buffer
	kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(plain, made).Build()
	u := &uninstall{Session: &session.Session{Stdout: &out, Client: kc}}
	if err := u.deletePools(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left v1alpha1.IPPoolList
	if err := kc.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("%d pools are left, %v: %+v", len(left.Items), err, left.Items)
	}
	want := "Neutron keeps subnet 5d0f4a3e, which was made for definition team-a/lab. Delete it, and a network that was made for it:\n\n" +
		"    openstack subnet delete 5d0f4a3e\n    openstack network delete \"tenure team-a/lab\""
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("it says %q; want %q", got, want)
	}
}
