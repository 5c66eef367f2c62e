// Command pod is what runs in the pods of tests: as the sandbox's first process, and
// as a workload that can be asked what it is attached to.
//
//	pod pause            until it is told to end
//	pod serve            the same, and answers on port 8080 with its addresses
//	pod addresses        prints them: a line "INTERFACE ADDRESS/LENGTH" for each
//	pod routes           prints the routes through gateways: "NETWORK via GATEWAY dev INTERFACE"
//	pod get HOST:PORT    prints what a pod that serves answers
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "pause":
		return pause()
	case len(args) == 1 && args[0] == "serve":
		server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := addresses(w); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})}
		failed := make(chan error, 1)
		go func() { failed <- server.ListenAndServe() }()
		go func() { failed <- pause() }()
		return <-failed
	case len(args) == 1 && args[0] == "addresses":
		return addresses(os.Stdout)
	case len(args) == 1 && args[0] == "routes":
		return routes(os.Stdout)
	case len(args) == 2 && args[0] == "get":
		return get(args[1])
	default:
		return errors.New("usage: pod pause | serve | addresses | routes | get HOST:PORT")
	}
}

// pause returns when the process is told to end. Until then it collects what others
// have orphaned: in a shared pid namespace it is the first process.
func pause() error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// addresses writes the addresses of the pod's interfaces, without those that every
// interface has by itself.
func addresses(w io.Writer) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		all, err := i.Addrs()
		if err != nil {
			return err
		}
		for _, a := range all {
			ip, _, err := net.ParseCIDR(a.String())
			if err != nil {
				return err
			}
			if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
				continue
			}
			if _, err := fmt.Fprintln(w, i.Name, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// routes writes the pod's routes that lead through a gateway.
func routes(w io.Writer) error {
	all, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Gw == nil {
			continue
		}
		i, err := net.InterfaceByIndex(r.LinkIndex)
		if err != nil {
			return err
		}
		to := "default"
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			to = r.Dst.String()
		}
		if _, err := fmt.Fprintln(w, to, "via", r.Gw, "dev", i.Name); err != nil {
			return err
		}
	}
	return nil
}

func get(host string) error {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + strings.TrimPrefix(host, "http://"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
