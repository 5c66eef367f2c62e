// That the cgroup's limits may change takes a goroutine and a thread from the start on.
//
//go:debug updatemaxprocs=0

// Command tenure is the IPAM CNI plugin. Runtimes call it; docs/howto/local-mode.md
// says how to try it by hand.
package main

import (
	"context"
	"os"
	"time"

	"github.com/tenure-ipam/tenure/ipam/cni/plugin"
)

// version is set by the build.
var version = "development"

func main() {
	p := plugin.Plugin{Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, About: "CNI IPAM plugin tenure " + version}
	os.Exit(p.Run(context.Background()))
}
