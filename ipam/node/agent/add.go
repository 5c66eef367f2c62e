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
}

// add answers an ADD: docs/contributing/how-an-add-travels.md follows it.
func (a *Agent) add(ctx context.Context, req agentapi.Request) (*agentapi.Result, error) {
	conf, err := a.configs.ParseConfig(req.Config, req.Args)
	if err != nil {
		return nil, err
	}
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
		Key: key, Netns: req.Netns, NetnsID: req.NetnsID, Boot: a.cfg.Boot, Now: add.arrived.Wall, Gone: a.host.Gone, Serves: a.blocks.leaseServes, Keeps: a.rights.rightKeeps,
	}
	if err := a.attachments.consumeJournal(ctx, add.key); err != nil {
		return nil, err
	}
	if err := a.selectPod(ctx, add, false); err != nil {
		return nil, err
	}
	if uid := add.demand.Pod.UID; uid != "" {
		a.attachments.sightings.Arrived(uid)
	}
	att, err := a.hold(ctx, add)
	if is[*assign.UnassignableError](err) { // as this node knows the pool
		err = cmp.Or(a.pools.unheard(ctx, add.conf.Sources), err)
	}
	if err != nil {
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
	if add.sel.Claim != "" {
		return a.holdClaim(ctx, add)
	}
	var err error
	if add.conf, err = a.pools.place(ctx, add.conf); err != nil {
		return store.Attachment{}, err
	}
	if att, ok, err := a.holdInherited(ctx, add); ok || err != nil {
		return att, err
	}
	var unmet *unmetError // why the node cannot get an address itself
	for {
		slots, err := a.slots(ctx, add) // anew each time: the pool may have changed
		if err == nil {
			err = a.refuseSourced(add)
		}
		if err != nil {
			return store.Attachment{}, err
		}
		add.demand.Slots = slots
		if att, ok, err := a.holdGranted(ctx, add); ok || err != nil {
			return att, err
		}
		finished := a.blocks.finished.Load()
		att, err := a.commit(ctx, add)
		if unsaid, ok := errors.AsType[*unsaidError](err); ok {
			if err := a.rights.confirm(ctx, unsaid.Right); err != nil {
				return store.Attachment{}, err
			}
			continue
		}
		room, full := errors.AsType[*assign.NoRoomError](err)
		switch {
		case err == nil:
			a.dropRequests(add, att)
			return att, nil
		case !full:
			return att, err
		case unmet != nil:
			return a.holdRequested(ctx, add, unmet)
		}
		s := room.Slot
		p := a.pools.get(s.Pool)
		n := addressDemand{family: s.Family, view: s.View, exact: s.Exact}
		if a.waits(ctx, add) {
			if a.blocks.takenBack(ctx, p, n) {
				continue
			}
			return a.holdRequested(ctx, add, room)
		}
		// Where a demand is not met, the node looks once more: what came free meanwhile will do.
		if err = a.blocks.obtain(ctx, p, n, finished); err != nil && !errors.As(err, &unmet) {
			return store.Attachment{}, err
		}
	}
}

// slots returns what the ADD needs, once all pools of its network can be used, and if its
// namespace may use those that it needs.
func (a *Agent) slots(ctx context.Context, add *addCall) ([]assign.Slot, error) {
	pools, rules := map[string]assign.Pool{}, map[protocol.PoolName]access.Rule{}
	for _, src := range add.conf.Sources {
		name := protocol.PoolName(src.Pool)
		known, err := a.pools.ready(ctx, name)
		if err != nil {
			return nil, err
		}
		pools[src.Pool] = assign.Pool{Shape: known.shape, BlockBits4: known.Bits4, BlockBits6: known.Bits6}
		rules[name] = known.Access
	}
	slots, err := assign.Slots(add.conf, pools)
	if err != nil {
		return nil, err
	}
	return slots, a.admit(ctx, add, slots, rules)
}

// commit makes the ADD one transaction of the store, if the agent may give out
// addresses; what the pod's interface has already it may have again.
func (a *Agent) commit(ctx context.Context, add *addCall) (att store.Attachment, err error) {
	err = a.st.Update(ctx, func(tx *store.Tx) error {
		if ok, why := a.reg.serving(); !ok {
			if has, err := a.has(tx, add); err != nil || !has {
				return errors.Join(err, &notServingError{Why: why})
			}
		}
		if err := a.useServes(tx, add.demand.Use); err != nil {
			return err
		}
		var err error
		att, err = assign.Hold(tx, add.demand)
		return err
	})
	return att, err
}

// errUseGone says that a use or a request was let go between its confirmation and the
// commit.
var errUseGone = errors.New("the right to the addresses was given back meanwhile")

// useServes returns errUseGone unless name, if there is one, is a use or a request
// under which addresses may be answered now.
func (a *Agent) useServes(tx *store.Tx, name string) error {
	if name == "" {
		return nil
	}
	r, ok, err := tx.Right(name)
	// A frozen one is never confirmed: only who has it already comes here with it.
	if err == nil && (!ok || !r.Serves(a.reg.term()) && r.Phase != protocol.Frozen) {
		err = errUseGone
	}
	return err
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
