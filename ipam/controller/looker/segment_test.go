package looker

import (
	"fmt"
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

// What pods have is kept of the implicit pools that definitions get which import has switched,
// whatever these pools are called; and the pool waits for another IPAM that gives its addresses,
// unless both say by their network_names that they are two segments.
func TestImplicitPoolTakesOver(t *testing.T) {
	for _, tt := range []struct {
		ipam, other string
		waits       bool
	}{
		{`"range":"10.0.0.0/24","network_name":"blue"`, "", false},
		{`"range":"10.0.0.0/24","network_name":"blue.net"`, "", false},
		{`"range":"10.0.0.0/24","network_name":"blue","enable_overlapping_ranges":false`, "", false},
		{`"range":"10.0.0.0/24","network_name":"blue"`, "red", false},
		{`"range":"10.0.0.0/24","enable_overlapping_ranges":false`, "red", true},
		{`"subnet":"10.0.0.0/24"`, "red", true},
	} {
		config := `{"cniVersion":"1.0.0","name":"more-0","type":"macvlan","ipam":{"type":"tenure",` + tt.ipam + `}}`
		name := foreign.ReadDefinition("ns", "more-0", config, nil).PoolsThen[0]
		c := newCluster()
		size, since := int32(28), metav1.NewTime(c.now.Add(-time.Minute))
		p := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/24"}}, Domain: name}}
		p.Name, p.UID, p.Labels = name, "p1", map[string]string{v1alpha1.LabelImplicit: "true"}
		p.Status.BlockPrefixLengths, p.Status.FencedSince = &v1alpha1.BlockPrefixLengths{IPv4: &size}, &since
		c.pools, c.more = []v1alpha1.IPPool{p}, []string{config}
		if tt.other != "" {
			c.more = append(c.more, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"red","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":%q}}`, tt.other))
		}
		old := showing("old", "10.0.0.5")
		old.Annotations = map[string]string{npwg.AnnotationNetworks: "more-0", npwg.AnnotationStatus: `[{"name":"ns/more-0","interface":"net1","ips":["10.0.0.5"]}]`}
		c.pods = []*corev1.Pod{old}
		c.answer = func(q protocol.Query) protocol.Report {
			return protocol.Report{ID: q.ID, Running: []protocol.UID{"old"}, Has: []protocol.Sighting{{
				Addr: netip.MustParseAddr("10.0.0.5"), Pod: protocol.PodRef{Namespace: "ns", Name: "old", UID: "old"}, Sandbox: "box", Network: "more-0", IPAM: "whereabouts",
			}}}
		}
		c.look(t)
		v := c.Of(protocol.PoolName(name))
		if _, kept := c.asks[netip.MustParseAddr("10.0.0.5")]; kept == tt.waits || (v.Stage == foreign.StageOthers) != tt.waits {
			t.Errorf("pool %s of %s beside network_name %q: stage %v, asked to be kept: %v; want it to wait for others: %v", name, tt.ipam, tt.other, v.Stage, c.asks, tt.waits)
		}
	}
}
