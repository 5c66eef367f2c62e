package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// Options configures a cluster.
type Options struct {
	// Nodes is how many nodes there are, 9 at most.
	Nodes int
	// Images are OCI archives, of which every node has the images before its
	// kubelet starts: there is no registry. [pauseImage] must be among them.
	Images []string
	// Say is told what has been done, and how long it took. It may be called by
	// several goroutines at once.
	Say func(format string, args ...any)
}

// A Cluster is a control plane with nodes.
type Cluster struct {
	*controlplane.ControlPlane
	Nodes []*Node
	Kube  *kubernetes.Clientset

	o        Options
	dir      string
	rig      string
	families []family // the first one is that of the control plane
}

// Start starts a cluster and returns when every node is Ready and pods can be
// created. Ctx bounds the start alone. It refuses to run outside a sandbox that has a
// disk: see [Main]. There can be one cluster in a sandbox.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if !sandbox.Inside() || sandbox.Disk() == "" {
		return nil, errors.New("cluster: starts in a sandbox with a disk only, so that nothing of it is left: see cluster.Main")
	}
	rig, err := programs.RigDir()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"kubelet", "kube-proxy", "kube-scheduler", "containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		if _, err := programs.InRig(rig, name); err != nil {
			return nil, fmt.Errorf("cluster: %s is not in %s: run make rig-nodes, which builds it: %w", name, rig, err)
		}
	}
	c := &Cluster{o: o, dir: filepath.Join(sandbox.Disk(), "cluster")}
	if c.families, err = familiesOf(os.Getenv(envFamilies)); err != nil {
		return nil, err
	}
	if c.rig, err = bindRig(rig); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
	}
	return c, nil
}

// bindRig returns a second path of the directory of the programs, on the sandbox's disk: a
// checkout may lie where nodes have directories of their own. It cannot be written to.
func bindRig(rig string) (string, error) {
	at := filepath.Join(sandbox.Disk(), "rig")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	for _, m := range []mount{
		{source: rig, target: at, flags: unix.MS_BIND},
		{target: at, flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
	} {
		if err := m.do(); err != nil {
			return "", err
		}
	}
	return at, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := makeSwitches(c.families); err != nil {
		return err
	}
	err := c.step("etcd, kube-apiserver, kube-controller-manager, kube-scheduler", func() (err error) {
		c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
			Dir: filepath.Join(c.dir, "control-plane"), Controllers: []string{"*"}, Scheduler: true,
			Address: c.families[0].host, ServiceRanges: ofEach(c.families, func(f family) string { return f.services }),
			// Half of what it is by default: a kubelet renews its Lease every 10 s.
			ControllerManagerArgs: []string{"--node-monitor-grace-period=25s"},
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := c.ControlPlane.Kubeconfig(c.Kubeconfig()); err != nil {
		return err
	}
	if c.Kube, err = kubernetes.NewForConfig(c.Config()); err != nil {
		return err
	}
	for i := 1; i <= c.o.Nodes; i++ {
		n, err := c.newNode(i)
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, n)
	}
	group, booting := errgroup.WithContext(ctx)
	for _, n := range c.Nodes {
		group.Go(func() error {
			return c.step(n.Name+": containerd, images, kubelet, Ready, kube-proxy", func() error { return c.Boot(booting, n) })
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.awaitServiceAccount(ctx)
}

// step does one thing and says how long it took.
func (c *Cluster) step(what string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	c.o.Say("%s (%v)", what, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// newNode makes the i-th node, which is off.
func (c *Cluster) newNode(i int) (*Node, error) {
	name := "node-" + string(rune('a'+i-1))
	n := &Node{Name: name, index: i, dir: filepath.Join(c.dir, name), rig: c.rig}
	n.ips = ofEach(c.families, func(f family) string { return f.node(i) })
	if err := connect(n, c.o.Nodes, c.families); err != nil {
		return nil, err
	}
	user, err := c.AddNode(name)
	if err != nil {
		return nil, err
	}
	proxy, err := c.AddUser("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	if err := n.writeFiles(c.families, user, proxy); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	n.Containerd = n.service("containerd", func(ctx context.Context) error {
		_, err := n.Run(ctx, "ctr", "version")
		return err
	}, "--config", n.file("containerd.toml"))
	n.Kubelet = n.service("kubelet", func(ctx context.Context) error { return c.ready(ctx, n) },
		"--config", n.file("kubelet.yaml"), "--kubeconfig", n.file("kubeconfig"), "--root-dir", "/var/lib/kubelet",
		"--hostname-override", name, "--node-ip", strings.Join(n.ips, ","), "--v", "2")
	n.Proxy = n.service("kube-proxy", func(context.Context) error { return n.reachAPI(c.families[0]) },
		"--config", n.file("kube-proxy.yaml"), "--hostname-override", name, "--v", "2")
	return n, nil
}

// Boot powers the node on, if it is off, and starts what runs on it. It returns when
// the node is Ready.
func (c *Cluster) Boot(ctx context.Context, n *Node) error {
	if err := n.powerOn(); err != nil {
		return err
	}
	if err := n.Containerd.Start(ctx); err != nil {
		return err
	}
	for _, image := range c.o.Images {
		if _, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "import", "--local", image); err != nil {
			return err
		}
	}
	if err := n.Kubelet.Start(ctx); err != nil {
		return err
	}
	return n.Proxy.Start(ctx) // it waits for the Node that the kubelet makes
}

// ready returns what keeps the node from being Ready, as its kubelet says and not the
// control plane of before.
func (c *Cluster) ready(ctx context.Context, n *Node) error {
	node, err := c.Kube.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	boot, err := os.ReadFile(n.Path("/proc/sys/kernel/random/boot_id"))
	if err != nil {
		return err
	}
	if node.Status.NodeInfo.BootID != strings.TrimSpace(string(boot)) {
		return errors.New("its status is of an earlier boot")
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return nil
		} else if cond.Type == corev1.NodeReady {
			return fmt.Errorf("it is not Ready: %s", cond.Message)
		}
	}
	return errors.New("it does not say whether it is Ready")
}

// awaitServiceAccount waits for what pods of the namespace default need.
func (c *Cluster) awaitServiceAccount(ctx context.Context) error {
	return process.Await(ctx, process.Patience, func(ctx context.Context) error {
		_, err := c.Kube.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Node returns the node name, which must exist.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	panic(fmt.Sprintf("cluster: no node %s", name))
}

// Stop ends everything. It can be called again.
func (c *Cluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.PowerOff())
	}
	if c.ControlPlane != nil {
		errs = append(errs, c.ControlPlane.Stop())
	}
	return errors.Join(errs...)
}

// Logs returns the last lines of every log.
func (c *Cluster) Logs() string {
	var b strings.Builder
	if c.ControlPlane != nil {
		b.WriteString(c.ControlPlane.Logs())
	}
	for _, n := range c.Nodes {
		for _, s := range n.services() {
			fmt.Fprintf(&b, "%v:\n%s\n", s, s.Tail())
		}
	}
	return b.String()
}
