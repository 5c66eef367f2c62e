package api_test

import (
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rc.Host+"/apis/tenure.dev/v1alpha1/ippools", nil)
		if err != nil {
			return 0, "", err
		}
		resp, err := c.Do(req)
		if err != nil {
			return 0, "", err
		}
		return resp.StatusCode, resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"), resp.Body.Close()
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
