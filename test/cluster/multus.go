package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tenure-ipam/tenure/test/process"
)

// multusCache is where Multus notes on a node what it has attached to each pod, and, in
// results, what the plugins have answered.
const multusCache = "/var/lib/cni/multus"

// multus is thin Multus, with the rights that its manifest gives it. The definitions' CRD
// of the manifest is there already, and what its image would do is done here.
var multus = foreign{
	name: "multus",
	overlay: `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [multus-daemonset.yml]
patches:
- target: {kind: CustomResourceDefinition}
  patch: '{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: any}, $patch: delete}'
- target: {kind: DaemonSet}
  patch: '{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: any}, $patch: delete}'
- target: {kind: ConfigMap}
  patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: any}, $patch: delete}'
`,
	files: map[string]string{
		// Its name sorts before that of Tenure's. The default network is named: of one
		// whose file is named, v4.3.0 does not remember the IPAM's keys for the DEL.
		confDir + "/00-multus.conflist": `{
  "cniVersion": "1.0.0", "name": "multus",
  "plugins": [{
    "type": "multus", "kubeconfig": "` + confDir + `/multus.d/multus.kubeconfig",
    "confDir": "` + confDir + `", "clusterNetwork": "pods"
  }]
}
`,
	},
	makes: []string{multusCache},
}

// InstallMultus makes stock Multus attach the pods of every node, and returns when it does.
// Pods that are there stay as they are.
func (c *Cluster) InstallMultus(ctx context.Context) error {
	return c.step("Multus", func() error {
		if err := c.installForeign(ctx, multus); err != nil {
			return err
		}
		return c.restartRuntimes(ctx)
	})
}

// RemoveMultus removes Multus without a trace, and returns when pods are attached by what
// attached them before. It waits until no pod is left that Multus has attached, since no
// other can detach it: who calls it has deleted them.
func (c *Cluster) RemoveMultus(ctx context.Context) error {
	return c.step("no Multus", func() error {
		err := c.onNodes(func(n *Node) error {
			return process.Await(ctx, process.Patience, func(context.Context) error {
				left, err := filepath.Glob(n.Path(multusCache + "/results/*"))
				if err == nil && len(left) > 0 {
					err = fmt.Errorf("%s still has pods that Multus has attached, with %d results", n.Name, len(left))
				}
				return err
			})
		})
		if err != nil {
			return err
		}
		if err := c.removeForeign(ctx, multus); err != nil {
			return err
		}
		return c.restartRuntimes(ctx)
	})
}

// restartRuntimes restarts the runtimes of all nodes. They find changed configurations by
// themselves as well, and tell nobody when they have.
func (c *Cluster) restartRuntimes(ctx context.Context) error {
	return c.onNodes(func(n *Node) error { return n.Containerd.Restart(ctx) })
}
