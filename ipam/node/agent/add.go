package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An addCall is one ADD on its way through the agent.
type addCall struct {
	req    agentapi.Request
	conf   *poolspec.Config
	key    store.Key
	pod    Pod
	sel    npwg.Selection // what the pod's annotation says of this interface
	byName bool           // its claim was inferred by the pod's name alone
	demand assign.Demand
	// arrived is when the ADD came.
	arrived protocol.Instant
	sourced protocol.PoolName // a pool of its network that has a source; empty if none has
	stopped protocol.PoolName // a pool of its network that is stopped; empty if none is
}

func (add *addCall) requester() requester {
	return requester{pod: add.demand.Pod.UID, ifName: add.key.IfName}
}

// A lack is what an ADD lacks for its commit. The zero value is nothing.
type lack struct {
	why   error
	right string       // it has to be confirmed first
	slot  *assign.Slot // no block of this node has an address for it
	rests bool         // of slot: what is free rests
	grant bool         // what was granted was given back meanwhile, or is not what is wanted
}

func (l lack) nothing() bool { return l.why == nil }

// lacksGrant returns the lack of an ADD whose granted addresses will not do any more.
func lacksGrant() lack {
	return lack{why: &waitingError{Why: "the right to the addresses was given back meanwhile"}, grant: true}
}

// add answers an ADD: docs/contributing/how-an-add-travels.md follows it.
func (a *Agent) add(ctx context.Context, req agentapi.Request) (*agentapi.Result, error) {
	conf, err := a.configs.ParseConfig(req.Config, req.Args)
	if err != nil {
		return nil, err
	}
	return a.serveAdd(ctx, req, conf, func(ctx context.Context, add *addCall) error { return a.selectPod(ctx, add, false) })
}

// serveAdd is add once conf is read. whose finds out whose interface it is, and what was selected.
func (a *Agent) serveAdd(ctx context.Context, req agentapi.Request, conf *poolspec.Config, whose func(context.Context, *addCall) error) (*agentapi.Result, error) {
	a.logIgnored(ctx, conf)
	key := store.Key{Network: conf.Name, ContainerID: req.ContainerID, IfName: req.IfName}
	unlock, err := a.attachments.keys.Lock(ctx, a.sched, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := a.sched.WithTimeout(ctx, a.cfg.Wait, &waitedError{a.cfg.Wait, a.cl.Trouble})
	defer cancel()

	add := &addCall{req: req, conf: conf, key: key, arrived: a.sched.Now()}
	add.demand = assign.Demand{
		Key: key, Netns: req.Netns, NetnsID: req.NetnsID, Boot: a.cfg.Boot, Now: add.arrived.Wall, Gone: a.host.Gone,
	}
	if err := a.attachments.consumeJournal(ctx, add.key); err != nil {
		return nil, err
	}
	if err := whose(ctx, add); err != nil {
		return nil, err
	}
	if uid := add.demand.Pod.UID; uid != "" {
		a.attachments.sightings.Arrived(uid, conf.Name)
	}
	att, err := a.hold(ctx, add)
	if err != nil {
		if wrong, ok := errors.AsType[*assign.UnassignableError](err); ok { // as this node knows the pool
			err = cmp.Or(a.pools.unheard(ctx, add.conf.Sources), a.pools.elsewhere(wrong, add.conf.Sources))
		}
		return nil, err
	}
	a.blocks.scheduleUpkeep(att)
	return a.result(conf, att)
}

// logIgnored logs, once for each network, the keys of its configuration that have
// no effect.
func (a *Agent) logIgnored(ctx context.Context, conf *poolspec.Config) {
	if len(conf.Ignored) == 0 {
		return
	}
	said := strings.Join(conf.Ignored, "; ")
	if before, _ := a.ignored.Swap(conf.Name, said); before != said {
		a.log.WarnContext(ctx, "keys without effect in a network's configuration", "network", conf.Name, "keys", said)
	}
}

// hold gives the attachment its addresses: a claim's, the ones asked for by name,
// or any.
func (a *Agent) hold(ctx context.Context, add *addCall) (store.Attachment, error) {
	if err := checkSelection(add); err != nil {
		return store.Attachment{}, err
	}
	if err := a.placeByNamespace(ctx, add); err != nil {
		return store.Attachment{}, err
	}
	if add.sel.Claim != "" {
		return a.holdClaim(ctx, add)
	}
	var err error
	if add.conf, err = a.pools.place(ctx, add.conf); err != nil {
		return store.Attachment{}, err
	}
	if add.pod.Status != "" && len(add.conf.Requested) == 0 {
		if att, ok, err := a.holdInherited(ctx, add); ok || err != nil {
			return att, err
		}
	}
	var unmet error // why the node cannot get an address itself
	for {
		var err error
		// Anew each time: the pool may have changed.
		if add.demand.Slots, err = a.slots(ctx, add, a.pools.answerable); err != nil {
			return store.Attachment{}, err
		}
		if add.sourced != "" {
			return store.Attachment{}, &sourcedError{add.sourced}
		}
		if len(a.rights.requests.namesOf(add.requester())) > 0 {
			if att, ok, err := a.holdGranted(ctx, add); ok || err != nil {
				return att, err
			}
		}
		finished := a.blocks.finished.Load()
		att, lacks, err := a.commit(ctx, add)
		switch {
		case err != nil:
			return att, err
		case lacks.nothing():
			if names := a.rights.requests.namesOf(add.requester()); len(names) > 0 {
				a.dropRequests(names, att)
			}
			return att, nil
		case lacks.right != "":
			err = a.rights.confirm(ctx, lacks.right)
		case add.stopped != "": // whatever else it lacks would be new
			_, err = a.pools.ready(ctx, add.stopped)
		case lacks.rests:
			add.demand.Unrested = !a.blocks.spareResting(ctx, a.pools.get(lacks.slot.Pool), *lacks.slot, add.arrived, finished)
		case unmet != nil:
			return a.holdRequested(ctx, add, unmet)
		case a.waits(ctx, add):
			if !a.blocks.takenBack(ctx, a.pools.get(lacks.slot.Pool), *lacks.slot) {
				return a.holdRequested(ctx, add, lacks.why)
			}
		default: // where no block is to be had, the node looks for room again: what came free meanwhile will do
			unmet, err = a.blocks.obtain(ctx, a.pools.get(lacks.slot.Pool), *lacks.slot, finished)
		}
		if err != nil {
			return store.Attachment{}, err
		}
	}
}

// slots returns what the ADD needs, once all pools of its network are there by ready, and if its
// namespace may use those that it needs. It notes a pool that has a source, and a stopped one.
func (a *Agent) slots(ctx context.Context, add *addCall, ready readiness) ([]assign.Slot, error) {
	pools, rules := map[string]assign.Pool{}, map[protocol.PoolName]access.Rule{}
	add.sourced, add.stopped = "", ""
	for _, src := range add.conf.Sources {
		name := protocol.PoolName(src.Pool)
		known, err := ready(ctx, name)
		if err != nil {
			return nil, err
		}
		pools[src.Pool] = assign.Pool{
			Shape: known.shape, BlockBits4: known.Bits4, BlockBits6: known.Bits6, Rested: a.blocks.rested(name),
		}
		if known.Stopped || known.GivenAway { // nothing new is given out of a lease
			pools[src.Pool] = assign.Pool{Shape: known.shape}
		}
		rules[name] = known.Access
		if known.Sourced {
			add.sourced = cmp.Or(add.sourced, name)
		}
		if known.Stopped {
			add.stopped = cmp.Or(add.stopped, name)
		}
	}
	slots, err := assign.Slots(add.conf, pools)
	if err != nil {
		return nil, err
	}
	return slots, a.admit(ctx, add, slots, rules)
}

// commit makes the ADD one transaction of the store, if the agent may give out
// addresses; what the pod's interface has already it may have again. It writes nothing if the ADD
// lacks something.
func (a *Agent) commit(ctx context.Context, add *addCall) (att store.Attachment, lacks lack, err error) {
	gone := false
	err = a.st.Update(ctx, func(tx *store.Tx) error {
		gone = false
		serving, why := a.reg.serving()
		if !serving {
			if has, err := a.has(tx, add); err != nil || !has {
				return errors.Join(err, &notServingError{Why: why})
			}
		}
		demand := add.demand
		demand.Leasing = &assign.Leasing{Term: a.reg.term(), Open: serving, Ceding: a.blocks.ceding.pending()}
		ok, err := useServes(tx, demand.Use, demand.Leasing.Term)
		gone = !ok
		switch {
		case err != nil || gone:
			return err
		case demand.Leasing.Term == 0: // then nobody is answered
			return &notServingError{Why: why}
		}
		att, err = assign.Hold(tx, demand)
		return err
	})
	right, unconfirmed := errors.AsType[*assign.UnconfirmedError](err)
	room, full := errors.AsType[*assign.NoRoomError](err)
	switch {
	case unconfirmed:
		return att, lack{why: err, right: right.Right}, nil
	case full:
		return att, lack{why: err, slot: &room.Slot, rests: room.Rests}, nil
	case err == nil && gone: // let go between its confirmation and the commit
		return att, lacksGrant(), nil
	}
	return att, lack{}, err
}

// useServes reports whether name, if there is one, is a use or a request under which addresses may
// be answered now.
func useServes(tx *store.Tx, name string, term int64) (bool, error) {
	if name == "" {
		return true, nil
	}
	r, ok, err := tx.Right(name)
	// A frozen one is never confirmed: only who has it already comes here with it.
	return ok && (r.Usable(term) || r.Phase == protocol.Frozen), err
}

// has reports whether what add is to commit is what the interface of its pod has already. It
// may have an address of a lease while a request of it was granted another.
func (a *Agent) has(tx *store.Tx, add *addCall) (bool, error) {
	held, known, err := a.previous(tx, add)
	// As far as the runtime says.
	samePod := held.Pod.UID == add.demand.Pod.UID || held.Pod.UID == "" || add.demand.Pod.UID == ""
	return known && samePod && (add.demand.Use == "" || add.demand.Use == held.Use), err
}

// previous returns what the interface of the pod has already, and may be answered
// again: under this key, or under the latest of its earlier sandboxes whose network
// namespace is gone.
func (a *Agent) previous(tx *store.Tx, add *addCall) (latest store.Attachment, ok bool, err error) {
	if held, ok, err := tx.Attachment(add.key); err != nil || ok {
		return held, ok, err
	}
	if add.demand.Pod.UID == "" {
		return latest, false, nil
	}
	for att, err := range tx.OfPod(add.demand.Pod.UID, add.key.IfName) {
		if err != nil {
			return latest, false, err
		}
		if att.Network == add.key.Network && att.Boot == a.cfg.Boot && att.Generation > latest.Generation && a.host.Gone(att) {
			latest, ok = att, true
		}
	}
	return latest, ok, nil
}
