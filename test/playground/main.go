// Command playground brings up a real Kubernetes cluster with Tenure on this machine,
// for a person to play with. `make cluster` builds what it needs and runs it.
//
//	playground up       brings it up, in the background, and says what to try
//	playground up bare  likewise, without Tenure: for who wants to install it
//	playground down     ends it; nothing of it is left
//
// Everything is in a sandbox that ends with the process in the background, however
// that ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

// serveVerb is the verb of the process in the background.
const serveVerb = "serve"

// main runs for the person; in the background; and there again as the sandbox's
// processes and the nodes' first ones, as test/cluster explains.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, append(os.Args[1:], "", "")); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	p, err := newPlace()
	if err != nil {
		return err
	}
	p.bare = args[1] == "bare"
	switch args[0] {
	case "up":
		return p.up(ctx, os.Stdout)
	case "down":
		return p.down(ctx, os.Stdout)
	case serveVerb:
		if !sandbox.Inside() {
			if err := p.forward(); err != nil {
				return err
			}
		}
		os.Exit(cluster.Main(func() int { return p.serve(ctx, os.Stdout) }))
	}
	return errors.New("usage: playground up [bare] | down")
}
