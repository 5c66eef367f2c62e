package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/stage"
)

// Paths on the sandbox's tmpfs.
const (
	workDir         = "/run/demo"
	adminKubeconfig = workDir + "/kubeconfig"
	warnings        = workDir + "/warnings.log"
)

// demo is one performance.
type demo struct {
	options
	stage.Stage
	screen *screen
	number int // of the scene

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

// play plays every scene. When it returns nil everything that was shown has been
// verified, and the programs have ended; otherwise close ends them.
func (d *demo) play(ctx context.Context) error {
	err := d.Run(func() { d.perform(ctx) })
	if err != nil && d.number > 0 {
		return fmt.Errorf("scene %d: %w", d.number, err)
	}
	return err
}

// during shows that work goes on, and returns how long it took.
func (d *demo) during(label string, work func() error) time.Duration {
	took, err := d.screen.during(label, func(func(string)) error { return work() })
	if err != nil {
		d.Fail("%s: %w", label, err)
	}
	return took
}

// step is during, and a line that stays when work has succeeded.
func (d *demo) step(label string, work func() error) {
	d.screen.ok("%s %s", label, d.screen.took(d.during(label, work)))
}

// await waits until look finds nothing wrong, and shows meanwhile what is. It returns how
// long that took.
func (d *demo) await(ctx context.Context, label string, look func(context.Context) error) time.Duration {
	took, err := d.screen.during(label, func(report func(string)) error {
		return process.Await(ctx, process.Patience, func(ctx context.Context) error {
			err := look(ctx)
			if err != nil {
				report(err.Error())
			}
			return err
		})
	})
	if err != nil {
		d.Fail("%s: %w", label, err)
	}
	return took
}

// perform sets up, and plays every scene.
func (d *demo) perform(ctx context.Context) {
	d.screen.title("Tenure: pods come and go; the workload has tenure on its address")
	d.screen.say("Two nodes on this machine. Real are etcd, kube-apiserver and kube-controller-manager, Tenure's programs with the rights " +
		"that deploy/rbac gives them, network namespaces, the bridge, macvlan and host-local plugins and libcni. There is no kubelet: the demo itself plays the " +
		"kubelets and container runtimes, and KubeVirt. All of it is in a sandbox that ends with this program.")
	d.screen.gap()
	d.setUp(ctx)
	for i, sc := range scenes {
		if d.keep && i == len(scenes)-1 {
			d.Must(d.holdOn(ctx))
		} else {
			d.Must(d.pause(ctx))
		}
		d.number = i + 1
		d.screen.scene(d.number, sc.title, sc.why)
		sc.play(d, ctx)
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
	d.step("two network cables between the nodes, one with a bridge at each end", func() error { return connect(d.nodeA, d.nodeB) })
	d.makeReady(ctx)
}

func (d *demo) startControlPlane(ctx context.Context, root string) {
	took := d.during("etcd, kube-apiserver, kube-controller-manager and the CRDs", func() (err error) {
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
	d.screen.ok("Kubernetes %s: etcd, kube-apiserver, kube-controller-manager; Tenure's CRDs %s", version.GitVersion, d.screen.took(took))
	d.Must(d.Kubeconfig(adminKubeconfig))
	d.step("roles, service accounts and policies of deploy/", func() error { return d.install(ctx) })
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
	_, err := d.screen.during("stopping", func(func(string)) error {
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
		d.screen.say(err.Error())
	}
}

// showLogs shows the ends of the programs' logs.
func (d *demo) showLogs() {
	for _, p := range d.programs() {
		d.screen.title("The end of the log of " + p.Name)
		d.screen.line(p.Tail())
	}
	d.screen.title("The end of what plugins and clients warned of")
	d.screen.line(process.Tail(warnings))
}

// pause gives the person time to read, if asked to.
func (d *demo) pause(ctx context.Context) error {
	if !d.pace {
		return nil
	}
	s := d.screen
	if !s.terminal {
		return sleep(ctx, 5*time.Second)
	}
	fmt.Fprintf(s.out, "\n%s", s.in(dim, margin+"Enter goes on … "))
	return readLine(ctx)
}

// holdOn says how to look around and waits until the person has done so.
func (d *demo) holdOn(ctx context.Context) error {
	d.screen.title("Everything is running. Look around.")
	d.screen.say("In another terminal, as root, in this directory:")
	d.screen.command("bin/demo --enter")
	d.screen.say(fmt.Sprintf("opens a shell in the sandbox with kubectl and KUBECONFIG=%s. There, for example:", adminKubeconfig))
	d.screen.command("kubectl get tenure,ipamclaims,pods -A -o wide")
	d.screen.command("nsenter --net=%s ip address", d.pods[0].ns.Path())
	d.screen.command("ls %s      # logs, stores, sockets, journals", filepath.Join(workDir, "node-a"))
	d.screen.say("The programs' credentials last for an hour. Enter here, or Ctrl-C, ends the demo.")
	return readLine(ctx)
}

// readLine waits for Enter, or where standard input has ended for the end of ctx.
func readLine(ctx context.Context) error {
	entered := make(chan struct{})
	go func() {
		one := make([]byte, 1)
		for {
			n, err := os.Stdin.Read(one)
			if err != nil {
				return
			}
			if n == 1 && one[0] == '\n' {
				close(entered)
				return
			}
		}
	}()
	select {
	case <-entered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
