package nodes_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// network is one test's pool and network, and the nodes that use it.
type network struct {
	t     testing.TB
	name  string // of pool and network
	fleet *fleet.Fleet
	nodes []*fleet.Node
	dir   string       // of stand-ins for network namespaces
	n     atomic.Int64 // sandboxes made
}

// quick is a node's configuration for tests that wait for what takes its time.
func quick(c *daemon.Config) {
	c.Agent.Idle, c.Agent.PublishEvery, c.Agent.Wait = time.Second, 200*time.Millisecond, 2*time.Second
}

// newNetwork makes a pool of these ranges and a network of it, and starts nodes.
func newNetwork(t testing.TB, name string, nodes int, ranges ...v1alpha1.Range) *network {
	t.Helper()
	controller(t, true)
	fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Ranges: ranges, Domain: name}})
	define(t, name, fmt.Sprintf(`{"type":"tenure","pool":%q}`, name))
	w := &network{t: t, name: name, fleet: fleet.New(t, accounts.Agent), dir: t.TempDir()}
	w.fleet.Change = quick
	w.start(nodes)
	return w
}

// start starts nodes, all at once.
func (w *network) start(nodes int) {
	w.t.Helper()
	for i := range nodes {
		w.nodes = append(w.nodes, w.fleet.Launch(fmt.Sprintf("%s-%d", w.name, i)))
	}
	for _, n := range w.nodes {
		n.AwaitServing()
	}
}

// define makes the definition of a network of this ipam section.
func define(t testing.TB, network, ipam string) {
	t.Helper()
	fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: network},
		Spec: nad.NetworkAttachmentDefinitionSpec{
			Config: fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":%s}`, network, ipam),
		},
	})
}

func cidr(text string) v1alpha1.Range { return v1alpha1.Range{CIDR: text} }

// sandbox is a new sandbox's interface, of no pod.
func (w *network) sandbox() fleet.Interface {
	w.t.Helper()
	return w.renewed(fleet.Interface{Network: w.name, IfName: "net1", IPAM: map[string]any{"type": "tenure", "pool": w.name}})
}

// renewed gives i a new sandbox, with a file in place of its network namespace.
func (w *network) renewed(i fleet.Interface) fleet.Interface {
	w.t.Helper()
	i.Sandbox = fmt.Sprintf("%s-s%d", w.name, w.n.Add(1))
	i.Netns = filepath.Join(w.dir, i.Sandbox)
	if err := os.WriteFile(i.Netns, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return i
}

// pod is a pod of a workload, as a kubelet runs it.
type pod struct {
	fleet.Interface
	node  *fleet.Node
	addrs []netip.Prefix // answered
}

// run makes a pod on a node, with a sandbox, and does not attach it yet.
func (w *network) run(n *fleet.Node, name string) *pod {
	w.t.Helper()
	i := w.sandbox()
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name,
			Annotations: map[string]string{kube.AnnotationNetworks: fmt.Sprintf(`[{"name":%q,"interface":"net1"}]`, w.name)},
		},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	fleet.Create(w.t, kc, o)
	i.Namespace, i.Pod, i.PodUID = o.Namespace, o.Name, string(o.UID)
	return &pod{Interface: i, node: n}
}

// attached is run, and an ADD that succeeds.
func (w *network) attached(n *fleet.Node, name string) *pod {
	w.t.Helper()
	p := w.run(n, name)
	if err := p.attach(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// attach is an ADD, as a kubelet makes it: again while it is told to try later.
func (p *pod) attach() error {
	for deadline := time.Now().Add(patience); ; {
		res, err := p.node.Add(p.Interface)
		if err == nil {
			p.addrs = addresses(res)
			return nil
		}
		e, ok := errors.AsType[*agentapi.Error](err)
		if !ok || e.Code != agentapi.CodeTryAgainLater || time.Now().After(deadline) {
			return fmt.Errorf("ADD of %s on %s: %w", p.Pod, p.node.Name, err)
		}
		time.Sleep(50 * time.Millisecond) // a kubelet waits longer
	}
}

func addresses(res *agentapi.Result) []netip.Prefix {
	var addrs []netip.Prefix
	for _, ip := range res.IPs {
		addrs = append(addrs, ip.Address)
	}
	return addrs
}

// end deletes a pod as a kubelet does: its sandbox, then the object.
func (p *pod) end(t testing.TB) {
	t.Helper()
	if err := p.node.Del(p.Interface); err != nil {
		t.Errorf("DEL of %s on %s: %v", p.Pod, p.node.Name, err)
	}
	if err := os.Remove(p.Netns); err != nil {
		t.Error(err)
	}
	p.delete(t)
}

// delete deletes the pod's object alone.
func (p *pod) delete(t testing.TB) {
	t.Helper()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Pod}}
	if err := kc.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

// records returns who has which address of the pool, by what the cluster says:
// holders' publications, and requests with the grants that they were answered.
func (w *network) records() (map[netip.Addr]string, error) {
	leases, err := api.LeasesOfPool(w.t.Context(), protocol.PoolName(w.name))
	if err != nil {
		return nil, err
	}
	subs, err := api.SubLeases(w.t.Context())
	if err != nil {
		return nil, err
	}
	pods := map[protocol.UID]string{} // by UID of the request
	for _, s := range subs {
		if s.Request != nil {
			pods[s.UID] = s.Request.Pod.String()
		}
	}
	all := map[netip.Addr]string{}
	for _, l := range leases {
		for _, text := range l.Published.Allocations {
			fields := strings.Fields(text)
			addr, err := netip.ParseAddr(fields[0])
			if err != nil {
				return nil, fmt.Errorf("lease %s: %q: %w", l.Name, text, err)
			}
			all[addr] = fields[1]
		}
		for _, g := range l.Grants {
			all[g.Addr] = pods[g.To.UID]
		}
	}
	return all, nil
}

// consistent waits until the records are exactly what pods were answered: nothing
// stale, nothing missing.
func (w *network) consistent(pods []*pod) {
	w.t.Helper()
	want := map[netip.Addr]string{}
	for _, p := range pods {
		for _, a := range p.addrs {
			if other, twice := want[a.Addr()]; twice {
				w.t.Errorf("%v is answered to %s and %s", a, other, p.Pod)
			}
			want[a.Addr()] = p.Namespace + "/" + p.Pod
		}
	}
	eventually(w.t, 30*time.Second, func() error {
		got, err := w.records()
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("records of %s: %v; want %v", w.name, got, want)
		}
		return err
	})
}

// nothingLeft waits until no lease of the pool is left.
func (w *network) nothingLeft(within time.Duration) {
	w.t.Helper()
	eventually(w.t, within, func() error {
		leases, err := api.LeasesOfPool(w.t.Context(), protocol.PoolName(w.name))
		if err == nil && len(leases) > 0 {
			err = fmt.Errorf("%d leases of %s are left, such as %+v", len(leases), w.name, leases[0])
		}
		return err
	})
}

// poolSays waits until a condition of the pool is True, with a reason and words, or without a
// reason until it is not there.
func (w *network) poolSays(kind, reason string, words ...string) {
	w.t.Helper()
	eventually(w.t, time.Minute, func() error {
		var p v1alpha1.IPPool
		if err := kc.Get(w.t.Context(), client.ObjectKey{Name: w.name}, &p); err != nil {
			return err
		}
		if reason == "" && meta.FindStatusCondition(p.Status.Conditions, kind) == nil {
			return nil
		}
		return fleet.Condition(p.Status.Conditions, kind, metav1.ConditionTrue, reason, words...)
	})
}

// keeps waits until a reservation has its address, and says these words.
func (w *network) keeps(o *v1alpha1.IPReservation, words ...string) {
	w.t.Helper()
	eventually(w.t, time.Minute, func() error {
		if err := kc.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return fleet.Condition(o.Status.Conditions, v1alpha1.Reserved, metav1.ConditionTrue, v1alpha1.ReasonKept, words...)
	})
}
