package resourceclaims_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// define makes a definition.
func define(t *testing.T, namespace, name, config string, annotations map[string]string) {
	t.Helper()
	fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: config},
	})
}

func TestHealth(t *testing.T) {
	_, d := start(t, "health", nil)
	resp, err := d.http.Get("http://localhost/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got map[string]bool
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK || !got["profileProvider"] || got["cloudProvider"] {
		t.Errorf("got %d %v, %v; want a profile provider and no cloud provider", resp.StatusCode, got, err)
	}
}

// 200 ResourceClaims of as many pods, at once: no address twice; each is answered the same again;
// what is released goes back.
func TestManyAtOnce(t *testing.T) {
	const many = 200
	newPool(t, "many", v1alpha1.Range{CIDR: "10.60.0.0/20", Gateway: "10.60.0.1"})
	_, d := start(t, "many", nil)
	var claims [many]*resource.ResourceClaim
	for i := range claims {
		claims[i], _ = newOwner(t, d.n, fmt.Sprintf("many-%d", i))
	}
	ask := func() (all [many][]string) {
		var wg sync.WaitGroup
		for i, c := range claims {
			wg.Go(func() {
				var err error
				for range 20 { // as the kubelet does
					var got netConf
					if got, err = d.prepare(c, "eth1", profile("tenure.dev/many")); err == nil {
						all[i] = got.Interface.Addresses
						return
					}
				}
				t.Errorf("ResourceClaim %s: %v", c.Name, err)
			})
		}
		wg.Wait()
		return all
	}
	first, owner := ask(), map[string]int{}
	for i, addrs := range first {
		if len(addrs) != 1 {
			t.Fatalf("%s has %v; want one address", claims[i].Name, addrs)
		}
		if p, err := netip.ParsePrefix(addrs[0]); err != nil || p.Bits() != 20 || p.Masked() != netip.MustParsePrefix("10.60.0.0/20") {
			t.Errorf("%s has %v, %v; want an address of 10.60.0.0/20", claims[i].Name, addrs, err)
		}
		if other, twice := owner[addrs[0]]; twice {
			t.Errorf("%s is %s's and %s's", addrs[0], claims[other].Name, claims[i].Name)
		}
		owner[addrs[0]] = i
	}
	for i, addrs := range ask() {
		if !slices.Equal(addrs, first[i]) {
			t.Errorf("%s has %v, and had %v", claims[i].Name, addrs, first[i])
		}
	}
	for _, c := range claims {
		d.release(c, "eth1")
		d.release(c, "eth1") // again: nothing is no error
	}
	used(t, "many", 0)
}

// used waits until so many addresses of a pool are in use by the status of its leases.
func used(t *testing.T, pool string, want int64) {
	t.Helper()
	fleet.Eventually(t, 2*time.Minute, func() error {
		var leases v1alpha1.IPLeaseList
		if err := kc.List(t.Context(), &leases); err != nil {
			return err
		}
		var got int64
		for _, l := range leases.Items {
			if l.Spec.Pool == pool && l.Status.Used != nil {
				got += int64(*l.Status.Used)
			}
		}
		if got != want {
			return fmt.Errorf("%d addresses of pool %s are in use; want %d", got, pool, want)
		}
		return nil
	})
}

// A definition says gateways, routes and MTU; a ResourceClaim of a template is found by the pod's
// status; two devices of one ResourceClaim are two owners.
func TestDefinition(t *testing.T) {
	newPool(t, "rich", v1alpha1.Range{CIDR: "10.61.0.0/24", Gateway: "10.61.0.1"}, v1alpha1.Range{CIDR: "fd00:61::/64", Gateway: "fd00:61::1"})
	define(t, "default", "rich", `{"cniVersion":"0.2.0","name":"rich-net","plugins":[{"type":"tuning"},{"type":"x","mtu":9000,`+
		`"ipam":{"type":"tenure","pool":"rich","routes":[{"dst":"10.0.0.0/8"},{"dst":"192.168.7.0/24","gw":"10.61.0.9"},{"dst":"fd00::/16"}]}}]}`, nil)
	_, d := start(t, "rich", nil)
	c := newClaim(t, "rich-of-template", nil)
	template := "rich"
	pod := fleet.Create(t, kc, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rich"},
		Spec: corev1.PodSpec{
			NodeName: d.n.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "nic", ResourceClaimTemplateName: &template}},
		},
	})
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "nic", ResourceClaimName: &c.Name}}
	if err := kc.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	got := d.has(c, "eth1", profile("default/rich"))
	if a := got.Interface.Addresses; len(a) != 2 || netip.MustParsePrefix(a[0]).Bits() != 24 || netip.MustParsePrefix(a[1]).Bits() != 64 {
		t.Errorf("addresses are %v; want one of /24 and one of /64", a)
	}
	if m := got.Interface.MTU; m == nil || *m != 9000 {
		t.Errorf("mtu is %v; want 9000", m)
	}
	routes := ""
	for _, r := range got.Routes {
		routes += fmt.Sprintf("%s via %s %d; ", r.Destination, r.Gateway, r.Scope)
	}
	if want := "10.0.0.0/8 via 10.61.0.1 0; 192.168.7.0/24 via 10.61.0.9 0; fd00::/16 via fd00:61::1 0; "; routes != want {
		t.Errorf("routes are %s want %s", routes, want)
	}
	if other := d.has(c, "eth2", profile("default/rich")); slices.Equal(other.Interface.Addresses, got.Interface.Addresses) {
		t.Errorf("two devices have %v", other.Interface.Addresses)
	}
}

// Without a gateway a route is one to the link.
func TestRouteWithoutGateway(t *testing.T) {
	p := newPool(t, "linked", v1alpha1.Range{CIDR: "10.62.0.0/24"})
	fleet.Edit(t, kc, p, func() { p.Spec.Routes = []v1alpha1.Route{{Dst: "10.63.0.0/24"}} })
	_, d := start(t, "linked", nil)
	c, _ := newOwner(t, d.n, "linked")
	fleet.Eventually(t, time.Minute, func() error {
		got := d.has(c, "eth1", profile("tenure.dev/linked"))
		if r := got.Routes; len(r) != 1 || r[0].Destination != "10.63.0.0/24" || r[0].Gateway != "" || r[0].Scope != 253 {
			return fmt.Errorf("routes are %+v; want one of scope link", r)
		}
		return nil
	})
}

func TestStaticAddress(t *testing.T) {
	newPool(t, "static", v1alpha1.Range{CIDR: "10.64.0.0/24"})
	_, d := start(t, "static", nil)
	c, _ := newOwner(t, d.n, "static-1")
	other, _ := newOwner(t, d.n, "static-2")
	ask := profile("tenure.dev/static", "10.64.0.77/24")
	d.same(c, "eth1", ask, []string{"10.64.0.77/24"})
	d.same(c, "eth1", ask, []string{"10.64.0.77/24"})
	d.refused(question(string(other.UID), "eth1", ask), http.StatusConflict, "ResourceClaim default/static-1, device eth1")
	d.refused(question(string(c.UID), "eth1", profile("tenure.dev/static", "10.64.0.78/24")), http.StatusConflict, "10.64.0.78")
	d.refused(question(string(other.UID), "eth1", profile("tenure.dev/static", "10.65.0.1/24")), http.StatusBadRequest, "10.65.0.1")
	d.refused(question(string(other.UID), "eth1", profile("tenure.dev/static", "10.64.0.79/16")), http.StatusBadRequest, "prefix length 16")
	d.refused(question(string(other.UID), "eth1", profile("tenure.dev/static", "here")), http.StatusBadRequest, "here")
	d.release(c, "eth1")
	d.same(other, "eth1", ask, []string{"10.64.0.77/24"})
}

func TestRefused(t *testing.T) {
	newPool(t, "blue", v1alpha1.Range{CIDR: "10.66.0.0/24"})
	p := newPool(t, "closed-to-default", v1alpha1.Range{CIDR: "10.67.0.0/24"})
	fleet.Edit(t, kc, p, func() {
		p.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "blue"}}
	})
	conf := `{"cniVersion":"1.1.0","name":"blue-net","type":"x","ipam":{"type":"tenure","pool":"blue"}}`
	define(t, "elsewhere", "private", conf, nil)
	define(t, "elsewhere", "shared", conf, map[string]string{"tenure.dev/namespaces": "default"})
	define(t, "default", "foreign", `{"cniVersion":"1.1.0","name":"f","type":"x"}`, nil)
	define(t, "default", "broken", `{"cniVersion":"1.1.0","name":"b","type":"x","ipam":{"type":"tenure","pools":7}}`, nil)
	define(t, "default", "local", `{"cniVersion":"1.1.0","name":"l","type":"x","ipam":{"type":"tenure","mode":"local","subnet":"10.9.0.0/24"}}`, nil)
	_, d := start(t, "refused", nil)
	c, _ := newOwner(t, d.n, "refused")
	uid := string(c.UID)
	dhcp, yes := profile("tenure.dev/blue"), true
	dhcp.Interface.DHCP = &yes
	for _, tt := range []struct {
		body   any
		status int
		words  string
	}{
		{"no object", http.StatusBadRequest, "no JSON"},
		{question("", "eth1", profile("tenure.dev/blue")), http.StatusBadRequest, "claim_uid is missing"},
		{question("a/b", "eth1", profile("tenure.dev/blue")), http.StatusBadRequest, "cannot be a UID"},
		{question(uid, "", profile("tenure.dev/blue")), http.StatusBadRequest, "device.name is missing"},
		{question(uid, "eth/1", profile("tenure.dev/blue")), http.StatusBadRequest, "cannot be the name of a device"},
		{question(uid, "eth1", nil), http.StatusBadRequest, "config is missing"},
		{question(uid, "eth1", dhcp), http.StatusBadRequest, "dhcp"},
		{question(uid, "eth1", profile("blue")), http.StatusNotFound, "write tenure.dev/<pool>"},
		{question(uid, "eth1", profile("tenure.dev/none")), http.StatusNotFound, "pool none"},
		{question(uid, "eth1", profile("default/none")), http.StatusNotFound, "there is no NetworkAttachmentDefinition none in namespace default"},
		{question(uid, "eth1", profile("elsewhere/private")), http.StatusBadRequest, "tenure.dev/namespaces"},
		{question(uid, "eth1", profile("default/foreign")), http.StatusBadRequest, "no plugin of the definition"},
		{question(uid, "eth1", profile("default/broken")), http.StatusBadRequest, "ipam.pools"},
		{question(uid, "eth1", profile("default/local")), http.StatusBadRequest, "local mode"},
		{question(uid, "eth1", profile("tenure.dev/closed-to-default")), http.StatusBadRequest, "namespace default may not use pool closed-to-default"},
		{question("no-such-uid", "eth1", profile("tenure.dev/blue")), http.StatusInternalServerError, "no pod of this node has a ResourceClaim with the UID no-such-uid"},
	} {
		began := time.Now()
		d.refused(tt.body, tt.status, tt.words)
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("%v took %v: the driver waits for 10s", tt.body, took)
		}
	}
	d.has(c, "eth1", profile("elsewhere/shared"))
}

// An IPAMClaim keeps the address for the next ResourceClaim.
func TestIPAMClaim(t *testing.T) {
	newPool(t, "kept", v1alpha1.Range{CIDR: "10.68.0.0/24"})
	define(t, "default", "kept", `{"cniVersion":"1.1.0","name":"kept-net","type":"x","ipam":{"type":"tenure","pool":"kept"}}`, nil)
	ipam := fleet.Create(t, kc, &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}, Spec: ipamclaims.IPAMClaimSpec{Network: "kept-net"}})
	_, d := start(t, "kept", nil)
	by := map[string]string{"tenure.dev/ipam-claim": "kept"}
	first := newClaim(t, "kept-1", by)
	pod := newPod(t, d.n, "kept-1", first)
	want := d.has(first, "eth1", profile("default/kept")).Interface.Addresses
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(ipam), ipam); err != nil || !slices.Equal(ipam.Status.IPs, want) {
		t.Fatalf("the device has %v, and the claim %v, %v", want, ipam.Status.IPs, err)
	}
	d.same(first, "eth1", profile("default/kept"), want)
	d.refused(question(string(first.UID), "eth2", profile("default/kept")), http.StatusConflict, "already used by interface eth1")
	d.release(first, "eth1")
	remove(t, pod, first)
	plain, _ := newOwner(t, d.n, "kept-plain")
	if got := d.has(plain, "eth1", profile("default/kept")).Interface.Addresses; slices.Equal(got, want) {
		t.Errorf("another has the claim's %v", got)
	}
	next := newClaim(t, "kept-2", by)
	newPod(t, d.n, "kept-2", next)
	d.same(next, "eth1", profile("default/kept"), want)
}

// remove deletes objects at once, as somebody does by force.
func remove(t *testing.T, all ...client.Object) {
	t.Helper()
	for _, o := range all {
		if err := kc.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		fleet.Gone(t, kc, o, time.Minute)
	}
}
