// Package soak_test loads a cluster of many agents with what pods and virtual
// machines do, under a seed, while agents, controllers, the API server and etcd are
// killed, frozen and slowed and nodes are lost. An observer sees every answer (I1,
// I2, I3); in the end everything that was released must have come back (I4) and
// every pool must serve its last address to whichever node asks (I5).
//
// TENURE_SOAK_MINUTES says how long, two without it; TENURE_SOAK_SEED repeats the
// decisions of a run, though not its timing.
package soak_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

var (
	cp       *controlplane.ControlPlane
	api      *cluster.API
	kc       client.Client
	accounts fleet.Accounts
	agents   fleet.Program
	control  fleet.Program
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
		CRDs:        []string{"../../deploy/crds", "../../deploy/crds/upstream"},
		Controllers: []string{controlplane.GarbageCollector}, DelayableEtcd: true,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	admin := cp.Config()
	admin.Timeout = 5 * time.Second // the API server may be frozen
	if api, kc, err = cluster.Dial(admin); err != nil {
		return 0, err
	}
	if accounts, err = fleet.Install(ctx, cp, kc); err != nil {
		return 0, err
	}
	for _, p := range []struct {
		to   *fleet.Program
		name string
	}{{&agents, "tenured"}, {&control, "tenure-controller"}} {
		if p.to.Path, err = programs.Build(ctx, cp.Dir(), p.name); err != nil {
			return 0, err
		}
		p.to.Kubeconfig = filepath.Join(cp.Dir(), p.name+".kubeconfig")
	}
	err = errors.Join(
		controlplane.WriteKubeconfig(agents.Kubeconfig, accounts.Agent),
		controlplane.WriteKubeconfig(control.Kubeconfig, accounts.Controller),
	)
	if err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// settings are what the environment says.
type settings struct {
	load time.Duration // how long the load lasts
	seed uint64
}

func fromEnvironment() (settings, error) {
	s := settings{load: 2 * time.Minute, seed: uint64(time.Now().UnixNano())}
	if text := os.Getenv("TENURE_SOAK_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil || minutes <= 0 {
			return s, fmt.Errorf("TENURE_SOAK_MINUTES is %q, must be a positive number", text)
		}
		s.load = time.Duration(minutes * float64(time.Minute))
	}
	if text := os.Getenv("TENURE_SOAK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return s, fmt.Errorf("TENURE_SOAK_SEED is %q, must be a whole number", text)
		}
		s.seed = seed
	}
	return s, nil
}
