package looker

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A pool that opens, or that an edit has made larger, waits for the nodes where pods show what it
// is about to give, though the pods do not select its network, as where they have it by the default
// networks of Multus. What their nodes have seen is kept.
func TestNetworkThatPodsDoNotSelect(t *testing.T) {
	for _, addr := range []string{"10.0.0.5", "10.0.1.5"} {
		c := newCluster()
		p := lan() // open, but for what begins with 10.0.1.0
		if addr == "10.0.0.5" {
			since := metav1.NewTime(c.now.Add(-time.Minute))
			p.Status.Leasing, p.Status.Withheld, p.Status.FencedSince = "", nil, &since
		}
		old := showing("old", addr)
		delete(old.Annotations, npwg.AnnotationNetworks)
		c.pools, c.pods = []v1alpha1.IPPool{p}, []*corev1.Pod{old}
		if v := c.look(t); v.Stage != foreign.StageReports {
			t.Errorf("%s: no node has answered: stage %v; want the pool to wait for n1", addr, v.Stage)
		}
		c.answer = func(q protocol.Query) protocol.Report {
			return protocol.Report{ID: q.ID, Running: []protocol.UID{"old"}, Has: []protocol.Sighting{{
				Addr: netip.MustParseAddr(addr), Pod: protocol.PodRef{Namespace: "ns", Name: "old", UID: "old"}, Sandbox: "box", Network: "net", IPAM: "nv-ipam",
			}}}
		}
		c.look(t)
		if a, asked := c.asks[netip.MustParseAddr(addr)]; !asked || a.To.UID != "old" {
			t.Errorf("asked to be kept is %v; want %s for pod old", c.asks, addr)
		}
	}
}
