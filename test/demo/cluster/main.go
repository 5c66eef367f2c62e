// Command cluster shows the scenes of the demo that need a cluster: two nodes, their pods and their
// claims. The demo runs it in its sandbox, when it is built.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

func main() {
	var o show.Options
	flags := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	o.Flags(flags)
	o.Onward(flags)
	err := flags.Parse(os.Args[1:])
	if err == nil && !sandbox.Inside() {
		err = errors.New("it runs in the sandbox of the demo only: run make demo")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	os.Exit(play(o))
}

// play plays the scenes and returns the exit code.
func play(o show.Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once

	d := &demo{Show: show.New(o)}
	err := d.Perform(func() { d.perform(ctx) })
	code := d.End(ctx, err)
	if err != nil {
		if code != show.ExitInterrupted {
			d.showLogs()
		}
		d.close()
	}
	return code
}
