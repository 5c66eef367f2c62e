package operator_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// allocated waits until a claim has addresses, and returns them.
func allocated(t *testing.T, c *ipamclaims.IPAMClaim) []string {
	t.Helper()
	fleet.Eventually(t, 20*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if len(c.Status.IPs) == 0 {
			return fmt.Errorf("claim %s has no addresses: %v", c.Name, c.Status.Conditions)
		}
		return nil
	})
	return c.Status.IPs
}

// TestSavedClaimsComeBack: claims that were saved, and have gone with their namespace, get the same
// addresses when they are applied again. One whose address another has got meanwhile waits and says
// who has it; the others do not.
func TestSavedClaimsComeBack(t *testing.T) {
	w := newWorld(t)
	controller(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-db"}}
	create(t, ns.DeepCopy())
	names := []string{"db-0", "db-1", "db-2"}
	had := map[string][]string{}
	for _, name := range names {
		c := &ipamclaims.IPAMClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name, Labels: map[string]string{"app": "db"}},
			Spec:       ipamclaims.IPAMClaimSpec{Network: "lan", Interface: "net1"},
		}
		create(t, c)
		had[name] = allocated(t, c)
	}
	saved := filepath.Join(t.TempDir(), "claims.yaml")
	cmd := exec.CommandContext(t.Context(), kubectl.path, "claims", "-n", ns.Name, "--save", "--kubeconfig", kubectl.kubeconfig)
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(saved, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"ownerReferences", "uid", "status", "resourceVersion"} {
		if strings.Contains(string(text), word) {
			t.Errorf("a saved claim has %s:\n%s", word, text)
		}
	}
	var list struct {
		Items []ipamclaims.IPAMClaim `json:"items"`
	}
	if err := yaml.Unmarshal(text, &list); err != nil || len(list.Items) != len(names) {
		t.Fatalf("%d claims are saved, %v; want %d", len(list.Items), err, len(names))
	}
	if err := kc.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, time.Minute, func() error {
		if err := kc.Create(t.Context(), ns.DeepCopy()); err != nil {
			return fmt.Errorf("the namespace is not gone: %w", err)
		}
		return nil
	})
	thief := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "thief", Annotations: list.Items[1].Annotations},
		Spec:       list.Items[1].Spec,
	}
	create(t, thief)
	allocated(t, thief)
	for i := range list.Items {
		create(t, &list.Items[i])
	}
	for i, name := range names {
		if name == "db-1" {
			continue
		}
		if got := allocated(t, &list.Items[i]); !slices.Equal(got, had[name]) {
			t.Errorf("%s has %v again; had %v", name, got, had[name])
		}
	}
	fleet.Eventually(t, 20*time.Second, func() error {
		text := tenure(t, 0, "claims", "db-1", "-n", ns.Name, "-o", "wide")
		if !strings.Contains(text, claims.ReasonRequestedTaken) || !strings.Contains(text, "claim "+ns.Name+"/thief") {
			return fmt.Errorf("db-1: %s", text)
		}
		return nil
	})
	if err := kc.Delete(t.Context(), thief); err != nil {
		t.Fatal(err)
	}
	if got := allocated(t, &list.Items[1]); !slices.Equal(got, had["db-1"]) {
		t.Errorf("db-1 has %v when the other is gone; had %v", got, had["db-1"])
	}
	w.freeClaims(ns.Name) // while the controller runs
}

// freeClaims deletes a namespace's claims, and waits until they have no address.
func (w *world) freeClaims(namespace string) {
	w.t.Helper()
	if err := kc.DeleteAllOf(w.t.Context(), &ipamclaims.IPAMClaim{}, client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
	fleet.Eventually(w.t, 20*time.Second, func() error {
		leases, err := api.LeasesOfPool(w.t.Context(), protocol.PoolName(w.pool.Name))
		for _, l := range leases {
			if len(l.Grants) > 0 {
				err = fmt.Errorf("lease %s has grants of claims that are gone: %v", l.Name, l.Grants)
			}
		}
		return err
	})
}
