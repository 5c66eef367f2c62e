package scale_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// podsOfNode is how many pods of another IPAM a node has.
const podsOfNode = 100

// A cluster whose pods all have their addresses by whereabouts moves to Tenure: how long
// that takes, what it asks of the API server, and how much memory the controller takes.
// TENURE_SCALE_PODS says how many pods there are; without it there are none.
func TestMovingIn(t *testing.T) {
	text := os.Getenv("TENURE_SCALE_PODS")
	if text == "" {
		t.Skip("TENURE_SCALE_PODS does not say how many pods of another IPAM there are")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < networksOfMovers || n > 16000 || n%networksOfMovers != 0 {
		t.Fatalf("TENURE_SCALE_PODS is %q, must be a number from %d to 16000 that %[2]d divides", text, networksOfMovers)
	}
	m := newMovers(t, n)
	phase := func(name string, do func()) {
		before, began := fleet.Spent(t, cp), time.Now()
		do()
		took := time.Since(began)
		t.Logf("%s, of %d pods: %v\n  the controller: %s\n  %v", name, n, took.Round(10*time.Millisecond), m.memory(), fleet.Spent(t, cp).Minus(before))
	}
	phase("import", func() {
		if out := m.tenure("import", "--from", "whereabouts"); !strings.Contains(out, fmt.Sprintf("%d running pods have %[1]d addresses", n/networksOfMovers)) {
			t.Errorf("it does not tell of all pods: %.2000s", out)
		}
	})
	phase("import --apply", func() {
		if out := m.tenure("import", "--from", "whereabouts", "--apply"); !strings.Contains(out, fmt.Sprintf("%d pods have %[1]d addresses by whereabouts", n)) {
			t.Errorf("it does not tell of all pods: %.2000s", out)
		}
	})
	if got := m.kept(); got != n {
		t.Errorf("the pool is open and keeps %d addresses; want %d", got, n)
	}
	const idle = 65 * time.Second                                            // of two looks that nobody waits for
	phase("nothing happens for "+idle.String(), func() { time.Sleep(idle) }) // it is measured what happens meanwhile
	phase("all pods end", func() {
		m.end()
		for deadline := time.Now().Add(patience); m.kept() > 0; time.Sleep(time.Second) { // each list is large
			if time.Now().After(deadline) {
				t.Fatalf("%d addresses are still kept after %v", m.kept(), patience)
			}
		}
	})
}

// movers is a cluster whose pods have their addresses by whereabouts, and a controller in
// a process of its own.
type movers struct {
	t          *testing.T
	program    string
	kubeconfig string
	controller *process.Process
}

const (
	domainOfMovers   = "moving-in" // whereabouts' network_name, and the pool
	networksOfMovers = 4           // each with a /20 of the pool
)

func newMovers(t *testing.T, n int) *movers {
	m := &movers{t: t, kubeconfig: filepath.Join(t.TempDir(), "admin")}
	if err := stopController(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{&v1alpha1.IPPool{}, &v1alpha1.IPLease{}} {
			if err := kc.DeleteAllOf(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
		if err := launchController(context.Background()); err != nil {
			t.Error(err)
		}
	})
	fleet.Whereabouts(t, kc)
	var err error
	if m.program, err = programs.Build(t.Context(), t.TempDir(), "kubectl-tenure"); err != nil {
		t.Fatal(err)
	}
	if err := cp.Kubeconfig(m.kubeconfig); err != nil {
		t.Fatal(err)
	}
	m.make(n)
	m.launch()
	return m
}

// make makes so many pods, their networks, and what whereabouts has recorded of them.
func (m *movers) make(n int) {
	m.t.Helper()
	c := &nodes{t: m.t}
	for k := range networksOfMovers {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(k << 4), 0}), 20)
		allocations := map[string]any{}
		for i := k; i < n; i += networksOfMovers {
			allocations[strconv.Itoa(1+i/networksOfMovers)] = map[string]any{"id": "c", "ifname": "net1", "podref": "default/" + oldPod(i)}
		}
		p := kube.NewWhereaboutsPool("default", fmt.Sprintf("%s-10.200.%d.0-20", domainOfMovers, k<<4))
		p.Object["spec"] = map[string]any{"range": cidr.String(), "allocations": allocations}
		if err := kc.Create(m.t.Context(), p); err != nil {
			m.t.Fatal(err)
		}
		d := &nad.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("old-%d", k)},
			Spec: nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
				`{"cniVersion":"1.1.0","name":"old-%d","type":"bridge","ipam":{"type":"whereabouts","network_name":%q,"range":%q}}`, k, domainOfMovers, cidr)},
		}
		if err := kc.Create(m.t.Context(), d); err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() {
			if err := kc.Delete(context.Background(), d); err != nil {
				m.t.Error(err)
			}
		})
	}
	bound := metav1.NewTime(time.Now().Add(-time.Hour))
	c.parallel(n, func(i int) error {
		network, addr := fmt.Sprintf("old-%d", i%networksOfMovers), m.address(i%networksOfMovers, 1+i/networksOfMovers)
		r := kube.NewWhereaboutsReservation("default", foreign.ReservationName(domainOfMovers, addr))
		r.Object["spec"] = map[string]any{"podref": "default/" + oldPod(i), "ifname": "net1"}
		if err := kc.Create(m.t.Context(), r); err != nil {
			return err
		}
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: oldPod(i), Labels: map[string]string{"moving": "in"}, Annotations: map[string]string{
				nad.NetworkAttachmentAnnot: network,
				nad.NetworkStatusAnnot:     fmt.Sprintf(`[{"name":"cbr0","interface":"eth0","ips":["10.0.0.1"],"default":true},{"name":"default/%s","interface":"net1","ips":[%q]}]`, network, addr),
			}},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("old-%d", i/podsOfNode), Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if err := kc.Create(m.t.Context(), o); err != nil {
			return err
		}
		o.Status.Phase = corev1.PodRunning
		o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: bound}}
		return kc.Status().Update(m.t.Context(), o)
	})
}

func oldPod(i int) string { return fmt.Sprintf("old-%d", i) }

// address returns an address of a network.
func (m *movers) address(network, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 200, byte(network<<4 | host>>8), byte(host)})
}

// launch starts the controller's program, with what it is shipped with.
func (m *movers) launch() {
	m.t.Helper()
	dir := m.t.TempDir()
	path, err := programs.Build(m.t.Context(), dir, "tenure-controller")
	if err != nil {
		m.t.Fatal(err)
	}
	p := fleet.Program{Path: path, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := controlplane.WriteKubeconfig(p.Kubeconfig, accounts.Controller); err != nil {
		m.t.Fatal(err)
	}
	m.controller = p.Controller("", filepath.Join(dir, "log"))
	if err := m.controller.Launch(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := m.controller.Kill(); err != nil || m.t.Failed() {
			m.t.Logf("%v; the controller's log ends with:\n%s", err, m.controller.Tail())
		}
	})
}

// tenure runs kubectl tenure, and returns what it prints.
func (m *movers) tenure(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+m.kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%q: %v\n%.4000s", args, err, out)
	}
	m.t.Logf("%q, most of it at %d MB:\n%.1500s", args, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10, out)
	return string(out)
}

// memory says how much memory the controller has, and has had at most.
func (m *movers) memory() string {
	m.t.Helper()
	now, err := m.controller.Memory("VmRSS")
	most, errMost := m.controller.Memory("VmHWM")
	if err := errors.Join(err, errMost); err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprintf("%d MB, at most %d MB", now>>20, most>>20)
}

// kept returns how many addresses are kept for pods of other IPAMs.
func (m *movers) kept() (n int) {
	m.t.Helper()
	leases, err := api.LeasesOfPool(m.t.Context(), domainOfMovers)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, l := range leases {
		for _, g := range l.Grants {
			if g.To.Kind == protocol.GranteePod {
				n++
			}
		}
	}
	return n
}

// end ends all pods, and takes away what whereabouts has recorded.
func (m *movers) end() {
	m.t.Helper()
	err := kc.DeleteAllOf(m.t.Context(), &corev1.Pod{}, client.InNamespace("default"), client.MatchingLabels{"moving": "in"}, client.GracePeriodSeconds(0))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, o := range []client.Object{kube.NewWhereaboutsPool("", ""), kube.NewWhereaboutsReservation("", "")} {
		if err := kc.DeleteAllOf(m.t.Context(), o, client.InNamespace("default")); err != nil {
			m.t.Fatal(err)
		}
	}
}
