package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// Sizes and times of the cluster under load.
const (
	processes = 4 // nodes whose agents are processes, and can be killed
	inProcess = 8

	fence = 20 * time.Second
	idle  = 2 * time.Second
	keep  = 10 * time.Second // of requests that nobody tries any more
)

// subject is a pool under load.
type subject struct {
	name     string
	prefix   netip.Prefix
	also     string // a second range, of IPv6
	capacity int    // IPv4 addresses that can be given
	share    int    // of the ADDs, in percent
}

var subjects = []subject{
	{name: "full", prefix: netip.MustParsePrefix("10.100.0.0/28"), capacity: 14, share: 15},
	{name: "single", prefix: netip.MustParsePrefix("10.101.0.0/24"), capacity: 254, share: 30},
	{name: "wide", prefix: netip.MustParsePrefix("10.102.0.0/20"), capacity: 4094, share: 45},
	{name: "dual", prefix: netip.MustParsePrefix("10.103.0.0/24"), also: "fd00:103::/64", capacity: 254, share: 10},
}

// node is one node of the cluster.
type node struct {
	*fleet.Node
	process bool // its agent is a process of its own

	// gate is held by every call to the node, for reading, and by who switches it
	// off, for as long as it is off.
	gate sync.RWMutex
	// epoch counts how often the node has been off: what ran before is gone.
	epoch atomic.Int64
	// losses counts how often its store was lost while pods ran.
	losses atomic.Int64
	// lossy says that one was lost since the node was off; of the test's own goroutine.
	lossy bool
	// back is when it was switched on last; of the test's own goroutine.
	back  time.Time
	clock *fleet.Clock // of its machine
}

// world is the cluster and what is known of it.
type world struct {
	t     *testing.T
	set   settings
	fleet *fleet.Fleet
	nodes []*node
	stats *stats

	controlling sync.Mutex
	controllers [2]*process.Process // guarded by controlling

	// calls is held for reading by all that the load does, and by who puts back the API
	// server's data: from when no agent runs any more until it is known what is lost.
	calls sync.RWMutex
	past  past // guarded by calls
	// holding says that no pod is to start.
	holding atomic.Bool
	pods    sync.Map // names of the pods that the load runs

	serial  atomic.Int64
	stop    chan struct{} // closed when the load ends
	workers sync.WaitGroup
}

// newWorld starts the cluster: pools, their definitions, nodes, agents, controllers.
func newWorld(t *testing.T, set settings) *world {
	t.Helper()
	w := &world{t: t, set: set, stats: newStats(), past: past{void: map[place]bool{}}, stop: make(chan struct{})}
	w.fleet = fleet.New(t, accounts.Agent)
	w.fleet.Logs = logsDir(t, set.seed)
	w.fleet.Change = func(c *daemon.Config) {
		a := &c.Agent
		c.Clock = &fleet.Clock{}
		var err error
		if c.Listen, err = controlplane.FreeAddress(); err != nil {
			t.Fatal(err)
		}
		a.Fence, a.Idle, a.Wait, a.SweepEvery, a.PublishEvery, a.KeepRequest = fence, idle, 2*time.Second, 3*time.Second, 5*time.Second, keep
	}
	for _, s := range subjects {
		// Somebody says that no other IPAM has given addresses by the pool's definition: it is
		// minutes old, and its pods show no status. After a restore the pool would wait for
		// those that have no address, or whose nodes are off.
		p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: s.prefix.String()}}, ShareWith: []string{"default/" + s.name}}}
		if s.also != "" {
			p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: s.also})
		}
		fleet.Create(w.t, kc, p)
		fleet.Create(w.t, kc, &nad.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name},
			Spec: nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
				`{"cniVersion":"1.1.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":{"type":"tenure","pool":%[1]q}}`, s.name)},
		})
	}
	for i := range w.controllers {
		w.launchController(i)
	}
	for i := range processes + inProcess {
		n := &node{process: i < processes}
		name := fmt.Sprintf("node-%d", i)
		fleet.Create(w.t, kc, nodeObject(name))
		n.Node = w.launch(n, name)
		if err := n.emptyNetns(); err != nil {
			t.Fatal(err)
		}
		n.clock, _ = n.Config().Clock.(*fleet.Clock)
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		n.AwaitServing()
	}
	return w
}

// logsDir returns a directory outside the sandbox, which is kept if the test fails.
func logsDir(t *testing.T, seed uint64) string {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "bin", "soak", fmt.Sprint(seed))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; the logs are in %s", seed, dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func nodeObject(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// launch starts a node's agent.
func (w *world) launch(n *node, name string) *fleet.Node {
	if n.process {
		return w.fleet.LaunchProcess(agents, name)
	}
	return w.fleet.Launch(name)
}

func (w *world) launchController(i int) {
	w.controllers[i] = w.fleet.LaunchController(control, fmt.Sprintf("controller-%d", i), "--counts-every=2s", "--idle="+idle.String(),
		"--leader-lease-duration=8s", "--leader-renew-deadline=6s", "--leader-retry-period=1s")
}

// supervise starts controllers that have ended, until the returned function is
// called: one that cannot renew its lease ends, and whoever runs it starts it anew.
func (w *world) supervise() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
			w.controlling.Lock()
			for i, c := range w.controllers {
				if !c.Running() {
					w.stats.count("controllers that gave up leading")
					w.launchController(i)
				}
			}
			w.controlling.Unlock()
		}
	})
	return func() { close(done); running.Wait() }
}

// insist repeats what may fail while the cluster is disturbed, for a minute, and
// reports whether it was done.
func (w *world) insist(what string, do func(ctx context.Context) error) bool {
	err := patiently(w.t.Context(), time.Minute, do)
	if err != nil {
		w.t.Errorf("%s: %v", what, err)
	}
	return err == nil
}

// patiently calls do until it succeeds or the time is over. Each try has five
// seconds.
func patiently(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	for deadline := time.Now().Add(within); ; {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(try)
		cancel()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // a poll of the outside world, bounded by the deadline
	}
}

// over reports whether the load has ended.
func (w *world) over() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// pause waits about d, or until the load ends.
func (w *world) pause(rng *rand.Rand, d time.Duration) {
	select {
	case <-w.stop:
	case <-time.After(time.Duration(rng.ExpFloat64() * float64(d))):
	}
}

// draw returns a pool by its share.
func draw(rng *rand.Rand) subject {
	n := rng.IntN(100)
	for _, s := range subjects {
		if n -= s.share; n < 0 {
			return s
		}
	}
	return subjects[0]
}

// sandbox returns a new sandbox's interface on a node and a pool, with a file in place of its
// network namespace.
func (w *world) sandbox(n *node, s subject) (fleet.Interface, error) {
	return w.renewed(n, fleet.Interface{Network: s.name, IfName: "net1", IPAM: map[string]any{"type": "tenure", "pool": s.name}})
}

// renewed gives i a new sandbox.
func (w *world) renewed(n *node, i fleet.Interface) (fleet.Interface, error) {
	i.Sandbox = fmt.Sprintf("s%d", w.serial.Add(1))
	i.Netns = filepath.Join(n.Config().NetnsDirs[0], i.Sandbox)
	return i, os.WriteFile(i.Netns, nil, 0o600)
}

// scrap removes the network namespace of a sandbox that nobody uses: one that stays
// keeps what a lost store held frozen.
func (w *world) scrap(i fleet.Interface) {
	if err := os.Remove(i.Netns); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
}

// pod makes a pod on a node and says of i that it is the pod's. claim is the
// reference of its selection, or empty.
func (w *world) pod(ctx context.Context, name, node, claim string, i fleet.Interface, owners ...metav1.OwnerReference) (fleet.Interface, error) {
	element := fmt.Sprintf(`{"name":%q,"interface":"net1"}`, i.Network)
	if claim != "" {
		element = fmt.Sprintf(`{"name":%q,"interface":"net1","ipam-claim-reference":%q}`, i.Network, claim)
	}
	return w.podOf(ctx, name, node, []string{element}, i, owners...)
}

// podOf makes a pod of these selections.
func (w *world) podOf(ctx context.Context, name, node string, selections []string, i fleet.Interface, owners ...metav1.OwnerReference) (fleet.Interface, error) {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, OwnerReferences: owners,
			Annotations: map[string]string{kube.AnnotationNetworks: "[" + strings.Join(selections, ",") + "]"},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := kc.Create(ctx, o); err != nil {
		return i, err
	}
	w.pods.Store(name, true)
	i.Namespace, i.Pod, i.PodUID = o.Namespace, o.Name, string(o.UID)
	return i, nil
}

// unpod deletes a pod, if it is there.
func (w *world) unpod(ctx context.Context, i fleet.Interface) error {
	w.pods.Delete(i.Pod)
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Pod}}
	return client.IgnoreNotFound(kc.Delete(ctx, o, client.GracePeriodSeconds(0)))
}
