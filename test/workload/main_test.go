// Package workload_test proves what workloads see of Tenure as a whole: the
// controller and many nodes' agents, on a real API server with the real garbage
// collector, every answer seen by an observer.
package workload_test

import (
	"context"
	"errors"
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
	os.Exit(fleet.Main(controlplane.Options{}, func(ctx context.Context, c *fleet.Cluster) (code int, err error) {
		cp, api, kc = c.ControlPlane, c.API, c.Client
		err = c.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}},
			// No controller makes the service account that pods need.
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}},
		)
		if err != nil {
			return 0, err
		}
		stop, err := fleet.StartController(ctx, cp.Config())
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return m.Run(), nil
	}))
}

var eventually = fleet.Eventually
