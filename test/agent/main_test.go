// Package agent_test proves the node agent against a real API server: many nodes'
// agents in one process, every answer seen by an observer.
package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

var (
	cp  *controlplane.ControlPlane
	api *cluster.API
	kc  client.Client
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
	ctrllog.SetLogger(logr.Discard())
	cp, err = controlplane.Start(ctx, controlplane.Options{
		CRDs: []string{"../../deploy/crds", "../../deploy/crds/upstream"}, Controllers: []string{controlplane.GarbageCollector},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	if api, kc, err = cluster.Dial(cp.Config()); err != nil {
		return 0, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultSeatNamespace}}
	// No controller makes the service account that pods need.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	for _, o := range []client.Object{ns, account} {
		if err := kc.Create(ctx, o); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
