// Command kubectl-tenure is the operator's tool, a plugin of kubectl: how full pools
// are, who has which address, what a pod would be attached to and why it is not, and
// whether all is as it must be. Few verbs write: release-node puts on record that
// somebody vouches that a node is off, import and export move pods between IPAMs,
// certificate makes the certificate of the webhooks, and uninstall takes Tenure off the nodes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the build.
var version = "development"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who interrupts twice does not want to wait
	code := run(ctx, commandLine(os.Args), os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
