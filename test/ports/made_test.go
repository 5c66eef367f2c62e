package ports_test

import (
	"fmt"
	"net/http"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// testMade (K9): a definition of a namespace that the administrator has named describes a subnet.
// The controller makes it in Neutron, with its network and its pool. All go when definition and
// users are gone.
func testMade(t *testing.T, w *world) {
	describing := func(cidr string) map[string]string {
		return map[string]string{vif.AnnotationNetwork: fmt.Sprintf(`{"subnet": {"cidr": %q}, "interfaceParameters": {"macvlan": {"master": "eth1"}}}`, cidr)}
	}
	define := func(namespace, cidr string) *nad.NetworkAttachmentDefinition {
		return create(t, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: unique("made"), Annotations: describing(cidr)}})
	}
	wrong := define(team, "10.61.0.7/24")
	event(t, wrong, "InvalidVIFAnnotation", "host bits")
	remove(t, wrong)

	d := define(team, "10.60.0.0/24")
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: vif.PoolName(team, d.Name)}}
	condition(t, p, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	if got := p.Spec.Ranges; len(got) != 1 || got[0].CIDR != "10.60.0.0/24" {
		t.Errorf("ranges are %+v", got)
	}
	subnet := w.subnet(t, p.Spec.Source.Neutron.SubnetIDs[0])
	d.Annotations = describing("10.60.0.7/24") // mistyped
	if err := kc.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	event(t, d, "InvalidVIFAnnotation", "host bits")
	refused := define("default", "10.61.0.0/24")
	event(t, refused, "SubnetNotAllowed", "--neutron-subnet-namespaces") // it was looked at later
	remove(t, refused)
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pool of a definition that cannot be read: %v, being deleted since %v; want it as it was", err, p.DeletionTimestamp)
	}
	d.Annotations = describing("10.60.0.0/24")
	if err := kc.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c := create(t, &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: unique("claim")}, Spec: ipamclaims.IPAMClaimSpec{Network: vif.DefinitionName(team, d.Name)},
	})
	w.only(t, c)
	w.end(t)
	remove(t, d) // while no controller runs
	w.start(t)
	condition(t, p, v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, c.Name)
	w.only(t, c)
	w.subnet(t, subnet.ID)
	remove(t, c)
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
			return fmt.Errorf("pool %s is still there: %w", p.Name, err)
		}
		return nil
	})
	for _, path := range []string{"subnets/" + subnet.ID, "networks/" + subnet.NetworkID} {
		if err := w.Try(t, http.MethodGet, path, nil); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}
