package fleet

import (
	"context"
	"errors"

	"github.com/tenure-ipam/tenure/test/process"
)

// AwaitServing waits until the agent answers that it can serve.
func (n *Node) AwaitServing() {
	n.fleet.t.Helper()
	n.await("does not serve", serving(n.cfg.Socket))
}

// AwaitReady waits until the agent is ready, as the kubelet asks it: since it started it has
// also listed its node's pods, and told the API server what the node holds. Its Config must
// have Listen.
func (n *Node) AwaitReady() {
	n.fleet.t.Helper()
	n.await("is not ready", Ready(n.cfg.Listen))
}

// await waits until ask has no error, while the agent runs.
func (n *Node) await(not string, ask func(context.Context) error) {
	n.fleet.t.Helper()
	err := process.Await(context.Background(), process.Patience, func(ctx context.Context) error {
		if !n.run.Running() {
			return process.Final(errors.Join(errors.New("it has ended"), n.run.Stop()))
		}
		return ask(ctx)
	})
	if err != nil {
		n.fleet.t.Fatalf("agent of %s %s: %v\n%s", n.Name, not, err, n.Log())
	}
}
