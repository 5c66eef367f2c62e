package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// namespace is where the demo's workloads are.
const namespace = "shop"

// binDir returns bin of the repository, where Tenure's programs have been built.
func binDir() (string, error) {
	root, err := programs.Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	for _, name := range []string{"tenure", "tenure-attach", "tenured", "tenure-controller", "kubectl-tenure", "rig/bridge", "rig/macvlan", "rig/host-local"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("bin/%s is missing: run make demo, which builds it", name)
		}
	}
	return bin, nil
}

// install creates the objects of deploy/rbac and deploy/policies, and the namespace of the
// workloads, and waits for the service account that pods need there.
func (d *demo) install(ctx context.Context) error {
	err := errors.Join(fleet.InstallRoles(ctx, d.Client), fleet.InstallPolicies(ctx, d.Client),
		d.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	if err != nil {
		return err
	}
	return process.Await(ctx, process.Patience, func(ctx context.Context) error {
		return d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// account writes a kubeconfig for one of Tenure's service accounts; bound is what
// its token is bound to, nil for nothing.
func (d *demo) account(ctx context.Context, name, file string, bound *authentication.BoundObjectReference) {
	user, err := d.ServiceAccount(ctx, kube.DefaultRegistrationNamespace, name, bound)
	d.Must(err)
	d.Must(controlplane.WriteKubeconfig(file, user))
}

func (d *demo) startController(ctx context.Context, bin string) {
	const name, listen = "tenure-controller", "127.0.0.1:9470"
	kubeconfig := filepath.Join(workDir, name+".kubeconfig")
	d.account(ctx, name, kubeconfig, nil)
	p := fleet.Program{Path: filepath.Join(bin, name), Kubeconfig: kubeconfig}
	// A minute in production: too long to watch.
	d.controller = p.Controller(listen, filepath.Join(workDir, name+".log"), "--counts-every=1s", "--idle=3s", "--multi-network")
	d.Step("tenure-controller, as its service account", func() error { return d.controller.Start(ctx) })
}

// runKubectl runs kubectl, which finds kubectl-tenure, and returns what it says and
// its exit code.
func (d *demo) runKubectl(ctx context.Context, args ...string) (text string, code int) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("kubectl takes too long"))
	defer cancel()
	bin, err := binDir()
	d.Must(err)
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, d.kubectlPath, args...)
	cmd.Dir = workDir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+show.Kubeconfig, "HOME="+workDir, "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &out, &out // in the order in which they are written
	_, err = d.While("kubectl", func(func(string)) error { return cmd.Run() })
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		d.Fail("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// kubectl runs kubectl and shows the command, with long column lists left out, and
// its output.
func (d *demo) kubectl(ctx context.Context, args ...string) {
	text, code := d.runKubectl(ctx, args...)
	if code != 0 {
		d.Fail("kubectl %s exits with %d: %s", strings.Join(args, " "), code, text)
	}
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = a
		if before, _, long := strings.Cut(a, "custom-columns="); long {
			shown[i] = before + "custom-columns=…"
		}
	}
	d.Command("kubectl %s", strings.Join(shown, " "))
	d.Block(text)
}

// Columns that say more than kubectl's own.
const (
	leaseColumns = "custom-columns=BLOCK:.spec.block,HOLDER:.spec.holder.kind,NODE:.spec.holder.node,USED:.status.used,FREE:.status.free,GRANTED:.spec.grants[*].to.name"
	claimColumns = "custom-columns=NAME:.metadata.name,NETWORK:.spec.network,IPS:.status.ips[*],OWNER POD:.status.ownerPod.name,CONDITION:.status.conditions[*].reason"
	useColumns   = "custom-columns=CLAIM:.spec.use.claim.name,NODE:.spec.node,POD:.spec.use.pod.name,INTERFACE:.spec.use.interface"
)
