package route

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// deaf tells the kernel not to take default routes from router advertisements on the
// interfaces whose default routes the change removes: the next advertisement would
// bring them back. Addresses and other routes are advertised as before. That holds
// for the keeper, too, if its gateways are given. After an error nothing is changed,
// or the error says what is.
func (c Change) deaf(h *netlink.Handle, ns netns.NsHandle) error {
	if !slices.Contains(c.Families(), IPv6) {
		return nil
	}
	links, err := h.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		if name := l.Attrs().Name; len(c.Gateways) > 0 || !slices.Contains(c.Keeper, name) {
			names = append(names, name)
		}
	}
	ended := make(chan error)
	go func() {
		// /proc/sys/net is that of the thread's network namespace. The thread is not
		// unlocked, and so ends with the goroutine.
		runtime.LockOSThread()
		err := netns.Set(ns)
		if err == nil {
			err = refuseRouters(names)
		}
		ended <- err
	}()
	return <-ended
}

// refuseRouters does as deaf says in this thread's network namespace.
func refuseRouters(interfaces []string) error {
	var done []string
	for _, name := range interfaces {
		path := filepath.Join("/proc/sys/net/ipv6/conf", name, "accept_ra_defrtr")
		now, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(now)) == "0" {
			continue // no IPv6, or done
		}
		if err == nil {
			err = os.WriteFile(path, []byte("0"), 0)
		}
		if err != nil {
			errs := []error{fmt.Errorf("keep advertised default routes away from %s: %w", name, err)}
			for _, path := range done {
				errs = append(errs, os.WriteFile(path, []byte("1"), 0))
			}
			return errors.Join(errs...)
		}
		done = append(done, path)
	}
	return nil
}
