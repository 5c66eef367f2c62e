package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// locked is a buffer for several writers. The zero value is ready.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// tail returns the last n bytes.
func (l *locked) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.buf.String()
	return text[max(0, len(text)-n):]
}

// pool makes an IPPool of these CIDRs.
func pool(t testing.TB, cidrs ...string) *v1alpha1.IPPool {
	t.Helper()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}}
	for _, c := range cidrs {
		p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: c})
	}
	p.Spec.Domain = p.Name // tests share a cluster, and address ranges
	fleet.Create(t, kc, p)
	return p
}

// read reads an object live.
func read[T client.Object](o T) (T, error) {
	return o, kc.Get(context.Background(), client.ObjectKeyFromObject(o), o)
}

// opened waits until a pool is open.
func opened(t testing.TB, p *v1alpha1.IPPool) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		p, err := read(p)
		if err != nil {
			return err
		}
		return condition(p.Status.Conditions, v1alpha1.PoolReady, metav1.ConditionTrue, v1alpha1.ReasonOpen)
	})
}

// lan makes a namespace, and a pool with a definition of a network lan there.
func lan(t testing.TB, cidrs ...string) (ns string, p *v1alpha1.IPPool) {
	t.Helper()
	ns, p = namespace(t), pool(t, cidrs...)
	definition(t, ns, "lan", "lan", ofPool(p.Name))
	return ns, p
}

// definition makes a NetworkAttachmentDefinition of a network with this ipam
// section.
func definition(t testing.TB, namespace, object, network, ipam string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	d := &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object},
		Spec: nad.NetworkAttachmentDefinitionSpec{
			Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":%s}`, network, ipam),
		},
	}
	fleet.Create(t, kc, d)
	return d
}

// ofPool is an ipam section.
func ofPool(pool string) string { return fmt.Sprintf(`{"type":"tenure","pool":%q}`, pool) }

func claimOf(namespace, name, network string) *ipamclaims.IPAMClaim {
	return &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamclaims.IPAMClaimSpec{Network: network},
	}
}

// claim makes a claim.
func claim(t testing.TB, namespace, name, network string) *ipamclaims.IPAMClaim {
	t.Helper()
	c := claimOf(namespace, name, network)
	fleet.Create(t, kc, c)
	return c
}

// allocated waits until a claim has its addresses, and returns them.
func allocated(t testing.TB, c *ipamclaims.IPAMClaim) []string {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if _, err := read(c); err != nil {
			return err
		}
		if len(c.Status.IPs) == 0 {
			return fmt.Errorf("claim %s has no addresses: %+v", c.Name, c.Status.Conditions)
		}
		return condition(c.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionTrue, "SuccessfulAllocation")
	})
	return c.Status.IPs
}

// failed waits until a claim's condition says why it has no addresses.
func failed(t testing.TB, c *ipamclaims.IPAMClaim, reason string, words ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if _, err := read(c); err != nil {
			return err
		}
		return condition(c.Status.Conditions, kube.ConditionIPsAllocated, metav1.ConditionFalse, reason, words...)
	})
}

// granted returns the addresses that leases grant to a claim's UID.
func granted(t testing.TB, uid protocol.UID) []netip.Addr {
	t.Helper()
	leases, err := api.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []netip.Addr
	for _, l := range leases {
		for _, g := range l.GrantsOf(uid) {
			out = append(out, g.Addr)
		}
	}
	return out
}

func uidOf(o client.Object) protocol.UID { return protocol.UID(o.GetUID()) }

// freed waits until nothing is granted to a UID any more.
func freed(t testing.TB, uid protocol.UID, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		if a := granted(t, uid); len(a) > 0 {
			return fmt.Errorf("%v is still granted to %s", a, uid)
		}
		return nil
	})
}

// use makes node use a claim for a pod, as an agent does: the use first, then a
// look at the leases.
func use(t testing.TB, c *ipamclaims.IPAMClaim, i int, node, pod string) protocol.SubLease {
	t.Helper()
	s, _, err := api.CreateSubLease(t.Context(), protocol.SubLease{
		Meta: protocol.Meta{Name: protocol.UseName(uidOf(c), i)}, Protocol: protocol.Version, Node: protocol.NodeName(node), Store: "store-of-" + protocol.StoreID(node), Term: 1,
		Use: &protocol.Use{
			Claim: protocol.ClaimRef{Namespace: c.Namespace, Name: c.Name, UID: uidOf(c)},
			Pod:   protocol.PodRef{Namespace: c.Namespace, Name: pod, UID: protocol.UID("uid-of-" + pod)}, Interface: "net1",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unuse ends a use, as an agent does at the DEL.
func unuse(t testing.TB, s protocol.SubLease) {
	t.Helper()
	if _, err := api.DeleteSubLease(t.Context(), s.Meta); err != nil {
		t.Fatal(err)
	}
}

// nodeLease leases a block for a node, as an agent does.
func nodeLease(t testing.TB, p *v1alpha1.IPPool, uid protocol.UID, block, node string) protocol.Lease {
	t.Helper()
	b := netip.MustParsePrefix(block)
	l, _, err := api.CreateLease(t.Context(), protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName(protocol.PoolName(p.Name), b)}, Protocol: protocol.Version,
		Pool: protocol.PoolName(p.Name), PoolUID: uid, Block: b, Holder: protocol.Holder{Node: protocol.NodeName(node)},
		Store: "store-of-" + protocol.StoreID(node), Term: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// distinct returns an error if two claims of a namespace have an address in
// common, or a status disagrees with the leases.
func distinct(t testing.TB, namespace string) error {
	t.Helper()
	var list ipamclaims.IPAMClaimList
	if err := kc.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	leases, err := api.Leases(t.Context())
	if err != nil {
		return err
	}
	owner := map[netip.Addr]protocol.UID{}
	for _, l := range leases {
		for _, g := range l.Grants {
			if g.To.Namespace == namespace {
				if other, ok := owner[g.Addr]; ok {
					return fmt.Errorf("%v is granted to %s and %s", g.Addr, other, g.To.UID)
				}
				owner[g.Addr] = g.To.UID
			}
		}
	}
	seen := map[string]string{}
	for _, c := range list.Items {
		for _, ip := range c.Status.IPs {
			if other, ok := seen[ip]; ok {
				return fmt.Errorf("%s is claimed by %s and %s", ip, other, c.Name)
			}
			seen[ip] = c.Name
			if uid := owner[netip.MustParsePrefix(ip).Addr()]; uid != protocol.UID(c.UID) {
				return fmt.Errorf("the status of %s shows %s, which is granted to %q", c.Name, ip, uid)
			}
		}
	}
	return nil
}

// registered registers an agent for a node, with an F of an hour, as long as the
// test runs.
func registered(t testing.TB, node string) protocol.Registration {
	t.Helper()
	s, _, err := api.CreateRegistration(t.Context(), protocol.Registration{
		Node: protocol.NodeName(node), NodeUID: "uid-of-" + protocol.UID(node), Store: "store-of-" + protocol.StoreID(node),
		Machine: "machine-of-" + node, Boot: "b", Term: 1, Fence: time.Hour, Beat: time.Now(), Writes: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // t's context has ended
		l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: node}}
		if err := kc.Delete(context.Background(), l); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return s
}

// amend changes a node's registration. The controller may write it at the same time.
func amend(t testing.TB, node string, change func(*protocol.Registration)) {
	t.Helper()
	fleet.Amend(t, api, node, change)
}
