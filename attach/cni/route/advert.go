package route

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	namespaces "github.com/tenure-ipam/tenure/ipam/netns"
)

// deaf tells the kernel not to take default routes from router advertisements on the
// interfaces whose default routes the change removes: the next advertisement would
// bring them back. Addresses and other routes are advertised as before. That holds
// for the keeper, too, if its gateways are given. hear takes it back. After an error
// nothing is changed, or the error says what is.
func (c Change) deaf(h *netlink.Handle, ns netns.NsHandle) (hear func() error, err error) {
	if !slices.Contains(c.Families(), IPv6) {
		return func() error { return nil }, nil
	}
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		if name := l.Attrs().Name; len(c.Gateways) > 0 || !slices.Contains(c.Keeper, name) {
			names = append(names, name)
		}
	}
	var done []string
	err = namespaces.Inside(int(ns), func() (err error) {
		done, err = refuseRouters(names)
		return err
	})
	return func() error { return namespaces.Inside(int(ns), func() error { return hearRouters(done) }) }, err
}

// refuseRouters does as deaf says in this thread's network namespace, and returns the
// files that it has changed.
func refuseRouters(interfaces []string) (done []string, err error) {
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
			return nil, errors.Join(fmt.Errorf("keep advertised default routes away from %s: %w", name, err), hearRouters(done))
		}
		done = append(done, path)
	}
	return done, nil
}

// hearRouters takes back what refuseRouters has done.
func hearRouters(done []string) error {
	var errs []error
	for _, path := range done {
		errs = append(errs, os.WriteFile(path, []byte("1"), 0))
	}
	return errors.Join(errs...)
}
