// That the cgroup's limits may change takes a goroutine and a thread from the start on.
//
//go:debug updatemaxprocs=0

// Command tenure-attach is the delegating CNI meta-plugin: it attaches a pod to its
// default network and to those that its annotation selects. Runtimes call it;
// docs/reference/attach.md explains it.
package main

import (
	"context"
	"os"
	"time"

	"github.com/tenure-ipam/tenure/attach/cni/plugin"
)

// version is set by the build.
var version = "development"

func main() {
	p := plugin.Plugin{Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, About: "CNI meta-plugin tenure-attach " + version}
	os.Exit(p.Run(context.Background()))
}
