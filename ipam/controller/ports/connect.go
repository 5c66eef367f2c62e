package ports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// Cloud is how Neutron is reached: by a clouds.yaml, which is read again when it has changed.
type Cloud struct {
	// File is the path of a clouds.yaml, and Name the cloud in it. Without File there is no
	// Neutron.
	File, Name string
	// Live reads at the API server: the cluster is told from others of the same project by
	// the UID of its namespace kube-system.
	Live client.Reader

	mu      sync.Mutex
	text    []byte          // guarded by mu
	cluster string          // guarded by mu
	client  *neutron.Client // guarded by mu: of text and cluster
}

// Connect returns a client. It may be called concurrently.
func (c *Cloud) Connect(ctx context.Context) (Neutron, error) { return c.connect(ctx) }

// Maker is Connect for who makes subnets.
func (c *Cloud) Maker(ctx context.Context) (SubnetMaker, error) { return c.connect(ctx) }

func (c *Cloud) connect(ctx context.Context) (*neutron.Client, error) {
	if c.File == "" {
		return nil, errors.New("the controller has no credentials for Neutron: start it with --neutron-clouds (Helm: neutron.cloudsSecret)")
	}
	if err := c.findCluster(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := os.ReadFile(c.File)
	if err != nil {
		return nil, fmt.Errorf("the controller has no credentials for Neutron: %w", err)
	}
	if c.client != nil && bytes.Equal(text, c.text) {
		return c.client, nil
	}
	cfg := neutron.DefaultConfig()
	cfg.Clouds, cfg.Cloud, cfg.Cluster = text, c.Name, c.cluster
	made, err := neutron.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("the controller's credentials for Neutron cannot be used: %w", err)
	}
	c.client, c.text = made, text
	return made, nil
}

// findCluster reads the cluster's UID if it is not known. Several may do so at once: the lock is
// not held while the API server is asked.
func (c *Cloud) findCluster(ctx context.Context) error {
	c.mu.Lock()
	known := c.cluster != ""
	c.mu.Unlock()
	if known {
		return nil
	}
	var system corev1.Namespace
	err := kube.Call(ctx, func(ctx context.Context) error {
		return c.Live.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system)
	})
	if err != nil {
		return fmt.Errorf("read the cluster's UID, by which its ports are known: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster = string(system.UID)
	return nil
}
