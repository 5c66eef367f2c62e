package looker

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
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

// TestSecondPoolOfOneRange (I1): a definition of host-local's had its one word changed, and gets a
// second pool of the addresses of pool-1. That is not opened, and names pool-1. The nodes are asked
// for its definition's files before pool-1 gives what an edit has added, and what its pods have is
// kept of pool-1.
func TestSecondPoolOfOneRange(t *testing.T) {
	c := newCluster()
	first, second := lan(), lan()
	first.Name, first.Spec.Domain, first.Status.Fenced = "pool-1", "vlan10", nil
	second.Name, second.UID, second.Spec.Domain, second.Labels = "second", "p2", "second", map[string]string{v1alpha1.LabelImplicit: "true"}
	second.Status.Withheld, second.Status.Leasing, second.Status.Opening = nil, v1alpha1.LeasingClosed, ""
	c.pools = []v1alpha1.IPPool{second, first}
	c.more = []string{`{"cniVersion":"1.0.0","name":"second","type":"macvlan","ipam":{"type":"tenure","subnet":"10.0.0.0/16","dataDir":"/var/lib/cni/second"}}`}
	old := showing("old", "10.0.1.5")
	old.Annotations = map[string]string{npwg.AnnotationNetworks: "more-0", npwg.AnnotationStatus: `[{"name":"ns/more-0","interface":"net1","ips":["10.0.1.5"]}]`}
	c.pods = []*corev1.Pod{old}
	c.answer = func(q protocol.Query) protocol.Report {
		return protocol.Report{ID: q.ID, Running: []protocol.UID{"old"}, Has: []protocol.Sighting{{
			Addr: netip.MustParseAddr("10.0.1.5"), Pod: protocol.PodRef{Namespace: "ns", Name: "old", UID: "old"}, Sandbox: "box", Network: "second", IPAM: "host-local",
		}}}
	}
	var of []protocol.PoolName
	c.gives = func(a grants.Ask) grants.Answer { of = append(of, a.From[0].Pool); return grants.Answer{} }
	c.look(t)
	if !slices.ContainsFunc(c.asked, func(q protocol.Query) bool {
		return slices.Contains(q.HostLocal, protocol.HostLocal{Network: "second", DataDir: "/var/lib/cni/second"})
	}) {
		t.Errorf("the nodes are asked %+v; want the files of the second pool's network", c.asked)
	}
	if !slices.Contains(of, "pool-1") {
		t.Errorf("it is kept of pools %v; want pool-1 among them", of)
	}
	if v := c.Of("second"); v.Stage != foreign.StageOthers || len(v.Yields()) != 1 || v.Beside[0].Pool != "pool-1" {
		t.Errorf("second: %+v; want it to wait for pool-1", v)
	}
	if v := c.Of("pool-1"); len(v.Yields()) > 0 || len(v.Beside) != 1 || v.Beside[0].Definition != "ns/more-0" || v.Beside[0].Pool != "second" {
		t.Errorf("pool-1: %+v; want it to name second, and not to wait", v)
	}
}
