package agent

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/recovery"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readBackWait bounds how long a reading back waits for each pool.
const readBackWait = 2 * time.Second

// readBack records the attachments of a lost store's time, as far as they can be
// found. It reports whether that is all: some wait for a pool that is not known now.
func (a *Agent) readBack(ctx context.Context, id protocol.StoreID) (whole bool, err error) {
	frozen, err := a.frozen(ctx, id)
	if err != nil {
		return false, err
	}
	cached, unread, err := a.host.Cached()
	if err != nil {
		return false, err
	}
	running, err := a.cl.Pods.PodsOfNode(ctx, a.cfg.Node)
	if err != nil {
		return false, err
	}
	var pods []recovery.Pod
	for _, p := range running {
		pods = append(pods, recovery.Pod{PodRef: p.PodRef, MirrorOf: p.MirrorOf})
	}
	found, unknown := frozen.Find(cached, pods)
	for _, err := range unread {
		a.log.DebugContext(ctx, "trace of an attachment not understood", "error", err)
	}
	recorded := 0
	for _, att := range found {
		err := a.st.Update(ctx, func(tx *store.Tx) error { return recovery.Record(tx, att) })
		switch {
		case errors.Is(err, recovery.ErrKnown):
		case err != nil:
			return false, err
		default:
			recorded++
		}
	}
	a.log.InfoContext(ctx, "attachments of a lost store read back", "store", id, "found", len(found), "recorded", recorded)
	if len(unknown) > 0 {
		a.log.WarnContext(ctx, "some attachments of a lost store wait for pools that are not known: they are read back at the next list of leases",
			"store", id, "pools", unknown)
	}
	return len(unknown) == 0, nil
}

// frozen returns what a reading back goes by.
func (a *Agent) frozen(ctx context.Context, id protocol.StoreID) (f recovery.Frozen, err error) {
	err = a.st.View(func(tx *store.Tx) error {
		f, err = recovery.Of(tx, id)
		return err
	})
	if err != nil {
		return f, err
	}
	if f.Unnamed, err = a.cl.Pools.DomainPools(ctx); err != nil {
		return f, err
	}
	there, err := a.host.Netns()
	f.Netns, f.Boot = map[string]string{}, a.cfg.Boot
	for _, ns := range there {
		f.Netns[ns.Path] = ns.ID
	}
	shapes := map[protocol.PoolName]*allocator.Shape{}
	f.Shape = func(name protocol.PoolName) *allocator.Shape {
		if _, asked := shapes[name]; !asked {
			shapes[name] = a.shape(ctx, name)
		}
		return shapes[name]
	}
	return f, err
}

// shape returns the ranges of a pool, whether or not it gives addresses; nil if it is not known
// soon, or not there.
func (a *Agent) shape(ctx context.Context, name protocol.PoolName) *allocator.Shape {
	ctx, cancel := a.sched.WithTimeout(ctx, readBackWait, context.DeadlineExceeded)
	defer cancel()
	known, _, err := a.pool(name).until(ctx, a.sched, func(known *knownPool, absent bool) string {
		if known == nil && !absent {
			return unread
		}
		return ""
	})
	if err != nil || known == nil {
		return nil
	}
	return known.shape
}
