// Package ports_test proves what the controller does about pools whose addresses Neutron
// administers, with the rights and policies that it is shipped with, on a real API server with a
// real Neutron.
package ports_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	neutronclient "github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/neutron"
)

var (
	cp   *controlplane.ControlPlane
	kc   client.Client // an administrator's
	role *rest.Config  // the controller's
)

// within is how long the controller has to take notice.
const within = 20 * time.Second

// team is the namespace of the tests.
const team = "team"

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		accounts, err := fleet.Install(ctx, cp, kc, "policies")
		if err != nil {
			return 0, err
		}
		role = accounts.Controller
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

// world is a Neutron, and a controller that knows it.
type world struct {
	*neutron.Server
	t      *testing.T // of all tests
	clouds string     // the path of the controller's clouds.yaml
	every  time.Duration
	stop   func() error
}

// TestNeutron has one Neutron and one controller for all tests, which leave nothing behind.
func TestNeutron(t *testing.T) {
	w := begin(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"claim", testClaim}, {"requested", testRequested}, {"exhausted", testExhausted}, {"deleted behind our back", testDeleted}, {"damaged", testDamaged}, {"forged", testForged},
		{"orphans", testOrphans}, {"keeps", testKeeps}, {"follow", testFollow}, {"written", testWritten}, {"subnets that make no pool", testUnfit},
		{"credentials", testCredentials}, {"quota", testQuota}, {"pairs", testPairs}, {"made", testMade}, {"half made", testHalfMade}, {"away", testAway}, {"crashes", testCrashes}, {"load", testLoad},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(t, w)
			w.finish(t)
		})
	}
}

// begin starts a Neutron and a controller, which end with the test.
func begin(t *testing.T) *world {
	t.Helper()
	w := &world{Server: neutron.New(t, neutron.Options{}), t: t, clouds: filepath.Join(t.TempDir(), "clouds.yaml"), every: 2 * time.Second}
	w.configure(t, w.URL())
	w.start(t)
	t.Cleanup(func() { w.end(t) })
	return w
}

// finish deletes what the test has made, and checks that Neutron has nothing left of it.
func (w *world) finish(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	ctx := t.Context()
	if err := kc.DeleteAllOf(ctx, &ipamclaims.IPAMClaim{}, client.InNamespace(team)); err != nil {
		t.Error(err)
	}
	if err := kc.DeleteAllOf(ctx, &v1alpha1.IPPool{}); err != nil {
		t.Error(err)
	}
	fleet.Eventually(t, time.Minute, func() error {
		var pools v1alpha1.IPPoolList
		if err := kc.List(ctx, &pools); err != nil || len(pools.Items) > 0 {
			return fmt.Errorf("%d pools are left: %w", len(pools.Items), err)
		}
		return none(w.ours(t, ""))
	})
}

// configure writes the controller's clouds.yaml.
func (w *world) configure(t *testing.T, url string) {
	t.Helper()
	text := fmt.Sprintf("clouds: {openstack: {auth_type: none, auth: {endpoint: %q}}}", url)
	if err := os.WriteFile(w.clouds, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts a controller.
func (w *world) start(t *testing.T) {
	t.Helper()
	cfg := controller.DefaultConfig()
	cfg.NeutronClouds, cfg.NeutronEvery = w.clouds, w.every
	cfg.VIFs, cfg.NeutronSubnetNamespaces = true, []string{team}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = kube.Logger(w.t.Output(), false)
	}
	stop, err := fleet.RunController(context.Background(), cfg, role, log)
	if err != nil {
		t.Fatal(err)
	}
	w.stop = stop
}

// end ends the controller, if one runs.
func (w *world) end(t *testing.T) {
	t.Helper()
	if w.stop == nil {
		return
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.stop = nil
}

// subnets makes a network with these subnets, and returns their IDs.
func (w *world) subnets(t *testing.T, subnets ...neutron.Subnet) (network neutron.Network, ids []string) {
	t.Helper()
	network = w.Network(t, neutron.Network{Subnets: subnets})
	for _, s := range network.Subnets {
		ids = append(ids, s.ID)
	}
	return network, ids
}

// pool makes a pool of subnets, with a network of Tenure's, and waits until it is open.
func pool(t *testing.T, ids ...string) *v1alpha1.IPPool {
	t.Helper()
	o := sourced(t, ids...)
	condition(t, o, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen, "")
	condition(t, o, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")
	return o
}

// sourced makes a pool of subnets, and a definition of the team's by which a network of the pool's
// name has its addresses.
func sourced(t *testing.T, ids ...string) *v1alpha1.IPPool {
	t.Helper()
	name := fleet.Unique("pool")
	o := fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Domain: name, Source: &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: ids}},
	}})
	fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, Spec: nad.NetworkAttachmentDefinitionSpec{
		Config: fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "bridge", "ipam": {"type": "tenure", "pool": %[1]q}}`, name),
	}})
	return o
}

// condition waits until a pool has a condition, with words in its message.
func condition(t *testing.T, o *v1alpha1.IPPool, kind string, status metav1.ConditionStatus, reason, words string) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return fleet.Condition(o.Status.Conditions, kind, status, reason, words)
	})
}

// claim makes a claim of the pool's network.
func claim(t *testing.T, of *v1alpha1.IPPool, requested string) *ipamclaims.IPAMClaim {
	t.Helper()
	return fleet.Create(t, kc, newClaim(of, requested))
}

func newClaim(of *v1alpha1.IPPool, requested string) *ipamclaims.IPAMClaim {
	o := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: fleet.Unique("claim")}, Spec: ipamclaims.IPAMClaimSpec{Network: of.Name}}
	if requested != "" {
		o.Annotations = map[string]string{"tenure.dev/requested-ips": requested}
	}
	return o
}

// allocated waits until a claim has addresses and a port, and returns both.
func (w *world) allocated(t *testing.T, o *ipamclaims.IPAMClaim) (addrs []netip.Addr, port vif.Port) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return fleet.Condition(o.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionTrue, "SuccessfulAllocation", "")
	})
	for _, text := range o.Status.IPs {
		addrs = append(addrs, netip.MustParsePrefix(text).Addr())
	}
	port, err := vif.ParsePort(o.Annotations[vif.AnnotationPort])
	if err != nil || port.ID == "" {
		t.Fatalf("claim %s has annotations %v, %v; want a port", o.Name, o.Annotations, err)
	}
	return addrs, port
}

// only waits until Neutron has one port of a claim, which has just these addresses.
func (w *world) only(t *testing.T, o *ipamclaims.IPAMClaim) (only neutron.Port) {
	t.Helper()
	fleet.Eventually(t, within, func() error { // what is too many goes afterwards
		addrs, port := w.allocated(t, o)
		found := w.Ports(t, string(o.UID))
		if len(found) != 1 {
			return fmt.Errorf("claim %s has ports %v; want one", o.Name, found)
		}
		only = found[0]
		var has []netip.Addr
		for _, f := range only.FixedIPs {
			has = append(has, netip.MustParseAddr(f["ip_address"]))
		}
		slices.SortFunc(has, netip.Addr.Compare)
		slices.SortFunc(addrs, netip.Addr.Compare)
		if only.ID != port.ID || !slices.Equal(has, addrs) {
			return fmt.Errorf("claim %s has %v by port %s, and Neutron has %v", o.Name, addrs, port.ID, only)
		}
		return nil
	})
	return only
}

// waits waits until a claim has no addresses, and a reason with words.
func waits(t *testing.T, o *ipamclaims.IPAMClaim, reason, words string) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return fleet.Condition(o.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionFalse, reason, words)
	})
}

// portless waits until Neutron has no port of a claim.
func (w *world) portless(t *testing.T, o *ipamclaims.IPAMClaim) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if found := w.Ports(t, string(o.UID)); len(found) > 0 {
			return fmt.Errorf("claim %s has still ports %v", o.Name, found)
		}
		return nil
	})
}

// subnet returns a subnet.
func (w *world) subnet(t *testing.T, id string) (s neutron.Subnet) {
	t.Helper()
	w.Do(t, "GET", "subnets/"+id, "subnet", nil, &s)
	return s
}

// ours returns the ports of a claim that are this cluster's, or of all with an empty UID.
func (w *world) ours(t *testing.T, uid string) []neutron.Port {
	t.Helper()
	return slices.DeleteFunc(w.Ports(t, uid), func(p neutron.Port) bool {
		return !strings.HasPrefix(p.DeviceOwner, "tenure:") || p.DeviceOwner == "tenure:another"
	})
}

// allocatedNow reports whether a claim has addresses.
func allocatedNow(t *testing.T, o *ipamclaims.IPAMClaim) error {
	t.Helper()
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	return fleet.Condition(o.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionTrue, "SuccessfulAllocation", "")
}

func differs(a, b string) error {
	if a == b {
		return fmt.Errorf("it is still %s", a)
	}
	return nil
}

func none(ports []neutron.Port) error {
	if len(ports) > 0 {
		return fmt.Errorf("there are still ports %v", ports)
	}
	return nil
}

func one(ports []neutron.Port) error {
	if len(ports) != 1 {
		return fmt.Errorf("there are ports %v; want one", ports)
	}
	return nil
}

// waitsNow reports whether a claim has no addresses, and a reason with words.
func waitsNow(t *testing.T, o *ipamclaims.IPAMClaim, reason, words string) error {
	t.Helper()
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	return fleet.Condition(o.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionFalse, reason, words)
}

// portsAlone returns how long n ports take on a subnet by the controller's client alone. They are
// deleted afterwards.
func (w *world) portsAlone(t *testing.T, subnet string, n int) time.Duration {
	t.Helper()
	nc := w.client(t, "alone")
	network := w.subnet(t, subnet).NetworkID
	var wants []neutronclient.Want
	for i := range n {
		wants = append(wants, neutronclient.Want{Claim: fmt.Sprint("alone-", i), Network: network, Addresses: []neutronclient.FixedIP{{Subnet: subnet}}})
	}
	begun := time.Now()
	made := nc.EnsureMany(t.Context(), wants)
	took := time.Since(begun)
	for i, m := range made {
		if m.Err != nil {
			t.Fatal(m.Err)
		}
		if err := nc.Delete(t.Context(), m.Port.ID, wants[i].Claim); err != nil {
			t.Fatal(err)
		}
	}
	return took
}

// client returns a client as the controller of a cluster has it.
func (w *world) client(t *testing.T, cluster string) *neutronclient.Client {
	t.Helper()
	cfg := neutronclient.DefaultConfig()
	cfg.Clouds, cfg.Cloud, cfg.Cluster = fmt.Appendf(nil, "clouds: {test: {auth_type: none, auth: {endpoint: %q}}}", w.URL()), "test", cluster
	nc, err := neutronclient.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return nc
}
