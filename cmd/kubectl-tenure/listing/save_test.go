package listing

import (
	"maps"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSavedOf: a saved claim asks for what it has, and does not tell its port: nobody but the
// controller may write that.
func TestSavedOf(t *testing.T) {
	c := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"team": "a", "tenure.dev/port": "{}"}},
		Status:     ipamclaims.IPAMClaimStatus{IPs: []string{"10.0.0.5/24"}},
	}
	want := map[string]string{"team": "a", "tenure.dev/requested-ips": "10.0.0.5/24"}
	if got := savedOf(c).Metadata.Annotations; !maps.Equal(got, want) {
		t.Errorf("it is saved with %v; want %v", got, want)
	}
}
