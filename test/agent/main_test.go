// Package agent_test proves the node agent against a real API server: many nodes'
// agents in one process, every answer seen by an observer.
package agent_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp  *controlplane.ControlPlane
	api *kube.API
	kc  client.Client
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (int, error) {
		cp, api, kc = c.ControlPlane, c.API, c.Client
		err := c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}},
			// No controller makes the service account that pods need.
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}},
		)
		if err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

var eventually = fleet.Eventually

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
