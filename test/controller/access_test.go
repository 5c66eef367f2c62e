package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// nothingGranted fails the test if something is granted to the claim within the time.
func nothingGranted(t *testing.T, c *ipamclaims.IPAMClaim, during time.Duration) {
	t.Helper()
	always(t, during, func() error {
		if a := granted(t, uidOf(c)); len(a) > 0 {
			return fmt.Errorf("%v is granted to claim %s", a, c.Name)
		}
		return nil
	})
}

// TestClaimsOfSelectedNamespacesOnly: also a definition of the claim's own namespace,
// which whoever rules there can write, opens no pool.
func TestClaimsOfSelectedNamespacesOnly(t *testing.T) {
	start(t)
	p := pool(t, "10.71.0.0/24")
	fleet.Patch(t, kc, p, `{"spec":{"namespaceSelector":{"matchExpressions":[{"key":"team","operator":"In","values":["blue","green"]}]}}}`)
	opened(t, p)
	ns := namespace(t)
	network := fleet.Unique("lan")
	definition(t, ns, "lan", network, ofPool(p.Name))
	c := claim(t, ns, "vm", network)
	failed(t, c, "PoolNotAllowed", "namespace "+ns+" may not use pool "+p.Name, "spec.namespaceSelector (team in (blue,green)) does not select it")
	fleet.Event(t, kc, c, "PoolNotAllowed")
	nothingGranted(t, c, 500*time.Millisecond)

	forged := claim(t, ns, "forged", network)
	patchStatus(t, forged, `{"status":{"ips":["10.71.0.9/24"]}}`)
	failed(t, forged, "PoolNotAllowed", "may not use pool")
	nothingGranted(t, forged, 500*time.Millisecond)

	// A label of the namespace is enough, at once.
	fleet.Patch(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"metadata":{"labels":{"team":"green"}}}`)
	had := allocated(t, c)
	// What is allocated stays, whatever the pool says later.
	fleet.Patch(t, kc, p, `{"spec":{"namespaceSelector":{"matchLabels":{"team":"none"},"matchExpressions":null}}}`)
	late := claim(t, ns, "late", network)
	failed(t, late, "PoolNotAllowed", "(team=none)")
	if got := allocated(t, c); got[0] != had[0] {
		t.Errorf("the claim has %v; want its %v", got, had)
	}
	t.Run("I3 also when somebody empties its status", func(t *testing.T) {
		patchStatus(t, c, `{"status":{"ips":[]}}`)
		if got := allocated(t, c); got[0] != had[0] {
			t.Errorf("the claim has %v; want its %v", got, had)
		}
	})
	t.Run("I3 also when somebody deletes its lease", func(t *testing.T) {
		deleteLeaseOf(t, uidOf(c))
		addr := netip.MustParsePrefix(had[0]).Addr()
		eventually(t, 20*time.Second, func() error {
			if got := granted(t, uidOf(c)); !slices.Equal(got, []netip.Addr{addr}) {
				return fmt.Errorf("granted is %v; want %v", got, addr)
			}
			return nil
		})
		if got := allocated(t, c); got[0] != had[0] {
			t.Errorf("the claim has %v; want its %v", got, had)
		}
	})
	// So is a change of the pool.
	fleet.Patch(t, kc, p, `{"spec":{"namespaceSelector":null}}`)
	allocated(t, late)
}

// deleteLeaseOf deletes the lease that has the grant to a UID, as who means it does.
func deleteLeaseOf(t *testing.T, uid protocol.UID) {
	t.Helper()
	leases, err := api.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if len(l.GrantsOf(uid)) == 0 {
			continue
		}
		o := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: l.Name}}
		fleet.Patch(t, kc, o, `{"metadata":{"annotations":{"tenure.dev/deletion":"confirmed"}}}`)
		if err := kc.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("nothing is granted to %s", uid)
}

func patchStatus(t *testing.T, o client.Object, body string) {
	t.Helper()
	if err := kc.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// W9, for claims.
func TestClaimsOfThoseWhoAreAllowedOnly(t *testing.T) {
	start(t)
	p := pool(t, "10.72.0.0/24")
	fleet.Patch(t, kc, p, `{"spec":{"access":"RBAC"}}`)
	opened(t, p)
	ns := namespace(t)
	network := fleet.Unique("lan")
	definition(t, ns, "lan", network, ofPool(p.Name))
	c := claim(t, ns, "vm", network)
	failed(t, c, "PoolNotAllowed", "group system:serviceaccounts:"+ns+" is not allowed the verb use on ippools.tenure.dev/"+p.Name)
	nothingGranted(t, c, 500*time.Millisecond)
	fleet.Create(t, kc, &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, ResourceNames: []string{p.Name}, Verbs: []string{"use"}},
	}})
	fleet.Create(t, kc, &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: p.Name},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.GroupKind, Name: access.Group(ns)}},
	})
	allocated(t, c)
}
