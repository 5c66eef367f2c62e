package agent

import (
	"context"
	"errors"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/recovery"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// readBack records the attachments of a lost store's time, as far as they can be
// found. It reports whether that is all: some wait for a pool that is not known now.
func (ls *losses) readBack(ctx context.Context, id protocol.StoreID) (whole bool, err error) {
	frozen, err := ls.frozen(ctx, id)
	if err != nil {
		return false, err
	}
	cached, unread, err := ls.host.Cached()
	if err != nil {
		return false, err
	}
	running, err := ls.cl.Pods.PodsOfNode(ctx, ls.cfg.Node)
	if err != nil {
		return false, err
	}
	var pods []recovery.Pod
	for _, p := range running {
		pods = append(pods, recovery.Pod{PodRef: p.PodRef, MirrorOf: p.MirrorOf})
	}
	found, unknown := frozen.Find(cached, pods)
	for _, err := range unread {
		ls.log.DebugContext(ctx, "trace of an attachment not understood", "error", err)
	}
	recorded := 0
	for _, att := range found {
		err := ls.st.Update(ctx, func(tx *store.Tx) error { return recovery.Record(tx, att) })
		switch {
		case errors.Is(err, recovery.ErrKnown):
		case err != nil:
			return false, err
		default:
			recorded++
		}
	}
	ls.log.InfoContext(ctx, "attachments of a lost store read back", "store", id, "found", len(found), "recorded", recorded)
	if len(unknown) > 0 {
		ls.log.WarnContext(ctx, "some attachments of a lost store wait for pools that are not known: they are read back at the next list of leases",
			"store", id, "pools", unknown)
	}
	return len(unknown) == 0, nil
}

// frozen returns what a reading back goes by.
func (ls *losses) frozen(ctx context.Context, id protocol.StoreID) (f recovery.Frozen, err error) {
	err = ls.st.View(func(tx *store.Tx) error {
		f, err = recovery.Of(tx, id)
		return err
	})
	if err != nil {
		return f, err
	}
	if f.Unnamed, err = ls.cl.Pools.DomainPools(ctx); err != nil {
		return f, err
	}
	there, err := ls.host.Netns()
	f.Netns, f.Boot = map[string]string{}, ls.cfg.Boot
	for _, ns := range there {
		f.Netns[ns.Path] = ns.ID
	}
	shapes := map[protocol.PoolName]*allocator.Shape{}
	f.Shape = func(name protocol.PoolName) *allocator.Shape {
		if _, asked := shapes[name]; !asked {
			shapes[name] = ls.pools.shape(ctx, name)
		}
		return shapes[name]
	}
	return f, err
}
