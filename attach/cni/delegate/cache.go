package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
)

// The cache is a second trace of what was attached: for each journal a file of its
// name, with a record for each attachment in the form of the CNI library's cache,
// which agents read back when they have lost their own record.

// cached is an attachment in the cache.
type cached struct {
	cniresults.Record
	path string // of its file
}

func (r *Runner) cacheDir() string { return filepath.Join(r.State.Path, "results") }

func (r *Runner) cacheFile(k journal.Key) string { return filepath.Join(r.cacheDir(), k.FileName()) }

// keep adds the result of an attachment to the cache, in the place of an earlier one.
// The journal has it too, so that it need not survive the machine.
func (r *Runner) keep(k journal.Key, record cniresults.Record) error {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE
	line, err := record.Line()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.cacheFile(k), flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = atomicfile.MakeDir(r.cacheDir()); err == nil {
			f, err = os.OpenFile(r.cacheFile(k), flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

// record returns the record that the cache keeps of a call.
func (c call) record(list *chain, result []byte) cniresults.Record {
	rec := cniresults.Record{
		ContainerID: c.containerID, Config: list.text, IfName: c.ifName, NetworkName: list.name, NetNS: c.netns,
		CapabilityArgs: c.capabilities, Result: result,
	}
	for _, a := range c.args {
		rec.CNIArgs = append(rec.CNIArgs, [2]string{a.Key, a.Value})
	}
	return rec
}

// forget removes from a file of the cache the attachments that are gone; a file
// without any is removed. There need be none.
func forget(path string, gone func(network, ifName string) bool) error {
	records, err := cniresults.ReadRecords(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		return err
	}
	// What is no record is of no use to anybody, and goes.
	var left []byte
	for _, rec := range records {
		if !gone(rec.NetworkName, rec.IfName) {
			line, err := rec.Line()
			if err != nil {
				return err
			}
			left = append(left, line...)
		}
	}
	if left == nil {
		return atomicfile.Remove(path)
	}
	temp := path + cniresults.SuffixTemp // its container's lock is held
	if err := os.WriteFile(temp, left, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// cachedOf returns the attachments of a container that the cache has in files whose names begin
// with prefix, in the order of the names. With both empty it returns all. What cannot be read is
// left out, with a line on Stderr.
func (r *Runner) cachedOf(containerID, prefix string) (all []cached, err error) {
	names, err := atomicfile.Names(r.cacheDir())
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || cniresults.IsTemp(name) {
			continue
		}
		path := filepath.Join(r.cacheDir(), name)
		records, err := cniresults.ReadRecords(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its DEL came meanwhile
			fmt.Fprintf(r.Stderr, "tenure-attach: results in %s that do not read are passed over: %v\n", path, err)
		}
		for _, rec := range records {
			if containerID == "" || rec.ContainerID == containerID {
				all = append(all, cached{rec, path})
			}
		}
	}
	return all, nil
}

// addCachedResults gives steps that have no result in their journal the result that the cache
// has: the journal may have been cut short, or have a damaged line. A damaged line may have been
// the last result of any step, and the cache has that, too.
func (r *Runner) addCachedResults(e *journal.Entry) {
	if e.Lost == "" && !slices.ContainsFunc(e.Steps, func(s journal.Step) bool { return s.Result == nil }) {
		return
	}
	path := r.cacheFile(e.Key)
	records, err := cniresults.ReadRecords(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(r.Stderr, "tenure-attach: results in %s that do not read are passed over: %v\n", path, err)
	}
	for i, s := range e.Plan.Steps {
		for _, rec := range records {
			if (e.Steps[i].Result == nil || e.Lost != "") && rec.ContainerID == e.ContainerID && rec.NetworkName == s.Network && rec.IfName == s.IfName {
				e.Steps[i].Began, e.Steps[i].Result = true, rec.Result
			}
		}
	}
}

// call returns how to call the plugins of the attachment.
func (c cached) call(netns string) call {
	out := call{containerID: c.ContainerID, netns: netns, ifName: c.IfName, capabilities: c.CapabilityArgs}
	for _, pair := range c.CNIArgs {
		out.args = append(out.args, plan.Arg{Key: pair[0], Value: pair[1]})
	}
	return out
}
