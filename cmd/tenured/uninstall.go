package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/history"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

const uninstallUsage = `tenured uninstall removes from a node what Tenure has put there: the configuration of
tenure-attach, the CNI plugins, the agent's store, and what the plugins keep. The agent
must have ended. While a pod of the node has an address or a network of Tenure's it
removes nothing, as the pod's end needs all of that, and says which pods they are.

"kubectl tenure uninstall" runs it on every node, with the flags that the agent had there.

Flags, beside those of the agent, which say where its files are:
`

// node is where Tenure is on a node: the plugins' directory, and what the agent was told.
type node struct {
	bin string
	daemon.Config
	force bool
}

// uninstall reads the flags and cleans the node, or waits until ctx ends where that is
// asked for.
func uninstall(ctx context.Context, args []string, out, stderr io.Writer) error {
	var opts options
	flags := newFlags("tenured uninstall", uninstallUsage, stderr)
	opts.flags(flags, func(string) string { return "" })
	bin := flags.String("bin", "/opt/cni/bin", "the runtime's directory of plugins")
	force := flags.Bool("force", false, "whatever pods the node has, if its agent has ended: their interfaces stay until they end, and are not torn down then")
	hold := flags.Bool("hold", false, "do nothing, until stopped: what the agent's pod runs when the node is clean")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: see tenured uninstall --help", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: see tenured uninstall --help", flags.Arg(0))
	}
	if *hold {
		<-ctx.Done()
		return nil
	}
	opts.daemon.PlaceBesideStore()
	return node{*bin, opts.daemon, *force}.clean(ctx, out)
}

// clean removes all of it, in an order that lets no new pod be attached by half: first
// the configuration, so that the runtime goes on with the next one, then the plugins,
// when no call of them is under way, then what they know.
func (n node) clean(ctx context.Context, out io.Writer) error {
	users, err := n.users()
	// No force is meant for it: what a running agent serves is not to vanish under it.
	if err != nil && (!n.force || errors.Is(err, store.ErrLocked)) {
		return fmt.Errorf("%w; nothing was removed", err)
	}
	if len(users) > 0 && !n.force {
		return fmt.Errorf("pods of this node have networks or addresses of Tenure's, and cannot end without it: %s; nothing was removed", strings.Join(users, ", "))
	}
	for _, user := range users {
		fmt.Fprintf(out, "left as it is: %s\n", user)
	}
	if err := n.removeConfiguration(out); err != nil {
		return err
	}
	idle, err := journal.Dir{Path: n.AttachState}.LockAll(ctx)
	if err != nil {
		return fmt.Errorf("wait for calls of tenure-attach: %w", err)
	}
	defer func() { _ = idle.Release() }() // its file is among what is removed
	for _, name := range plugins {
		for _, file := range []string{name, "." + name + ".new"} {
			if err := remove(out, filepath.Join(n.bin, file)); err != nil {
				return err
			}
		}
	}
	if err := atomicfile.SyncDir(n.bin); err != nil {
		return err
	}
	return n.removeState(out)
}

// users returns the pods whose end needs Tenure: those with an address out of the
// agent's store, and those that tenure-attach has given more than the default network,
// which the runtime itself detaches by the configuration that comes next. An attachment
// whose network namespace is gone is nobody's any more.
func (n node) users() (users []string, err error) {
	if users, err = n.storeUsers(); err != nil {
		return nil, err
	}
	entries, unread, err := journal.Dir{Path: n.AttachState}.List(time.Now())
	if err := errors.Join(append(unread, err)...); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if len(e.Plan.Steps) > 1 && !netns.SurelyAbsent(e.Netns, netns.SeesHost()) {
			users = append(users, fmt.Sprintf("%s/%s (%d networks)", e.Plan.Pod.Namespace, e.Plan.Pod.Name, len(e.Plan.Steps)))
		}
	}
	return users, nil
}

// storeUsers returns those of users that the agent's store has; none where there is no
// store.
func (n node) storeUsers() (users []string, err error) {
	if !exists(n.Store) {
		return nil, nil
	}
	s, err := openEnded(n.Store, store.Open)
	if err != nil {
		return nil, err
	}
	err = s.View(func(tx *store.Tx) error {
		for a, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			if !netns.SurelyAbsent(a.Netns, netns.SeesHost()) {
				users = append(users, fmt.Sprintf("%s %s (%s)", a.Pod, a.IfName, a.Network))
			}
		}
		return nil
	})
	return users, errors.Join(err, s.Close())
}

// openEnded opens the store of an agent that has ended.
func openEnded(path string, open func(string, store.Options) (*store.Store, error)) (*store.Store, error) {
	s, err := open(path, store.Options{ReadOnly: true})
	if errors.Is(err, store.ErrReadOnly) { // a power cut left it behind its redo log, and no agent has run since
		s, err = open(path, store.Options{})
	}
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("the agent of this node runs: it must have ended: %w", err)
	}
	return s, err
}

// removeConfiguration removes the file that the agent keeps, and those that other programs have
// made of it by a longer name. What is another's stays.
func (n node) removeConfiguration(out io.Writer) error {
	conf := filepath.Join(n.Ready.Dir, n.Ready.Name)
	files, err := filepath.Glob(conf + ".*")
	if err != nil {
		return err
	}
	for _, file := range append(files, conf) {
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		text, readErr := os.ReadFile(file)
		if err := errors.Join(err, readErr); err != nil {
			return err
		}
		if !bytes.Contains(text, []byte(plan.PluginType)) {
			fmt.Fprintf(out, "%s: left, as it is not Tenure's\n", file)
			continue
		}
		if err := errors.Join(remove(out, file), atomicfile.SyncDir(filepath.Dir(file))); err != nil {
			return err
		}
	}
	return nil
}

// removeState removes what agent and plugins keep. In their directories may be what is anybody's,
// so files of Tenure's go alone, and then the directories, where nothing is left in them.
func (n node) removeState(out io.Writer) error {
	patterns := []string{n.Store, n.Store + ".*", n.Ready.Record, n.Ready.Record + ".new", n.Socket, n.Socket + ".*", filepath.Join(n.AttachState, "*")}
	for _, name := range []string{"*.del", "*.del.damaged", "*.tmp"} {
		patterns = append(patterns, filepath.Join(n.Agent.JournalDir, name))
	}
	// The manifests put DRANET's socket there. Agents that serve it no more leave the directory.
	dra := filepath.Join(filepath.Dir(n.Socket), "dra")
	patterns = append(patterns, n.DRASocket, filepath.Join(dra, "dranet.sock"))
	for _, suffix := range []string{".json", ".json.new", ".shown"} {
		patterns = append(patterns, filepath.Join(n.Reports, strings.Repeat("[0-9a-f]", 32)+suffix))
	}
	patterns = append(patterns, filepath.Join(n.History, history.Pattern))
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := remove(out, path); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{n.Agent.JournalDir, n.Reports, n.History, filepath.Dir(n.Store), dra} {
		_ = os.Remove(dir) // it stays where something is in it, or something is mounted on it
	}
	return nil
}

// remove removes a file or a directory, and says so where there was one.
func remove(out io.Writer, path string) error {
	if !exists(path) {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: removed\n", path)
	return nil
}

// exists reports whether something is at path, or may be.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
