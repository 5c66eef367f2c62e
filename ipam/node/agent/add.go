package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
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
	a.sayIgnored(ctx, conf)
	key := store.Key{Network: conf.Name, ContainerID: req.ContainerID, IfName: req.IfName}
	unlock, err := a.keys.Lock(ctx, a.sched, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := a.sched.WithTimeout(ctx, a.cfg.Wait, &waitedError{a.cfg.Wait, a.cl.Trouble})
	defer cancel()

	add := &addCall{req: req, conf: conf, key: key, arrived: a.sched.Now()}
	add.demand = assign.Demand{
		Key: key, Netns: req.Netns, NetnsID: req.NetnsID, Boot: a.cfg.Boot, Now: add.arrived.Wall, Gone: a.host.Gone, Serves: a.leaseServes, Keeps: a.rightKeeps,
	}
	if err := a.consumeJournal(ctx, add); err != nil {
		return nil, err
	}
	if err := a.selectPod(ctx, add, false); err != nil {
		return nil, err
	}
	if uid := add.demand.Pod.UID; uid != "" {
		a.sightings.Arrived(uid)
	}
	att, err := a.hold(ctx, add)
	if is[*assign.UnassignableError](err) { // as this node knows the pool
		err = cmp.Or(a.unheard(ctx, add.conf.Sources), err)
	}
	if err != nil {
		return nil, err
	}
	a.touch(att)
	return a.result(conf, att)
}

// sayIgnored logs, once for each network, the keys of its configuration that have
// no effect.
func (a *Agent) sayIgnored(ctx context.Context, conf *poolspec.Config) {
	if len(conf.Ignored) == 0 {
		return
	}
	said := strings.Join(conf.Ignored, "; ")
	if before, _ := a.ignored.Swap(conf.Name, said); before != said {
		a.log.WarnContext(ctx, "keys without effect in a network's configuration", "network", conf.Name, "keys", said)
	}
}

// consumeJournal applies the DELs of this attachment that found no agent.
func (a *Agent) consumeJournal(ctx context.Context, add *addCall) error {
	entries, damaged, err := delqueue.OfKey(a.cfg.JournalDir, add.key.Network, add.key.ContainerID, add.key.IfName)
	for _, name := range damaged {
		a.log.WarnContext(ctx, "journal entry damaged, set aside", "file", name)
	}
	if err != nil {
		return a.journalError(err)
	}
	return a.applyJournal(ctx, add.key, entries)
}

// applyJournal applies and removes DELs of one key, whose lock the caller holds.
// First the store, then the file: between the two a crash leaves a DEL that is
// applied again, and no ADD has been answered meanwhile.
func (a *Agent) applyJournal(ctx context.Context, key store.Key, entries []delqueue.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := a.releaseLocked(ctx, key, 0); err != nil {
		return err
	}
	for _, e := range entries {
		if err := delqueue.Remove(a.cfg.JournalDir, e); err != nil {
			return a.journalError(err)
		}
		a.log.InfoContext(ctx, "address released", "verb", "DEL", "sandbox", e.ContainerID, "interface", e.IfName, "journalled", e.Time)
	}
	return nil
}

// journalError says that the journal of DELs is out of order. Without it an ADD
// cannot know what it would bring back.
func (a *Agent) journalError(err error) error {
	return &agentapi.Error{Code: agentapi.CodeIO, Msg: "the journal of DELs in " + a.cfg.JournalDir + " cannot be used", Details: err.Error()}
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
	if add.conf, err = a.place(ctx, add.conf); err != nil {
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
		finished := a.finished.Load()
		att, err := a.commit(ctx, add)
		if unsaid, ok := errors.AsType[*unsaidError](err); ok {
			if err := a.say(ctx, unsaid.Right); err != nil {
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
		p := a.pool(s.Pool)
		n := addressDemand{family: s.Family, view: s.View, exact: s.Exact}
		if a.waits(ctx, add) {
			if a.takenBack(ctx, p, n) {
				continue
			}
			return a.holdRequested(ctx, add, room)
		}
		// Where a demand is not met, the node looks once more: what came free meanwhile will do.
		if err = a.obtain(ctx, p, n, finished); err != nil && !errors.As(err, &unmet) {
			return store.Attachment{}, err
		}
	}
}

// commit makes the ADD one transaction of the store, if the agent may give out
// addresses; what the pod's interface has already it may have again.
func (a *Agent) commit(ctx context.Context, add *addCall) (att store.Attachment, err error) {
	err = a.st.Update(ctx, func(tx *store.Tx) error {
		if ok, why := a.serving(); !ok {
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
	if err == nil && (!ok || !r.Serves(a.term()) && r.Phase != protocol.Frozen) {
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

// leaseServes reports whether addresses may be given out of a lease now. What is
// about to be ceded is not: it belongs to whoever has waited longest for it.
func (a *Agent) leaseServes(tx *store.Tx, name string) (bool, error) {
	if ok, _ := a.serving(); !ok || a.ceding.pending(name) {
		return false, nil
	}
	return tx.RightServes(name, a.term())
}

// holdClaim gives the attachment a claim's addresses.
func (a *Agent) holdClaim(ctx context.Context, add *addCall) (store.Attachment, error) {
	if att, ok, err := a.repeatClaim(ctx, add); ok || err != nil {
		return att, err
	}
	if ok, why := a.serving(); !ok {
		return store.Attachment{}, &notServingError{Why: why}
	}
	c, err := a.findClaim(ctx, add)
	if err != nil {
		return store.Attachment{}, err
	}
	unlock, err := a.claims.Lock(ctx, a.sched, c.UID)
	if err != nil {
		return store.Attachment{}, err
	}
	defer unlock()
	if add.conf, err = a.place(ctx, add.conf, c.IPs...); err != nil {
		return store.Attachment{}, err
	}
	ref := c.Ref()
	for {
		name, addrs, err := a.use(ctx, c, protocol.Use{Claim: ref, Pod: add.demand.Pod, Interface: add.key.IfName}, add.conf, add.key)
		if err != nil {
			return store.Attachment{}, err
		}
		add.demand.Granted, add.demand.Use, add.demand.Claim = addrs, name, &ref
		att, err := a.commit(ctx, add)
		if !errors.Is(err, errUseGone) || ctx.Err() != nil {
			return att, err
		}
	}
}

// repeatClaim answers an interface of a pod that has the claim's addresses already,
// also under an earlier sandbox that is gone, if they are of its network's pools still: the
// use is there, so that they are still the claim's, and the API server need not be asked
// again.
func (a *Agent) repeatClaim(ctx context.Context, add *addCall) (att store.Attachment, ok bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		held, known, err := a.previous(tx, add)
		if err != nil || !known || held.Claim == nil || !add.names(held.Claim.Name) || held.Pod.UID != add.demand.Pod.UID {
			return err
		}
		if held.Key != add.key && !a.ofSources(held.Addresses, add.conf.Sources) {
			return nil
		}
		add.demand.Granted, add.demand.Use, add.demand.Claim = held.Addresses, held.Use, held.Claim
		ok = true
		return nil
	})
	if err != nil || !ok {
		return att, false, err
	}
	att, err = a.commit(ctx, add)
	if errors.Is(err, errUseGone) && a.say(ctx, add.demand.Use) == nil { // it waited to be said in a new term
		att, err = a.commit(ctx, add)
	}
	if errors.Is(err, errUseGone) { // a use must be made anew: the long way
		return att, false, nil
	}
	return att, true, err
}

// slots returns what the ADD needs, once all pools of its network can be used, and if its
// namespace may use those that it needs.
func (a *Agent) slots(ctx context.Context, add *addCall) ([]assign.Slot, error) {
	pools, rules := map[string]assign.Pool{}, map[protocol.PoolName]access.Rule{}
	for _, src := range add.conf.Sources {
		name := protocol.PoolName(src.Pool)
		known, err := a.ready(ctx, name)
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
