package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// losses are what is there in the node's name and is not this store's: what a store of this machine
// that was lost has left, and what another machine's has.
type losses struct {
	*base
	reg         *registration
	pools       *pools
	rights      *rights
	attachments *attachments
	foreign     atomic.Int64 // leases and sub-leases of other machines
}

// remains is what the API server has in the name of an earlier store.
type remains struct {
	leases []protocol.Lease
	subs   []protocol.SubLease
}

// remainsOf sorts what is not this store's by store.
func (ls *losses) remainsOf(leases []protocol.Lease, subs []protocol.SubLease) map[protocol.StoreID]*remains {
	found := map[protocol.StoreID]*remains{}
	of := func(id protocol.StoreID) *remains {
		if found[id] == nil {
			found[id] = &remains{}
		}
		return found[id]
	}
	for _, l := range leases {
		if l.Store != ls.st.ID() {
			of(l.Store).leases = append(of(l.Store).leases, l)
		}
	}
	for _, s := range subs {
		if s.Store != ls.st.ID() {
			of(s.Store).subs = append(of(s.Store).subs, s)
		}
	}
	return found
}

// reclaim deals with what an earlier store of this node has left in the API server.
// A store of this machine was lost: what it held is frozen, and given back when
// nothing of its time runs any more. Another machine's is left alone: only the rule
// of dead nodes moves it.
func (ls *losses) reclaim(ctx context.Context, leases []protocol.Lease, subs []protocol.SubLease) error {
	found := ls.remainsOf(leases, subs)
	foreign := 0
	defer func() {
		ls.foreign.Store(int64(foreign))
	}()
	if len(found) == 0 {
		return nil
	}
	reg, out, err := ls.cl.Registrations.ReadRegistration(ctx, ls.cfg.Node)
	if out != protocol.Done {
		return fmt.Errorf("read the registration: %w", cmpErr(err, out))
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		left := found[id]
		i := slices.IndexFunc(reg.Former, func(f protocol.Former) bool { return f.Store == id })
		if i < 0 || reg.Former[i].Machine != ls.cfg.Machine {
			foreign += len(left.leases) + len(left.subs)
			ls.log.WarnContext(ctx, "leases of another machine's store in this node's name are left alone",
				"store", id, "leases", len(left.leases), "subLeases", len(left.subs))
			continue
		}
		if err := ls.freeze(ctx, reg.Former[i], left); err != nil {
			return fmt.Errorf("freeze what store %s has left: %w", id, err)
		}
	}
	return nil
}

// freeze records what a lost store of this machine held, with what runs at this
// moment, and reads back the attachments that it knew.
func (ls *losses) freeze(ctx context.Context, f protocol.Former, left *remains) error {
	lost, err := ls.moment(ctx, f)
	if err != nil {
		return err
	}
	var all []protocol.Right
	for _, l := range left.leases {
		all = append(all, protocol.FrozenLease(l))
	}
	for _, s := range left.subs {
		all = append(all, protocol.FrozenSubLease(s))
	}
	var fresh []protocol.Right
	err = ls.st.Update(ctx, func(tx *store.Tx) error {
		fresh = fresh[:0]
		if err := tx.PutLost(lost); err != nil {
			return err
		}
		for _, r := range all {
			_, known, err := tx.Right(r.Name)
			if err != nil {
				return err
			}
			if known {
				continue
			}
			if err := ls.rights.record(tx, r, false, protocol.Result{Next: r}); err != nil {
				return err
			}
			fresh = append(fresh, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range fresh {
		ls.rights.follows(protocol.Self{}, protocol.Result{Next: r})
	}
	if len(fresh) > 0 {
		ls.log.ErrorContext(ctx, "a store of this machine was lost: what it held is frozen", "store", f.Store,
			"rights", len(fresh), "sameBoot", f.Boot == ls.cfg.Boot, "pods", len(lost.Pods), "namespaces", len(lost.Netns))
		ls.warnStoreLost(f, len(fresh))
	}
	if f.Boot != ls.cfg.Boot { // nothing of it runs any more
		return ls.giveBackLost(ctx, f.Store)
	}
	if len(fresh) == 0 && ls.reg.isRead(f.Store) {
		return nil
	}
	whole, err := ls.readBack(ctx, f.Store)
	if err != nil {
		return err
	}
	ls.reg.noteRead(f.Store, whole)
	return nil
}

// moment returns what runs now, or what ran when the store was first found lost.
func (ls *losses) moment(ctx context.Context, f protocol.Former) (lost store.Lost, err error) {
	known := false
	err = ls.st.View(func(tx *store.Tx) error {
		var err error
		lost, known, err = tx.Lost(f.Store)
		return err
	})
	if err != nil || known {
		return lost, err
	}
	lost = store.Lost{Store: f.Store, Boot: f.Boot, Noted: ls.sched.Now().Wall}
	if f.Boot != ls.cfg.Boot {
		return lost, nil
	}
	pods, err := ls.cl.Pods.PodsOfNode(ctx, ls.cfg.Node)
	if err != nil {
		return lost, err
	}
	for _, p := range pods {
		uid := cmp.Or(p.MirrorOf, p.UID) // a static pod's mirror may be made anew while the pod runs
		lost.Pods = append(lost.Pods, protocol.PodRef{Namespace: p.Namespace, Name: p.Name, UID: uid})
	}
	if lost.ResourceClaims, err = ls.resourceClaimsOf(ctx, pods); err != nil {
		return lost, err
	}
	// After the pods: one that goes meanwhile leaves its namespace for longer.
	if lost.Netns, err = ls.host.Netns(); err != nil {
		return lost, fmt.Errorf("look at the host's network namespaces: %w", err)
	}
	return lost, nil
}

// warnStoreLost tells people that a store of this machine was lost, which held so many
// rights.
func (ls *losses) warnStoreLost(f protocol.Former, rights int) {
	then := "frozen until the pods of that time have ended"
	if f.Boot != ls.cfg.Boot {
		then = "given back, since the machine was started again"
	}
	ls.reg.warnNode(ReasonStoreLost, "store %s of this machine was lost, or put back to an earlier state: what it held (leases and sub-leases: %d) is %s", f.Store, rights, then)
}

// thaw gives back what lost stores held, once nothing of their time runs any more.
func (ls *losses) thaw(ctx context.Context) {
	var all []store.Lost
	err := ls.st.View(func(tx *store.Tx) error {
		all = all[:0]
		for l, err := range tx.LostStores() {
			if err != nil {
				return err
			}
			all = append(all, l)
		}
		return nil
	})
	if err != nil {
		ls.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	for _, l := range all {
		remains, err := ls.stillRuns(ctx, l)
		switch {
		case err != nil:
			ls.log.WarnContext(ctx, "not known whether pods of a lost store's time still run", "store", l.Store, "error", err)
		case remains != "":
			ls.log.DebugContext(ctx, "lost store stays frozen", "store", l.Store, "because", remains)
		default:
			if err := ls.giveBackLost(ctx, l.Store); err != nil {
				ls.log.WarnContext(ctx, "what a lost store held is not given back yet", "store", l.Store, "error", err)
			}
		}
	}
}

// stillRuns returns what of the moment when a store was lost may still run, empty
// for nothing.
func (ls *losses) stillRuns(ctx context.Context, l store.Lost) (what string, err error) {
	if l.Boot != ls.cfg.Boot {
		return "", nil
	}
	for _, ns := range l.Netns {
		if !ls.host.Gone(store.Attachment{Netns: ns.Path, NetnsID: ns.ID, Boot: l.Boot}) {
			return "network namespace " + ns.Path, nil
		}
	}
	if len(l.Pods) == 0 { // and no ResourceClaims
		return "", nil
	}
	pods, err := ls.cl.Pods.PodsOfNode(ctx, ls.cfg.Node)
	if err != nil {
		return "", err
	}
	for _, p := range l.Pods {
		if slices.ContainsFunc(pods, func(now Pod) bool { return now.Is(p.UID) }) {
			return "pod " + p.String(), nil
		}
	}
	return ls.stillAllocated(ctx, l.ResourceClaims)
}

// giveBackLost lets go of a lost store's rights that nothing rests on, and forgets
// the store when no right of it is left. The caller knows that nothing of the lost
// store's time runs any more; nobody else lets go of what is Frozen.
func (ls *losses) giveBackLost(ctx context.Context, id protocol.StoreID) error {
	rights, unverified, err := ls.ofLost(id)
	if err != nil {
		return err
	}
	for _, att := range unverified { // every namespace of that time is gone, this one's too
		if err := ls.attachments.release(ctx, att.Key, att.Generation); err != nil {
			return err
		}
	}
	sched.Each(ctx, ls.sched, ls.cfg.Parallel, rights, func(r protocol.Right) {
		if r.Phase != protocol.Frozen {
			return
		}
		_, res, err := ls.rights.settle(ctx, r, func(tx *store.Tx, _ protocol.Self, r protocol.Right) (protocol.Event, error) {
			return ifUnused(tx, r)
		})
		ls.rights.logLetGo(ctx, r, res, err)
	})
	return ls.st.Update(ctx, func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil || r.Store == id { // not yet
				return err
			}
		}
		return tx.DeleteLost(id)
	})
}

// ofLost returns the rights of a lost store, and the attachments on them whose
// network namespace is not known. The device of a ResourceClaim has none, and is not among them: a
// pod that started after the loss may have it.
func (ls *losses) ofLost(id protocol.StoreID) (rights []protocol.Right, unverified []store.Attachment, err error) {
	err = ls.st.View(func(tx *store.Tx) error {
		rights, unverified = nil, nil
		names := map[string]bool{}
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if r.Store == id {
				rights = append(rights, r)
				names[r.Name] = true
			}
		}
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			rests := names[att.Use] || slices.ContainsFunc(att.Addresses, func(x store.Address) bool { return names[x.Lease] })
			if _, claimed := att.ResourceClaim(); rests && !claimed && att.NetnsID == "" {
				unverified = append(unverified, att)
			}
		}
		return nil
	})
	return rights, unverified, err
}
