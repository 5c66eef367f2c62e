package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/deploy"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
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

// install creates the objects of deploy/rbac and deploy/policies, and the
// namespace of the workloads.
func (d *demo) install(ctx context.Context, report func(string)) error {
	for _, dir := range []string{"rbac", "policies"} {
		files, err := fs.ReadDir(deploy.FS, dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			report(dir + "/" + f.Name())
			text, err := fs.ReadFile(deploy.FS, path.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			if err := d.createAll(ctx, string(text)); err != nil {
				return fmt.Errorf("%s/%s: %w", dir, f.Name(), err)
			}
		}
	}
	if err := d.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	report("pods need the namespace's service account")
	return await(ctx, patience, func(ctx context.Context) (string, error) {
		err := d.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		if apierrors.IsNotFound(err) {
			return "the namespace has no service account yet", nil
		}
		return "", err
	})
}

// createAll creates the objects of a manifest.
func (d *demo) createAll(ctx context.Context, manifest string) error {
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return err
		}
		if err := d.kube.Create(ctx, &o); err != nil {
			return err
		}
	}
	return nil
}

// account writes a kubeconfig for one of Tenure's service accounts; bound is what
// its token is bound to, nil for nothing.
func (d *demo) account(ctx context.Context, name, file string, bound *authentication.BoundObjectReference) error {
	user, err := d.cp.ServiceAccount(ctx, kube.DefaultRegistrationNamespace, name, bound)
	if err != nil {
		return err
	}
	return controlplane.WriteKubeconfig(file, user)
}

func (d *demo) startController(ctx context.Context, bin string) error {
	const name, listen = "tenure-controller", "127.0.0.1:9470"
	kubeconfig := filepath.Join(workDir, name+".kubeconfig")
	if err := d.account(ctx, name, kubeconfig, nil); err != nil {
		return err
	}
	d.controller = &program{
		name: name, path: filepath.Join(bin, name), log: filepath.Join(workDir, name+".log"), listen: listen,
		args: []string{
			"--kubeconfig=" + kubeconfig, "--health=" + listen, "--metrics=",
			// A minute in production: too long to watch.
			"--counts-every=1s", "--idle=3s",
		},
	}
	return d.screen.step("tenure-controller, as its service account", func(func(string)) error { return d.controller.start(ctx) })
}

// runKubectl runs kubectl, which finds kubectl-tenure, and returns what it says and
// its exit code.
func (d *demo) runKubectl(ctx context.Context, args ...string) (text string, code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("kubectl takes too long"))
	defer cancel()
	bin, err := binDir()
	if err != nil {
		return "", 0, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, d.kubectlPath, args...)
	cmd.Dir = workDir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+adminKubeconfig, "HOME="+workDir, "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &out, &out // in the order in which they are written
	_, err = d.screen.during("kubectl", func(func(string)) error { return cmd.Run() })
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return "", 0, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out.String(), cmd.ProcessState.ExitCode(), nil
}

// kubectl runs kubectl and shows the command, with long column lists left out, and
// its output.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	text, code, err := d.runKubectl(ctx, args...)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("kubectl %s exits with %d: %s", strings.Join(args, " "), code, text)
	}
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = a
		if before, _, long := strings.Cut(a, "custom-columns="); long {
			shown[i] = before + "custom-columns=…"
		}
	}
	d.screen.command("kubectl %s", strings.Join(shown, " "))
	d.screen.block(text)
	return nil
}

// Columns that say more than kubectl's own.
const (
	leaseColumns = "custom-columns=BLOCK:.spec.block,HOLDER:.spec.holder.kind,NODE:.spec.holder.node,USED:.status.used,FREE:.status.free,GRANTED:.spec.grants[*].to.name"
	claimColumns = "custom-columns=NAME:.metadata.name,NETWORK:.spec.network,IPS:.status.ips[*],OWNER POD:.status.ownerPod.name,CONDITION:.status.conditions[*].reason"
	useColumns   = "custom-columns=CLAIM:.spec.use.claim.name,NODE:.spec.node,POD:.spec.use.pod.name,INTERFACE:.spec.use.interface"
)
