// Package soak_test loads a cluster of many agents with what pods and virtual
// machines do, under a seed, while agents, controllers, the API server and etcd are
// killed, frozen and slowed, etcd is restored from a snapshot, nodes and stores are lost,
// clocks jump and second agents start under a node's name. An observer sees every answer
// (I1, I2, I3); in the end everything that was released must have come back (I4) and every
// pool must serve its last address to whichever node asks (I5). What a fault excuses is
// said at its function.
//
// A run of two minutes has one restore, a longer one another about every two minutes. Each goes as
// docs/operations/README.md tells it, some seconds to a minute after the snapshot. In half of them
// resourceVersions go on where they were.
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

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

var (
	cp       *controlplane.ControlPlane
	api      *kube.API
	kc       client.Client
	accounts fleet.Accounts
	agents   fleet.Program
	control  fleet.Program
)

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(controlplane.Options{DelayableEtcd: true}, func(ctx context.Context, c *fleet.Cluster) (int, error) {
		if err := prepare(ctx, c); err != nil {
			return 0, err
		}
		return m.Run(), nil
	}))
}

// prepare sets the variables of this package, and builds the programs.
func prepare(ctx context.Context, c *fleet.Cluster) (err error) {
	cp = c.ControlPlane
	admin := cp.Config()
	admin.Timeout = 5 * time.Second // the API server may be frozen
	if api, kc, err = kube.Dial(admin); err != nil {
		return err
	}
	if accounts, err = fleet.Install(ctx, cp, kc); err != nil {
		return err
	}
	for _, p := range []struct {
		to   *fleet.Program
		name string
	}{{&agents, "tenured"}, {&control, "tenure-controller"}} {
		if p.to.Path, err = programs.Build(ctx, cp.Dir(), p.name); err != nil {
			return err
		}
		p.to.Kubeconfig = filepath.Join(cp.Dir(), p.name+".kubeconfig")
	}
	return errors.Join(
		controlplane.WriteKubeconfig(agents.Kubeconfig, accounts.Agent),
		controlplane.WriteKubeconfig(control.Kubeconfig, accounts.Controller),
	)
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
