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
	"github.com/tenure-ipam/tenure/test/stage"
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
	*stage.Stage
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

// start starts everything, with data and stores below n.dir.
func (n *node) start(ctx context.Context, root string) {
	var err error
	n.Cluster, err = fleet.StartCluster(ctx, controlplane.Options{
		Dir: filepath.Join(n.dir, "controlplane"), Fsync: true, Controllers: []string{},
	})
	n.Must(err)
	n.Must(n.Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}},
		// No controller makes the service account that pods need.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: podNamespace}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: secondName}},
	))
	n.netns, err = cninet.Make("pod")
	n.Must(err)
	n.kubeconfig = filepath.Join(n.dir, "kubeconfig")
	n.Must(n.Kubeconfig(n.kubeconfig))
	controller := fleet.Program{Path: filepath.Join(root, "bin/tenure-controller"), Kubeconfig: n.kubeconfig}
	n.controller = controller.Controller(controllerAt, filepath.Join(n.dir, "controller.log"), "--leader-election=false")
	n.Must(n.controller.Start(ctx))
	n.openPool(ctx, poolName, poolRange)
	n.agent = n.startAgent(ctx, root, nodeName, agentAt)
}

// startAgent starts the agent of a node.
func (n *node) startAgent(ctx context.Context, root, name, listen string, further ...string) *process.Process {
	c := fleet.Config(n.dir, name)
	c.Listen, c.NetnsDirs, c.ResultDirs = listen, nil, nil
	// Blocks stay the node's between the rounds, as they do on a node whose pods come
	// and go.
	c.Agent.Idle = time.Hour
	p := fleet.Program{Path: filepath.Join(root, "bin/tenured"), Kubeconfig: n.kubeconfig}
	n.Must(os.MkdirAll(filepath.Join(n.dir, name), 0o700))
	agent := p.Agent(c, filepath.Join(n.dir, name, "agent.log"), further...)
	n.Must(agent.Start(ctx))
	return agent
}

// openPool makes a pool with large blocks, if it is not there, and waits until the
// controller has opened it.
func (n *node) openPool(ctx context.Context, name, cidr string) {
	size := int32(poolBlockSize)
	n.open(ctx, name, v1alpha1.IPPoolSpec{Domain: name, Ranges: []v1alpha1.Range{{CIDR: cidr}}, BlockSize: &size})
}

// open makes a pool, if it is not there, and waits until the controller has opened it.
func (n *node) open(ctx context.Context, name string, spec v1alpha1.IPPoolSpec) {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	n.Must(client.IgnoreAlreadyExists(n.Client.Create(ctx, p)))
	n.Must(process.Await(ctx, process.Patience, func(ctx context.Context) error {
		err := n.Client.Get(ctx, client.ObjectKey{Name: name}, p)
		if err == nil && p.Status.Leasing != v1alpha1.LeasingOpen {
			err = fmt.Errorf("the controller has not opened pool %s", name)
		}
		return err
	}))
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
