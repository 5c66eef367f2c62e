package nodes_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// TestReadyWhenThePodsAreListed: an agent that has not listed its node's pods serves, and is
// not ready: a rolling update waits for it.
func TestReadyWhenThePodsAreListed(t *testing.T) {
	openPool(t, "listed", v1alpha1.Range{CIDR: "10.38.0.0/24"})
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, func(c *daemon.Config) { c.Listen = address })
	listed := make(chan struct{})
	list := sync.OnceFunc(func() { close(listed) })
	t.Cleanup(list)
	f.Between = func(_ string, rc *rest.Config) *rest.Config {
		return fleet.Through(rc, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if path.Base(r.URL.Path) == "pods" {
				select {
				case <-listed:
				case <-r.Context().Done():
					return nil, context.Cause(r.Context())
				}
			}
			return next.RoundTrip(r)
		})
	}
	n := f.Start("listed")
	mustAdd(t, n, onPool("listed", "c", "net1"))
	eventually(t, 15*time.Second, func() error {
		const want = "this node's pods have not been listed"
		if err := fleet.Ready(address)(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("readiness: %w; want %q", err, want)
		}
		return nil
	})
	list()
	n.AwaitReady()
}

// TestReadyWithAThousandAttachments: an agent with 1,000 attachments over some
// hundreds of leases is soon ready after its start, whether the API server answers or
// not, and answers who has something. The test reports how soon.
func TestReadyWithAThousandAttachments(t *testing.T) {
	proof.Only(t)
	const attachments, workers = 1000, 16
	openPool(t, "thousand", v1alpha1.Range{CIDR: "10.34.0.0/22"}) // blocks of four
	f := newFleet(t)
	n := f.Start("thousand")
	on := func(i int) fleet.Interface { return onPool("thousand", fmt.Sprintf("c%d", i), "net1") }
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < attachments; i += workers {
				if _, err := n.Insist(on(i)); err != nil {
					t.Errorf("ADD %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, away := range []bool{false, true} {
		n.Stop()
		leases := countRights(t, n)
		if away {
			must(t, cp.PauseAPIServer())
		}
		began := time.Now()
		n = f.Launch("thousand")
		n.AwaitServing()
		t.Logf("%d attachments on %d leases, API server away: %v: ready after %v (aim: 1 s)", attachments, leases, away, time.Since(began))
		mustAdd(t, n, on(0))
		if away {
			must(t, cp.ResumeAPIServer())
		}
	}
}

// countRights returns how many rights the store of a stopped node has.
func countRights(t *testing.T, n *fleet.Node) (count int) {
	t.Helper()
	st, err := store.Open(n.Config().Store, store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	err = st.View(func(tx *store.Tx) error {
		for _, err := range tx.Rights() {
			if err != nil {
				return err
			}
			count++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}
