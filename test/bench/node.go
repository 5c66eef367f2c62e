package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
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

// A node is a control plane, an IPPool that is open, and one node's agent, all as
// processes. A nil node is one that does not run.
type node struct {
	*fleet.Cluster
	dir        string
	kubeconfig string // of an administrator
	controller *process.Process
	agent      *process.Process
	second     *process.Process // the agent of another node, while a part needs one
	netns      cninet.NS
	pods       []pod
}

func (n *node) socket() string       { return filepath.Join(n.dir, nodeName, "agent.sock") }
func (n *node) secondSocket() string { return filepath.Join(n.dir, secondName, "agent.sock") }
func (n *node) journal() string      { return filepath.Join(n.dir, nodeName, "journal") }

// startNode starts everything, with data and stores below dir.
func startNode(ctx context.Context, dir, root string) (*node, error) {
	n := &node{dir: filepath.Join(dir, "node")}
	if err := n.start(ctx, root); err != nil {
		return nil, errors.Join(err, n.failed(), n.stop())
	}
	return n, nil
}

func (n *node) start(ctx context.Context, root string) (err error) {
	n.Cluster, err = fleet.StartCluster(ctx, controlplane.Options{
		Dir: filepath.Join(n.dir, "controlplane"), Fsync: true, Controllers: []string{},
	})
	if err != nil {
		return err
	}
	err = n.Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}},
		// No controller makes the service account that pods need.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: podNamespace}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: secondName}},
	)
	if err != nil {
		return err
	}
	if n.netns, err = cninet.Make("pod"); err != nil {
		return err
	}
	n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
	if err := n.Kubeconfig(n.kubeconfig); err != nil {
		return err
	}
	controller := fleet.Program{Path: filepath.Join(root, "bin/tenure-controller"), Kubeconfig: n.kubeconfig}
	n.controller = controller.Controller(controllerAt, filepath.Join(n.dir, "controller.log"), "--leader-election=false")
	if err := n.controller.Start(ctx); err != nil {
		return err
	}
	if err := n.openPool(ctx, poolName, poolRange); err != nil {
		return err
	}
	n.agent, err = n.newAgent(root, nodeName, agentAt)
	if err != nil {
		return err
	}
	return n.agent.Start(ctx)
}

// newAgent returns the agent of a node, which does not run yet.
func (n *node) newAgent(root, name, listen string, further ...string) (*process.Process, error) {
	c := fleet.Config(n.dir, name)
	c.Listen, c.NetnsDirs, c.ResultDirs = listen, nil, nil
	// Blocks stay the node's between the rounds, as they do on a node whose pods come
	// and go.
	c.Agent.Idle = time.Hour
	p := fleet.Program{Path: filepath.Join(root, "bin/tenured"), Kubeconfig: n.kubeconfig}
	return p.Agent(c, filepath.Join(n.dir, name, "agent.log"), further...), os.MkdirAll(filepath.Join(n.dir, name), 0o700)
}

// startSecond starts the agent of the other node.
func (n *node) startSecond(ctx context.Context, root string) (err error) {
	if n.second, err = n.newAgent(root, secondName, secondAt); err != nil {
		return err
	}
	return n.second.Start(ctx)
}

// openPool makes a pool with large blocks and waits until the controller has opened it.
func (n *node) openPool(ctx context.Context, name, cidr string) error {
	size := int32(poolBlockSize)
	return n.open(ctx, name, v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: cidr}}, BlockSize: &size})
}

// open makes a pool and waits until the controller has opened it.
func (n *node) open(ctx context.Context, name string, spec v1alpha1.IPPoolSpec) error {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := n.Client.Create(ctx, p); err != nil {
		return err
	}
	return process.Await(ctx, process.Patience, func(ctx context.Context) error {
		err := n.Client.Get(ctx, client.ObjectKey{Name: name}, p)
		if err == nil && p.Status.Leasing != v1alpha1.LeasingOpen {
			err = fmt.Errorf("the controller has not opened pool %s", name)
		}
		return err
	})
}

// failed returns the last words of the node's programs, which may explain an error.
func (n *node) failed() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, p := range []*process.Process{n.controller, n.agent, n.second} {
		if p != nil {
			errs = append(errs, fmt.Errorf("last of %v:\n%s", p, p.Tail()))
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
	for _, p := range []*process.Process{n.second, n.agent, n.controller} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if n.Cluster != nil {
		errs = append(errs, n.Cluster.Stop())
	}
	return errors.Join(errs...)
}
