package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// Whoever may view a cluster may ask what docs/kubectl-tenure.md says, and no more; and
// whoever may edit it releases no node.
func TestUsersOfTheClusterMayLook(t *testing.T) {
	w := inOrder(t)
	for _, role := range []string{"view", "edit"} {
		user := "--as=" + unique(role+"er-")
		create(t, &rbac.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(user, "--as=")},
			RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbac.Subject{{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: strings.TrimPrefix(user, "--as=")}},
		})
		fleet.Eventually(t, 20*time.Second, func() error { // the roles are aggregated by a controller
			if err := command(t, "pools", user).Run(); err != nil {
				return fmt.Errorf("pools as %s: %w", role, err)
			}
			return nil
		})
		says(t, tenure(t, 0, "pools", w.pool.Name, user), w.node+" 1 1 14")
		tenure(t, 0, "leases", user)
		tenure(t, 0, "claims", "-A", "-o", "wide", user)
		tenure(t, 0, "who", "10.40.0.17", user)
		says(t, tenure(t, 1, "check", user), "forbidden")
		says(t, tenure(t, 1, "release-node", w.node, "--yes", user), "forbidden")
	}
	if w.off() {
		t.Error("somebody who may not has released the node")
	}
}

// Lists that are longer than a page are read whole.
func TestListsAreReadInPages(t *testing.T) {
	w := newWorld(t)
	const many = 501 // one more than a page
	for i := range many {
		c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("claim-%d", i)}, Spec: ipamclaims.IPAMClaimSpec{Network: "lan"}}
		create(t, c)
	}
	names := strings.Fields(tenure(t, 0, "claims", "-n", w.namespace, "-o", "name"))
	distinct := map[string]bool{}
	for _, n := range names {
		distinct[n] = true
	}
	if len(names) != many || len(distinct) != many {
		t.Errorf("got %d claims, %d of them distinct; want %d", len(names), len(distinct), many)
	}
}
