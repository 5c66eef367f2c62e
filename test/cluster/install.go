package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/test/programs"
)

// overlay is what a user writes to install Tenure with its meta-plugin: where the
// manifests are, and what the images are called.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/deploy]
components: [%[5]s]
images:
- {name: tenured, newName: %[2]stenured, newTag: %[3]s}
- {name: tenure-controller, newName: %[2]stenure-controller, newTag: %[3]s}
patches:
# Nodes boot by themselves, and the kernel does not.
- target: {kind: DaemonSet, name: tenured}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --boot-id-file=/run/boot-id}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: boot, mountPath: /run/boot-id, readOnly: true}}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: boot, hostPath: {path: %[4]s, type: File}}}
`

// Install installs Tenure as a user does, the version of [Earlier] if there is one, and returns
// when everything of it is ready.
func (c *Cluster) Install(ctx context.Context) error {
	root, err := programs.Root()
	if err != nil {
		return err
	}
	return c.step("Tenure, by kubectl apply: installed and ready", func() error {
		if _, err := c.Kubectl(ctx, "", "create", "-f", filepath.Join(root, "deploy/crds/upstream")); err != nil {
			return err
		}
		if earlier := Earlier(); earlier != "" {
			return c.apply(ctx, earlier, EarlierTag)
		}
		return c.apply(ctx, root, ImageTag)
	})
}

// What is installed of deploy besides its own manifests, where the version has it, and the
// earlier one too: that is exchanged for it, and knows no flags of what it has not. The policy
// where Kubernetes has such ones, which is since 1.36.
var (
	components = []string{"attach", "podnetworks", "vifs", "names", "neutron"}
	gatePolicy = "podnetworks/gate-policy.yaml"
)

// Upgrade applies the manifests with the images of a tag, and returns when all that runs
// is of it.
func (c *Cluster) Upgrade(ctx context.Context, tag string) error {
	root, err := programs.Root()
	if err != nil {
		return err
	}
	return c.apply(ctx, root, tag)
}

// apply applies the manifests of the source in root with the images of a tag.
func (c *Cluster) apply(ctx context.Context, root, tag string) error {
	dir := filepath.Join(c.dir, "install")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	from, err := filepath.Rel(dir, root) // kustomize refuses absolute paths
	if err != nil {
		return err
	}
	in := func(root, name string) bool {
		_, err := os.Stat(filepath.Join(root, "deploy", name))
		return err == nil
	}
	has := func(name string) bool { return in(root, name) }
	var with []string
	for _, name := range components {
		if has(name) && (Earlier() == "" || in(Earlier(), name)) {
			with = append(with, filepath.Join(from, "deploy", name))
		}
	}
	text := fmt.Sprintf(overlay, from, ImagePrefix, tag, bootFile, strings.Join(with, ", "))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	// Controllers of earlier versions made the certificate of the webhooks by themselves.
	certify := func() error { return nil }
	if has("../attach/certificate") {
		if certify, err = c.certifier(ctx); err != nil {
			return err
		}
	}
	if _, err := c.Kubectl(ctx, "", "apply", "-k", dir); err != nil {
		return err
	}
	if err := certify(); err != nil {
		return err
	}
	var steps [][]string
	mutates, err := c.serves("mutatingadmissionpolicies")
	if err != nil {
		return err
	}
	if has(gatePolicy) && mutates {
		steps = append(steps, []string{"apply", "-f", filepath.Join(root, "deploy", gatePolicy)})
	}
	return c.each(ctx, append(steps, rolledOut(Agents), rolledOut(Controllers))...)
}

// serves reports whether Kubernetes has a kind of policies, by the name of its resource.
func (c *Cluster) serves(policies string) (bool, error) {
	all, err := c.Kube.Discovery().ServerResourcesForGroupVersion(admissionregistration.SchemeGroupVersion.String())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == policies }), nil
}

// What runs of Tenure, as kubectl names it.
const (
	Agents      = "daemonset/tenured"
	Controllers = "deployment/tenure-controller"
)

// Exchange gives [Agents] or [Controllers] the image of a tag, the manifests left as they are,
// and returns when all of them run it.
func (c *Cluster) Exchange(ctx context.Context, workload, tag string) error {
	_, program, _ := strings.Cut(workload, "/")
	return c.each(ctx,
		[]string{"--namespace", "tenure-system", "set", "image", workload, "*=" + ImagePrefix + program + ":" + tag},
		rolledOut(workload))
}

// rolledOut is what kubectl is told to wait until all pods of a workload are as it says.
func rolledOut(workload string) []string {
	return []string{"--namespace", "tenure-system", "rollout", "status", "--timeout=3m", workload}
}

// each runs kubectl with each of args, one after the other.
func (c *Cluster) each(ctx context.Context, all ...[]string) error {
	for _, args := range all {
		if _, err := c.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// certifier returns what makes the certificate of the webhooks. It is built before there are
// pods: those that start without a certificate hear of it a minute later.
func (c *Cluster) certifier(ctx context.Context) (func() error, error) {
	path, err := programs.Build(ctx, c.dir, "kubectl-tenure")
	if err != nil {
		return nil, err
	}
	return func() error {
		cmd := exec.CommandContext(ctx, path, "certificate")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl tenure certificate: %w: %s", err, said)
		}
		return nil
	}, nil
}

// Kubeconfig returns the path of a kubeconfig with all rights, for use in the sandbox.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Kubectl runs kubectl, with input on its standard input, and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	path, err := programs.Find("kubectl")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Stdin = strings.NewReader(input)
	var out, said limited
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, said.text)
	}
	return string(out.text), nil
}

// Example is what people begin with: a pool, and a network for all nodes.
const Example = `apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: lan}
spec:
  ranges:
  - {cidr: 10.20.0.0/16, gateway: 10.20.0.1, exclude: [10.20.0.0/28]}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan, namespace: default}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "eth1", "capabilities": {"ips": true},
     "ipam": {"type": "tenure", "pool": "lan"}}
`
