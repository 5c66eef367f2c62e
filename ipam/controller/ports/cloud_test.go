package ports

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// cloud is a Neutron in memory. It has what these tests ask for, and no more.
type cloud struct {
	Neutron

	// hold is called before a method does its work, with the method's name.
	hold func(method string)

	mu      sync.Mutex
	ours    []neutron.Port       // guarded by mu
	servers []neutron.ServerPort // guarded by mu
	refuses error                // what SetPairs answers; nil: it does its work
	asked   int                  // guarded by mu: how often SetPairs was called
}

func (c *cloud) begin(method string) {
	if c.hold != nil {
		c.hold(method)
	}
	c.mu.Lock()
}

func (c *cloud) Ours(context.Context, ...string) ([]neutron.Port, error) {
	c.begin("Ours")
	defer c.mu.Unlock()
	return slices.Clone(c.ours), nil
}

func (c *cloud) PortsOfServers(context.Context, string, []string) ([]neutron.ServerPort, error) {
	c.begin("PortsOfServers")
	defer c.mu.Unlock()
	return slices.Clone(c.servers), nil
}

func (c *cloud) SetPairs(_ context.Context, p neutron.ServerPort, pairs []neutron.Pair) error {
	c.begin("SetPairs")
	defer c.mu.Unlock()
	if c.asked++; c.refuses != nil {
		return c.refuses
	}
	i := slices.IndexFunc(c.servers, func(o neutron.ServerPort) bool { return o.ID == p.ID })
	if c.servers[i].Revision != p.Revision {
		return &neutron.Error{Reason: neutron.Changed, Message: "port " + p.ID}
	}
	c.servers[i].Pairs, c.servers[i].Revision = pairs, p.Revision+1
	return nil
}

func (c *cloud) Delete(_ context.Context, id, _ string) error {
	c.begin("Delete")
	defer c.mu.Unlock()
	c.ours = slices.DeleteFunc(c.ours, func(p neutron.Port) bool { return p.ID == id })
	return nil
}

func (c *cloud) DeleteOf(_ context.Context, claims []string) []error {
	c.begin("DeleteOf")
	defer c.mu.Unlock()
	c.ours = slices.DeleteFunc(c.ours, func(p neutron.Port) bool { return slices.Contains(claims, p.Claim) })
	return make([]error, len(claims))
}

// pairs returns what the first node's port allows.
func (c *cloud) pairs() []neutron.Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.servers[0].Pairs)
}

// ourPort returns a port of a claim on the network of [pairsPool].
func ourPort(id, claim, addr, mac string) neutron.Port {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		panic(err)
	}
	return neutron.Port{ID: id, Claim: claim, Network: "net", MAC: hw, Addresses: []neutron.FixedIP{{Subnet: "sub", Addr: netip.MustParseAddr(addr)}}}
}

// pairsPool is a pool whose addresses are allowed on the ports of nodes.
func pairsPool() *v1alpha1.IPPool {
	return &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool"},
		Spec:       v1alpha1.IPPoolSpec{Source: &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{"sub"}, NodePorts: v1alpha1.NodePortsPairs}}},
		Status: v1alpha1.IPPoolStatus{Neutron: &v1alpha1.NeutronStatus{
			NetworkID: "net", NodePorts: v1alpha1.NodePortsPairs, Subnets: []v1alpha1.NeutronSubnet{{ID: "sub", CIDR: "10.9.0.0/24"}},
		}},
	}
}

// sourcedPool is pairsPool as it is once its subnets have been read.
func sourcedPool() *v1alpha1.IPPool {
	pool := pairsPool()
	pool.Spec.Ranges = []v1alpha1.Range{{CIDR: "10.9.0.0/24", StaticOnly: []string{"10.9.0.0/24"}}}
	return pool
}

// virtual is a node that is a virtual machine.
func virtual(name, server string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "openstack:///" + server}}
}

// useOf is a use of a claim by a node.
func useOf(uid, node string) *v1alpha1.IPSubLease {
	return &v1alpha1.IPSubLease{
		ObjectMeta: metav1.ObjectMeta{Name: uid + ".0"},
		Spec: v1alpha1.IPSubLeaseSpec{Node: node, Use: &v1alpha1.Use{
			Claim: v1alpha1.ClaimReference{Namespace: "team", Name: uid, UID: uid}, Pod: v1alpha1.PodReference{Namespace: "team", Name: uid, UID: uid},
		}},
	}
}

// podOn is a pod on a node, by the name of the claim that it uses.
func podOn(namespace, uid, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}}
}

// claimOf is a claim with an address and the text that tells its port.
func claimOf(uid, address, port string) *ipamclaims.IPAMClaim {
	return &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: uid, UID: types.UID(uid), Annotations: map[string]string{"tenure.dev/port": port}},
		Status:     ipamclaims.IPAMClaimStatus{IPs: []string{address}},
	}
}

// newPorts returns Ports of a cloud and a cluster that has these objects.
func newPorts(t *testing.T, c *cloud, objects ...client.Object) (*Ports, client.Client) {
	t.Helper()
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.IPPool{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	return (&Ports{
		Cache: kc, Live: kc, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(), Now: time.Now, SweepEvery: time.Minute,
		Connect:  func(context.Context) (Neutron, error) { return c, nil },
		Held:     func(protocol.UID) []grants.Held { return nil },
		Restored: func(context.Context, ...protocol.PoolName) (bool, error) { return false, nil },
		Notify:   func(grants.ClaimKey) {}, TellPool: func(protocol.PoolName) {},
	}).Init(), kc
}

// holdAt has the first call of a method wait, until free is called. reached is closed when it is
// there.
func (c *cloud) holdAt(method string) (reached chan struct{}, free func()) {
	reached = make(chan struct{})
	wait := make(chan struct{})
	var held atomic.Bool
	c.hold = func(m string) {
		if m == method && held.CompareAndSwap(false, true) {
			close(reached)
			<-wait
		}
	}
	return reached, sync.OnceFunc(func() { close(wait) })
}

// soon is how long a call may take that nothing holds.
const soon = 5 * time.Second

// ends fails the test if a call does not end soon.
func ends(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil && !errors.As(err, new(*neutron.Error)) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(soon):
		t.Fatalf("%s does not end", what)
	}
}
