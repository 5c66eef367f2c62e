package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// running makes a pod that runs on a node, of a definition in its namespace, and whose
// status shows these addresses, as Multus and another IPAM would have made it.
func running(t testing.TB, ns, name, node, definition string, addrs ...string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": definition}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if len(addrs) > 0 {
		status, err := json.Marshal([]map[string]any{
			{"name": "default", "interface": "eth0", "ips": []string{"10.0.0.1"}, "default": true},
			{"name": ns + "/" + definition, "interface": "net1", "ips": addrs},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations["k8s.v1.cni.cncf.io/network-status"] = string(status)
	}
	// Its namespace's service account is made meanwhile.
	eventually(t, 20*time.Second, func() error { return kc.Create(t.Context(), p) })
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
	if err := kc.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, p) })
	return p
}

// finish deletes a pod at once, as one whose node does not answer is.
func finish(t testing.TB, p *corev1.Pod) {
	t.Helper()
	if err := kc.Delete(context.Background(), p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// kept returns the addresses of a pool that are kept for pods of other IPAMs.
func kept(t testing.TB, pool string) (all []string) {
	t.Helper()
	leases, err := api.LeasesOfPool(context.Background(), protocol.PoolName(pool))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		for _, g := range l.Grants {
			if g.To.Kind == protocol.GranteePod {
				all = append(all, g.Addr.String()+" "+g.To.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestMovingIn: what a running pod has by another IPAM is given to nobody, from before the
// pool is open until the pod is gone (I1).
func TestMovingIn(t *testing.T) {
	start(t)
	t.Run("a pool is opened", func(t *testing.T) {
		ns, name := namespace(t), fleet.Unique("pool")
		definition(t, ns, "net", fleet.Unique("net"), ofPool(name))
		gone := running(t, ns, "old-a", "nowhere", "net", "10.77.0.2")
		running(t, ns, "old-b", "nowhere", "net", "10.77.0.3")
		p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: []v1alpha1.Range{{CIDR: "10.77.0.0/29"}}}}
		fleet.Create(t, kc, p)
		opened(t, p)
		if got, want := kept(t, name), []string{"10.77.0.2 old-a", "10.77.0.3 old-b"}; !slices.Equal(got, want) {
			t.Fatalf("the pool is open and keeps %q; want %q", got, want)
		}
		network := fleet.Unique("claims")
		definition(t, ns, "claims", network, ofPool(name))
		var given []string
		for i := range 4 {
			given = append(given, allocated(t, claim(t, ns, fmt.Sprintf("c%d", i), network))...)
		}
		slices.Sort(given)
		if want := []string{"10.77.0.1/29", "10.77.0.4/29", "10.77.0.5/29", "10.77.0.6/29"}; !slices.Equal(given, want) {
			t.Errorf("claims get %q; want %q", given, want)
		}
		failed(t, claim(t, ns, "c4", network), "SubnetExhausted")
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if c := p.Status.Counts; c == nil || c.Foreign != 2 {
				return fmt.Errorf("counts are %+v; want 2 foreign", c)
			}
			return condition(p.Status.Conditions, v1alpha1.PoolForeignAddresses, metav1.ConditionTrue, "OldPods", ": 2.")
		})
		// No node has the pod: its address is free, and whoever waits has it.
		finish(t, gone)
		eventually(t, 2*time.Minute, func() error {
			if got := kept(t, name); !slices.Equal(got, []string{"10.77.0.3 old-b"}) {
				return fmt.Errorf("still keeps %q", got)
			}
			return nil
		})
		if got := allocated(t, claimOf(ns, "c4", network)); !slices.Equal(got, []string{"10.77.0.2/29"}) {
			t.Errorf("who waited gets %q; want what came free", got)
		}
	})
	t.Run("definitions of another IPAM", func(t *testing.T) {
		ns := namespace(t)
		const theirs = `{"type":"whereabouts","range":"10.78.0.0/24","enable_l3":true}` // which Tenure refuses
		d := definition(t, ns, "theirs", fleet.Unique("net"), theirs)
		unread := definition(t, ns, "unread", fleet.Unique("net"), `{"type":"whereabouts","configuration_path":"/etc/ranges"}`)
		p := pool(t, "10.78.0.0/24")
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if err := condition(p.Status.Conditions, v1alpha1.PoolForeignIPAM, metav1.ConditionTrue, "OtherDefinitions", ns+"/theirs (whereabouts)", ns+"/unread (whereabouts, whose ranges cannot be read"); err != nil {
				return err
			}
			return condition(p.Status.Conditions, v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonForeignIPAM)
		})
		running(t, ns, "old", "nowhere", "theirs", "10.78.0.5")
		fleet.Edit(t, kc, d, func() {
			d.Spec.Config = strings.Replace(d.Spec.Config, theirs, ofPool(p.Name), 1)
		})
		remove(t, unread)
		opened(t, p)
		if got := kept(t, p.Name); !slices.Equal(got, []string{"10.78.0.5 old"}) {
			t.Errorf("keeps %q; want the old pod's", got)
		}
	})
	t.Run("an edit adds addresses", func(t *testing.T) {
		ns, name := namespace(t), fleet.Unique("pool")
		definition(t, ns, "net", fleet.Unique("net"), ofPool(name))
		p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: []v1alpha1.Range{{CIDR: "10.79.0.0/29", Exclude: []string{"10.79.0.5-10.79.0.6"}}}}}
		fleet.Create(t, kc, p)
		opened(t, p)
		running(t, ns, "old", "nowhere", "net", "10.79.0.5")
		// A node holds the block already, as for an address of it that was asked for by name.
		theirs := definition(t, ns, "theirs", fleet.Unique("net"), `{"type":"whereabouts","range":"10.79.0.0/29","range_start":"10.79.0.6","range_end":"10.79.0.6"}`)
		fleet.Edit(t, kc, p, func() { p.Spec.Ranges[0].Exclude = nil })
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if got := p.Status.Withheld; p.Status.ObservedGeneration != p.Generation || !slices.Equal(got, []string{"10.79.0.6-10.79.0.6"}) {
				return fmt.Errorf("withholds %q; want what another IPAM may give, and no more", got)
			}
			return condition(p.Status.Conditions, v1alpha1.PoolWithheld, metav1.ConditionTrue, "NotLookedAt", "10.79.0.6")
		})
		if got := kept(t, name); !slices.Equal(got, []string{"10.79.0.5 old"}) {
			t.Errorf("keeps %q; want the old pod's", got)
		}
		remove(t, theirs)
		eventually(t, 20*time.Second, func() error {
			if _, err := read(p); err != nil {
				return err
			}
			if len(p.Status.Withheld) > 0 || p.Status.Leasing != v1alpha1.LeasingOpen {
				return fmt.Errorf("withholds %q, leasing is %s", p.Status.Withheld, p.Status.Leasing)
			}
			return nil
		})
	})
}

// TestWhereaboutsIsFenced: whereabouts gives nothing new of what a pool has taken over, and
// goes on taking back.
func TestWhereaboutsIsFenced(t *testing.T) {
	fleet.Whereabouts(t, kc)
	ns := namespace(t)
	object := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool"}}
		o.SetNamespace(ns)
		o.SetName("10.80.0.0-24")
		return o
	}
	o := object()
	o.Object["spec"] = map[string]any{"range": "10.80.0.0/24", "allocations": map[string]any{"5": map[string]any{"id": "c", "podref": ns + "/old", "ifname": "net1"}}}
	eventually(t, 20*time.Second, func() error { return kc.Create(t.Context(), o.DeepCopy()) })
	start(t)
	name := fleet.Unique("pool")
	definition(t, ns, "net", fleet.Unique("net"), ofPool(name))
	running(t, ns, "old", "nowhere", "net") // its status is yet to come
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: []v1alpha1.Range{{CIDR: "10.80.0.0/24"}}}}
	fleet.Create(t, kc, p)
	eventually(t, 20*time.Second, func() error {
		if got := kept(t, name); !slices.Equal(got, []string{"10.80.0.5 old"}) {
			return fmt.Errorf("keeps %q; want what whereabouts has recorded", got)
		}
		return nil
	})
	allocate := func(offsets ...string) error {
		o, err := read(object())
		if err != nil {
			return err
		}
		all := map[string]any{}
		for _, n := range offsets {
			all[n] = map[string]any{"id": "c", "podref": ns + "/old", "ifname": "net1"}
		}
		o.Object["spec"].(map[string]any)["allocations"] = all
		return kc.Update(t.Context(), o)
	}
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		if !slices.Contains(p.Status.Fenced, "10.80.0.0-24") {
			return fmt.Errorf("fenced is %q", p.Status.Fenced)
		}
		return nil
	})
	next := 5
	eventually(t, 20*time.Second, func() error { // the API server has to hear of it
		next++ // another one each time: what an allocation has got it may keep
		if err := allocate("5", strconv.Itoa(next)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubectl tenure import") {
			return fmt.Errorf("a new allocation: %v; want it refused, and what to do", err)
		}
		return nil
	})
	o.Object["spec"].(map[string]any)["allocations"] = map[string]any{"5": map[string]any{"id": "another", "podref": ns + "/old", "ifname": "net1"}}
	o.SetResourceVersion("")
	if err := kc.Patch(t.Context(), o, client.Merge); !apierrors.IsForbidden(err) {
		t.Errorf("an allocation for another sandbox: %v; want it refused: the pod may be another one of that name", err)
	}
	if err := allocate(); err != nil {
		t.Errorf("taking back: %v", err)
	}
	// Of a reservation the name says which address it is.
	for name, refused := range map[string]bool{
		"10.80.0.7": true, "10.80.1.7": false, "vlan20-10.80.0.7": false, name + "-10.80.0.7": true, name + "-10.80.1.7": false, "fd00--7": false, "no-address": false,
	} {
		r := kube.NewWhereaboutsReservation(ns, name)
		r.Object["spec"] = map[string]any{"podref": ns + "/new", "ifname": "net1"}
		if err := kc.Create(t.Context(), r); apierrors.IsForbidden(err) != refused || !refused && err != nil {
			t.Errorf("reservation %s: %v; want it refused: %v", name, err, refused)
		}
	}
	// The pod was bound before, and has neither a status nor an end: the pool waits.
	eventually(t, 20*time.Second, func() error {
		if _, err := read(p); err != nil {
			return err
		}
		return condition(p.Status.Conditions, v1alpha1.PoolReady, metav1.ConditionFalse, v1alpha1.ReasonForeignLook, ns+"/old")
	})
	finish(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "old"}})
	opened(t, p)
}

// TestReservation: an address that is reserved is nobody else's; one that somebody has is
// kept when it comes free.
func TestReservation(t *testing.T) {
	start(t)
	p := pool(t, "10.81.0.0/29")
	opened(t, p)
	ns, network := namespace(t), fleet.Unique("net")
	definition(t, ns, "net", network, ofPool(p.Name))
	reserve := func(addr string, until *metav1.Time) *v1alpha1.IPReservation {
		r := &v1alpha1.IPReservation{
			ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("res")}, Spec: v1alpha1.IPReservationSpec{Pool: p.Name, Address: addr, For: "a printer", Until: until},
		}
		fleet.Create(t, kc, r)
		return r
	}
	says := func(r *v1alpha1.IPReservation, status metav1.ConditionStatus, reason string, words ...string) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			if _, err := read(r); err != nil {
				return err
			}
			return condition(r.Status.Conditions, v1alpha1.Reserved, status, reason, words...)
		})
	}
	first := reserve("10.81.0.1", nil)
	says(first, metav1.ConditionTrue, v1alpha1.ReasonKept, "a printer")
	says(reserve("10.81.0.0", nil), metav1.ConditionFalse, v1alpha1.ReasonNotAssignable)
	c := claim(t, ns, "c", network)
	has := allocated(t, c)
	addr := netip.MustParsePrefix(has[0]).Addr()
	if addr.String() == "10.81.0.1" {
		t.Fatalf("a claim gets %v, which is reserved", addr)
	}
	second := reserve(addr.String(), nil)
	says(second, metav1.ConditionFalse, v1alpha1.ReasonInUse, "claim "+ns+"/c")
	remove(t, c)
	says(second, metav1.ConditionTrue, v1alpha1.ReasonKept)
	uid := uidOf(first)
	remove(t, first)
	freed(t, uid, 20*time.Second)
	other := "10.81.0.6"
	if addr.String() == other { // that is the second's
		other = "10.81.0.5"
	}
	short := reserve(other, new(metav1.NewTime(time.Now().Add(time.Hour))))
	says(short, metav1.ConditionTrue, v1alpha1.ReasonKept)
	soon := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"until":%q}}`, time.Now().Add(time.Second).UTC().Format(time.RFC3339)))
	if err := kc.Patch(t.Context(), short, soon); err != nil {
		t.Fatal(err)
	}
	says(short, metav1.ConditionFalse, v1alpha1.ReasonExpired)
	freed(t, uidOf(short), 20*time.Second)
}

// TestNewDefinitionsWaitForNoPod: a pod that is made with its definitions, which have always been
// Tenure's, does not keep their pool closed: no other IPAM's ADD can be under way.
func TestNewDefinitionsWaitForNoPod(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	start(t, func(c *controller.Config) { c.Now = now })
	opened(t, pool(t, "10.87.0.0/24")) // the controller watches definitions by now
	ahead.Add(int64(7 * time.Second))  // of pods that are bound so soon after that, clocks do not tell
	ns, name := namespace(t), fleet.Unique("pool")
	for _, network := range []string{"first", "second"} {
		definition(t, ns, network, fleet.Unique("net"), ofPool(name))
	}
	waits := running(t, ns, "waits", "nowhere", "first,second")
	waits.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now())
	if err := kc.Status().Update(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name, Ranges: []v1alpha1.Range{{CIDR: "10.88.0.0/24"}}}}
	fleet.Create(t, kc, p)
	opened(t, p)
}
