package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// remains is what the API server has in the name of an earlier store.
type remains struct {
	leases []protocol.Lease
	subs   []protocol.SubLease
}

// remainsOf sorts what is not this store's by store.
func (a *Agent) remainsOf(leases []protocol.Lease, subs []protocol.SubLease) map[protocol.StoreID]*remains {
	found := map[protocol.StoreID]*remains{}
	of := func(id protocol.StoreID) *remains {
		if found[id] == nil {
			found[id] = &remains{}
		}
		return found[id]
	}
	for _, l := range leases {
		if l.Store != a.st.ID() {
			of(l.Store).leases = append(of(l.Store).leases, l)
		}
	}
	for _, s := range subs {
		if s.Store != a.st.ID() {
			of(s.Store).subs = append(of(s.Store).subs, s)
		}
	}
	return found
}

// reclaim deals with what an earlier store of this node has left in the API server.
// A store of this machine was lost: what it held is frozen, and given back when
// nothing of its time runs any more. Another machine's is left alone: only the rule
// of dead nodes moves it.
func (a *Agent) reclaim(ctx context.Context, leases []protocol.Lease, subs []protocol.SubLease) error {
	found := a.remainsOf(leases, subs)
	foreign := 0
	defer func() {
		a.foreign.Store(int64(foreign))
	}()
	if len(found) == 0 {
		return nil
	}
	reg, out, err := a.cl.Registrations.ReadRegistration(ctx, a.cfg.Node)
	if out != protocol.Done {
		return fmt.Errorf("read the registration: %w", cmpErr(err, out))
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		left := found[id]
		i := slices.IndexFunc(reg.Former, func(f protocol.Former) bool { return f.Store == id })
		if i < 0 || reg.Former[i].Machine != a.cfg.Machine {
			foreign += len(left.leases) + len(left.subs)
			a.log.WarnContext(ctx, "leases of another machine's store in this node's name are left alone",
				"store", id, "leases", len(left.leases), "subLeases", len(left.subs))
			continue
		}
		if err := a.freeze(ctx, reg.Former[i], left); err != nil {
			return fmt.Errorf("freeze what store %s has left: %w", id, err)
		}
	}
	return nil
}

// cmpErr returns err, or one that names the outcome.
func cmpErr(err error, out protocol.Outcome) error {
	if err == nil {
		err = fmt.Errorf("the API server answers %v", out)
	}
	return err
}

// freeze records what a lost store of this machine held, with what runs at this
// moment, and reads back the attachments that it knew.
func (a *Agent) freeze(ctx context.Context, f protocol.Former, left *remains) error {
	lost, err := a.moment(ctx, f)
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
	err = a.st.Update(ctx, func(tx *store.Tx) error {
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
			if err := a.record(tx, r, false, protocol.Result{Next: r}); err != nil {
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
		a.follows(protocol.Self{}, protocol.Result{Next: r})
	}
	if len(fresh) > 0 {
		a.log.ErrorContext(ctx, "a store of this machine was lost: what it held is frozen", "store", f.Store,
			"rights", len(fresh), "sameBoot", f.Boot == a.cfg.Boot, "pods", len(lost.Pods), "namespaces", len(lost.Netns))
		a.sayStoreLost(f, len(fresh))
	}
	if f.Boot != a.cfg.Boot { // nothing of it runs any more
		return a.giveBackLost(ctx, f.Store)
	}
	if len(fresh) == 0 && a.isRead(f.Store) {
		return nil
	}
	whole, err := a.readBack(ctx, f.Store)
	if err != nil {
		return err
	}
	a.noteRead(f.Store, whole)
	return nil
}

// moment returns what runs now, or what ran when the store was first found lost.
func (a *Agent) moment(ctx context.Context, f protocol.Former) (lost store.Lost, err error) {
	known := false
	err = a.st.View(func(tx *store.Tx) error {
		var err error
		lost, known, err = tx.Lost(f.Store)
		return err
	})
	if err != nil || known {
		return lost, err
	}
	lost = store.Lost{Store: f.Store, Boot: f.Boot, Noted: a.sched.Now().Wall}
	if f.Boot != a.cfg.Boot {
		return lost, nil
	}
	pods, err := a.cl.Pods.PodsOfNode(ctx, a.cfg.Node)
	if err != nil {
		return lost, err
	}
	for _, p := range pods {
		uid := cmp.Or(p.MirrorOf, p.UID) // a static pod's mirror may be made anew while the pod runs
		lost.Pods = append(lost.Pods, protocol.PodRef{Namespace: p.Namespace, Name: p.Name, UID: uid})
	}
	// After the pods: one that goes meanwhile leaves its namespace for longer.
	if lost.Netns, err = a.host.Netns(); err != nil {
		return lost, fmt.Errorf("look at the host's network namespaces: %w", err)
	}
	return lost, nil
}

// thaw gives back what lost stores held, once nothing of their time runs any more.
func (a *Agent) thaw(ctx context.Context) {
	var all []store.Lost
	err := a.st.View(func(tx *store.Tx) error {
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
		a.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	for _, l := range all {
		remains, err := a.stillRuns(ctx, l)
		switch {
		case err != nil:
			a.log.WarnContext(ctx, "not known whether pods of a lost store's time still run", "store", l.Store, "error", err)
		case remains != "":
			a.log.DebugContext(ctx, "lost store stays frozen", "store", l.Store, "because", remains)
		default:
			if err := a.giveBackLost(ctx, l.Store); err != nil {
				a.log.WarnContext(ctx, "what a lost store held is not given back yet", "store", l.Store, "error", err)
			}
		}
	}
}

// stillRuns returns what of the moment when a store was lost may still run, empty
// for nothing.
func (a *Agent) stillRuns(ctx context.Context, l store.Lost) (what string, err error) {
	if l.Boot != a.cfg.Boot {
		return "", nil
	}
	for _, ns := range l.Netns {
		if !a.host.Gone(store.Attachment{Netns: ns.Path, NetnsID: ns.ID, Boot: l.Boot}) {
			return "network namespace " + ns.Path, nil
		}
	}
	if len(l.Pods) == 0 {
		return "", nil
	}
	pods, err := a.cl.Pods.PodsOfNode(ctx, a.cfg.Node)
	if err != nil {
		return "", err
	}
	for _, p := range l.Pods {
		if slices.ContainsFunc(pods, func(now Pod) bool { return now.Is(p.UID) }) {
			return "pod " + p.String(), nil
		}
	}
	return "", nil
}

// giveBackLost lets go of a lost store's rights that nothing rests on, and forgets
// the store when no right of it is left. The caller knows that nothing of the lost
// store's time runs any more; nobody else lets go of what is Frozen.
func (a *Agent) giveBackLost(ctx context.Context, id protocol.StoreID) error {
	rights, unverified, err := a.ofLost(id)
	if err != nil {
		return err
	}
	for _, att := range unverified { // every namespace of that time is gone, this one's too
		if err := a.release(ctx, att.Key, att.Generation); err != nil {
			return err
		}
	}
	sched.Each(ctx, a.sched, a.cfg.Parallel, rights, func(r protocol.Right) {
		if r.Phase != protocol.Frozen {
			return
		}
		_, res, err := a.drive(ctx, r, func(tx *store.Tx, _ protocol.Self, r protocol.Right) (protocol.Event, error) {
			return protocol.Event{Kind: protocol.EventLetGo}, unused(tx, r)
		})
		a.logLetGo(ctx, r, res, err)
	})
	return a.st.Update(ctx, func(tx *store.Tx) error {
		for r, err := range tx.Rights() {
			if err != nil || r.Store == id { // not yet
				return err
			}
		}
		return tx.DeleteLost(id)
	})
}

// ofLost returns the rights of a lost store, and the attachments on them whose
// network namespace is not known.
func (a *Agent) ofLost(id protocol.StoreID) (rights []protocol.Right, unverified []store.Attachment, err error) {
	err = a.st.View(func(tx *store.Tx) error {
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
			if rests && att.NetnsID == "" {
				unverified = append(unverified, att)
			}
		}
		return nil
	})
	return rights, unverified, err
}

// unread reports whether what the pods of a lost store's time have is to be read back
// before anything is given out: a registration that this agent has just taken, from the term had,
// names such a store, or one before it did. It is recorded with the registration: an agent that
// ends before it has read that serves by its record of the registration, as it starts again.
func (a *Agent) unread(had int64, reg protocol.Registration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unreadLocked(had, reg)
}

// unreadLocked is unread for a caller that holds a.mu.
func (a *Agent) unreadLocked(had int64, reg protocol.Registration) bool {
	return a.reading || had == 0 && a.lostHere(reg) && len(a.readFor) == 0
}

// isRead reports whether all attachments of a lost store were looked for.
func (a *Agent) isRead(lost protocol.StoreID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.readFor[lost]
}

// noteRead notes that the attachments of a lost store were looked for, all of them or some.
func (a *Agent) noteRead(lost protocol.StoreID, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readFor[lost] = all
}

// readAll notes that what lost stores have left was looked for: addresses may be given out.
func (a *Agent) readAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reading = false
}

// lostHere reports whether a registration that this agent has just taken says that a store
// of this machine was lost in this boot.
func (a *Agent) lostHere(reg protocol.Registration) bool {
	return slices.ContainsFunc(reg.Former, func(f protocol.Former) bool {
		return f.Machine == a.cfg.Machine && f.Boot == a.cfg.Boot && f.Store != a.st.ID()
	})
}
