// Package plugin_test proves the CNI plugin as runtimes meet it: the program is
// built once and run as a process, row by row of the CNI checklist, in local
// mode and against a node's agent over a real API server.
package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

var (
	cp     *controlplane.ControlPlane
	kc     client.Client
	plugin string // path of the program under test
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(sandbox.Options{}, func() int {
		code, err := run(context.Background(), m)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "plugin")
	if err != nil {
		return 0, err
	}
	if plugin, err = programs.Build(ctx, dir, "tenure"); err != nil {
		return 0, err
	}
	cp, err = controlplane.Start(ctx, controlplane.Options{
		CRDs: []string{"../../deploy/crds", "../../deploy/crds/upstream"}, Controllers: []string{controlplane.GarbageCollector},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cp.Stop(), os.RemoveAll(dir)) }()
	if _, kc, err = cluster.Dial(cp.Config()); err != nil {
		return 0, err
	}
	if err := kc.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultSeatNamespace}}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// pluginDir is where runtimes find the plugin.
func pluginDir() string { return filepath.Dir(plugin) }
