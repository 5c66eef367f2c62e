package nodes_test

import (
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// asked waits until a claim says of what it asks for that it has it, or has not.
func asked(t testing.TB, c *ipamclaims.IPAMClaim, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	await(t, 20*time.Second, c, func() error {
		return fleet.Condition(c.Status.Conditions, claims.ConditionRequestedIPs, status, reason, words...)
	})
}

// TestRequestedAddresses: a claim gets the addresses that it asks for, also of those that are
// for static use alone. One that it cannot get it is told why.
func TestRequestedAddresses(t *testing.T) {
	w := newWorldOf(t, "requested", "default", v1alpha1.Range{
		CIDR: "10.45.0.0/24", Gateway: "10.45.0.1", Exclude: []string{"10.45.0.2/32"}, StaticOnly: []string{"10.45.0.64/26"},
	}, v1alpha1.Range{CIDR: "fd00:45::/64"})
	for name, addrs := range map[string][2]string{
		"asks-one":    {"10.45.0.9", "10.45.0.9/24 fd00:45::"},
		"asks-both":   {"fd00:45::9/64, 10.45.0.10/24", "10.45.0.10/24 fd00:45::9/64"},
		"asks-static": {"10.45.0.64", "10.45.0.64/24 fd00:45::"},
	} {
		c := w.requesting(name, addrs[0])
		got := allocated(t, c)
		if text := strings.Join(c.Status.IPs, " "); len(got) != 2 || !strings.HasPrefix(text, addrs[1]) {
			t.Errorf("%s has %v; want two that begin with %s", name, got, addrs[1])
		}
		asked(t, c, metav1.ConditionTrue, claims.ReasonHonoured)
	}
	for name, wrong := range map[string][2]string{
		"asks-gateway":  {"10.45.0.1", "gateway"},
		"asks-excluded": {"10.45.0.2", "excluded"},
		"asks-outside":  {"10.46.0.1", "10.46.0.1"},
		"asks-two":      {"10.45.0.20,10.45.0.21", "one address more than the network gives"},
		"asks-words":    {"10.45.0.20,please", "please"},
	} {
		c := w.requesting(name, wrong[0])
		claimSays(t, c, metav1.ConditionFalse, claims.ReasonRequestInvalid, wrong[1])
		if len(c.Status.IPs) > 0 {
			t.Errorf("%s has %v; want nothing made half", name, c.Status.IPs)
		}
	}
}

// TestRequestedAddressIsTaken: a claim that asks for what another has is told who has it, holds
// up nobody, and gets it when it comes free, before one that asked later. What a claim has
// does not change with what it asks for afterwards.
func TestRequestedAddressIsTaken(t *testing.T) {
	w := newWorld(t, "wished", "default", "10.47.0.0/24")
	pod := w.pod(w.a, "has-it", "", "")
	had := mustAdd(t, w.a, pod)[0]
	first := w.requesting("first", had.Addr().String())
	claimSays(t, first, metav1.ConditionFalse, claims.ReasonRequestedTaken, had.Addr().String())
	second := w.requesting("second-of-it", had.Addr().String())
	claimSays(t, second, metav1.ConditionFalse, claims.ReasonRequestedTaken, had.Addr().String())
	other := w.claim("any")
	allocated(t, other)

	endPod(t, w.a, pod)
	if got := allocated(t, first); len(got) != 1 || got[0] != had {
		t.Errorf("when the pod has ended: %v; want %v", got, had)
	}
	claimSays(t, second, metav1.ConditionFalse, claims.ReasonRequestedTaken, "claim default/first")

	other.Annotations = map[string]string{workload.AnnotationRequested: "10.47.0.200"}
	must(t, kc.Update(t.Context(), other))
	before := other.Status.IPs[0]
	asked(t, other, metav1.ConditionFalse, claims.ReasonDiffers, "10.47.0.200")
	if len(other.Status.IPs) != 1 || other.Status.IPs[0] != before {
		t.Errorf("a later edit has moved %s to %v", before, other.Status.IPs)
	}
	fleet.Delete(t, kc, first)
	if got := allocated(t, second); got[0] != had {
		t.Errorf("when the claim is gone: %v; want %v", got, had)
	}
}
