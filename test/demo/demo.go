package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/programs"
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
	screen *screen

	kubectlPath string
	cp          *controlplane.ControlPlane
	api         *kube.API // with the person's own rights, as kubectl has
	kube        client.Client
	controller  *program
	kubevirt    *background // nil while it does not run
	nodeA       *node
	nodeB       *node

	pods []*pod // those that run, in order of appearance

	// What later scenes need of earlier ones.
	waiting  *pod    // exists in the API, has not been attached
	postgres claimed // see playClaim
	vm       machine // see playMigration
	moving   moving  // see playMoving
	networks several // see playSeveral
}

// A scene is one thing to see.
type scene struct {
	title, why string
	play       func(context.Context) error
}

// scenes returns the scenes in order. The last one gives everything back.
func (d *demo) scenes() []scene {
	return []scene{
		d.poolScene(), d.ordinaryScene(), d.frozenScene(), d.claimScene(), d.moveScene(),
		d.migrationScene(), d.staticScene(), d.movingScene(), d.awayScene(), d.explainScene(), d.severalScene(), d.aloneScene(),
		d.endScene(),
	}
}

// play plays every scene. When it returns nil everything that was shown has been
// verified, and the programs have ended; otherwise close ends them.
func (d *demo) play(ctx context.Context) error {
	ctrllog.SetLogger(logr.Discard())
	d.screen.title("Tenure: pods come and go; the workload has tenure on its address")
	d.screen.say("Two nodes on this machine. Real are etcd, kube-apiserver and kube-controller-manager, Tenure's programs with the rights " +
		"that deploy/rbac gives them, network namespaces, the bridge, macvlan and host-local plugins and libcni. There is no kubelet: the demo itself plays the " +
		"kubelets and container runtimes, and KubeVirt. All of it is in a sandbox that ends with this program.")
	d.screen.gap()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	all := d.scenes()
	for i, sc := range all {
		if d.keep && i == len(all)-1 {
			if err := d.holdOn(ctx); err != nil {
				return err
			}
		} else if err := d.pause(ctx); err != nil {
			return err
		}
		d.screen.scene(i+1, sc.title, sc.why)
		if err := sc.play(ctx); err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
	}
	return nil
}

// setUp brings up control plane, controller and nodes.
func (d *demo) setUp(ctx context.Context) error {
	for _, dir := range []string{workDir, nodeRun, nodeCNI} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	// libcni hands on what plugins warn of, and client-go warns, to os.Stderr:
	// that is for a log, not for the middle of a story.
	var err error
	if os.Stderr, err = os.Create(warnings); err != nil {
		return err
	}
	bin, err := binDir()
	if err != nil {
		return err
	}
	if d.kubectlPath, err = programs.Find("kubectl"); err != nil {
		return err
	}
	if err := d.startControlPlane(ctx); err != nil {
		return err
	}
	if err := d.startController(ctx, bin); err != nil {
		return err
	}
	for i, into := range []**node{&d.nodeA, &d.nodeB} {
		if *into, err = d.startNode(ctx, bin, i); err != nil {
			return err
		}
	}
	err = d.screen.step("two network cables between the nodes, one with a bridge at each end", func(func(string)) error {
		return connect(d.nodeA, d.nodeB)
	})
	if err != nil {
		return err
	}
	return d.makeReady(ctx)
}

func (d *demo) startControlPlane(ctx context.Context) error {
	root, err := programs.Root()
	if err != nil {
		return err
	}
	took, err := d.screen.during("etcd, kube-apiserver, kube-controller-manager and the CRDs", func(func(string)) error {
		d.cp, err = controlplane.Start(ctx, controlplane.Options{
			Dir:         filepath.Join(workDir, "control-plane"),
			CRDs:        []string{filepath.Join(root, "deploy/crds"), filepath.Join(root, "deploy/crds/upstream"), filepath.Join(root, "test/kubevirt/crds")},
			Controllers: []string{controlplane.GarbageCollector, controlplane.ServiceAccounts, controlplane.Namespaces},
		})
		return err
	})
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(d.cp.Config())
	if err != nil {
		return err
	}
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	d.screen.ok("Kubernetes %s: etcd, kube-apiserver, kube-controller-manager; Tenure's CRDs %s", version.GitVersion, d.screen.in(dim, "("+seconds(took)+")"))
	if err := d.cp.Kubeconfig(adminKubeconfig); err != nil {
		return err
	}
	if d.api, d.kube, err = kube.Dial(d.cp.Config()); err != nil {
		return err
	}
	return d.screen.step("roles, service accounts and policies of deploy/", func(report func(string)) error {
		return d.install(ctx, report)
	})
}

// programs returns those of Tenure's programs that have been started.
func (d *demo) programs() []*program {
	var all []*program
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
		if d.cp != nil {
			// What waits for a frozen API server would wait on.
			_ = d.cp.ResumeAPIServer()
		}
		errs = append(errs, d.endKubeVirt())
		for _, p := range d.programs() {
			errs = append(errs, p.stop())
		}
		if d.cp != nil {
			errs = append(errs, d.cp.Stop())
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
		d.screen.title("The end of the log of " + p.name)
		d.screen.line(tail(p.log))
	}
	d.screen.title("The end of what plugins and clients warned of")
	d.screen.line(tail(warnings))
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
