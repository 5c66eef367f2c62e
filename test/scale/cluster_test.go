package scale_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

const (
	writers  = 16               // of objects that the test makes, at once
	wave     = 50               // nodes that start at once, as a rollout goes
	patience = 10 * time.Minute // for everything of one kind to be done
)

// nodes is a cluster's nodes, all of them agents in this process.
type nodes struct {
	t     *testing.T
	name  string // of whatever the run makes
	fleet *fleet.Fleet
	all   []*fleet.Node
	dir   string // of stand-ins for network namespaces
	made  atomic.Int64
}

func newNodes(t *testing.T, n int) *nodes {
	c := &nodes{t: t, name: fmt.Sprintf("of-%d", n), fleet: fleet.New(t, agents), dir: t.TempDir(), all: make([]*fleet.Node, n)}
	c.fleet.Change = func(cfg *daemon.Config) {
		if quick() {
			cfg.Agent.Idle, cfg.Agent.KeepRequest = idleQuick, 2*idleQuick
		}
	}
	c.parallel(n, func(i int) error { return kc.Create(t.Context(), c.object(i)) })
	return c
}

func (c *nodes) object(i int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", c.name, i)}}
}

// launch starts the agent of every node, or starts it anew, a few nodes at a time.
func (c *nodes) launch() {
	for from := 0; from < len(c.all); from += wave {
		some := c.all[from:min(from+wave, len(c.all))]
		for j := range some {
			if some[j] != nil {
				some[j].Stop()
			}
			some[j] = c.fleet.Launch(c.object(from + j).Name)
		}
		for _, n := range some {
			n.AwaitServing()
		}
	}
}

// gone takes the nodes away.
func (c *nodes) gone() {
	for _, n := range c.all {
		n.Stop()
	}
	c.parallel(len(c.all), func(i int) error { return kc.Delete(c.t.Context(), c.object(i)) })
}

// parallel calls do for every number below n, a few at once, and fails the test if one
// fails.
func (c *nodes) parallel(n int, do func(i int) error) {
	c.t.Helper()
	var g errgroup.Group
	g.SetLimit(writers)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	if err := g.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

// network makes a pool of one range, and a network on it.
func (c *nodes) network(name string, r v1alpha1.Range) {
	c.t.Helper()
	c.networkOf(name, v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{r}, Domain: name})
}

// networkOf makes a pool, and a network on it.
func (c *nodes) networkOf(name string, spec v1alpha1.IPPoolSpec) {
	c.t.Helper()
	for _, o := range []client.Object{
		&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		&nad.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
				`{"cniVersion":"1.1.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":{"type":"tenure","pool":%[1]q}}`, name)},
		},
	} {
		if err := kc.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// place is an interface on a node.
type place struct {
	n *fleet.Node
	i fleet.Interface
}

// sandbox returns a new sandbox's interface on a network, with a file in place of its
// network namespace.
func (c *nodes) sandbox(network string) (fleet.Interface, error) {
	i := fleet.Interface{Network: network, IfName: "net1", IPAM: map[string]any{"type": "tenure", "pool": network}}
	i.Sandbox = fmt.Sprintf("%s-s%d", c.name, c.made.Add(1))
	i.Netns = filepath.Join(c.dir, i.Sandbox)
	return i, os.WriteFile(i.Netns, nil, 0o600)
}

// pods makes a pod on every node of which want says that it has interfaces, and
// returns these.
func (c *nodes) pods(network string, want []int) []place {
	c.t.Helper()
	all := make([][]place, len(want))
	c.parallel(len(want), func(j int) error {
		if want[j] == 0 {
			return nil
		}
		i, err := c.sandbox(network)
		if err != nil {
			return err
		}
		selections := make([]string, want[j])
		for k := range selections {
			selections[k] = fmt.Sprintf(`{"name":%q,"interface":"net%d"}`, network, k+1)
		}
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: i.Sandbox,
				Annotations: map[string]string{kube.AnnotationNetworks: "[" + strings.Join(selections, ",") + "]"},
			},
			Spec: corev1.PodSpec{NodeName: c.all[j].Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if err := kc.Create(c.t.Context(), o); err != nil {
			return err
		}
		i.Namespace, i.Pod, i.PodUID = o.Namespace, o.Name, string(o.UID)
		for k := range selections {
			i.IfName = fmt.Sprintf("net%d", k+1)
			all[j] = append(all[j], place{c.all[j], i})
		}
		return nil
	})
	var flat []place
	for _, of := range all {
		flat = append(flat, of...)
	}
	return flat
}

// each calls do for all places, all at once as far as this process, which is both ends
// of each call, may open files.
func (c *nodes) each(all []place, do func(place) error) {
	c.t.Helper()
	atOnce := c.freeFiles() / 3 // the second end of a call may be closed after the next is made
	if atOnce < len(all) {
		c.t.Logf("%d of %d calls at once: ulimit -n allows no more", atOnce, len(all))
	}
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	var failed atomic.Int64
	for _, p := range all {
		calls.Go(func() error {
			if err := do(p); err != nil && failed.Add(1) <= 10 {
				c.t.Errorf("%s of %s on %s: %v", p.i.IfName, p.i.Sandbox, p.n.Name, err)
			}
			return nil
		})
	}
	_ = calls.Wait() // each has been counted
	if n := failed.Load(); n > 0 {
		c.t.Fatalf("%d of %d failed", n, len(all))
	}
}

// freeFiles returns how many more files this process may open.
func (c *nodes) freeFiles() int {
	c.t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		c.t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		c.t.Fatal(err)
	}
	free := int(limit.Cur) - len(open)
	if free < len(c.all) {
		c.t.Fatalf("%d of %d files are open, too many for calls of %d nodes: raise ulimit -n, or run fewer nodes", len(open), limit.Cur, len(c.all))
	}
	return free
}

// attach is an ADD.
func attach(p place) error {
	return insist(func() error { _, err := p.n.Add(p.i); return err })
}

func detach(p place) error {
	return insist(func() error { return p.n.Del(p.i) })
}

// insist makes a call as a kubelet does: again while it is told to try later, or is not
// told anything, since all agents share two cores with all that call them.
func insist(call func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := call()
		if !later(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // a kubelet waits longer
	}
}

// later says that a call that ended with err may succeed when it is made again.
func later(err error) bool {
	e, ok := errors.AsType[*agentapi.Error](err)
	return ok && e.Code == agentapi.CodeTryAgainLater || errors.Is(err, agentapi.ErrNoAnswer)
}

// claims makes so many claims on a network and waits until each has its address. It
// returns how long that took from the first create on.
func (c *nodes) claims(network string, n int) (took time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	began, served := time.Now(), make(chan error, 1)
	go func() {
		has := map[string]bool{}
		err := cluster.AwaitClaims(ctx, "default", func(o *ipamclaims.IPAMClaim) bool {
			if o.Spec.Network == network && len(o.Status.IPs) > 0 {
				has[o.Name] = true
			}
			return len(has) == n
		})
		if err != nil {
			err = fmt.Errorf("%d of %d claims have an address after %v: %w", len(has), n, time.Since(began), err)
		}
		served <- err
	}()
	c.parallel(n, func(i int) error { return kc.Create(ctx, c.claim(network, i)) })
	if err := <-served; err != nil {
		c.t.Fatal(err)
	}
	return time.Since(began)
}

func (c *nodes) claim(network string, i int) *ipamclaims.IPAMClaim {
	return &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", network, i)},
		Spec:       ipamclaims.IPAMClaimSpec{Network: network},
	}
}

// nothingLeft waits until no lease and no sub-lease is left.
func (c *nodes) nothingLeft() {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		leases, err := api.Leases(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		subs, err := api.SubLeases(c.t.Context())
		switch {
		case err != nil:
			c.t.Fatal(err)
		case len(leases)+len(subs) == 0:
			return
		case time.Now().After(deadline):
			c.t.Fatalf("%d leases and %d sub-leases are left after %v", len(leases), len(subs), patience)
		}
		time.Sleep(500 * time.Millisecond) // a poll of the outside world, bounded by the deadline; each list is large
	}
}
