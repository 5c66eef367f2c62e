package scale_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/proof"
)

// TestSubnetPerNode reports what the same burst costs a node in an ordinary pool, and in one that
// gives each node a subnet and has as many subnets as a pool may have.
func TestSubnetPerNode(t *testing.T) {
	proof.Only(t)
	counts, idle, err := fromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range counts {
		c := newNodes(t, n)
		c.launch()
		plain, subnets := c.name+"-plain", c.name+"-subnets"
		c.network(plain, v1alpha1.Range{CIDR: "10.192.0.0/12"})
		c.networkOf(subnets, v1alpha1.IPPoolSpec{
			Ranges: []v1alpha1.Range{{CIDR: "10.208.0.0/12"}}, PerNode: &v1alpha1.PerNode{PrefixLength: 26}, Domain: subnets,
		})
		var all []place
		for _, network := range []string{plain, subnets} {
			burst := c.sandboxes(network)
			all = append(all, burst...)
			c.spend("a burst of ADDs on "+network, func() string { return c.burst(burst, idle) })
			c.spend("nothing happens with "+network, func() string { time.Sleep(idle); return "" })
			t.Log(sizes(t, network))
		}
		c.each(all, detach)
		// The subnets would stay on their nodes.
		if err := kc.Delete(t.Context(), &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: subnets}}); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft()
		c.gone()
	}
}
