package nodes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// requesting makes a claim that asks for addresses by name.
func (w *world) requesting(name, addrs string) *ipamclaims.IPAMClaim {
	w.t.Helper()
	c := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{workload.AnnotationRequested: addrs}},
		Spec:       ipamclaims.IPAMClaimSpec{Network: w.name},
	}
	fleet.Create(w.t, kc, c)
	return c
}

// wantCondition waits until a condition of a claim has a reason, and a message with text in it.
func wantCondition(t *testing.T, c *ipamclaims.IPAMClaim, condition, reason, text string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		is := meta.FindStatusCondition(c.Status.Conditions, condition)
		if is == nil || is.Reason != reason || !strings.Contains(is.Message, text) {
			return fmt.Errorf("%s says %+v; want %s with %q", c.Name, is, reason, text)
		}
		return nil
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
		wantCondition(t, c, claims.ConditionRequestedIPs, claims.ReasonHonoured, "")
	}
	for name, wrong := range map[string][2]string{
		"asks-gateway":  {"10.45.0.1", "gateway"},
		"asks-excluded": {"10.45.0.2", "excluded"},
		"asks-outside":  {"10.46.0.1", "10.46.0.1"},
		"asks-two":      {"10.45.0.20,10.45.0.21", "one address more than the network gives"},
		"asks-words":    {"10.45.0.20,please", "please"},
	} {
		c := w.requesting(name, wrong[0])
		wantCondition(t, c, kube.ConditionIPsAllocated, claims.ReasonRequestInvalid, wrong[1])
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
	had := w.add(w.a, pod)[0]
	first := w.requesting("first", had.Addr().String())
	wantCondition(t, first, kube.ConditionIPsAllocated, claims.ReasonRequestedTaken, had.Addr().String())
	second := w.requesting("second-of-it", had.Addr().String())
	wantCondition(t, second, kube.ConditionIPsAllocated, claims.ReasonRequestedTaken, had.Addr().String())
	other := w.claim("any")
	allocated(t, other)

	w.end(w.a, pod)
	if got := allocated(t, first); len(got) != 1 || got[0] != had {
		t.Errorf("when the pod has ended: %v; want %v", got, had)
	}
	wantCondition(t, second, kube.ConditionIPsAllocated, claims.ReasonRequestedTaken, "claim default/first")

	other.Annotations = map[string]string{workload.AnnotationRequested: "10.47.0.200"}
	if err := kc.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	before := other.Status.IPs[0]
	wantCondition(t, other, claims.ConditionRequestedIPs, claims.ReasonDiffers, "10.47.0.200")
	if len(other.Status.IPs) != 1 || other.Status.IPs[0] != before {
		t.Errorf("a later edit has moved %s to %v", before, other.Status.IPs)
	}
	fleet.Delete(t, kc, first)
	if got := allocated(t, second); got[0] != had {
		t.Errorf("when the claim is gone: %v; want %v", got, had)
	}
}
