package nodes_test

import (
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// What the delegating plugin ignores as a whole, the agent does too: the default
// network of such a pod gets its address (N20, A2).
func TestInvalidAnnotationIsIgnored(t *testing.T) {
	openPool(t, "n20", cidr("10.20.0.0/24"))
	n := fleet.New(t, cp.Config()).Start("n20")
	const invalid = `[{"name":"a","interface":"eth0","ips":[]},{"name":"b","interface":"lan0","ipam-claim-reference":"c"}]`
	pod := newPod(t, "n20", "n20", invalid, onPool("n20", "c1", "eth0"))
	if addrs := mustAdd(t, n, pod); len(addrs) != 1 {
		t.Errorf("got %v; want one address", addrs)
	}
	// A caller with other rules attaches the element all the same: not without the
	// claim's address.
	pod.IfName = "lan0"
	_, err := n.Insist(pod)
	wantCode(t, err, agentapi.CodeInvalidConfig, "element 1: ips: [] is not a list of one address or more")
}
