package controller_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// What dead nodes wait for in these tests. Both are long enough for a machine that
// does much at once.
const (
	shortFence  = 12 * time.Second
	shortMargin = 3 * time.Second
)

func withMargin(c *controller.Config) { c.TakeOverMargin = shortMargin }

// newFleet returns a fleet whose agents fence themselves after f; on what machine
// they say to be, machine tells where it is given.
func newFleet(t *testing.T, rc *rest.Config, f time.Duration, machine string) *fleet.Fleet {
	t.Helper()
	fl := fleet.New(t, rc)
	fl.Change = func(c *daemon.Config) {
		c.Agent.Fence, c.Agent.Wait, c.Agent.Idle = f, 2*time.Second, 2*time.Second
		if machine != "" {
			c.Agent.Machine = machine
		}
	}
	return fl
}

func nodeOf(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// makeNode makes a Node object, which the test's end removes.
func makeNode(t *testing.T, name string, taints ...corev1.Taint) *corev1.Node {
	t.Helper()
	n := nodeOf(name)
	n.Spec.Taints = taints
	fleet.Create(t, kc, n)
	t.Cleanup(func() {
		if err := kc.Delete(context.Background(), nodeOf(name)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return n
}

func offTaint() corev1.Taint {
	return corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
}

// setTaints replaces a Node's taints.
func setTaints(t *testing.T, name string, taints ...corev1.Taint) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		n, err := read(nodeOf(name))
		if err != nil {
			return err
		}
		n.Spec.Taints = taints
		return kc.Update(t.Context(), n)
	})
}

func reg(t testing.TB, node string) protocol.Registration {
	t.Helper()
	s, out, err := api.ReadRegistration(t.Context(), protocol.NodeName(node))
	if out != protocol.Done {
		t.Fatal(err)
	}
	return s
}

// heldBy returns the leases of a pool that a node holds.
func heldBy(t testing.TB, p *v1alpha1.IPPool, node string) (own []protocol.Lease) {
	t.Helper()
	leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if l.Holder.Node == protocol.NodeName(node) {
			own = append(own, l)
		}
	}
	return own
}

// onPool is an interface of a sandbox on a pool.
func onPool(p *v1alpha1.IPPool, sandbox string) fleet.Interface {
	return fleet.Interface{Network: "net-" + p.Name, Sandbox: sandbox, IfName: "net1", IPAM: map[string]any{"type": "tenure", "pool": p.Name}}
}

func mustAdd(t *testing.T, n *fleet.Node, i fleet.Interface) netip.Addr {
	t.Helper()
	res, err := n.Insist(i)
	if err != nil {
		t.Fatalf("ADD of %s on %s: %v", i.Sandbox, n.Name, err)
	}
	return res.IPs[0].Address.Addr()
}

// eventuallyAdd adds as a runtime does: again and again.
func eventuallyAdd(t *testing.T, within time.Duration, n *fleet.Node, i fleet.Interface) (a netip.Addr) {
	t.Helper()
	eventually(t, within, func() error {
		res, err := n.Add(i)
		if err == nil {
			a = res.IPs[0].Address.Addr()
		}
		return err
	})
	return a
}

// logged waits until an agent's log has a line with all of these words.
func logged(t *testing.T, n *fleet.Node, words ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		for line := range strings.Lines(n.Log()) {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found {
				return nil
			}
		}
		return fmt.Errorf("the log of %s has no line with %q", n.Name, words)
	})
}

// podOn makes a real pod on a node, and returns its interface on a pool. annotation is
// that of its networks; empty is none.
func podOn(t *testing.T, p *v1alpha1.IPPool, namespace, node, name, annotation string) fleet.Interface {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if annotation != "" {
		pod.Annotations = map[string]string{kube.AnnotationNetworks: annotation}
	}
	eventually(t, 20*time.Second, func() error { // the namespace's service account may take its time
		return kc.Create(t.Context(), pod)
	})
	i := onPool(p, "sandbox-of-"+name)
	i.Namespace, i.Pod, i.PodUID = namespace, name, string(pod.UID)
	return i
}

// claimant makes a real pod on a node that uses a claim, and returns its interface.
func claimant(t *testing.T, p *v1alpha1.IPPool, c *ipamclaims.IPAMClaim, network, node, name string) fleet.Interface {
	t.Helper()
	i := podOn(t, p, c.Namespace, node, name, fmt.Sprintf(`[{"name":%q,"interface":"net1","ipam-claim-reference":%q}]`, network, c.Name))
	i.Network, i.Top = network, map[string]any{fleet.ClaimKey: c.Name}
	return i
}

// TestTaintTakesOver: somebody vouches that a machine is off. At once, F or not, its
// leases are the cluster's and its use of a claim ends; when it comes back it gives
// out nothing of what was taken, and says who uses it.
func TestTaintTakesOver(t *testing.T) {
	start(t)
	ns, p := namespace(t), pool(t, "10.0.0.0/29") // six addresses
	network := fleet.Unique("lan")
	definition(t, ns, network, network, ofPool(p.Name))
	opened(t, p)
	f := newFleet(t, cp.Config(), 15*time.Minute, "")
	makeNode(t, "taint-a")
	makeNode(t, "taint-b")
	a, b := f.Start("taint-a"), f.Start("taint-b")
	c := claim(t, ns, "c", network)
	ip := netip.MustParsePrefix(allocated(t, c)[0]).Addr()
	if got := mustAdd(t, a, claimant(t, p, c, network, a.Name, "first")); got != ip {
		t.Errorf("the claim's pod has %v; want %v", got, ip)
	}
	for i := range 5 {
		mustAdd(t, a, onPool(p, fmt.Sprint("a", i)))
	}
	var bs []fleet.Interface
	for i := range 5 {
		bs = append(bs, podOn(t, p, ns, b.Name, fmt.Sprint("b", i), ""))
	}
	a9 := podOn(t, p, ns, a.Name, "a9", "")
	b.Refused(t, bs[0], p.Name)
	before := reg(t, a.Name)
	a.Stop()
	f.Observer.Off(a.Name)

	setTaints(t, a.Name, offTaint())
	for _, i := range bs {
		eventuallyAdd(t, 20*time.Second, b, i)
	}
	if got := eventuallyAdd(t, 20*time.Second, b, claimant(t, p, c, network, b.Name, "second")); got != ip {
		t.Errorf("the claim's next pod, on another node, has %v; want %v", got, ip)
	}
	if held := heldBy(t, p, a.Name); len(held) > 0 {
		t.Errorf("the node that is off holds %v", held)
	}
	ended := reg(t, a.Name)
	last := ended.Former[len(ended.Former)-1]
	if !ended.Ended() || ended.Term != before.Term+1 || last.Store != before.Store || !last.Ended || !last.Vouched {
		t.Errorf("the registration is %+v; want the term of %s ended by the taint", ended, before.Store)
	}
	told(t, a.Name, "TermEnded", corev1.TaintNodeOutOfService)
	told(t, a.Name, "TakenOver", "leases")

	// It is back, and the taint still there: it says what to do.
	a = f.Launch(a.Name)
	logged(t, a, "heartbeat not accepted", "remove the taint")
	a.Refused(t, a9, "remove the taint")
	a.Refused(t, onPool(p, "a0"), "remove the taint")
	setTaints(t, a.Name)
	a.AwaitServing()
	if again := reg(t, a.Name); again.Store != before.Store || again.Term <= ended.Term || len(again.Former) != 0 {
		t.Errorf("it is registered as %+v; want its store in a new term", again)
	}
	for i := range 5 { // these are pods of b by now
		a.Refused(t, onPool(p, fmt.Sprint("a", i)), "taken from this node")
	}
	logged(t, a, "right lost", "usedBy", "net1")
	a.Refused(t, a9, p.Name)
	for i := range 5 {
		mustDel(t, a, onPool(p, fmt.Sprint("a", i)))
	}
	mustDel(t, b, bs[0])
	eventuallyAdd(t, 20*time.Second, a, a9)
}

func mustDel(t *testing.T, n *fleet.Node, i fleet.Interface) {
	t.Helper()
	if err := n.Del(i); err != nil {
		t.Fatalf("DEL of %s on %s: %v", i.Sandbox, n.Name, err)
	}
}

// told waits until an Event about a Node says something.
func told(t *testing.T, node, reason, words string) {
	t.Helper()
	fleet.Event(t, kc, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, reason, words)
}

// TestNodeDeletedAndMadeAgain: a Node object comes back under its name.
func TestNodeDeletedAndMadeAgain(t *testing.T) {
	start(t, withMargin)
	t.Run("the agent lives", func(t *testing.T) {
		t.Parallel()
		p := pool(t, "10.0.0.0/24")
		opened(t, p)
		// Longer than elsewhere: where a machine holds up its heartbeats for so long, it is
		// taken over, and rightly.
		const fence = 3 * shortFence
		f := newFleet(t, cp.Config(), fence, "")
		makeNode(t, "new-alive")
		n := f.Start("new-alive")
		mustAdd(t, n, onPool(p, "c1"))
		was := reg(t, n.Name)
		remove(t, nodeOf(n.Name))
		deleted := time.Now()
		eventually(t, time.Minute, func() error {
			if s := reg(t, n.Name); s.Beat.Sub(deleted) < fence+2*shortMargin {
				return fmt.Errorf("the last heartbeat was %v after the Node was deleted", s.Beat.Sub(deleted))
			}
			return nil
		})
		if s := reg(t, n.Name); s.Term != was.Term || len(heldBy(t, p, n.Name)) == 0 {
			t.Errorf("an agent that beats, without a Node, is registered as %+v and holds %v; want it as before", s, heldBy(t, p, n.Name))
		}
		mustAdd(t, n, onPool(p, "c2"))
		again := nodeOf(n.Name)
		fleet.Create(t, kc, again)
		eventually(t, time.Minute, func() error {
			if s := reg(t, n.Name); s.NodeUID != uidOf(again) {
				return fmt.Errorf("the registration names Node %s; want %s", s.NodeUID, again.UID)
			}
			return nil
		})
		if s := reg(t, n.Name); s.Term != was.Term {
			t.Errorf("term %d; want %d still", s.Term, was.Term)
		}
		mustAdd(t, n, onPool(p, "c3"))
	})
	t.Run("the agent is dead", func(t *testing.T) {
		t.Parallel()
		p := pool(t, "10.0.0.0/24")
		opened(t, p)
		f := newFleet(t, cp.Config(), shortFence, "")
		makeNode(t, "new-dead")
		n := f.Start("new-dead")
		mustAdd(t, n, onPool(p, "c1"))
		remove(t, nodeOf(n.Name))
		n.Stop()
		last := reg(t, n.Name)
		fleet.Create(t, kc, nodeOf(n.Name))
		ended := endsAfter(t, n.Name, last)
		if l := ended.Former[len(ended.Former)-1]; l.Store != last.Store || !l.Ended || l.Vouched {
			t.Errorf("the last agent registered is %+v; want %s, ended, and nobody has vouched", l, last.Store)
		}
		f.Observer.Off(n.Name)
		eventually(t, time.Minute, func() error { return holdsNone(t, p, n.Name) })
		n = f.Start(n.Name) // is registered at once: nobody else is
		mustAdd(t, n, onPool(p, "c2"))
		n.Refused(t, onPool(p, "c1"), "taken from this node")
	})
	t.Run("the agent is on another machine", func(t *testing.T) {
		t.Parallel()
		p := pool(t, "10.0.0.0/24")
		opened(t, p)
		f1 := newFleet(t, cp.Config(), shortFence, "machine-1")
		makeNode(t, "new-moved")
		one := f1.Start("new-moved")
		mustAdd(t, one, onPool(p, "c1"))
		remove(t, nodeOf(one.Name))
		one.Stop()
		last := reg(t, one.Name)
		fleet.Create(t, kc, nodeOf(one.Name))
		f2 := newFleet(t, cp.Config(), shortFence, "machine-2")
		f2.Observer = f1.Observer
		two := f2.Launch(one.Name)
		logged(t, two, "heartbeat not accepted", "machine machine-1")
		two.AwaitServing()
		now := reg(t, two.Name)
		if now.Machine != "machine-2" || now.Term <= last.Term || len(now.Former) != 1 || now.Former[0].Store != last.Store {
			t.Errorf("the second machine is registered as %+v; want it after %s", now, last.Store)
		}
		mustAdd(t, two, onPool(p, "c2"))
		eventually(t, time.Minute, func() error {
			for _, l := range heldBy(t, p, two.Name) {
				if l.Store == last.Store {
					return fmt.Errorf("lease %s is still that of the first machine", l.Name)
				}
			}
			return nil
		})
		if took := time.Since(last.Beat); took < shortFence+shortMargin {
			t.Errorf("the first machine's leases were taken %v after its last heartbeat; want %v at least", took, shortFence+shortMargin)
		}
		f1.Observer.Off(one.Name)
		mustAdd(t, two, onPool(p, "c3"))
		if s := reg(t, two.Name); s.Term != now.Term {
			t.Errorf("the second machine's term is %d; want %d still", s.Term, now.Term)
		}
	})
}

// endsAfter waits until the term of a registration has been ended, and wants that no sooner
// than F and the margin after its last heartbeat.
func endsAfter(t *testing.T, node string, last protocol.Registration) (ended protocol.Registration) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		if ended = reg(t, node); !ended.Ended() {
			return fmt.Errorf("term %d of node %s has not ended", ended.Term, node)
		}
		return nil
	})
	if took := time.Since(last.Beat); took < shortFence+shortMargin {
		t.Errorf("the term was ended %v after the last heartbeat; want %v at least", took, shortFence+shortMargin)
	}
	return ended
}

func holdsNone(t testing.TB, p *v1alpha1.IPPool, node string) error {
	t.Helper()
	if held := heldBy(t, p, node); len(held) > 0 {
		return fmt.Errorf("node %s still holds %v", node, held)
	}
	return nil
}

// A link carries the connections of an agent to the API server, until it is cut.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
}

// newLink returns a link, and the configuration that leads through it.
func newLink(t *testing.T) (*link, *rest.Config) {
	t.Helper()
	rc := cp.Config()
	u, err := url.Parse(rc.Host)
	if err != nil {
		t.Fatal(err)
	}
	to := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	var g sync.WaitGroup
	g.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.Go(func() { k.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		k.set(true)
		g.Wait()
	})
	u.Host = l.Addr().String()
	rc.Host = u.String()
	return k, rc
}

// carry moves bytes both ways until either side or the link ends.
func (k *link) carry(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer up.Close()
	k.mu.Lock()
	cut := k.cut
	k.conns[c], k.conns[up] = struct{}{}, struct{}{}
	k.mu.Unlock()
	if cut {
		return
	}
	var g sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
		g.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // it ends when a side does
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	g.Wait()
	k.mu.Lock()
	delete(k.conns, c)
	delete(k.conns, up)
	k.mu.Unlock()
}

// set cuts the link, or mends it.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	if cut {
		for c := range k.conns {
			_ = c.Close()
		}
	}
}

// TestCutOffNodeIsTakenOver: a node that is cut off stops giving out addresses
// before others may have them, and when it is back it gives nothing twice and says
// which of its pods have what was taken.
func TestCutOffNodeIsTakenOver(t *testing.T) {
	proof.Only(t)
	start(t, withMargin)
	ns, p := namespace(t), pool(t, "10.0.0.0/29") // six addresses
	opened(t, p)
	line, rc := newLink(t)
	fa, fb := newFleet(t, rc, shortFence, ""), newFleet(t, cp.Config(), shortFence, "")
	fb.Observer = fa.Observer
	makeNode(t, "cut-a")
	a, b := fa.Start("cut-a"), fb.Start("cut-b")
	kept := []netip.Addr{mustAdd(t, a, onPool(p, "a0")), mustAdd(t, a, onPool(p, "a1"))}
	var bs []fleet.Interface
	for i := range 6 {
		bs = append(bs, podOn(t, p, ns, b.Name, fmt.Sprint("b", i), ""))
	}
	for _, i := range bs[:4] {
		eventuallyAdd(t, 20*time.Second, b, i)
	}
	b.Refused(t, bs[4], p.Name)

	line.set(true)
	remove(t, nodeOf(a.Name))
	last := reg(t, a.Name)
	eventually(t, time.Minute, func() error { // the agent fences itself first
		if _, err := a.Add(onPool(p, "a2-first")); err == nil || !strings.Contains(err.Error(), "no heartbeat") {
			return fmt.Errorf("a new ADD on the node that is cut off: %w", err)
		}
		return nil
	})
	// An ADD that hangs can tell it late: too late to say who was first.
	if s := reg(t, a.Name); s.Ended() && time.Since(last.Beat) < shortFence+shortMargin {
		t.Error("the node was taken over before it had fenced itself")
	}
	for i, want := range kept { // what its pods have already they may have again
		if got := mustAdd(t, a, onPool(p, fmt.Sprint("a", i))); got != want {
			t.Errorf("repeated ADD: %v; want %v", got, want)
		}
	}
	endsAfter(t, a.Name, last)
	fa.Observer.Off(a.Name)
	for _, i := range bs[4:] {
		eventuallyAdd(t, 30*time.Second, b, i)
	}

	line.set(false)
	a.AwaitServing()
	if s := reg(t, a.Name); s.Store != last.Store || s.Term <= last.Term+1 {
		t.Errorf("it is registered as %+v; want %s in a new term", s, last.Store)
	}
	for i := range kept {
		eventually(t, 20*time.Second, func() error {
			_, err := a.Add(onPool(p, fmt.Sprint("a", i)))
			if err == nil || !strings.Contains(err.Error(), "taken from this node") {
				err = fmt.Errorf("repeated ADD: %v; want a word that it was taken", err)
				return err
			}
			return nil
		})
	}
	logged(t, a, "right lost", "usedBy")
	a2 := podOn(t, p, ns, a.Name, "a2", "")
	a.Refused(t, a2, p.Name)
	for i := range kept {
		mustDel(t, a, onPool(p, fmt.Sprint("a", i)))
	}
	mustDel(t, b, bs[0])
	eventuallyAdd(t, 20*time.Second, a, a2)
}

// TestConfirmedPools: a pool whose takeOver is Confirmed takes nobody's word but that
// of somebody who vouches, for leases as for claims in use.
func TestConfirmedPools(t *testing.T) {
	start(t, withMargin)
	ns := namespace(t)
	type held struct {
		pool  *v1alpha1.IPPool
		lease protocol.Lease
		use   protocol.SubLease
	}
	node := fleet.Unique("confirmed")
	hold := func(takeOver v1alpha1.TakeOver, cidr string, block string) held {
		p := pool(t, cidr)
		fleet.Edit(t, kc, p, func() { p.Spec.TakeOver = takeOver })
		network := fleet.Unique("net")
		definition(t, ns, network, network, ofPool(p.Name))
		opened(t, p)
		c := claim(t, ns, network, network)
		allocated(t, c)
		return held{p, nodeLease(t, p, uidOf(p), block, node), use(t, c, 0, node, "pod-"+network)}
	}
	automatic := hold(v1alpha1.TakeOverAutomatic, "10.0.0.0/24", "10.0.0.200/32")
	confirmed := hold(v1alpha1.TakeOverConfirmed, "10.0.0.0/24", "10.0.0.200/32")
	deadRegistration(t, node)

	there := func(h held) error {
		l, out, err := api.ReadLease(t.Context(), h.lease.Name)
		if out != protocol.Done || l.Holder.Node != protocol.NodeName(node) {
			return fmt.Errorf("lease %s is %+v (%w)", h.lease.Name, l.Holder, err)
		}
		_, _, err = api.ReadSubLease(t.Context(), h.use.Name)
		return err
	}
	taken := func(h held) error {
		_, out, _ := api.ReadSubLease(t.Context(), h.use.Name)
		if out != protocol.NotFound {
			return fmt.Errorf("the use %s is still there", h.use.Name)
		}
		return holdsNone(t, h.pool, node)
	}
	eventually(t, 30*time.Second, func() error { return taken(automatic) })
	told(t, node, "TakenOver", "2 wait")
	if err := there(confirmed); err != nil {
		t.Errorf("of the pool that asks for confirmation: %v; want it left", err)
	}
	makeNode(t, node, offTaint())
	eventually(t, 30*time.Second, func() error { return taken(confirmed) })
}

// deadRegistration makes the registration of a node of which nothing will be heard, and which has
// no Node object. Its F is a second.
func deadRegistration(t *testing.T, node string) protocol.Registration {
	t.Helper()
	s, _, err := api.CreateRegistration(t.Context(), protocol.Registration{
		Node: protocol.NodeName(node), Store: "store-of-" + protocol.StoreID(node), Machine: "machine-of-" + node, Boot: "boot",
		Term: 1, Fence: time.Second, Writes: 1, Beat: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTaintOnANodeThatLives: the agent learns at once that its term was ended,
// whatever its heartbeats' pace, and gives out nothing more.
func TestTaintOnANodeThatLives(t *testing.T) {
	start(t)
	p := pool(t, "10.0.0.0/24")
	opened(t, p)
	f := newFleet(t, cp.Config(), 15*time.Minute, "") // it beats every four minutes
	node := makeNode(t, fleet.Unique("lives"))
	n := f.Start(node.Name)
	mustAdd(t, n, onPool(p, "c1"))
	setTaints(t, n.Name, offTaint())
	eventually(t, 30*time.Second, func() error {
		if err := holdsNone(t, p, n.Name); err != nil {
			return err
		}
		if _, err := n.Add(onPool(p, "c1")); err == nil || !strings.Contains(err.Error(), "remove the taint") {
			return fmt.Errorf("an ADD that is repeated: %w; want a word about the taint", err)
		}
		return nil
	})
	f.Observer.Off(n.Name)
	setTaints(t, n.Name)
	n.AwaitServing()
	n.Refused(t, onPool(p, "c1"), "taken from this node")
	mustAdd(t, n, onPool(p, "c2"))
}

// TestAnotherBoot: a machine that boots while it is cut off answers nobody before
// its registration is confirmed, not even what its pods had; then a pod's next sandbox gets
// the pod's address again.
func TestAnotherBoot(t *testing.T) {
	start(t)
	ns, p := namespace(t), pool(t, "10.0.0.0/24")
	opened(t, p)
	line, rc := newLink(t)
	f := newFleet(t, rc, 15*time.Minute, "")
	node := makeNode(t, fleet.Unique("boots"))
	n := f.Start(node.Name)
	pod := podOn(t, p, ns, n.Name, "pod", "")
	of := func(sandbox string) fleet.Interface {
		i := pod
		i.Sandbox = sandbox
		return i
	}
	had := mustAdd(t, n, of("before"))
	mustAdd(t, n, onPool(p, "plain")) // nothing needs to be read for it
	was := reg(t, n.Name)
	n.Stop()
	f.Observer.Off(n.Name) // its sandboxes are gone with the boot
	n.Config().Agent.Boot = "another-boot"
	line.set(true)
	n = f.Launch(n.Name)
	eventually(t, 20*time.Second, func() error {
		res, err := n.Add(onPool(p, "plain"))
		if err == nil {
			t.Fatalf("ADD after the boot, cut off: %+v; want none before the registration is confirmed", res)
		}
		if !strings.Contains(err.Error(), "is not confirmed yet") {
			return fmt.Errorf("ADD after the boot: %w; want a word about the registration", err)
		}
		return nil
	})
	line.set(false)
	n.AwaitServing()
	if got := mustAdd(t, n, of("after")); got != had {
		t.Errorf("the pod's next sandbox has %v; want %v", got, had)
	}
	if s := reg(t, n.Name); s.Term != was.Term+1 {
		t.Errorf("it is registered in term %d; want %d", s.Term, was.Term+1)
	}
	for _, l := range heldBy(t, p, n.Name) {
		if l.Block.Contains(had) && l.Term != was.Term+1 {
			t.Errorf("%v was answered out of a lease that says term %d; want %d", had, l.Term, was.Term+1)
		}
	}
}
