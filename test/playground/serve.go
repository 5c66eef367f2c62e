package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/tenure-ipam/tenure/test/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

// envAPI tells the sandbox at which address of the machine people reach the API server.
const envAPI = "TENURE_PLAYGROUND_API"

// forward listens on the machine's loopback, and hands connections on to the sandbox,
// which has another one, by way of a socket in the place.
func (p place) forward() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go relay(l, "unix", p.socket())
	return os.Setenv(envAPI, l.Addr().String())
}

// serve is the life of the sandbox: it brings the cluster up and holds it until ctx
// ends. It returns the exit code.
func (p place) serve(ctx context.Context, out io.Writer) int {
	if err := p.hold(ctx, out); err != nil && ctx.Err() == nil {
		fmt.Fprintln(out, "failed:", err)
		return 1
	}
	return 0
}

func (p place) hold(ctx context.Context, out io.Writer) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	say("compiling Tenure, and making images of it")
	images, err := cluster.BuildImages(ctx)
	if err != nil {
		return err
	}
	say("starting; half a minute as a rule")
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 2, Images: images, Say: say})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if !p.bare {
		if err := c.Install(ctx); err != nil {
			return err
		}
		if _, err := c.Kubectl(ctx, cluster.Example, "apply", "-f", "-"); err != nil {
			return err
		}
	}
	if err := p.handOut(c); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// handOut makes the API server reachable from outside, and then the kubeconfig.
func (p place) handOut(c *cluster.Cluster) error {
	l, err := net.Listen("unix", p.socket())
	if err != nil {
		return err
	}
	user := c.Config()
	go relay(l, "tcp", strings.TrimPrefix(user.Host, "https://"))
	user.Host = "https://" + os.Getenv(envAPI)
	fresh := p.kubeconfig() + ".new"
	if err := controlplane.WriteKubeconfig(fresh, user); err != nil {
		return err
	}
	return os.Rename(fresh, p.kubeconfig())
}

// relay connects whoever connects to l with the server at address, until l is closed.
func relay(l net.Listener, network, address string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial(network, address)
			if err != nil {
				return // the client sees a connection that ends: there is no cluster yet, or none any more
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}
