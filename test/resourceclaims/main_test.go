// Package resourceclaims_test proves what DRANET is answered about devices of ResourceClaims: by
// agents and a controller with the rights that they are shipped with, on a real API server, asked
// over their sockets as the driver does.
package resourceclaims_test

import (
	"context"
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

var (
	cp    *controlplane.ControlPlane
	kc    client.Client // an administrator's
	agent *rest.Config  // the agents'
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, kc = c.ControlPlane, c.Client
		accounts, err := fleet.Install(ctx, cp, kc, "dra/rbac.yaml")
		if err != nil {
			return 0, err
		}
		agent = accounts.Agent
		err = c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}},
			// No controller makes the service account that pods need.
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "elsewhere"}},
		)
		if err != nil {
			return 0, err
		}
		stop, err := fleet.StartController(ctx, accounts.Controller)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}
