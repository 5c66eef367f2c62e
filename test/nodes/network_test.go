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

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// network is one test's pool and network, and the nodes that use it.
type network struct {
	t          testing.TB
	name       string // of pool and network
	definition string // its name
	fleet      *fleet.Fleet
	nodes      []*fleet.Node
	dir        string       // of stand-ins for network namespaces
	n          atomic.Int64 // sandboxes made
}

// frame is a network without pool, definition and nodes.
func frame(t testing.TB, name string, change ...func(*daemon.Config)) *network {
	t.Helper()
	controller(t, true)
	return &network{t: t, name: name, definition: name, fleet: newFleet(t, change...), dir: t.TempDir()}
}

// newNetwork makes a pool of these ranges and a network of it, and starts nodes.
func newNetwork(t testing.TB, name string, nodes int, ranges ...v1alpha1.Range) *network {
	t.Helper()
	newPool(t, name, name, ranges...)
	w := frame(t, name, quick)
	w.define("default", w.definition)
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

// world is a network of two nodes, whose definition has another name than the network, and may be
// in another namespace.
type world struct {
	*network
	a, b *fleet.Node
}

// newWorld makes a pool and a network of it, with the definition in a namespace, and starts the
// nodes.
func newWorld(t testing.TB, name, namespace string, cidrs ...string) *world {
	t.Helper()
	var ranges []v1alpha1.Range
	for _, c := range cidrs {
		ranges = append(ranges, cidr(c))
	}
	return newWorldOf(t, name, namespace, ranges...)
}

// newWorldOf is newWorld with these ranges.
func newWorldOf(t testing.TB, name, namespace string, ranges ...v1alpha1.Range) *world {
	t.Helper()
	newPool(t, name, name, ranges...)
	w := &world{network: frame(t, name)}
	w.definition = "definition-of-" + name
	w.define(namespace, w.definition)
	w.a, w.b = w.fleet.Start(name+"-a"), w.fleet.Start(name+"-b")
	return w
}

// waitUpTo starts the agents anew: their ADDs wait for so long at most.
func (w *world) waitUpTo(wait time.Duration) {
	w.t.Helper()
	for _, n := range []**fleet.Node{&w.a, &w.b} {
		(*n).Stop()
		(*n).Config().Agent.Wait = wait
		*n = w.fleet.Start((*n).Name)
	}
}

// define makes a definition of the network.
func (w *network) define(namespace, definition string) {
	w.t.Helper()
	define(w.t, namespace, definition, w.name, fmt.Sprintf(`{"type":"tenure","pool":%q}`, w.name))
}

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
	must(w.t, os.WriteFile(i.Netns, nil, 0o600))
	return i
}

// pod makes a pod on a node and returns its interface net1, in a sandbox of its own. claim is the
// element's reference; extra are more of its keys, as JSON.
func (w *network) pod(n *fleet.Node, name, claim, extra string, owners ...metav1.OwnerReference) fleet.Interface {
	w.t.Helper()
	element := fmt.Sprintf(`[{"name":%q,"interface":"net1"`, w.definition)
	if claim != "" {
		element += fmt.Sprintf(`,"ipam-claim-reference":%q`, claim)
	}
	i := w.podWith(n, name, map[string]string{kube.AnnotationNetworks: element + extra + "}]"}, owners...)
	if claim != "" {
		i.Top = map[string]any{fleet.ClaimKey: claim}
	}
	return i
}

// podWith is pod with all annotations.
func (w *network) podWith(n *fleet.Node, name string, annotations map[string]string, owners ...metav1.OwnerReference) fleet.Interface {
	w.t.Helper()
	return ofPod(makePod(w.t, n.Name, "default", name, annotations, owners...), w.sandbox())
}

// claim makes a claim of the network, as a workload's controller does.
func (w *network) claim(name string, owners ...metav1.OwnerReference) *ipamclaims.IPAMClaim {
	w.t.Helper()
	return w.claimWith(name, nil, owners...)
}

// claimWith is claim with annotations.
func (w *network) claimWith(name string, annotations map[string]string, owners ...metav1.OwnerReference) *ipamclaims.IPAMClaim {
	w.t.Helper()
	return fleet.Create(w.t, kc, &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations, OwnerReferences: owners},
		Spec:       ipamclaims.IPAMClaimSpec{Network: w.name},
	})
}

// requesting makes a claim that asks for addresses by name.
func (w *network) requesting(name, addrs string) *ipamclaims.IPAMClaim {
	w.t.Helper()
	return w.claimWith(name, map[string]string{workload.AnnotationRequested: addrs})
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
	return &pod{Interface: w.pod(n, name, "", ""), node: n}
}

// runWith is run, of a pod that has a claim.
func (w *network) runWith(n *fleet.Node, name string, c *ipamclaims.IPAMClaim) *pod {
	w.t.Helper()
	return &pod{Interface: w.pod(n, name, c.Name, ""), node: n}
}

// attached is run, and an ADD that succeeds.
func (w *network) attached(n *fleet.Node, name string) *pod {
	w.t.Helper()
	p := w.run(n, name)
	must(w.t, p.attach())
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

// asks has p ask for an address by name.
func (p *pod) asks(address string) *pod {
	p.Top = map[string]any{"args": map[string]any{"cni": map[string]any{"ips": []string{address}}}}
	return p
}

// end ends a pod as a kubelet does.
func (p *pod) end(t testing.TB) {
	t.Helper()
	endPod(t, p.node, p.Interface)
}

// delete deletes the pod's object alone.
func (p *pod) delete(t testing.TB) {
	t.Helper()
	fleet.Delete(t, kc, podOf(p.Interface))
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
	eventually(w.t, within, noLeases(w.t, w.name))
}

// granted returns the addresses of the pool that are granted to anybody.
func (w *network) granted() (addrs []netip.Addr) {
	w.t.Helper()
	for _, l := range leasesOf(w.t, w.name) {
		for _, g := range l.Grants {
			addrs = append(addrs, g.Addr)
		}
	}
	return addrs
}

// nothingGranted waits until no address of the pool is granted.
func (w *network) nothingGranted(within time.Duration) {
	w.t.Helper()
	eventually(w.t, within, func() error {
		if left := w.granted(); len(left) > 0 {
			return fmt.Errorf("%v are still granted", left)
		}
		return nil
	})
}

// poolSays waits until a condition of the pool is True, with a reason and words, or without a
// reason until it is not there.
func (w *network) poolSays(kind, reason string, words ...string) {
	w.t.Helper()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	await(w.t, time.Minute, p, func() error {
		if reason == "" && meta.FindStatusCondition(p.Status.Conditions, kind) == nil {
			return nil
		}
		return fleet.Condition(p.Status.Conditions, kind, metav1.ConditionTrue, reason, words...)
	})
}

// keeps waits until a reservation has its address, and says these words.
func (w *network) keeps(o *v1alpha1.IPReservation, words ...string) {
	w.t.Helper()
	await(w.t, time.Minute, o, func() error {
		return fleet.Condition(o.Status.Conditions, v1alpha1.Reserved, metav1.ConditionTrue, v1alpha1.ReasonKept, words...)
	})
}
