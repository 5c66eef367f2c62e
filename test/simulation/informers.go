package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// hear tells the informers of up to n events, one table at a time.
func (c *simController) hear(n int) {
	kinds := 5
	if c.w.racks != nil {
		kinds = 6
	}
	switch c.w.rng.IntN(kinds) {
	case 5:
		drain(c.rackNodes, n, c.seeNode)
	case 4:
		drain(c.regs, n, c.seeRegistration)
	case 0:
		drain(c.leases, n, c.seeLease)
	case 1:
		drain(c.subs, n, c.seeSub)
	case 2:
		drain(c.pools, n, c.seePool)
	case 3:
		drain(c.claims, n, c.seeClaim)
	}
}

// hearAll tells the informers of all that there is to tell.
func (c *simController) hearAll() {
	drain(c.leases, c.leases.behind(), c.seeLease)
	drain(c.subs, c.subs.behind(), c.seeSub)
	drain(c.pools, c.pools.behind(), c.seePool)
	drain(c.claims, c.claims.behind(), c.seeClaim)
	drain(c.regs, c.regs.behind(), c.seeRegistration)
	drain(c.rackNodes, c.rackNodes.behind(), c.seeNode)
}

func drain[T any](v *simWatch[T], n int, see func(simEvent[T])) {
	for range n {
		ev, ok := v.next()
		if !ok {
			return
		}
		see(ev)
	}
}

// relist has the informers list anew, at replicas that are behind; at a start
// maybe far.
func (c *simController) relist(start bool) {
	c.w.logf("%s: lists anew", c.who)
	again(c, c.leases, start, c.seeLease)
	again(c, c.subs, start, c.seeSub)
	again(c, c.pools, start, c.seePool)
	again(c, c.claims, start, c.seeClaim)
	again(c, c.regs, start, c.seeRegistration)
	again(c, c.rackNodes, start, c.seeNode)
}

// again is a list of one table, after which an informer tells of what it finds
// others, and of what it does not find any more.
func again[T any](c *simController, v *simWatch[T], start bool, see func(simEvent[T])) {
	before, names := maps.Clone(v.objects), slices.Clone(v.names)
	most := v.behind()
	if start {
		most = min(most, 20)
	}
	v.relist(c.w.rng.IntN(most + 1))
	for _, name := range names {
		if _, ok := v.objects[name]; !ok {
			see(simEvent[T]{name: name, obj: before[name], gone: true})
		}
	}
	for _, name := range v.names {
		see(simEvent[T]{name: name, obj: v.objects[name]})
	}
}

func (c *simController) seeLease(ev simEvent[protocol.Lease]) {
	if ev.gone {
		c.broker.Forget(ev.name, ev.obj.UID)
	} else {
		c.broker.Observe(ev.obj)
	}
	c.soon(task{lookAtPool, string(ev.obj.Pool)}, 500*time.Millisecond)
}

func (c *simController) seeSub(ev simEvent[protocol.SubLease]) {
	if ev.obj.Request != nil {
		c.soon(task{lookAtRequest, ev.name}, 0)
	}
	if u := ev.obj.Use; u != nil {
		c.soon(task{lookAtClaim, u.Claim.Name}, 0)
	}
}

func (c *simController) seeClaim(ev simEvent[simClaim]) { c.soon(task{lookAtClaim, ev.name}, 0) }

func (c *simController) seePool(ev simEvent[simPool]) {
	if ev.gone {
		c.broker.DropPool(protocol.PoolName(ev.name), ev.obj.UID)
	} else {
		c.broker.SetPool(c.poolState(ev.obj))
	}
	c.wakeLooker()
	c.seeSelectors(ev)
	for name := range c.pools.objects { // one that changes may concern the others
		c.soon(task{lookAtPool, name}, 0)
	}
}

func (c *simController) seeRegistration(ev simEvent[protocol.Registration]) {
	c.seeTold(ev)
	if ev.gone {
		c.ofPools.Deregister(ev.obj.Node, ev.obj.UID)
	} else if c.ofPools.Hear(ev.obj) {
		for name := range c.pools.objects {
			c.soon(task{lookAtPool, name}, 500*time.Millisecond)
		}
	}
	c.soon(task{lookAtRegistration, ev.name}, 0)
}

// poolState is what the broker is told of a pool.
func (c *simController) poolState(p simPool) grants.PoolState {
	state := controller.PoolState(p.object(), c.shapes)
	state.Edited = state.Edited && c.w.fault != M55
	return state
}
