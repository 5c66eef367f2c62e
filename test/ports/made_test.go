package ports_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	neutronclient "github.com/tenure-ipam/tenure/ipam/controller/neutron"
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
		return fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.Unique("made"), Annotations: describing(cidr)}})
	}
	wrong := define(team, "10.61.0.7/24")
	fleet.Event(t, kc, wrong, "InvalidVIFAnnotation", "host bits")
	fleet.Delete(t, kc, wrong)

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
	fleet.Event(t, kc, d, "InvalidVIFAnnotation", "host bits")
	refused := define("default", "10.61.0.0/24")
	fleet.Event(t, kc, refused, "SubnetNotAllowed", "--neutron-subnet-namespaces") // it was looked at later
	fleet.Delete(t, kc, refused)
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pool of a definition that cannot be read: %v, being deleted since %v; want it as it was", err, p.DeletionTimestamp)
	}
	d.Annotations = describing("10.60.0.0/24")
	if err := kc.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c := fleet.Create(t, kc, &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: fleet.Unique("claim")}, Spec: ipamclaims.IPAMClaimSpec{Network: vif.DefinitionName(team, d.Name)},
	})
	w.only(t, c)
	w.end(t)
	fleet.Delete(t, kc, d) // while no controller runs
	w.start(t)
	condition(t, p, v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, c.Name)
	w.only(t, c)
	w.subnet(t, subnet.ID)
	fleet.Delete(t, kc, c)
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

// testHalfMade (K9): a controller ends when it has made the subnets of two definitions, and before
// their pools. The next one uses that of the definition which is there, and deletes the other. What
// another cluster has made stays.
func testHalfMade(t *testing.T, w *world) {
	w.end(t)
	var system corev1.Namespace
	must(t, kc.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
	ours, theirs := w.client(t, string(system.UID)), w.client(t, "another")
	d := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{
		Namespace: team, Name: fleet.Unique("made"), Annotations: map[string]string{vif.AnnotationNetwork: `{"subnet": {"cidr": "10.62.0.0/24"}, "interfaceParameters": {"macvlan": {"master": "eth1"}}}`},
	}}
	subnet := func(of *neutronclient.Client, key string) string {
		t.Helper()
		id, err := of.EnsureSubnet(t.Context(), neutronclient.NewSubnet{Key: key, Name: "made", Prefix: netip.MustParsePrefix("10.62.0.0/24")})
		must(t, err)
		return id
	}
	kept, gone := vif.PoolName(team, d.Name), vif.PoolName(team, "gone")
	id, lost, other := subnet(ours, kept), subnet(ours, gone), subnet(theirs, gone)
	network := w.subnet(t, lost).NetworkID
	fleet.Create(t, kc, d)
	w.start(t)
	fleet.Eventually(t, within, func() error {
		for _, path := range []string{"subnets/" + lost, "networks/" + network} {
			if err := w.Try(t, http.MethodGet, path, nil); err == nil {
				return fmt.Errorf("%s is still there", path)
			}
		}
		return nil
	})
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: kept}}
	condition(t, p, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	if got := p.Spec.Source.Neutron.SubnetIDs; !slices.Equal(got, []string{id}) {
		t.Errorf("the pool is of subnets %v; want %s", got, id)
	}
	w.subnet(t, other)
	must(t, theirs.DeleteSubnet(t.Context(), gone))
	fleet.Delete(t, kc, d)
}
