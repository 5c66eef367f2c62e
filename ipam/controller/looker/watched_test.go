package looker

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestSwitchedBesideAnOpenPool (I1): a definition of host-local's comes to an open pool, and is
// switched to it a while later. What pods have got by host-local until then, and show after it, is
// kept for them: the pool withholds nothing meanwhile.
func TestSwitchedBesideAnOpenPool(t *testing.T) {
	for _, found := range []bool{true, false} { // something, before the switch
		c := newCluster()
		p := lan()
		p.Status.Withheld, p.Status.Opening, p.Status.FencedSince = nil, "1", new(metav1.NewTime(c.now.Add(-time.Hour)))
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now.Add(-time.Hour + time.Second))}}
		c.pools = []v1alpha1.IPPool{p}
		var report protocol.Report
		c.answer = func(q protocol.Query) protocol.Report { report.ID = q.ID; return report }
		add := func(name, addr string) {
			pod := showing(name, addr)
			pod.Annotations[npwg.AnnotationNetworks] = "more-0"
			pod.Annotations[npwg.AnnotationStatus] = `[{"name":"ns/more-0","interface":"net1","ips":["` + addr + `"]}]`
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now)}}
			c.pods, report.Running = append(c.pods, pod), append(report.Running, protocol.UID(name))
			report.Has = append(report.Has, protocol.Sighting{Addr: netip.MustParseAddr(addr), Pod: protocol.PodRef{Namespace: "ns", Name: name, UID: protocol.UID(name)}, Sandbox: "box-" + name, Network: "more-0", IPAM: "host-local"})
		}
		c.more = []string{`{"name":"more-0","type":"macvlan","ipam":{"type":"host-local","subnet":"10.0.0.0/16"}}`}
		if found {
			add("a", "10.0.0.5")
			c.kept = append(c.kept, keptFor("a", "10.0.0.5"))
		}
		if v := c.look(t); len(v.Others) != 1 {
			t.Fatalf("beside host-local: others %v", v.Others)
		}
		add("b", "10.0.0.6")
		c.now = c.now.Add(5 * time.Second)
		c.more = []string{`{"name":"more-0","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`}
		c.pools[0].Status.FencedSince = new(metav1.NewTime(c.now)) // as the reconciler writes it
		c.now = c.now.Add(30 * time.Second)
		c.look(t)
		if a := c.asks[netip.MustParseAddr("10.0.0.6")]; a.To.UID != "b" {
			t.Errorf("found something before: %v: it asks for %v; want 10.0.0.6 for pod b", found, c.asks)
		}
		asked := len(c.asked)
		c.kept, c.asking, c.pods = nil, nil, nil
		c.now = c.now.Add(15 * time.Minute)
		if c.look(t); len(c.asked) > asked {
			t.Errorf("found something before: %v: it asks nodes still, a quarter of an hour later", found)
		}
	}
}

// TestFencesWhatWasSwitchedBesideAnOpenPool: from the switch on whereabouts gives nothing new of
// the pool's addresses, whether or not the pool had a fence before.
func TestFencesWhatWasSwitchedBesideAnOpenPool(t *testing.T) {
	c := newCluster()
	p := lan()
	p.Status.Withheld, p.Status.Opening, p.Status.FencedSince = nil, "1", new(metav1.NewTime(c.now.Add(-time.Hour)))
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now.Add(-time.Hour + time.Second))}}
	c.pools, c.record = []v1alpha1.IPPool{p}, map[string]any{"range": "10.0.0.0/16"}
	c.answer = func(q protocol.Query) protocol.Report { return protocol.Report{ID: q.ID} }
	c.more = []string{`{"name":"more-0","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16"}}`}
	if v := c.look(t); len(v.Others) != 1 || len(v.Fence) > 0 {
		t.Errorf("beside whereabouts: others %v, fence %q; want no fence", v.Others, v.Fence)
	}
	c.more = []string{`{"name":"more-0","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`}
	c.pools[0].Status.FencedSince = new(metav1.NewTime(c.now)) // as the reconciler writes it
	c.now = c.now.Add(30 * time.Second)
	fence := c.look(t).Fence
	if !slices.Contains(fence, "z") || !slices.ContainsFunc(fence, isRange) {
		t.Errorf("after the switch: fence %q; want the IPPool z, and ranges", fence)
	}
	c.pools[0].Status.Fenced = append(slices.Clone(fence), "zz")
	c.now = c.now.Add(30 * time.Second)
	if v := c.look(t); !slices.Equal(v.Fence, c.pools[0].Status.Fenced) {
		t.Errorf("later: fence %q; want %q", v.Fence, c.pools[0].Status.Fenced)
	}
}
