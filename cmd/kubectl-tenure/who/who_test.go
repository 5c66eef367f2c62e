package who

import (
	"testing"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
)

// TestWhatIsBeingFreed: it is said for whom a grant is, and of one that is being taken back
// what has gone.
func TestWhatIsBeingFreed(t *testing.T) {
	for want, v := range map[string]View{
		"claim shop/db, used by no pod now; granted by node n1, lease l": {Owner: "Claim", Claim: "shop/db"},
		"claim shop/db, used by no pod now; the grant is being taken back, as its claim is gone or has other addresses; granted by node n1, lease l": {
			Owner: "Claim", Claim: "shop/db", Freeing: true},
		"a request that is gone, sub-lease s; the grant is being taken back, as its request is gone or has other addresses; granted by node n1, lease l": {
			Owner: "Request", Request: "s", Freeing: true},
		"pod shop/old on node n2, which has it by another IPAM; kept for the pod by node n1, lease l": {
			Owner: "Foreign", Pods: []state.Use{{Node: "n2", Namespace: "shop", Pod: "old"}}},
		"pod shop/old on node n2, which has it by another IPAM; the grant is being taken back, as its pod is gone or has other addresses; kept for the pod by node n1, lease l": {
			Owner: "Foreign", Pods: []state.Use{{Node: "n2", Namespace: "shop", Pod: "old"}}, Freeing: true},
		"nobody: several pods have it; kept from all by node n1, lease l": {Owner: "Foreign", Note: "several pods have it"},
	} {
		v.Node, v.Lease = "n1", "l"
		if got := v.Text(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
