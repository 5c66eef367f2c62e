// Package plugin_test proves the CNI plugin as runtimes meet it: the program is
// built once and run as a process, row by row of the CNI checklist, in local
// mode and against a node's agent over a real API server.
package plugin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

var (
	cp     *controlplane.ControlPlane
	kc     client.Client
	plugin string // path of the program under test
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		if plugin, err = programs.Build(ctx, cp.Dir(), "tenure"); err != nil {
			return 0, err
		}
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}}); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

var eventually = fleet.Eventually

// pluginDir is where runtimes find the plugin.
func pluginDir() string { return filepath.Dir(plugin) }
