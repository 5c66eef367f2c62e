// Package ui has the verb ui: it serves a page on localhost that shows pools as maps of their
// addresses, pods that wait, and what check finds. Whoever runs it lends the page his rights.
package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// New returns the verb ui.
func New(s *session.Session) *cobra.Command {
	var port uint16
	c := &cobra.Command{
		Use: "ui", Short: "a page that shows pools, pods that wait, and findings",
		Long: `Serves a page on 127.0.0.1, and prints its address: pools as maps of their addresses, pods that
wait with the reasons, and the findings of check. It shows what your kubeconfig lets you
read, and changes nothing. It ends with Ctrl-C.

Nobody else can open the page: only programs of this machine reach it, and only who knows
the secret in its address is answered. Do not hand the address on. From another machine:
ssh -L PORT:127.0.0.1:PORT with --port=PORT.`,
		Args: session.None, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), s, port) },
	}
	c.Flags().Uint16Var(&port, "port", 0, "TCP port on 127.0.0.1 (default: one that is free)")
	return c
}

func run(ctx context.Context, s *session.Session, port uint16) error {
	if err := s.Connect(); err != nil {
		return err
	}
	// Before the cluster is asked: a port that is taken is the user's to change.
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("listen: %w; give another --port, or none", err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	c, err := newCluster(ctx, s)
	if err != nil {
		cancel()
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	_, at, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	g := newGuard(at, newPage(c))
	c.wait(ctx)
	server := &http.Server{
		Handler: g, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintf(s.Stdout, "http://127.0.0.1:%s/%s/\n", at, g.secret)
	fmt.Fprintln(s.Stderr, "Open this address in a browser on this machine. Ctrl-C ends the page.")
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}
