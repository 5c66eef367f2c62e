package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
)

// Detach undoes what the journal says was done, the last step first. It goes on
// past failures and returns them all; steps that are undone are noted, so that a
// repetition has the others alone. When it returns nil the journal is gone. That
// there is none is no error. netns may be empty or gone.
//
// What the runtime attached before it had the meta-plugin's configuration is undone as
// well; see [Runner.detachEarlier].
//
// A damaged journal is undone by what the cache of results has; see [Runner.recoverDamaged].
func (r *Runner) Detach(ctx context.Context, k journal.Key, netns string) error {
	e, log, err := r.State.Open(k)
	switch damaged, ok := errors.AsType[*journal.DamagedError](err); {
	case ok:
		return r.recoverDamaged(ctx, k, netns, damaged)
	case errors.Is(err, fs.ErrNotExist):
		if found, err := r.detachRenamed(ctx, k, netns); found || err != nil {
			return err
		}
		// Somebody has removed the journal; of what the cache has, it was not the
		// last trace.
		found, err := r.detachCached(ctx, k, k.ContainerID+"."+k.IfName+".", netns)
		if found > 0 || err != nil {
			return err
		}
		return r.detachEarlier(ctx, k, netns)
	case err != nil:
		return err
	}
	if e.Lost != "" {
		fmt.Fprintf(r.Stderr, "tenure-attach: journal of container %s: %s does not read: every step is undone\n", k.ContainerID, e.Lost)
	}
	r.addCachedResults(e)
	var errs []error
	var unnoted error
	undone := map[[2]string]bool{} // by network and interface
	for _, i := range slices.Backward(e.Begun(r.Boot)) {
		s := e.Plan.Steps[i]
		if err := r.del(ctx, e, i, netns); err != nil {
			errs = append(errs, stepError(s, "DEL", err))
			continue
		}
		undone[[2]string{s.Network, s.IfName}] = true
		unnoted = errors.Join(unnoted, log.Undone(i))
	}
	unnoted = errors.Join(unnoted, log.Close())
	if err := errors.Join(errs...); err != nil {
		gone := func(network, ifName string) bool { return undone[[2]string{network, ifName}] }
		return errors.Join(err, unnoted, forget(r.cacheFile(k), gone))
	}
	err = errors.Join(atomicfile.Remove(r.cacheFile(k)), atomicfile.Remove(r.cacheFile(k)+cniresults.SuffixTemp), r.State.Remove(k))
	if errors.Is(err, syscall.EROFS) { // a garbage collection undoes it once more when the disk takes writes
		unnoted, err = errors.Join(unnoted, err), nil
	}
	if unnoted != nil { // as on a full disk; there is no more to be repeated
		fmt.Fprintf(r.Stderr, "tenure-attach: container %s: what was undone could not be noted: %s\n", k.ContainerID, oneLine(unnoted))
	}
	return err
}

// detachRenamed undoes what was attached to the interface while the meta-plugin's configuration
// had another name: the runtime calls only with the present one. found says that there is such a
// journal.
func (r *Runner) detachRenamed(ctx context.Context, k journal.Key, netns string) (found bool, err error) {
	entries, unread, err := r.State.OfInterface(k.ContainerID, k.IfName)
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, r.Detach(ctx, e.Key, netns))
	}
	for _, err := range unread {
		if damaged, ok := errors.AsType[*journal.DamagedError](err); ok {
			err = r.recoverDamaged(ctx, k, netns, damaged)
		}
		errs = append(errs, err)
	}
	return len(entries)+len(unread) > 0, errors.Join(errs...)
}

// detachEarlier undoes what the runtime attached by itself before the meta-plugin's configuration
// replaced another one. The runtime has a record of that in its own cache, by the earlier
// network's name, and calls no plugin for it any more.
func (r *Runner) detachEarlier(ctx context.Context, k journal.Key, netns string) error {
	dir := filepath.Join(filepath.Dir(r.State.Path), "results") // with the default stateDir, the CNI library's
	names, err := atomicfile.Names(dir)
	if err != nil {
		return fmt.Errorf("the runtime's cache of results: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "-"+k.ContainerID+"-"+k.IfName) {
			continue
		}
		path := filepath.Join(dir, name)
		records, err := cniresults.ReadRecords(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(r.Stderr, "tenure-attach: result in %s that does not read is passed over: %v\n", path, err)
		}
		for _, rec := range records {
			if rec.NetworkName == k.Network || rec.ContainerID != k.ContainerID || rec.IfName != k.IfName {
				continue // the meta-plugin's own, or by chance
			}
			if callsTenure(rec) {
				// By an earlier name, it has no journal any more: it is undone. Called, it
				// would wait for the lock that this call has.
				if err := atomicfile.Remove(path); err != nil {
					return fmt.Errorf("the runtime's cache of results: %w", err)
				}
				continue
			}
			if err := r.detachOneCached(ctx, cached{rec, path}, netns); err != nil {
				return stepError(plan.Step{Name: rec.NetworkName, IfName: rec.IfName, Default: true}, "DEL", err)
			}
		}
	}
	return nil
}

// callsTenure reports whether a record is of the meta-plugin's own configuration.
func callsTenure(rec cniresults.Record) bool {
	list, err := parse(rec.Config)
	return err == nil && slices.ContainsFunc(list.plugins, func(p plugin) bool { return p.kind == plan.PluginType })
}

// del undoes a step.
func (r *Runner) del(ctx context.Context, e *journal.Entry, i int, netns string) error {
	s := e.Plan.Steps[i]
	list, err := parse(s.List)
	if err != nil {
		return err
	}
	if err := r.delChain(ctx, list, callOf(e.ContainerID, netns, s), e.Steps[i].Result); err != nil {
		return err
	}
	return r.removeDevice(s.Device)
}

// recoverDamaged undoes an attachment whose journal is damaged by what the cache of results cache
// has of the container, and sets the journal aside. The cache lacks steps that were begun and not
// done. If it has nothing of the container, Recover returns an error once: then nothing is known.
func (r *Runner) recoverDamaged(ctx context.Context, k journal.Key, netns string, damaged *journal.DamagedError) error {
	found, err := r.detachCached(ctx, k, filepath.Base(damaged.Path), netns) // its results have its name
	if err != nil {
		return errors.Join(damaged, err)
	}
	aside, err := r.State.SetAside(damaged)
	if err != nil {
		return errors.Join(damaged, err)
	}
	if found == 0 {
		return fmt.Errorf("%w; the cache of results has nothing of container %s either, so nothing was undone: what its attachments hold is freed by garbage collection; the journal is kept as %s, and the next DEL succeeds",
			damaged, k.ContainerID, aside)
	}
	fmt.Fprintf(r.Stderr, "tenure-attach: %v; %d attachments of container %s were undone by the cache of results; the journal is kept as %s\n", damaged, found, k.ContainerID, aside)
	return nil
}

// detachCached undoes the attachments of a container that the cache has in files whose names
// begin with prefix, those of the default network last. found is how many there were. Another
// interface of the container may belong to another configuration.
func (r *Runner) detachCached(ctx context.Context, k journal.Key, prefix, netns string) (found int, err error) {
	attachments, err := r.cachedOf(k.ContainerID, prefix)
	if err != nil {
		return 0, fmt.Errorf("the cache of results: %w", err)
	}
	// In the plan's reverse order, as far as names tell: net10, net9, …, the runtime's.
	rank := func(a cached) (int, int, string) {
		if a.IfName == k.IfName {
			return 0, 0, ""
		}
		return 1, len(a.IfName), a.IfName
	}
	slices.SortFunc(attachments, func(a, b cached) int {
		a1, a2, a3 := rank(a)
		b1, b2, b3 := rank(b)
		return cmp.Or(cmp.Compare(b1, a1), cmp.Compare(b2, a2), cmp.Compare(b3, a3))
	})
	var errs []error
	for _, a := range attachments {
		if err := r.detachOneCached(ctx, a, netns); err != nil {
			errs = append(errs, stepError(plan.Step{Name: a.NetworkName, IfName: a.IfName}, "DEL", err))
		}
	}
	return len(attachments), errors.Join(errs...)
}

// detachOneCached undoes an attachment that the cache has, and removes it from the cache.
func (r *Runner) detachOneCached(ctx context.Context, a cached, netns string) error {
	list, err := parse(a.Config)
	if err != nil {
		return err
	}
	if err := r.delChain(ctx, list, a.call(netns), a.Result); err != nil {
		return err
	}
	if raw, ok := a.CapabilityArgs["CNIDeviceInfoFile"]; ok {
		var d plan.Device
		if err := json.Unmarshal(raw, &d.File); err != nil {
			return fmt.Errorf("CNIDeviceInfoFile: %w", err)
		}
		if err := r.removeDevice(&d); err != nil {
			return err
		}
	}
	return forget(a.path, func(network, ifName string) bool { return network == a.NetworkName && ifName == a.IfName })
}
