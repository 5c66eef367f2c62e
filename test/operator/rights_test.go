package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// bound returns the flag by which kubectl tenure runs as a new user who has these
// ClusterRoles.
func bound(t *testing.T, roles ...string) (as string) {
	t.Helper()
	name := fleet.Unique("person")
	for _, role := range roles {
		create(t, &rbac.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role},
			RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbac.Subject{{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: name}},
		})
	}
	as = "--as=" + name
	// Roles are aggregated by a controller, and the authorizer's cache follows.
	fleet.Eventually(t, 20*time.Second, func() error {
		if out, err := command(t, "pools", as).CombinedOutput(); err != nil {
			return fmt.Errorf("pools as one who has %q: %w: %s", roles, err, out)
		}
		return nil
	})
	return as
}

// Whoever may view a cluster may ask what docs/reference/kubectl-tenure.md says, and no more; and
// whoever may edit it releases no node.
func TestUsersOfTheClusterMayLook(t *testing.T) {
	w := inOrder(t)
	for role, past := range map[string][]string{
		"view": {
			"you may not ask the agents: it takes the right to create pods/exec in namespace tenure-system", "it reaches the agents' credentials",
			"kubectl -n tenure-system logs -l app.kubernetes.io/name=tenured", `grep '"address":"10.40.0.17"'`,
		},
		"edit": {"did not answer", w.node + " (it has no agent's pod now)"}, // it has pods/exec everywhere
	} {
		user := bound(t, role)
		says(t, tenure(t, 0, "pools", w.pool.Name, user), w.node+" 1 1 14")
		tenure(t, 0, "leases", user)
		tenure(t, 0, "claims", "-A", "-o", "wide", user)
		tenure(t, 0, "who", "10.40.0.17", user)
		says(t, tenure(t, 0, "pod", "plain", "-n", w.namespace, user), "net1 "+w.namespace+"/lan 10.40.0.5 "+w.pool.Name+" - yes")
		tenure(t, 0, "explain", "plain", "-n", w.namespace, user)
		says(t, tenure(t, 1, "who", "10.40.0.17", "--since", "7d", user), past...)
		says(t, tenure(t, 1, "check", user), "forbidden")
		says(t, tenure(t, 1, "release-node", w.node, "--yes", user), "forbidden")
	}
	if w.off() {
		t.Error("somebody who may not has released the node")
	}
}

// Who has tenure-operator may ask everything, and release nothing; with
// tenure-release-node, too, both of a Node that is down and of one that is gone.
func TestOperatorsMayCheckAndRelease(t *testing.T) {
	looks, releases := bound(t, "tenure-operator"), bound(t, "tenure-operator", "tenure-release-node")
	w := inOrder(t)
	says(t, tenure(t, 0, "check", "--apart=0s", looks), "all is as it must be")
	says(t, tenure(t, 0, "pools", w.pool.Name, looks), w.node+" 1 1 14")
	tenure(t, 0, "claims", "-A", "-o", "wide", looks)
	tenure(t, 0, "who", "10.40.0.17", looks)
	says(t, tenure(t, 0, "pod", "plain", "-n", w.namespace, looks), "net1 "+w.namespace+"/lan 10.40.0.5 "+w.pool.Name+" - yes")
	tenure(t, 0, "explain", "plain", "-n", w.namespace, looks)

	w.isReady(corev1.ConditionUnknown)
	w.quiet(time.Hour, 0)
	says(t, tenure(t, 1, "release-node", w.node, "--yes", looks), "cannot patch resource \"nodes\"")
	says(t, tenure(t, 0, "release-node", w.node, "--yes", "--timeout=0s", releases), "has the taint")
	w.nodeGone()
	w.quiet(time.Hour, 0)
	says(t, tenure(t, 1, "release-node", w.node, "--yes", looks), "cannot create resource \"nodes\"")
	controller(t)
	says(t, tenure(t, 0, "release-node", w.node, "--yes", releases), "It holds nothing any more.", "is removed")
	w.holds(0, 0)
}

// Where a pod's plan cannot be read, it is not said to be unattached: either its status
// tells, or nothing does.
func TestPodWithoutSightOfNetworks(t *testing.T) {
	w := inOrder(t)
	bare := w.podWith("bare", "10.40.0.9")
	bare.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "lan"}
	if err := kc.Update(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	name := fleet.Unique("blind")
	create(t, &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbac.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"get"}}}})
	create(t, &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbac.Subject{{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: name}},
	})
	fleet.Eventually(t, 20*time.Second, func() error { // the authorizer's cache follows
		out, err := command(t, "pod", "plain", "-n", w.namespace, "--as="+name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	says(t, tenure(t, 0, "pod", "plain", "-n", w.namespace, "--as="+name), "10.40.0.5 - - yes", "Note: what networks it selects could not be found out")
	says(t, tenure(t, 1, "pod", "bare", "-n", w.namespace, "--as="+name), "forbidden")
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
