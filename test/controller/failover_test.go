package controller_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
	"github.com/tenure-ipam/tenure/test/proof"
)

// launched is a tenure-controller that runs.
type launched struct {
	*process.Process
	health  string
	metrics string
}

// launch runs the program as it ships, with leader election.
func launch(t testing.TB, program, kubeconfig string, args ...string) *launched {
	t.Helper()
	p := &launched{health: freeAddress(t), metrics: freeAddress(t)}
	p.Process = fleet.Program{Path: program, Kubeconfig: kubeconfig}.Controller(p.health, filepath.Join(t.TempDir(), "log"), append([]string{
		"--metrics", p.metrics,
		// A renewal may wait for a busy machine.
		"--leader-lease-duration=8s", "--leader-renew-deadline=6s", "--leader-retry-period=1s",
		"--counts-every=2s", "--idle=6s", "--debug",
	}, args...)...)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil || t.Failed() {
			t.Logf("%v; a controller's log ends with\n%s", err, p.Tail())
		}
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// leader returns who holds the controllers' lease.
func leader() (string, error) {
	var l coordination.Lease
	key := client.ObjectKey{Namespace: kube.DefaultRegistrationNamespace, Name: "tenure-controller"}
	if err := kc.Get(context.Background(), key, &l); err != nil {
		return "", err
	}
	if l.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *l.Spec.HolderIdentity, nil
}

// newLeader waits until another than old leads, and returns who.
func newLeader(t testing.TB, old string, within time.Duration) (now string) {
	t.Helper()
	eventually(t, within, func() (err error) {
		if now, err = leader(); err == nil && (now == "" || now == old) {
			err = fmt.Errorf("the leader is %q", now)
		}
		return err
	})
	return now
}

// TestLeaderKilled kills the leading controller while claims are being
// allocated and freed, again and again. Every claim gets its addresses, none
// twice, and nothing is left over.
func TestLeaderKilled(t *testing.T) {
	proof.Only(t)
	dir := t.TempDir()
	program, err := programs.Build(t.Context(), dir, "tenure-controller")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, role); err != nil {
		t.Fatal(err)
	}
	first := launch(t, program, kubeconfig)
	led := newLeader(t, "", 20*time.Second)
	second := launch(t, program, kubeconfig)

	ns, p := lan(t, "10.0.0.0/20")
	opened(t, p)
	const n, rounds = 120, 3
	for round := range rounds {
		parallel(t, n, func(i int) error {
			if i == n/2 {
				if err := first.Kill(); err != nil {
					return err
				}
			}
			if err := kc.Create(t.Context(), claimOf(ns, fmt.Sprintf("r%d-%d", round, i), "lan")); err != nil {
				return err
			}
			if round > 0 && i%2 == 0 { // half of the last round's go
				return kc.Delete(t.Context(), claimOf(ns, fmt.Sprintf("r%d-%d", round-1, i), "lan"))
			}
			return nil
		})
		led = newLeader(t, led, 30*time.Second)
		first, second = second, launch(t, program, kubeconfig)
	}
	const left = n + (rounds-1)*n/2
	inNamespace(t, ns, left)
	eventually(t, 30*time.Second, func() error {
		leases, err := api.LeasesOfPool(t.Context(), protocol.PoolName(p.Name))
		total := 0
		for _, l := range leases {
			total += len(l.Grants)
			if l.Holder.Cluster && len(l.Grants) == 0 {
				return fmt.Errorf("lease %s is idle", l.Name)
			}
		}
		if err == nil && total != left {
			return fmt.Errorf("%d grants; want %d", total, left)
		}
		return err
	})
	if err := distinct(t, ns); err != nil {
		t.Error(err)
	}

	// A leader that is asked to stop gives its lease back: the other leads at once.
	asked := time.Now()
	if err := first.Stop(); err != nil {
		t.Errorf("a controller that is asked to stop ends with %v", err)
	}
	newLeader(t, led, 3*time.Second)
	t.Logf("handed over in %v", time.Since(asked))
	c := claim(t, ns, "last", "lan")
	allocated(t, c)
	for _, metric := range []string{
		"tenure_broker_round_asks", "tenure_claim_allocation_seconds_count", `tenure_pool_open{pool="` + p.Name + `"} 1`, "workqueue_depth",
	} {
		eventually(t, 10*time.Second, func() error { // not all reconcilers begin at once
			body, err := get("http://" + second.metrics + "/metrics")
			if err == nil && !strings.Contains(body, metric) {
				err = fmt.Errorf("/metrics does not have %s", metric)
			}
			return err
		})
	}
	if body, err := get("http://" + second.health + "/healthz"); err != nil || body != "ok" {
		t.Errorf("/healthz says %q, %v; want ok", body, err)
	}
	remove(t, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: "tenure-controller"}})
}
