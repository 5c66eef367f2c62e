package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/deploy/image"
	"github.com/tenure-ipam/tenure/test/process"
)

// whereaboutsImage has the programs of whereabouts that run in pods.
const whereaboutsImage = "tenure.dev/test/whereabouts:1"

// whereaboutsPods has the labels of those pods.
const whereaboutsPods = "app in (whereabouts, whereabouts-reconciler)"

// whereabouts is as its manifests have it. Its programs in pods are the one that frees the
// addresses of pods which are deleted, on every node, and the one that looks for addresses
// of pods which are gone: here once a minute. What the script of its image would do, which
// has a shell, is done here.
var whereabouts = foreign{
	name: "whereabouts",
	overlay: `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- whereabouts.cni.cncf.io_ippools.yaml
- whereabouts.cni.cncf.io_nodeslicepools.yaml
- whereabouts.cni.cncf.io_overlappingrangeipreservations.yaml
- daemonset-install.yaml
- reconciler-deployment.yaml
images:
- {name: ghcr.io/k8snetworkplumbingwg/whereabouts, newName: tenure.dev/test/whereabouts, newTag: "1"}
patches:
- target: {kind: DaemonSet}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/command, value: [/ip-control-loop]}
    - {op: replace, path: /spec/template/spec/containers/0/args, value: [-log-level, debug]}
    # v0.9.4 mostly does not end when it is told to.
    - {op: add, path: /spec/template/spec/terminationGracePeriodSeconds, value: 1}
- target: {kind: ConfigMap}
  patch: |
    - {op: replace, path: /data/cron-expression, value: "* * * * *"}
`,
	files: map[string]string{
		confDir + "/whereabouts.d/whereabouts.conf": `{
  "datastore": "kubernetes", "configuration_path": "` + confDir + `/whereabouts.d",
  "kubernetes": {"kubeconfig": "` + confDir + `/whereabouts.d/whereabouts.kubeconfig"}
}
`,
		confDir + "/whereabouts.d/nodename": "NODE",
	},
}

// InstallWhereabouts installs stock whereabouts, and returns when definitions can name it.
func (c *Cluster) InstallWhereabouts(ctx context.Context) error {
	return c.step("whereabouts", func() error {
		if err := c.giveWhereaboutsImage(ctx); err != nil {
			return err
		}
		if err := c.installForeign(ctx, whereabouts); err != nil {
			return err
		}
		for _, what := range []string{"daemonset/whereabouts", "deployment/whereabouts-reconciler"} {
			if _, err := c.Kubectl(ctx, "", "-n", foreignNamespace, "rollout", "status", "--timeout=3m", what); err != nil {
				return err
			}
		}
		return nil
	})
}

// RemoveWhereabouts removes whereabouts and its records, and returns when all of it is
// gone but its image on the nodes. No pod may have an address of it.
func (c *Cluster) RemoveWhereabouts(ctx context.Context) error {
	return c.step("no whereabouts", func() error {
		if err := c.removeForeign(ctx, whereabouts); err != nil {
			return err
		}
		// By this Lease its plugins take turns.
		if _, err := c.Kubectl(ctx, "", "-n", foreignNamespace, "delete", "--ignore-not-found", "lease", "whereabouts"); err != nil {
			return err
		}
		return process.Await(ctx, process.Patience, func(ctx context.Context) error {
			pods, err := c.Kube.CoreV1().Pods(foreignNamespace).List(ctx, metav1.ListOptions{LabelSelector: whereaboutsPods})
			if err == nil && len(pods.Items) > 0 {
				err = fmt.Errorf("there are still %d pods of whereabouts", len(pods.Items))
			}
			return err
		})
	})
}

// giveWhereaboutsImage makes the image and gives it to every node.
func (c *Cluster) giveWhereaboutsImage(ctx context.Context) error {
	programs := map[string]string{}
	for _, name := range []string{"ip-control-loop", "ip-reconciler"} {
		programs[name] = filepath.Join(c.rig, name)
	}
	archive := filepath.Join(c.dir, "whereabouts.tar")
	err := image.WriteFile(archive, image.Image{Name: whereaboutsImage, Variants: []image.Variant{{
		Arch: runtime.GOARCH, Programs: programs, Entrypoint: []string{"/ip-control-loop"}, User: "0:0",
	}}})
	if err != nil {
		return fmt.Errorf("make the image of whereabouts: %w", err)
	}
	return c.onNodes(func(n *Node) error {
		_, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "import", "--local", archive)
		return err
	})
}
