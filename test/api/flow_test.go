package api_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience is how long the API server may take to notice a flow schema.
const patience = time.Minute

// TestAgentsWaitInTheirOwnLine: a thousand agents ask at once, as when pods start on all
// nodes, and none is told to come again.
func TestAgentsWaitInTheirOwnLine(t *testing.T) {
	k, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	schema, err := k.FlowcontrolV1().FlowSchemas().Get(t.Context(), agent, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// ask makes a request as an account, and returns how it was answered, and as one of
	// which flow schema's.
	ask := func(c *http.Client, rc *rest.Config) (status int, of string, err error) {
		return answer(t.Context(), c, rc, "/apis/tenure.dev/v1alpha1/ippools")
	}
	clients := map[string]*http.Client{}
	configs := map[string]*rest.Config{}
	for _, account := range []string{agent, controller} {
		rc, err := cp.AddUser("system:serviceaccount:tenure-system:"+account, "system:serviceaccounts")
		if err != nil {
			t.Fatal(err)
		}
		if clients[account], err = rest.HTTPClientFor(rc); err != nil {
			t.Fatal(err)
		}
		configs[account] = rc
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		_, of, err := ask(clients[agent], configs[agent])
		if err != nil {
			t.Fatal(err)
		}
		if of == string(schema.UID) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("an agent's request is one of flow schema %q; want %s", of, schema.UID)
		}
	}
	if _, of, err := ask(clients[controller], configs[controller]); err != nil || of == "" || of == string(schema.UID) {
		t.Errorf("the controller's request is one of flow schema %q, %v; want one of Kubernetes' own", of, err)
	}
	var all errgroup.Group
	refused := make(chan int, 1000)
	for range cap(refused) {
		all.Go(func() error {
			status, _, err := ask(clients[agent], configs[agent])
			if status != http.StatusOK {
				refused <- status
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if len(refused) > 0 {
		t.Errorf("%d of %d requests at once were refused, one with status %d; want none", len(refused), cap(refused), <-refused)
	}
}

// answer makes a request, and returns how it was answered, and as one of which flow schema's.
func answer(ctx context.Context, c *http.Client, rc *rest.Config, path string) (status int, of string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rc.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"), resp.Body.Close()
}

// TestHeartbeatsPassTheLine: where nothing that an agent asks is answered, because so much
// waits before it, its heartbeats are.
func TestHeartbeatsPassTheLine(t *testing.T) {
	k, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	levels := k.FlowcontrolV1().PriorityLevelConfigurations()
	set := func(ctx context.Context, level string) error {
		_, err := levels.Patch(ctx, agent, types.MergePatchType, []byte(level), metav1.PatchOptions{})
		return err
	}
	if err := set(t.Context(), `{"spec":{"limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0}}}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), `{"spec":{"limited":{"nominalConcurrencyShares":30,"borrowingLimitPercent":null}}}`); err != nil {
			t.Error(err)
		}
	})
	rc, err := cp.AddUser("system:serviceaccount:tenure-system:"+agent, "system:serviceaccounts")
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	within := func(d time.Duration, path string) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		status, _, err := answer(ctx, c, rc, path)
		return status, err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		status, err := within(time.Second, "/apis/tenure.dev/v1alpha1/ippools")
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the agents' line still moves: %d, %v", status, err)
		}
	}
	for what, path := range map[string]string{
		"the registration": "/apis/coordination.k8s.io/v1/namespaces/tenure-system/leases/n1",
		"the Node":         "/api/v1/nodes/n1",
	} {
		if status, err := within(20*time.Second, path); err != nil || status != http.StatusNotFound {
			t.Errorf("%s, read as for a heartbeat: status %d, %v; want %d", what, status, err, http.StatusNotFound)
		}
	}
}
