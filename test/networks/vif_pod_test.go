package networks_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/claims/vifs"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestOff (K1): without the flag nothing is made of definitions and pods, and what was made of
// definitions goes. With it again, all is as it was.
func TestOff(t *testing.T) {
	d := lan(t)
	first := pod(t, d.Name)
	before := mapped(t, first, "net1")
	restart(t, func(c *controller.Config) { c.VIFs = false })
	fleet.Gone(t, kc, made(d), within)
	p := pod(t, d.Name)
	other := lan(t)
	time.Sleep(2 * time.Second) // something that should not come
	none(t, p)
	fleet.Gone(t, kc, made(other), within)
	if err := start(context.Background()); err != nil {
		t.Fatal(err)
	}
	mapped(t, p, "net1")
	if after := mapped(t, first, "net1"); after.String() != before.String() {
		t.Errorf("the first pod's map was %v, and is %v", before, after)
	}
}

// TestOlderFormat (K7): the annotation of pods that Kuryr had before has no effect.
func TestOlderFormat(t *testing.T) {
	d := lan(t)
	older := selecting("")
	older.Annotations["openstack.org/kuryr-additional-subnets"] = "11111111-1111-1111-1111-111111111111"
	fleet.Create(t, kc, older)
	mapped(t, pod(t, d.Name), "net1") // one that was made later has been looked at
	none(t, older)
}

// TestFormats (K2, K5): a pod selects definitions in either format, and beside networks that have
// a configuration; an interface without a name has one by its place.
func TestFormats(t *testing.T) {
	a, b := lan(t), lan(t)
	for name, tt := range map[string]struct {
		list string
		want []string
	}{
		"K2 a name":               {a.Name, []string{"net1"}},
		"K2 names, with spaces":   {fmt.Sprintf(" %s , %s/%s@blue ", a.Name, team, b.Name), []string{"blue", "net1"}},
		"K2 JSON":                 {fmt.Sprintf(`[{"name": %q}, {"name": %q, "interface": "Blue"}]`, a.Name, b.Name), []string{"Blue", "net1"}},
		"K2 one twice":            {fmt.Sprintf("%[1]s,%[1]s", a.Name), []string{"net1", "net2"}},
		"K5 behind another's":     {fmt.Sprintf("nowhere,%s", a.Name), []string{"net2"}},
		"K2 none of these at all": {"nowhere", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(t, tt.list)
			if tt.want == nil {
				time.Sleep(300 * time.Millisecond) // something that should not come
				none(t, p)
				return
			}
			mapped(t, p, tt.want...)
			if n := len(claimsOf(t, p)); n != len(tt.want) {
				t.Errorf("it has %d claims; want %d", n, len(tt.want))
			}
		})
	}
}

// TestMap (K5): the map has what a node, or a program that asks nobody else, has to know; and the
// claim is the pod's, and goes with it, and its address with the claim.
func TestMap(t *testing.T) {
	name := newPool(t, "10.0.0.0/24", "fd00::/64")
	d := definition(t, team, vif.AnnotationNetwork, inline(name))
	p := pod(t, fmt.Sprintf(`[{"name": %q, "ips": ["10.0.0.77/24", "fd00::77"], "mac": "02:00:00:00:00:07"}, {"name": %[1]q}]`, d.Name))
	m := mapped(t, p, "net1", "net2")
	byName := map[string]ipamclaims.IPAMClaim{}
	for _, c := range claimsOf(t, p) {
		byName[c.Spec.Interface] = c
		if len(c.OwnerReferences) != 1 || c.OwnerReferences[0].UID != p.UID || c.Spec.Network != made(d).Name ||
			c.Name != vif.ClaimName(p.Name, string(p.UID), c.Spec.Interface) {
			t.Errorf("claim %s is of network %s, owned by %+v", c.Name, c.Spec.Network, c.OwnerReferences)
		}
	}
	for ifName, mac := range map[string]string{"net1": "02:00:00:00:00:07", "net2": vif.MACOf(string(byName["net2"].UID))} {
		c := byName[ifName]
		want := vif.VIF{
			Network: team + "/" + d.Name, PodUID: string(p.UID), Claim: c.Name, ClaimUID: string(c.UID), Addresses: c.Status.IPs,
			Gateways: []string{"10.0.0.1", "fd00::1"}, MAC: mac, MTU: 1400,
		}
		if got := m[ifName]; fmt.Sprint(got) != fmt.Sprint(want) || len(got.Addresses) != 2 {
			t.Errorf("%s is %+v; want %+v", ifName, got, want)
		}
	}
	if got := m["net1"].Addresses; !slices.Equal(got, []string{"10.0.0.77/24", "fd00::77/64"}) {
		t.Errorf("net1 has %q; want what it asks for", got)
	}
	fleet.Delete(t, kc, p)
	for _, c := range byName {
		fleet.Gone(t, kc, &c, within)
	}
	fleet.Eventually(t, within, func() error {
		var leases v1alpha1.IPLeaseList
		if err := kc.List(t.Context(), &leases); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if l.Spec.Pool == name && len(l.Spec.Grants) > 0 {
				return fmt.Errorf("lease %s still grants %v", l.Name, l.Spec.Grants)
			}
		}
		return nil
	})
}

// TestNobodyElseWrites (K5): the map is the controller's to write: nobody makes a pod with one, and
// nobody changes it, not by a binding either. What else is on a pod anybody may change.
func TestNobodyElseWrites(t *testing.T) {
	d := lan(t)
	p := pod(t, d.Name)
	mapped(t, p, "net1")
	forged := selecting(d.Name)
	forged.Annotations[vif.AnnotationMap] = "{}"
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: pod(t, "nowhere").Name, Annotations: map[string]string{vif.AnnotationMap: "{}"}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "a"},
	}
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: binding.Name}}
	for what, try := range map[string]func() error{
		"CREATE":  func() error { return kc.Create(t.Context(), forged) },
		"UPDATE":  func() error { return fleet.TryEdit(t, kc, p, func() { p.Annotations[vif.AnnotationMap] = "{}" }) },
		"removal": func() error { return fleet.TryEdit(t, kc, p, func() { delete(p.Annotations, vif.AnnotationMap) }) },
		"the status": func() error {
			before := p.DeepCopy()
			p.Annotations[vif.AnnotationMap] = "{}"
			return kc.Status().Patch(t.Context(), p, client.MergeFrom(before))
		},
		"a binding": func() error { return kc.SubResource("binding").Create(t.Context(), bound, binding) },
	} {
		refused(t, what, try(), "for Tenure's controller to write")
	}
	if err := fleet.TryEdit(t, kc, p, func() { p.Annotations["note"] = "ours" }); err != nil {
		t.Errorf("another annotation: %v", err)
	}
	mapped(t, p, "net1")
	err := fleet.TryEdit(t, as, p, func() { p.Annotations["note"] = "the controller's" })
	refused(t, "another annotation by the controller", err, "changes nothing of a pod's metadata but")
	c := stray()
	c.Labels = map[string]string{vif.LabelClaim: "u"}
	refused(t, "a claim that no pod owns, by the controller", as.Create(t.Context(), c), ownedClaims)
}

// TestOneClaim (K4): whatever is repeated, each interface has one claim: two controllers work at
// once, and are killed and started in the middle.
func TestOneClaim(t *testing.T) {
	d := lan(t)
	renders(t, d, "macvlan")
	second, err := run(context.Background(), func(c *controller.Config) { c.Webhooks = "" })
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	for range 20 {
		pods = append(pods, pod(t, fmt.Sprintf("%[1]s,%[1]s", d.Name)))
	}
	if err := start(context.Background()); err != nil {
		t.Error(err)
	}
	if err := second(); err != nil {
		t.Error(err)
	}
	owners := map[netip.Prefix]string{}
	for _, p := range pods {
		m := mapped(t, p, "net1", "net2")
		all := claimsOf(t, p)
		if len(all) != 2 {
			t.Errorf("pod %s has %d claims; want 2", p.Name, len(all))
		}
		for _, c := range all {
			v := m[c.Spec.Interface]
			if v.ClaimUID != string(c.UID) || v.Claim != c.Name || !slices.Equal(v.Addresses, c.Status.IPs) {
				t.Errorf("pod %s says %+v of claim %s (%s) with %q", p.Name, v, c.Name, c.UID, c.Status.IPs)
			}
			for _, ip := range c.Status.IPs {
				a := netip.MustParsePrefix(ip)
				if owners[a] != "" {
					t.Errorf("%s and %s have %v", owners[a], c.Name, a)
				}
				owners[a] = c.Name
			}
		}
	}
}

// TestEnded (K4): a pod that has ended and is kept has no address any more, and neither has one
// that was deleted without what it owns.
func TestEnded(t *testing.T) {
	d := lan(t)
	done, orphaned, runs := pod(t, d.Name), pod(t, d.Name), pod(t, d.Name)
	for _, p := range []*corev1.Pod{done, orphaned, runs} {
		mapped(t, p, "net1")
	}
	done.Status.Phase = corev1.PodSucceeded
	if err := kc.Status().Update(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	if err := kc.Delete(t.Context(), orphaned, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, time.Minute, func() error {
		if n := len(claimsOf(t, done)) + len(claimsOf(t, orphaned)); n > 0 {
			return fmt.Errorf("%d claims are still there", n)
		}
		return nil
	})
	if n := len(claimsOf(t, runs)); n != 1 {
		t.Errorf("a pod that has not ended has %d claims; want 1", n)
	}
}

// TestClaimThatIsNamed (K4): an element that refers to a claim has that one, and none is made.
func TestClaimThatIsNamed(t *testing.T) {
	d := lan(t)
	renders(t, d, "macvlan")
	p := pod(t, fmt.Sprintf(`[{"name": %q, "ipam-claim-reference": "mine"}]`, d.Name))
	said(t, p, vifs.ReasonNotReady, "there is no IPAMClaim mine: make it")
	c := fleet.Create(t, kc, &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "mine"}, Spec: ipamclaims.IPAMClaimSpec{Network: made(d).Name, Interface: "net1"}})
	if v := mapped(t, p, "net1")["net1"]; v.Claim != "mine" || v.ClaimUID != string(c.UID) || v.MAC != vif.MACOf(string(c.UID)) {
		t.Errorf("net1 is %+v; want claim %s", v, c.UID)
	}
	if n := len(claimsOf(t, p)); n > 0 {
		t.Errorf("%d claims are made; want none", n)
	}
	other := pod(t, fmt.Sprintf(`[{"name": %q, "ipam-claim-reference": "mine"}]`, lan(t).Name))
	said(t, other, vifs.ReasonTaken, "IPAMClaim mine is of network")
	fleet.Delete(t, kc, p)
	fleet.Delete(t, kc, c)
}

// TestTold (K3, K6, K8): what holds a pod back, and what it cannot have, is said on the pod.
func TestTold(t *testing.T) {
	d := lan(t)
	full := definition(t, team, vif.AnnotationNetwork, inline(newPool(t, "10.9.0.0/30")))
	closed := definition(t, infra, vif.AnnotationNetwork, inline(newPool(t, "10.0.0.0/24")))
	vlan := definition(t, team, vif.AnnotationNetwork, strings.Replace(inline(newPool(t, "10.0.0.0/24")), "macvlan", "ipvlan", 1))
	mapped(t, pod(t, full.Name), "net1") // the only address
	static := selecting(d.Name)
	static.Annotations[corev1.MirrorPodAnnotationKey] = "x"
	host := selecting(d.Name)
	host.Spec.HostNetwork = true
	wrong := definition(t, team, vif.AnnotationKuryr, `{"subnetId": "a7d1"}`)
	for what, tt := range map[string]struct {
		pod           *corev1.Pod
		reason, words string
	}{
		"K8 a static pod":          {static, vifs.ReasonRefused, "a static pod has no interfaces"},
		"K8 the node's network":    {host, vifs.ReasonRefused, "has its node's network"},
		"K8 eth0":                  {selecting(d.Name + "@eth0"), vifs.ReasonRefused, "eth0 is the interface of the default network"},
		"one name twice":           {selecting(fmt.Sprintf("%[1]s@a,%[1]s@a", d.Name)), vifs.ReasonRefused, "another element has the interface a"},
		"too many":                 {selecting(strings.Repeat(d.Name+",", 32) + d.Name), vifs.ReasonRefused, "32 can be"},
		"K2 what cannot be read":   {selecting(fmt.Sprintf(`[{"name": %q, "ips": 7}]`, d.Name)), vifs.ReasonRefused, "annotation k8s.v1.cni.cncf.io/networks cannot be read"},
		"a definition of another":  {selecting(infra + "/" + closed.Name), vifs.ReasonRefused, "does not let pods of namespace team use it"},
		"no MAC can be given":      {selecting(fmt.Sprintf(`[{"name": %q, "mac": "02:00:00:00:00:07"}]`, vlan.Name)), vifs.ReasonRefused, "leave mac out"},
		"K3 its definition":        {selecting(wrong.Name), vifs.ReasonNotReady, "nothing is made of its definition yet"},
		"its claim has no address": {selecting(full.Name), vifs.ReasonNotReady, "SubnetExhausted"},
		"an address of no range":   {selecting(fmt.Sprintf(`[{"name": %q, "ips": ["10.1.0.7"]}]`, d.Name)), vifs.ReasonNotReady, "RequestedIPsInvalid"},
	} {
		t.Run(what, func(t *testing.T) {
			if tt.pod == static {
				tt.pod.Spec.NodeName = "node"
			}
			renders(t, d, "macvlan")
			renders(t, vlan, "ipvlan")
			fleet.Create(t, kc, tt.pod)
			said(t, tt.pod, tt.reason, tt.words)
			if tt.reason == vifs.ReasonRefused {
				none(t, tt.pod)
			}
			fleet.Delete(t, kc, tt.pod)
		})
	}
}

// TestOtherNamespaces (K2): a definition of another namespace serves those whom it names.
func TestOtherNamespaces(t *testing.T) {
	for what, more := range map[string][]string{
		"by name": {"tenure.dev/namespaces", "other, " + team}, "all": {"tenure.dev/namespaces", "*"}, "by label": {"tenure.dev/namespace-selector", "team in (blue, red)"},
	} {
		t.Run(what, func(t *testing.T) {
			d := definition(t, infra, vif.AnnotationNetwork, inline(newPool(t, "10.0.0.0/24")), more...)
			mapped(t, pod(t, infra+"/"+d.Name), "net1")
		})
	}
}

// TestTaken (K4): a claim of the name that is needed, and is somebody else's, is left alone. The
// definition comes after the pod.
func TestTaken(t *testing.T) {
	name := fleet.Unique("net")
	p := pod(t, name)
	theirs := fleet.Create(t, kc, &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: vif.ClaimName(p.Name, string(p.UID), "net1")}, Spec: ipamclaims.IPAMClaimSpec{Network: "x", Interface: "net1"},
	})
	define(t, team, name, "", map[string]string{vif.AnnotationNetwork: inline(newPool(t, "10.0.0.0/24"))})
	said(t, p, vifs.ReasonTaken, "is not the pod's, and is left alone")
	fleet.Delete(t, kc, theirs)
	mapped(t, p, "net1")
}
