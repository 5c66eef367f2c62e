package looker

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// openLan is the pool lan, which was opened an hour ago, and withholds nothing.
func openLan(now time.Time) v1alpha1.IPPool {
	p, opened := lan(), now.Add(-time.Hour)
	p.Status.Withheld, p.Status.Opening, p.Status.FencedSince = nil, "1", new(metav1.NewTime(opened))
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(opened.Add(time.Second))}}
	return p
}

// TestSwitchedBesideAnOpenPool (I1): a definition of host-local's comes to an open pool, and is
// switched to it a while later. What pods have got by host-local until then, and show after it, is
// kept for them: the pool withholds nothing meanwhile.
func TestSwitchedBesideAnOpenPool(t *testing.T) {
	for _, how := range []string{"selects it", "and something was found before", "has it by default", "deleted by force"} {
		c := newCluster()
		c.pools = []v1alpha1.IPPool{openLan(c.now)}
		var report protocol.Report
		c.answer = func(q protocol.Query) protocol.Report { report.ID = q.ID; return report }
		add := func(name, addr string) {
			pod := showing(name, addr)
			pod.Annotations[npwg.AnnotationNetworks] = "more-0"
			pod.Annotations[npwg.AnnotationStatus] = `[{"name":"ns/more-0","interface":"net1","ips":["` + addr + `"]}]`
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now)}}
			switch how {
			case "has it by default":
				delete(pod.Annotations, npwg.AnnotationNetworks)
				c.pods = append(c.pods, pod)
			case "deleted by force":
			default:
				c.pods = append(c.pods, pod)
			}
			report.Running = append(report.Running, protocol.UID(name))
			report.Has = append(report.Has, protocol.Sighting{Addr: netip.MustParseAddr(addr), Pod: protocol.PodRef{Namespace: "ns", Name: name, UID: protocol.UID(name)}, Sandbox: "box-" + name, Network: "more-0", IPAM: "host-local"})
		}
		c.more = []string{`{"name":"more-0","type":"macvlan","ipam":{"type":"host-local","subnet":"10.0.0.0/16"}}`}
		if how == "and something was found before" {
			add("a", "10.0.0.5")
			c.kept = append(c.kept, keptFor("a", "10.0.0.5"))
		}
		if v := c.look(t); len(v.Others) != 1 {
			t.Fatalf("beside host-local: others %v", v.Others)
		}
		add("b", "10.0.0.6")
		c.now = c.now.Add(5 * time.Second)
		c.more = []string{`{"name":"more-0","type":"macvlan","ipam":{"type":"tenure","pool":"lan","subnet":"10.0.0.0/16"}}`}
		c.pools[0].Status.FencedSince = new(metav1.NewTime(c.now)) // as the reconciler writes it
		c.now = c.now.Add(30 * time.Second)
		c.look(t)
		if a := c.asks[netip.MustParseAddr("10.0.0.6")]; a.To.UID != "b" {
			t.Errorf("the pod %s: it asks for %v; want 10.0.0.6 for pod b", how, c.asks)
		}
		asked := len(c.asked)
		c.kept, c.asking, c.pods = nil, nil, nil
		c.now = c.now.Add(15 * time.Minute)
		if c.look(t); len(c.asked) > asked {
			t.Errorf("the pod %s: nodes are asked still, a quarter of an hour later", how)
		}
	}
}

// TestFencesWhatWasSwitchedBesideAnOpenPool: from the switch on whereabouts gives nothing new by
// what the definition was, whether or not the pool had a fence before. Where the definition goes on
// beside the pool, nothing is fenced that the pool had not.
func TestFencesWhatWasSwitchedBesideAnOpenPool(t *testing.T) {
	const theirs = `{"name":"more-0","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16"}}`
	const tenures = `{"name":"more-0","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`
	for is, switched := range map[string]bool{tenures: true, theirs: false} {
		c := newCluster()
		c.pools, c.more = []v1alpha1.IPPool{openLan(c.now)}, []string{theirs}
		c.record, c.object = map[string]any{"range": "10.0.0.0/16"}, "10.0.0.0-16"
		c.answer = func(q protocol.Query) protocol.Report { return protocol.Report{ID: q.ID} }
		if v := c.look(t); len(v.Others) != 1 || len(v.Fence) > 0 {
			t.Errorf("beside whereabouts: others %v, fence %q; want no fence", v.Others, v.Fence)
		}
		if switched {
			was, now := definition("more-0", theirs), definition("more-0", is)
			c.names = newNames(c.now)
			c.names.edited(&was, &now, c.now)
		} else {
			c.pools[0].Spec.ShareWith = []string{"ns/more-0"}
		}
		c.more = []string{is}
		c.pools[0].Status.FencedSince = new(metav1.NewTime(c.now)) // as the reconciler writes it
		c.now = c.now.Add(30 * time.Second)
		fence := c.look(t).Fence
		if slices.Contains(fence, c.object) != switched || slices.ContainsFunc(fence, isRange) != switched {
			t.Errorf("%s: fence %q; want the IPPool, and ranges: %v", is, fence, switched)
		}
		c.pools[0].Status.Fenced = append(slices.Clone(fence), "zz")
		c.now = c.now.Add(30 * time.Second)
		if v := c.look(t); !slices.Equal(v.Fence, c.pools[0].Status.Fenced) {
			t.Errorf("%s: later: fence %q; want %q", is, v.Fence, c.pools[0].Status.Fenced)
		}
	}
}

// definition returns the object of a definition in namespace ns.
func definition(name, config string) nad.NetworkAttachmentDefinition {
	d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	d.Spec.Config = config
	return d
}
