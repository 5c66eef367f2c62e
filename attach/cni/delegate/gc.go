package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// heirs is how long GC waits for programs that outlived the call that started them.
const heirs = 5 * time.Second

// GC undoes every attachment of the meta-plugin's network that is not valid, and
// tells the plugins of every network that it knows which of their attachments are.
// It goes on past failures and returns them all. r.Lock is the lock on all
// containers; extra are configurations of networks that no journal may have, such
// as the default network's.
//
// If a valid attachment has no readable journal, no plugin is called: what its container holds
// would be missing from the valid attachments, and be taken from it. The same holds if a journal of
// another network cannot be read whose container may be alive: it may have been written before the
// meta-plugin's configuration was renamed.
func (r *Runner) GC(ctx context.Context, network string, valid []types.GCAttachment, extra []json.RawMessage, now time.Time) error {
	missing := make(map[journal.Key]bool, len(valid))
	files := make(map[string]bool, len(valid))
	for _, a := range valid {
		k := journal.Key{ContainerID: a.ContainerID, Network: network, IfName: a.IfName}
		missing[k], files[k.FileName()] = true, true
	}
	entries, unread, err := r.State.List(now)
	if err != nil {
		return err
	}
	known := networks{}
	left, err := r.collectUnread(ctx, network, unread, files)
	errs := []error{err}
	for _, e := range entries {
		stale := e.Network == network && !files[e.FileName()]
		if stale {
			errs = append(errs, r.collect(ctx, e))
		}
		delete(missing, e.Key)
		errs = append(errs, known.addPlan(e, !stale))
	}
	for _, list := range extra {
		errs = append(errs, known.add(list))
	}
	for k := range missing {
		fmt.Fprintf(r.Stderr, "tenure-attach: GC: container %s, interface %s is valid and has no journal that reads, so no network's plugins are told to collect\n", k.ContainerID, k.IfName)
	}
	if len(missing)+left > 0 {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, r.tell(ctx, known))...)
}

// collectUnread undoes the attachments of the network whose journals do not read, but for those of
// containers that are alive: their DEL will see to it. left is how many journals it has left alone.
func (r *Runner) collectUnread(ctx context.Context, network string, unread []error, valid map[string]bool) (left int, err error) {
	var errs []error
	for _, err := range unread {
		damaged, ok := errors.AsType[*journal.DamagedError](err)
		if !ok {
			left++
			errs = append(errs, err)
			continue
		}
		name := filepath.Base(damaged.Path)
		k, own := journal.KeyIn(network, name)
		switch {
		case !own:
			left++
			fmt.Fprintf(r.Stderr, "tenure-attach: GC: %v; it is none of network %s, so its attachments are left to its DEL, and no network's plugins are told to collect; if its container is gone, remove the file\n", damaged, network)
		case valid[name]:
			left++
			errs = append(errs, err)
		default:
			errs = append(errs, r.recoverDamaged(ctx, k, "", damaged))
		}
	}
	return left, errors.Join(errs...)
}

// collect undoes an attachment that its runtime does not know any more.
func (r *Runner) collect(ctx context.Context, e *journal.Entry) error {
	waits, cancel := context.WithTimeout(ctx, heirs)
	defer cancel()
	lock, err := r.State.LockAmong(waits, r.Lock, e.ContainerID)
	if err != nil {
		return fmt.Errorf("container %s: %w", e.ContainerID, err)
	}
	mine := *r
	mine.Lock = lock
	netns := e.Netns
	if _, err := os.Stat(netns); err != nil {
		netns = "" // CNI_NETNS may be missing where it is gone
	}
	if err := mine.Detach(ctx, e.Key, netns); err != nil {
		return errors.Join(fmt.Errorf("container %s, which is gone: %w", e.ContainerID, err), lock.Release())
	}
	return lock.Forget()
}

// tell forwards GC to every network, with what is valid of it.
func (r *Runner) tell(ctx context.Context, known networks) error {
	var errs []error
	for _, n := range known.inOrder() {
		for _, list := range n.lists {
			if err := r.gcChain(ctx, list, n.valid); err != nil {
				errs = append(errs, stepError(plan.Step{Name: list.name, IfName: "this node"}, "GC", err))
			}
		}
	}
	return errors.Join(errs...)
}

// A network is one whose plugins may keep something of this node's containers.
type network struct {
	lists []*chain
	valid []types.GCAttachment // never nil: that would be no list
}

// networks are the known ones by name.
type networks map[string]*network

func (n networks) of(name string) *network {
	if n[name] == nil {
		n[name] = &network{valid: []types.GCAttachment{}}
	}
	return n[name]
}

// use notes an attachment that is valid.
func (n networks) use(name string, a types.GCAttachment) {
	one := n.of(name)
	one.valid = append(one.valid, a)
}

// addPlan notes the networks of a plan, and its attachments if they are valid.
func (n networks) addPlan(e *journal.Entry, valid bool) error {
	var errs []error
	for i, s := range e.Plan.Steps {
		errs = append(errs, n.add(s.List))
		if valid && !e.Steps[i].Undone {
			n.use(s.Network, types.GCAttachment{ContainerID: e.ContainerID, IfName: s.IfName})
		}
	}
	return errors.Join(errs...)
}

// add notes a configuration. A network has several while its definition changes;
// the plugins of each are told, once.
func (n networks) add(text json.RawMessage) error {
	list, err := parse(text)
	if err != nil {
		return err
	}
	plugins := func(l *chain) (all []string) {
		for _, p := range l.plugins {
			all = append(all, string(p.text))
		}
		return append(all, l.version)
	}
	one := n.of(list.name)
	if !slices.ContainsFunc(one.lists, func(l *chain) bool { return slices.Equal(plugins(l), plugins(list)) }) {
		one.lists = append(one.lists, list)
	}
	return nil
}

// inOrder returns the networks by their names.
func (n networks) inOrder() (all []*network) {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		all = append(all, n[name])
	}
	return all
}
