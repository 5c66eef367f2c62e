package operator_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// With whereabouts in the cluster: its kinds are slow to come and go, and are there once.
func TestMovingFromWhereaboutsAndBack(t *testing.T) {
	t.Run("export without whereabouts", func(t *testing.T) {
		o := newOld(t)
		o.definition("lan", `{"type":"tenure","network_name":"lonely","range":"10.96.0.0/24"}`)
		o.exportRefuses("lan", "the cluster has no whereabouts: install it first")
	})
	fleet.Whereabouts(t, kc)
	t.Run("export refuses", exportRefuses)
	t.Run("import tells what is wrong with records", importTellsWhatIsWrong)
	t.Run("in and out", movingInAndOut)
}

// exportRefuses: nothing is stopped or switched where whereabouts could not give the
// addresses.
func exportRefuses(t *testing.T) {
	o := newOld(t)
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("pool")}, Spec: v1alpha1.IPPoolSpec{Domain: "refuses", Ranges: []v1alpha1.Range{{CIDR: "10.97.0.0/24"}}}}
	create(t, p)
	o.definition("by-name", fmt.Sprintf(`{"type":"tenure","pool":%q}`, p.Name))
	o.exportRefuses("by-name", "definition "+o.ref("by-name")+" has no range that whereabouts reads: describe its addresses with range or ipRanges")
	o.definition("local", `{"type":"tenure","mode":"local","subnet":"10.96.1.0/24"}`)
	o.exportRefuses("local", "definition "+o.ref("local")+" has mode local: each node gives addresses of the segment by itself", "Delete these pods, write it for whereabouts by hand")
	o.definition("lan", `{"type":"tenure","network_name":"refuses-too","range":"10.96.0.0/24"}`)
	o.definition("fixed", `{"type":"static","addresses":[{"address":"10.96.0.7/24"}]}`)
	o.exportRefuses("lan", "definition "+o.ref("fixed")+" names static")
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Spec.Allocation == v1alpha1.AllocationStopped {
		t.Errorf("%v; want the pool not stopped: %+v", err, p.Spec)
	}
}

// exportRefuses wants an export of a definition to say this, and to do nothing.
func (o *old) exportRefuses(definition string, words ...string) {
	o.t.Helper()
	says(o.t, tenure(o.t, 3, "export", "--to", "whereabouts"), words...)
	says(o.t, tenure(o.t, 1, "export", "--to", "whereabouts", "--apply"), append(words, "not everything was moved")...)
	if got := o.ipamOf(definition); got != "tenure" {
		o.t.Errorf("the definition names %s; want it as it was", got)
	}
}

// mover is a cluster with agents on which pods move in and out.
type mover struct {
	*old
	fleet   *fleet.Fleet
	nodes   []*fleet.Node
	network string // of whereabouts, and the pool's name
}

func newMover(t *testing.T) *mover {
	m := &mover{old: newOld(t), network: fleet.Unique("net")}
	controller(t)
	m.fleet = fleet.New(t, accounts.Agent)
	m.fleet.Change = func(c *daemon.Config) { c.Agent.PublishEvery = 200 * time.Millisecond }
	for range 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("node")}}
		create(t, node)
		m.nodes = append(m.nodes, m.fleet.Start(node.Name))
	}
	return m
}

// ipam returns an ipam section of the network.
func (m *mover) ipam(of, cidr string) string {
	return fmt.Sprintf(`{"type":%q,"network_name":%q,"range":%q}`, of, m.network, cidr)
}

// attached runs a pod on a node, which Tenure gives an address.
func (m *mover) attached(name string, n *fleet.Node, definition, cidr string) (addr string) {
	m.t.Helper()
	pod := m.runs(name, n.Name, definition)
	i := fleet.Interface{
		Network: m.namespace + "-" + definition, Sandbox: name, IfName: "net1", Namespace: pod.Namespace, Pod: name, PodUID: string(pod.UID),
		Netns: filepath.Join(m.t.TempDir(), name), IPAM: map[string]any{"type": "tenure", "network_name": m.network, "range": cidr},
	}
	if err := os.WriteFile(i.Netns, nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
	res, err := n.Insist(i)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { m.fleet.Observer.Void(n.Name, i.Network, i.Sandbox, i.IfName) })
	addr = res.IPs[0].Address.Addr().String()
	m.shows(pod, addr)
	return addr
}

// recorded returns what whereabouts has recorded, as "address pod" of its IPPools and of
// its reservations.
func (m *mover) recorded() (pools, reservations map[string]string) {
	m.t.Helper()
	pools, reservations = map[string]string{}, map[string]string{}
	if _, err := api.WhereaboutsPools(m.t.Context(), func(o *object) {
		records, faults := foreign.WhereaboutsPool(specOf(o))
		for _, r := range records {
			pools[o.GetName()+" "+r.Addr.String()] = r.PodName + " " + r.Interface
		}
		for _, f := range faults {
			m.t.Error(f)
		}
	}); err != nil {
		m.t.Fatal(err)
	}
	if _, err := api.WhereaboutsReservations(m.t.Context(), func(o *object) {
		r, fault := foreign.WhereaboutsReservation(specOf(o))
		if fault != "" {
			m.t.Error(fault)
		}
		reservations[r.Addr.String()] = r.PodName
	}); err != nil {
		m.t.Fatal(err)
	}
	return pools, reservations
}

// interrupted runs a command until it has said something, and kills it.
func interrupted(t *testing.T, word string, args ...string) {
	t.Helper()
	a := &asked{t: t, cmd: command(t, args...)}
	a.cmd.Stdout, a.cmd.Stderr = a, a
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(a.text(), word) {
			return fmt.Errorf("it does not say %q: %s", word, a.text())
		}
		return nil
	})
	_ = a.cmd.Process.Kill() // it may have ended
	_ = a.cmd.Wait()         // it was killed
}

// movingInAndOut: pods move from whereabouts to Tenure and back. What was begun before is
// gone on with, and what was done is not done again.
func movingInAndOut(t *testing.T) {
	m := newMover(t)
	const wide, part = "10.98.0.0/24", "10.98.0.0/25"
	m.definition("lan", m.ipam("whereabouts", wide))
	m.definition("part", m.ipam("whereabouts", part))
	m.records(m.network+"-10.98.0.0-24", wide, "1 old-a", "3 late", "9 gone")
	m.records(m.network+"-10.98.0.0-25", part, "2 old-b")
	m.runs("old-a", m.nodes[0].Name, "lan", "10.98.0.1")
	m.runs("old-b", m.nodes[1].Name, "part", "10.98.0.2")
	starting := m.runs("starting", m.nodes[0].Name, "lan") // its ADD is under way
	imports := []string{"import", "--from", "whereabouts", "--apply"}

	interrupted(t, "the pool is opened", imports...)
	if lan, part := m.ipamOf("lan"), m.ipamOf("part"); lan != "tenure" || part != "tenure" {
		t.Fatalf("lan names %s and part %s; want both of the segment switched", lan, part)
	}
	fleet.Eventually(t, 30*time.Second, func() error {
		out, err := command(t, append(imports, "--timeout=1s")...).CombinedOutput()
		if err == nil {
			t.Fatalf("the pool is open while a pod may get an address: %s", out)
		}
		if !bytes.Contains(out, []byte("may still get an address of another IPAM: "+m.ref("starting"))) || !bytes.Contains(out, []byte("not open after 1s")) {
			return fmt.Errorf("it does not say what it waits for: %s", out)
		}
		return nil
	})
	m.shows(starting, "10.98.0.4")
	says(t, tenure(t, 0, imports...), "switched "+m.ref("lan")+", "+m.ref("part"), "Definitions switched: 0. Pools: "+m.network+". 3 pods have 3 addresses by whereabouts")
	says(t, tenure(t, 0, imports...), "Nothing is left to switch", "Definitions switched: 0")

	has := map[string]string{"10.98.0.1": "old-a", "10.98.0.2": "old-b", "10.98.0.4": "starting"}
	for i, n := range m.nodes {
		for j, d := range []string{"lan", "part"} {
			name := fmt.Sprintf("new-%d%d", i, j)
			addr := m.attached(name, n, d, []string{wide, part}[j])
			if was, twice := has[addr]; twice {
				t.Fatalf("pod %s gets %s, which %s has", name, addr, was)
			}
			has[addr] = name
		}
	}
	m.exports(has)
	m.importsAgain(has)
}

// exports moves pods that have these addresses to whereabouts.
func (m *mover) exports(has map[string]string) {
	t := m.t
	t.Helper()
	c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "idle"}, Spec: ipamclaims.IPAMClaimSpec{Network: m.namespace + "-lan"}}
	create(t, c)
	fleet.Eventually(t, 20*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil || len(c.Status.IPs) == 0 {
			return fmt.Errorf("the claim has %q, %w", c.Status.IPs, err)
		}
		return nil
	})
	before := state(t)
	says(t, tenure(t, 0, "export", "--to", "whereabouts"), "to switch "+m.ref("lan")+", "+m.ref("part"), "7 running pods have 7 addresses", `"type":"whereabouts"`)
	if diff := changes(before, state(t)); len(diff) > 0 {
		t.Errorf("looking has written %q", diff)
	}
	says(t, tenure(t, 1, "export", "--to", "whereabouts", "--apply"), "whereabouts cannot keep", " of claim "+m.ref("idle"), "--without-claims", "import --from whereabouts --apply has them go on")
	if got := m.ipamOf("lan"); got != "tenure" {
		t.Fatalf("lan names %s, though the claim loses its address", got)
	}
	m.notShownYet("new-00")
	m.startedMeanwhile()
	says(t, tenure(t, 0, "export", "--to", "whereabouts", "--apply", "--without-claims"),
		"7 addresses of pods are recorded with whereabouts", "Definitions switched: 2. Pools stopped: "+m.network, "7 addresses of running pods are Tenure's until these pods end")
	pools, reservations := m.recorded()
	inPools := map[string]string{}
	for addr, pod := range has {
		inPools[m.network+"-10.98.0.0-24 "+addr] = pod + " net1"
		if netip.MustParsePrefix("10.98.0.0/25").Contains(netip.MustParseAddr(addr)) {
			inPools[m.network+"-10.98.0.0-25 "+addr] = pod + " net1"
		}
	}
	// What whereabouts had of pods that are gone is its own to clean up.
	for addr, gone := range map[string]string{"10.98.0.3": "late", "10.98.0.9": "gone"} {
		if has[addr] == "" { // Tenure may have given it to another
			inPools[m.network+"-10.98.0.0-24 "+addr] = gone + " net1"
		}
	}
	if diff := cmp.Diff(inPools, pools); diff != "" {
		t.Errorf("whereabouts' IPPools -want +got\n%s", diff)
	}
	if diff := cmp.Diff(has, reservations); diff != "" {
		t.Errorf("whereabouts' reservations -want +got\n%s", diff)
	}
	before = state(t)
	says(t, tenure(t, 0, "export", "--to", "whereabouts", "--apply"), "There is no definition that names tenure.")
	if diff := changes(before, state(t)); len(diff) > 0 {
		t.Errorf("a second call has written %q", diff)
	}
}

// notShownYet: while whereabouts would not find an address of a pod that runs in its status,
// nothing is switched: its reconciler would take the record away.
func (m *mover) notShownYet(name string) {
	t := m.t
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name}}
	show := func(status string) {
		if err := kc.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, npwg.AnnotationStatus, status))); err != nil {
			t.Fatal(err)
		}
	}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	status := pod.Annotations[npwg.AnnotationStatus]
	show("[]")
	interrupted(t, " of pod "+m.ref(name)+". Where it will not, delete the pod", "export", "--to", "whereabouts", "--apply", "--without-claims")
	if got := m.ipamOf("lan"); got != "tenure" {
		t.Errorf("lan names %s, though whereabouts would lose the record of pod %s", got, name)
	}
	show(status)
}

// startedMeanwhile: a pool that somebody starts while an export waits keeps the export from
// switching anything.
func (m *mover) startedMeanwhile() {
	t := m.t
	t.Helper()
	a := &asked{t: t, cmd: command(t, "export", "--to", "whereabouts", "--apply", "--without-claims")}
	a.cmd.Stdout, a.cmd.Stderr = a, a
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(a.text(), "pods have 7 addresses") {
			return fmt.Errorf("it does not wait: %s", a.text())
		}
		return nil
	})
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: m.network}}
	if err := kc.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"allocation":"Automatic"}}`))); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err == nil || !strings.Contains(a.text(), "somebody has started pool "+m.network+" again") {
		t.Errorf("%v: it says %q; want it to say that the pool gives addresses", err, a.text())
	}
	if got := m.ipamOf("lan"); got != "tenure" {
		t.Errorf("lan names %s, though its pool gives addresses", got)
	}
}

// importsAgain moves the same pods to Tenure again: those that have their addresses by
// Tenure have them as before.
func (m *mover) importsAgain(has map[string]string) {
	t := m.t
	t.Helper()
	says(t, tenure(t, 0, "import", "--from", "whereabouts", "--apply"), "pool "+m.network+" gives addresses again", "Definitions switched: 2", "3 pods have 3 addresses by whereabouts")
	for addr, pod := range has {
		says(t, tenure(t, 0, "who", addr), m.ref(pod))
	}
	if addr := m.attached("newest", m.nodes[0], "lan", "10.98.0.0/24"); has[addr] != "" {
		t.Errorf("a new pod gets %s, which %s has", addr, has[addr])
	}
}
