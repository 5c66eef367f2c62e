package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// AwaitServing waits until the agent answers that it can serve.
func (n *Node) AwaitServing() {
	n.fleet.t.Helper()
	conf := []byte(`{"cniVersion":"1.1.0","name":"probe","type":"probe","ipam":{"type":"tenure","pool":"probe"}}`)
	n.await("does not serve", func() error {
		resp, err := n.call(agentapi.Request{Verb: agentapi.Status, Config: conf})
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
		return err
	})
}

// AwaitReady waits until the agent is ready, as the kubelet asks it: since it started it
// has also told the API server what its node holds. Its Config must have Listen.
func (n *Node) AwaitReady() {
	n.fleet.t.Helper()
	n.await("is not ready", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.cfg.Listen+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		why, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, why)
		}
		return err
	})
}

// await waits until ask has no error, while the agent runs.
func (n *Node) await(not string, ask func() error) {
	n.fleet.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := ask()
		if err == nil {
			return
		}
		select {
		case err := <-n.done:
			n.fleet.t.Fatalf("agent of %s ended: %v", n.Name, err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			n.fleet.t.Fatalf("agent of %s %s: %v\n%s", n.Name, not, err, n.Log())
		}
	}
}
