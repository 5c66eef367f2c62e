package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// Paths on the sandbox's tmpfs.
const (
	workDir  = show.Dir
	warnings = workDir + "/warnings.log"
)

// demo is one performance.
type demo struct {
	*show.Show

	*fleet.Cluster // with the person's own rights, as kubectl has
	kubectlPath    string
	controller     *process.Process
	kubevirt       *process.Task // nil while it does not run
	nodeA, nodeB   *node

	pods []*pod // those that run, in order of appearance

	// What later scenes need of earlier ones.
	waiting  *pod    // exists in the API, has not been attached
	postgres claimed // see playClaim
	vm       machine // see playMigration
	moving   moving  // see playMoving
	networks several // see playSeveral
}

// perform sets up, and plays every scene.
func (d *demo) perform(ctx context.Context) {
	d.Title("Now a cluster: two nodes on this machine")
	d.Say("Real are etcd, kube-apiserver and kube-controller-manager, Tenure's programs with the rights " +
		"that deploy/rbac gives them, network namespaces, the bridge, macvlan and host-local plugins and libcni. There is no kubelet: the demo itself plays the " +
		"kubelets and container runtimes, and KubeVirt.")
	d.Gap()
	d.setUp(ctx)
	for i, sc := range scenes {
		if d.Keep && i == len(scenes)-1 {
			d.holdOn(ctx)
		} else {
			d.Pause(ctx)
		}
		show.Play(ctx, d.Show, d, sc)
	}
}

// setUp brings up control plane, controller and nodes.
func (d *demo) setUp(ctx context.Context) {
	for _, dir := range []string{workDir, nodeRun, nodeCNI} {
		d.Must(os.Mkdir(dir, 0o700))
	}
	// libcni hands on what plugins warn of, and client-go warns, to os.Stderr:
	// that is for a log, not for the middle of a story.
	var err error
	os.Stderr, err = os.Create(warnings)
	d.Must(err)
	bin, err := binDir()
	d.Must(err)
	d.kubectlPath, err = programs.Find("kubectl")
	d.Must(err)
	d.startControlPlane(ctx, filepath.Dir(bin))
	d.startController(ctx, bin)
	d.nodeA = d.startNode(ctx, bin, 0)
	d.nodeB = d.startNode(ctx, bin, 1)
	d.Step("two network cables between the nodes, one with a bridge at each end", func() error { return connect(d.nodeA, d.nodeB) })
	d.makeReady(ctx)
}

func (d *demo) startControlPlane(ctx context.Context, root string) {
	took := d.During("etcd, kube-apiserver, kube-controller-manager and the CRDs", func() (err error) {
		d.Cluster, err = fleet.StartCluster(ctx, controlplane.Options{
			Dir:         filepath.Join(workDir, "control-plane"),
			CRDs:        []string{filepath.Join(root, "deploy/crds"), filepath.Join(root, "deploy/crds/upstream"), filepath.Join(root, "test/kubevirt/crds")},
			Controllers: []string{controlplane.GarbageCollector, controlplane.ServiceAccounts, controlplane.Namespaces},
		})
		return err
	})
	clientset, err := kubernetes.NewForConfig(d.Config())
	d.Must(err)
	version, err := clientset.Discovery().ServerVersion()
	d.Must(err)
	d.OK("Kubernetes %s: etcd, kube-apiserver, kube-controller-manager; Tenure's CRDs %s", version.GitVersion, d.Took(took))
	d.Must(d.Kubeconfig(show.Kubeconfig))
	d.Step("roles, service accounts and policies of deploy/", func() error { return d.install(ctx) })
}

// programs returns those of Tenure's programs that have been started.
func (d *demo) programs() []*process.Process {
	var all []*process.Process
	if d.controller != nil {
		all = append(all, d.controller)
	}
	for _, n := range []*node{d.nodeA, d.nodeB} {
		if n != nil {
			all = append(all, n.agent)
		}
	}
	return all
}

// close ends whatever runs, after a failure or Ctrl-C. What does not end, ends
// with the sandbox.
func (d *demo) close() {
	_, err := d.While("stopping", func(func(string)) error {
		var errs []error
		if d.Cluster != nil {
			// What waits for a frozen API server would wait on.
			_ = d.ResumeAPIServer()
		}
		errs = append(errs, d.endKubeVirt())
		for _, p := range d.programs() {
			errs = append(errs, p.Stop())
		}
		if d.Cluster != nil {
			errs = append(errs, d.Stop())
		}
		return errors.Join(errs...)
	})
	if err != nil {
		d.Say(err.Error())
	}
}

// showLogs shows the ends of the programs' logs.
func (d *demo) showLogs() {
	for _, p := range d.programs() {
		d.Title("The end of the log of " + p.Name)
		d.Line(p.Tail())
	}
	d.Title("The end of what plugins and clients warned of")
	d.Line(process.Tail(warnings))
}

// holdOn says how to look around and waits until the person has done so.
func (d *demo) holdOn(ctx context.Context) {
	d.Title("Everything is running. Look around.")
	d.Say("In another terminal, as root, in this directory:")
	d.Command("bin/demo --enter")
	d.Say(fmt.Sprintf("opens a shell in the sandbox with kubectl and KUBECONFIG=%s. There, for example:", show.Kubeconfig))
	d.Command("kubectl get tenure,ipamclaims,pods -A -o wide")
	d.Command("nsenter --net=%s ip address", d.pods[0].ns.Path())
	d.Command("ls %s      # logs, stores, sockets, journals", filepath.Join(workDir, "node-a"))
	d.Say("The programs' credentials last for an hour. Enter here, or Ctrl-C, ends the demo.")
	d.Must(d.ReadLine(ctx))
}
