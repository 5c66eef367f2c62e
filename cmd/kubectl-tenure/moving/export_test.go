package moving

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestRecorderKnowsAllPods: whereabouts' record of a pod that runs is left alone, also
// where the pod selects no network: its default network may be whereabouts'.
func TestRecorderKnowsAllPods(t *testing.T) {
	e := exporting{moving: moving{Session: &session.Session{}}, state: foreignState{pods: []foreign.Pod{aPod("a", "ns/lan")}, idle: map[string]bool{"ns/b": true}}}
	if w := e.recorder(); !w.running["ns/a"] || !w.running["ns/b"] || w.running["ns/c"] {
		t.Errorf("pods that run: %v; want ns/a and ns/b", w.running)
	}
}

// TestStatusWithCIDRs: whereabouts' reconciler takes a record away whose address it does not find
// in the pod's status, as that very text. Where the status has CIDRs, nothing is exported.
func TestStatusWithCIDRs(t *testing.T) {
	with := aPod("with", "ns/lan", "10.0.0.5")
	with.Shows[0].CIDRs = true
	seen := foreignState{whereabouts: true, pods: []foreign.Pod{aPod("without", "ns/lan", "10.0.0.6"), with}}
	report := moveReport{Segments: []moveSegment{{Switch: []string{"ns/lan"}}, {Switch: []string{"ns/other"}}}}
	obstruct(&report, seen)
	if why := report.Segments[0].InTheWay; len(why) != 1 || !strings.Contains(why[0], "(statusIPs: CIDR): ns/with. ") || !strings.Contains(why[0], "Set statusIPs to Address") {
		t.Errorf("in the way of lan: %v", why)
	}
	if why := report.Segments[1].InTheWay; len(why) > 0 {
		t.Errorf("in the way of another network: %v", why)
	}
}

// TestDevicesAreNotRecorded: whereabouts' reconciler takes a record away whose address it does not
// find in the pod's status, where no device of a ResourceClaim is.
func TestDevicesAreNotRecorded(t *testing.T) {
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "10.0.0.0/30"}}})
	if err != nil {
		t.Fatal(err)
	}
	var l v1alpha1.IPLease
	l.Spec.Block, l.Spec.Holder.Node = "10.0.0.0/31", "n1"
	l.Status.Allocations = []string{"10.0.0.1 ns/p eth1 resourceclaim/nic"}
	o := registrants{}
	o.lease(&l, shape)
	device := []string{"10.0.0.1 of ResourceClaim ns/nic, pod p"}
	if len(o.pods) > 0 || len(o.unsettled) > 0 || !slices.Equal(o.devices, device) {
		t.Errorf("it records %v, waits for %q, and refuses %q; want that it refuses %q", o.pods, o.unsettled, o.devices, device)
	}
	report := moveReport{Segments: []moveSegment{{Pools: []string{"lan"}}, {Pools: []string{"other"}}}}
	obstruct(&report, foreignState{whereabouts: true, pools: map[string]poolSeen{"lan": {devices: device}, "other": {}}})
	if why := report.Segments[0].InTheWay; len(why) != 1 || !strings.Contains(why[0], "devices have addresses by ResourceClaims: 10.0.0.1 of ResourceClaim ns/nic, pod p. ") {
		t.Errorf("in the way of lan: %v", why)
	}
	if why := report.Segments[1].InTheWay; len(why) > 0 {
		t.Errorf("in the way of another pool: %v", why)
	}
}

// TestWhatAStatusDoesNotShow: whereabouts keeps the record of an address that the status of a pod
// shows as that very text, of another network than the default one. A pod that is gone shows
// nothing, and its sandbox may still run.
func TestWhatAStatusDoesNotShow(t *testing.T) {
	const gone = " [10.0.0.7 of pod ns/forced]"
	for status, want := range map[string]string{
		`[{"name":"cbr0","ips":["10.9.0.9"],"default":true},{"name":"ns/lan","interface":"net1","ips":["10.0.0.4","10.0.0.5"]}]`: "[]" + gone + " []",
		`[{"name":"ns/lan","interface":"eth0","ips":["10.0.0.5"],"default":true}]`:                                               "[]" + gone + " [ns/p]",
		`[{"name":"ns/lan","interface":"eth0","ips":["10.0.0.5/24"],"default":true}]`:                                            "[]" + gone + " [ns/p]",
		`[{"name":"ns/lan","interface":"net1","ips":["10.0.0.5/24"]}]`:                                                           "[10.0.0.5 of pod ns/p]" + gone + " []",
		`[{"name":"ns/lan","interface":"net1","ips":["10.0.0.6"]}]`:                                                              "[10.0.0.5 of pod ns/p]" + gone + " []",
		``: "[10.0.0.5 of pod ns/p]" + gone + " []",
	} {
		s := foreignState{shown: map[string][]string{}, byDefault: map[string][]string{}}
		s.shown["ns/p"], s.byDefault["ns/p"] = shownBy(status)
		hidden, left, byDefault := s.unseen([]registrant{{netip.MustParseAddr("10.0.0.5"), "ns", "p", "net1"}, {netip.MustParseAddr("10.0.0.7"), "ns", "forced", "net1"}})
		if got := fmt.Sprint(hidden, left, byDefault); got != want {
			t.Errorf("status %s: whereabouts does not find, waits for, and never finds %s; want %s", status, got, want)
		}
	}
}

// TestDefaultNetworkOfTheCluster: pods have it without selecting it, and their status shows it as
// the default one. That is in the way, and nothing that is waited for.
func TestDefaultNetworkOfTheCluster(t *testing.T) {
	report := moveReport{Segments: []moveSegment{{Pools: []string{"lan"}}, {Pools: []string{"other"}}}}
	obstruct(&report, foreignState{whereabouts: true, pools: map[string]poolSeen{"lan": {byDefault: []string{"ns/b", "ns/a", "ns/b"}}, "other": {}}})
	if why := report.Segments[0].InTheWay; len(why) != 1 || !strings.HasPrefix(why[0], "it is the default network of pods: ns/a, ns/b. ") {
		t.Errorf("in the way of lan: %v", why)
	}
	if why := report.Segments[1].InTheWay; len(why) > 0 {
		t.Errorf("in the way of another network: %v", why)
	}
}

// TestDefaultNetworksStayWithTenure: whereabouts' reconciler looks for no address of a default
// network, and would take its record away.
func TestDefaultNetworksStayWithTenure(t *testing.T) {
	o := &corev1.Pod{}
	o.Namespace, o.Name = "ns", "own"
	o.Annotations = map[string]string{
		npwg.AnnotationDefaultNetwork: "ns/lan", npwg.AnnotationStatus: `[{"name":"ns/lan","interface":"eth0","ips":["10.0.0.5"],"default":true}]`,
	}
	seen := foreignState{whereabouts: true, pods: []foreign.Pod{foreign.ReadPod(o), aPod("other", "ns/lan", "10.0.0.6")}}
	report := moveReport{Segments: []moveSegment{{Switch: []string{"ns/lan"}}}}
	obstruct(&report, seen)
	if why := report.Segments[0].InTheWay; len(why) != 1 || !strings.HasPrefix(why[0], "it is the default network of pods: ns/own. ") {
		t.Errorf("in the way of lan: %v", why)
	}
}

// TestRacksStayWithTenure: whereabouts has no ranges for some nodes alone, nor a subnet for each
// node, and a pool that has them is not exported.
func TestRacksStayWithTenure(t *testing.T) {
	seen := foreignState{whereabouts: true, pools: map[string]poolSeen{"racks": {selective: true}, "rail": {perNode: true}, "lan": {}}}
	report := moveReport{Segments: []moveSegment{{Pools: []string{"lan"}}, {Pools: []string{"racks"}}, {Pools: []string{"rail"}}}}
	obstruct(&report, seen)
	if why := report.Segments[0].InTheWay; len(why) > 0 {
		t.Errorf("in the way of lan: %v", why)
	}
	if why := report.Segments[1].InTheWay; len(why) != 1 || !strings.Contains(why[0], "pool racks has ranges for some nodes alone (nodeSelector)") {
		t.Errorf("in the way of racks: %v", why)
	}
	if why := report.Segments[2].InTheWay; len(why) != 1 || !strings.Contains(why[0], "pool rail gives each node a subnet of its own (spec.perNode)") {
		t.Errorf("in the way of rail: %v", why)
	}
}

// TestLooksAgainBeforeItSwitches: what a pod gets while the others' addresses are recorded is
// recorded, too, before any definition is switched.
func TestLooksAgainBeforeItSwitches(t *testing.T) {
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.IPPool{}
	pool.Name, pool.Spec.Ranges, pool.Spec.Allocation = "lan", []v1alpha1.Range{{CIDR: "10.0.0.0/24"}}, v1alpha1.AllocationStopped
	lease := &v1alpha1.IPLease{}
	lease.Name, lease.Spec.Pool, lease.Spec.Block, lease.Spec.Holder.Node = "lan-0", "lan", "10.0.0.0/28", "n1"
	for i := range 16 {
		if a := fmt.Sprintf("10.0.0.%d", i); i != 5 && i != 6 {
			lease.Spec.Ceded = append(lease.Spec.Ceded, a)
		}
	}
	lease.Status.Allocations = []string{"10.0.0.5 ns/old net1"}
	objects := []client.Object{pool, lease}
	for name, addr := range map[string]string{"old": "10.0.0.5", "late": "10.0.0.6"} {
		objects = append(objects, runningPod(name, addr))
	}
	lease.Spec.Ceded = append(lease.Spec.Ceded, "10.0.0.6")
	recorded := 0
	kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			return c.List(ctx, list) //nolint:wrapcheck // there is one pool, and every pod runs
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if recorded++; recorded == 1 { // an ADD that was under way
				lease.Spec.Ceded = slices.DeleteFunc(lease.Spec.Ceded, func(a string) bool { return a == "10.0.0.6" })
				lease.Status.Allocations = append(lease.Status.Allocations, "10.0.0.6 ns/late net1")
				if err := c.Update(ctx, lease); err != nil {
					return err //nolint:wrapcheck // the test shows it
				}
			}
			return c.Create(ctx, o, opts...) //nolint:wrapcheck // as the API server answers
		},
	}).Build()
	synctest.Test(t, func(t *testing.T) {
		d := foreign.Definition{Namespace: "ns", Name: "lan", Whereabouts: []foreign.Object{{Name: "10.0.0.0-24", Range: netip.MustParsePrefix("10.0.0.0/24")}}}
		e := exporting{moving: moving{Session: &session.Session{Client: kc, Stderr: io.Discard}, timeout: time.Minute}, state: foreignState{definitions: []foreign.Definition{d}}}
		has, err := e.recordAll(t.Context(), []string{"lan"}, []string{"ns/lan"})
		if err != nil {
			t.Fatal(err)
		}
		o := kube.NewWhereaboutsPool("kube-system", "10.0.0.0-24")
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(o.Object["spec"]); len(has.pods) != 2 || !strings.Contains(text, "ns/old") || !strings.Contains(text, "ns/late") {
			t.Errorf("pods have %v, and whereabouts knows %s; want both pods", has.pods, text)
		}
	})
}

// runningPod is a pod whose status shows an address of definition ns/lan.
func runningPod(name, addr string) *corev1.Pod {
	o := &corev1.Pod{}
	o.Namespace, o.Name = "ns", name
	o.Annotations = map[string]string{npwg.AnnotationNetworks: "lan", npwg.AnnotationStatus: fmt.Sprintf(`[{"name":"ns/lan","interface":"net1","ips":[%q]}]`, addr)}
	return o
}
