package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

// Names of the one node, its network and its pool.
const (
	nodeName       = "bench"
	networkName    = "lan"
	poolName       = "lan"
	poolRange      = "10.64.0.0/16"
	poolBlockSize  = 256
	firstInterface = "net1"
	controllerAt   = "127.0.0.1:9470"
	agentAt        = "127.0.0.1:9471"
	secondName     = "bench-2"
	secondAt       = "127.0.0.1:9472"
)

// startTimeout bounds each wait for something to become ready.
const startTimeout = time.Minute

// A node is a control plane, an IPPool that is open, and one node's agent, all as
// processes. A nil node is one that does not run.
type node struct {
	dir        string
	cp         *controlplane.ControlPlane
	kube       client.WithWatch
	kubeconfig string // of an administrator
	controller *process
	agent      *process
	second     *process // the agent of another node, while a part needs one
	netns      cninet.NS
	pods       []pod
}

func (n *node) socket() string       { return filepath.Join(n.dir, nodeName, "agent.sock") }
func (n *node) secondSocket() string { return filepath.Join(n.dir, secondName, "agent.sock") }
func (n *node) journal() string      { return filepath.Join(n.dir, nodeName, "journal") }

// startNode starts everything, with data and stores below dir.
func startNode(ctx context.Context, dir, root string) (*node, error) {
	ctrllog.SetLogger(logr.Discard())
	n := &node{dir: filepath.Join(dir, "node")}
	if err := n.start(ctx, root); err != nil {
		return nil, errors.Join(err, n.failed(), n.stop())
	}
	return n, nil
}

func (n *node) start(ctx context.Context, root string) (err error) {
	n.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(n.dir, "controlplane"), Fsync: true,
		CRDs: []string{filepath.Join(root, "deploy/crds"), filepath.Join(root, "deploy/crds/upstream")},
	})
	if err != nil {
		return err
	}
	admin := n.cp.Config()
	admin.QPS = -1
	opts, err := kube.ClientOptions(admin)
	if err != nil {
		return err
	}
	if n.kube, err = client.NewWithWatch(admin, opts); err != nil {
		return err
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}},
		// No controller makes the service account that pods need.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: podNamespace}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: secondName}},
	} {
		if err := n.kube.Create(ctx, o); err != nil {
			return err
		}
	}
	if n.netns, err = cninet.Make("pod"); err != nil {
		return err
	}
	n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
	if err := n.cp.Kubeconfig(n.kubeconfig); err != nil {
		return err
	}
	n.controller = &process{
		path: filepath.Join(root, "bin/tenure-controller"), log: filepath.Join(n.dir, "controller.log"), health: controllerAt,
		args: []string{"--kubeconfig=" + n.kubeconfig, "--health=" + controllerAt, "--metrics=", "--leader-election=false"},
	}
	if err := n.controller.start(ctx); err != nil {
		return err
	}
	if err := n.openPool(ctx, poolName, poolRange); err != nil {
		return err
	}
	n.agent, err = n.newAgent(root, nodeName, agentAt)
	if err != nil {
		return err
	}
	return n.agent.start(ctx)
}

// newAgent returns the agent of a node, which does not run yet.
func (n *node) newAgent(root, name, listen string) (*process, error) {
	dir := filepath.Join(n.dir, name)
	return &process{
		path: filepath.Join(root, "bin/tenured"), log: filepath.Join(dir, "agent.log"), health: listen, socket: filepath.Join(dir, "agent.sock"),
		args: []string{
			"--node=" + name, "--kubeconfig=" + n.kubeconfig, "--machine-id=machine-of-" + name, "--listen=" + listen,
			"--store=" + filepath.Join(dir, "store.db"), "--socket=" + filepath.Join(dir, "agent.sock"), "--journal=" + filepath.Join(dir, "journal"),
			// Blocks stay the node's between the rounds, as they do on a node
			// whose pods come and go.
			"--idle=1h",
		},
	}, os.MkdirAll(dir, 0o700)
}

// startSecond starts the agent of the other node.
func (n *node) startSecond(ctx context.Context, root string) (err error) {
	if n.second, err = n.newAgent(root, secondName, secondAt); err != nil {
		return err
	}
	return n.second.start(ctx)
}

// openPool makes a pool with large blocks and waits until the controller has opened it.
func (n *node) openPool(ctx context.Context, name, cidr string) error {
	size := int32(poolBlockSize)
	return n.open(ctx, name, v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: cidr}}, BlockSize: &size})
}

// open makes a pool and waits until the controller has opened it.
func (n *node) open(ctx context.Context, name string, spec v1alpha1.IPPoolSpec) error {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := n.kube.Create(ctx, p); err != nil {
		return err
	}
	return await(ctx, func() (string, error) {
		if err := n.kube.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return "", err
		}
		if p.Status.Leasing != v1alpha1.LeasingOpen {
			return "the controller has not opened pool " + name, nil
		}
		return "", nil
	})
}

// failed returns the last words of the node's programs, which may explain an error.
func (n *node) failed() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, p := range []*process{n.controller, n.agent, n.second} {
		if p != nil {
			errs = append(errs, fmt.Errorf("last of %s:\n%s", p.log, p.tail()))
		}
	}
	return errors.Join(errs...)
}

// stop ends everything.
func (n *node) stop() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, p := range []*process{n.second, n.agent, n.controller} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	if n.cp != nil {
		errs = append(errs, n.cp.Stop())
	}
	return errors.Join(errs...)
}
