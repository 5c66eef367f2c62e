package looker

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// byPool is a cluster whose leases are of pool-1.
type byPool struct{ *cluster }

func (b byPool) LeasesOfPool(_ context.Context, name protocol.PoolName) ([]protocol.Lease, error) {
	if name != "pool-1" {
		return nil, nil
	}
	return b.leases, nil
}

// parted is a pool of 10.0.0.0/24 without some addresses of it.
func parted(c *cluster, name, exclude string) v1alpha1.IPPool {
	size := int32(28)
	p := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	p.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.0.0.0/24", Exclude: []string{exclude}}}
	p.Status.BlockPrefixLengths = &v1alpha1.BlockPrefixLengths{IPv4: &size}
	p.Status.FencedSince = &metav1.Time{Time: c.now}
	return p
}

// TestLingeringWhileNodesAreAsked: what another pool still keeps is said all the time, or never,
// while looks come and go: not by what a node has yet to answer. Node n2 is always silent.
func TestLingeringWhileNodesAreAsked(t *testing.T) {
	for _, has := range []bool{false, true} { // n1 says that it has given an address of pool-1
		c := newCluster()
		c.Live = byPool{c}
		closed, other := parted(c, "pool-0", "10.0.0.0-10.0.0.7"), parted(c, "pool-1", "10.0.0.8-10.0.0.255")
		other.Status.Leasing, other.Status.Opening = v1alpha1.LeasingOpen, "1"
		c.pools = []v1alpha1.IPPool{closed, other}
		c.leases = []protocol.Lease{{
			Meta: protocol.Meta{Name: "pool-1.0a000000.28"}, Pool: "pool-1", PoolUID: "pool-1",
			Block: netip.MustParsePrefix("10.0.0.0/28"), Holder: protocol.Holder{Node: "n1"},
		}}
		c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s2"})
		c.pods = []*corev1.Pod{showing("p", "10.0.0.200")}
		c.answer = func(q protocol.Query) protocol.Report {
			r := protocol.Report{ID: q.ID, Running: []protocol.UID{"p"}}
			if has {
				r.Has = []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.0.9"), Sandbox: "box", Network: "net", IPAM: foreign.Type}}
			}
			return r
		}
		for begun := c.now; c.now.Sub(begun) < 2*time.Minute; c.now = c.now.Add(time.Second) {
			c.look(t)
		}
		told := c.told
		for begun := c.now; c.now.Sub(begun) < time.Minute; c.now = c.now.Add(answerEvery) {
			if _, err := c.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v := c.Of("pool-0"); v.Clear() || len(v.Yields()) > 0 != has {
				t.Fatalf("n1 has given an address: %v; stage %d, %q, beside %+v", has, v.Stage, v.Why, v.Beside)
			}
		}
		if c.told != told {
			t.Errorf("n1 has given an address: %v; told %d times of it", has, c.told-told)
		}
	}
}
