// Package scenario_test proves what the clusters of other IPAMs' users have taught,
// case by case: the controller and the agents of many nodes on a real API server,
// with the rights that they are shipped with, every answer seen by an observer.
package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/ipam/controller"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

var (
	cp       *controlplane.ControlPlane
	api      *cluster.API
	kc       client.Client
	accounts fleet.Accounts
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
	if accounts, err = fleet.Install(ctx, cp, kc); err != nil {
		return 0, err
	}
	stop, err := startController(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return m.Run(), nil
}

// startController runs the one controller of this package.
func startController(ctx context.Context) (stop func() error, err error) {
	cfg := controller.DefaultConfig()
	cfg.LeaderElection, cfg.Health, cfg.Metrics = false, "", ""
	cfg.CountsEvery, cfg.Idle = time.Second, 2*time.Second
	c, err := controller.New(cfg, accounts.Controller, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() error { cancel(); return <-done }, nil
}
