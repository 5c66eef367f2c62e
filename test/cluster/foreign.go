package cluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/test/controlplane"
)

// A foreign is a CNI plugin of others with what belongs to it, installed as its own
// documentation says. Its service account has its name.
type foreign struct {
	name string
	// overlay is what an administrator writes around the manifests that the plugin's
	// module has, which lie beside it.
	overlay string
	// files are on every node, by their paths, beside the plugin's kubeconfig. NODE
	// stands for the node's name.
	files map[string]string
	// makes are the directories that the plugin makes on nodes by itself.
	makes []string
}

// foreignNamespace is where the manifests of all of them put their objects.
const foreignNamespace = "kube-system"

// Where a node's runtime looks for configurations and for plugins.
const (
	confDir   = "/etc/cni/net.d"
	pluginDir = "/opt/cni/bin"
)

// dir returns the directory of the plugin's own files on nodes.
func (f foreign) dir() string { return filepath.Join(confDir, f.name+".d") }

// installForeign applies the plugin's manifests, and puts the plugin and its files on the nodes.
func (c *Cluster) installForeign(ctx context.Context, f foreign) error {
	manifests, err := c.copyManifests(f)
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "", "apply", "-k", manifests); err != nil {
		return err
	}
	user, err := c.ServiceAccount(ctx, foreignNamespace, f.name, nil)
	if err != nil {
		return err
	}
	at, err := url.Parse(user.Host)
	if err != nil {
		return err
	}
	user.Host = "https://" + net.JoinHostPort(c.families[0].host, at.Port())
	program, err := os.ReadFile(filepath.Join(c.rig, f.name))
	if err != nil {
		return err
	}
	return c.onNodes(func(n *Node) error {
		if err := n.replace(filepath.Join(pluginDir, f.name), program); err != nil {
			return err
		}
		if err := os.MkdirAll(n.Path(f.dir()), 0o755); err != nil {
			return err
		}
		if err := controlplane.WriteKubeconfig(n.Path(filepath.Join(f.dir(), f.name+".kubeconfig")), user); err != nil {
			return err
		}
		for path, text := range f.files {
			if err := n.replace(path, []byte(strings.ReplaceAll(text, "NODE", n.Name))); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeForeign removes from the nodes and from the cluster what installForeign has put
// there, and what the plugin has made.
func (c *Cluster) removeForeign(ctx context.Context, f foreign) error {
	err := c.onNodes(func(n *Node) error {
		paths := append([]string{filepath.Join(pluginDir, f.name), f.dir()}, f.makes...)
		for path := range f.files {
			paths = append(paths, path)
		}
		for _, path := range paths {
			if err := os.RemoveAll(n.Path(path)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	manifests, err := c.copyManifests(f)
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "", "delete", "--ignore-not-found", "-k", manifests)
	return err
}

// copyManifests makes a directory with the plugin's manifests and the overlay around them.
func (c *Cluster) copyManifests(f foreign) (dir string, err error) {
	from := filepath.Join(c.rig, f.name+"-manifests")
	files, err := os.ReadDir(from)
	if err != nil {
		return "", fmt.Errorf("manifests of %s: %w: run make rig-foreign, which provides them", f.name, err)
	}
	dir = filepath.Join(c.dir, f.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, file.Name()), text, 0o644); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(f.overlay), 0o644)
}

// onNodes does something on every node, on all at the same time.
func (c *Cluster) onNodes(do func(*Node) error) error {
	var group errgroup.Group
	for _, n := range c.Nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}

// replace writes a file of the node by a rename: who reads it finds the earlier one or
// this. The node must be on.
func (n *Node) replace(path string, text []byte) error {
	path = n.Path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The runtime does not take a file of this name for a configuration.
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o755); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
