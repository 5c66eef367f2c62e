package simulation

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simAsk is what an ADD asks of the store. hold does with it on the simulated disk
// what ipam/node/assign does on bbolt, by the same allocator.
type simAsk struct {
	key   attKey
	pod   protocol.PodRef
	boot  string
	exact netip.Addr

	// Granted are given instead of an address of the node's blocks, under use.
	granted []attAddr
	use     string
	claim   *protocol.ClaimRef
}

// Outcomes of hold that are no answer.
var (
	errNoRoom   = errors.New("no block here has an address")
	errTaken    = errors.New("somebody has the address")
	errNotNow   = errors.New("the agent does not serve")
	errUseGone  = errors.New("the use was given back meanwhile")
	errConflict = errors.New("the attachment has other addresses")
	errLost     = errors.New("the attachment's addresses may be another's by now")
)

// unsaidError names a right that has not been said in the registration's term: only a fencing
// write tells whether it is still this node's.
type unsaidError string

func (e unsaidError) Error() string { return string(e) + " has not been said in this term" }

// hold gives an attachment its address and records it.
func (n *simNode) hold(d *simDisk, a simAsk) (attachment, error) {
	if !n.serving() {
		if held, ok := n.previous(d, a); !ok || a.use != "" && a.use != held.use {
			return attachment{}, errNotNow
		}
	}
	if a.use != "" && !n.serves(d.rights[a.use]) {
		return attachment{}, errUseGone
	}
	if held, ok := d.atts[a.key]; ok {
		for _, g := range a.granted {
			if !held.has(g.addr) {
				return attachment{}, errConflict
			}
		}
		if ok, err := n.keeps(d, held); !ok {
			return attachment{}, cmp.Or(err, errLost)
		}
		held.boot = a.boot
		d.atts[a.key] = held
		return held, nil
	}
	if len(a.granted) > 0 {
		return n.holdGranted(d, a)
	}
	return n.holdOwn(d, a)
}

// previous returns what the interface of the pod has already, under this key or
// that of an earlier sandbox which is gone.
func (n *simNode) previous(d *simDisk, a simAsk) (latest attachment, ok bool) {
	if held, ok := d.atts[a.key]; ok {
		return held, true
	}
	for _, k := range d.keys(func(x attachment) bool { return x.pod.UID == a.pod.UID && x.boot == a.boot && n.netnsGone(x) }) {
		if x := d.atts[k]; x.gen > latest.gen {
			latest, ok = x, true
		}
	}
	return latest, ok
}

// netnsGone reports whether the network namespace of an attachment is gone.
func (n *simNode) netnsGone(a attachment) bool {
	if n.w.fault == M31 {
		return true
	}
	return !n.netnsOf(a.key.cid)
}

func (n *simNode) holdGranted(d *simDisk, a simAsk) (attachment, error) {
	for _, k := range d.keys(func(x attachment) bool { return x.use == a.use }) {
		other := d.atts[k]
		if !n.netnsGone(other) {
			return attachment{}, errTaken
		}
		if other.pod.UID == a.pod.UID {
			delete(d.atts, k)
			n.voided[a.key] = n.voided[a.key] || n.voided[k]
		}
	}
	return d.put(a, a.granted), nil
}

// holdOwn gives an address of the node's blocks: that of the sandbox before, if its
// network namespace is gone, else a free one.
func (n *simNode) holdOwn(d *simDisk, a simAsk) (attachment, error) {
	shape := n.shapeOf(n.agent.pool.UID)
	space := d.space(poolName, shape)
	var old attachment
	for _, k := range d.keys(func(x attachment) bool { return x.pod.UID == a.pod.UID && x.use == "" && n.netnsGone(x) }) {
		if x := d.atts[k]; x.gen > old.gen {
			old = x
		}
	}
	kept, err := n.keeps(d, old)
	if err != nil {
		return attachment{}, err
	}
	if kept && a.fits(old.addrs[0], shape) {
		delete(d.atts, old.key)
		n.voided[a.key] = n.voided[old.key]
		return d.put(a, old.addrs), nil
	}
	x, err := n.find(d, space, a, shape)
	if err != nil {
		return attachment{}, err
	}
	must(space.Take(x.addr))
	if len(old.addrs) > 0 {
		d.free(old.addrs[0])
		delete(d.atts, old.key)
	}
	return d.put(a, []attAddr{x}), nil
}

// keeps reports whether an attachment may be answered again what it has, as the agent's
// rightKeeps does.
func (n *simNode) keeps(d *simDisk, x attachment) (bool, error) {
	if len(x.addrs) == 0 {
		return false, nil
	}
	term := n.agent.registrar.Term
	name := x.under(x.addrs[0])
	switch r, ok := d.rights[name]; {
	case term == 0:
		return false, errNotNow
	case x.use == "" && d.ceded(x.addrs[0]) && n.netnsGone(x):
		return false, nil
	case !ok: // read back from elsewhere
		return true, nil
	case r.Phase == protocol.Frozen:
		return d.lost[r.Store].boot == n.bootID(), nil
	case r.Keeps(term):
		return true, nil
	case r.Phase == protocol.Held:
		return false, unsaidError(name)
	}
	return false, nil
}

// fits reports whether a may have the address x, which an earlier sandbox of its pod had.
func (a simAsk) fits(x attAddr, shape *allocator.Shape) bool {
	if a.exact.IsValid() {
		return x.addr == a.exact
	}
	return shape.Ordinary(x.addr)
}

// find returns a free address for a, out of a lease that serves.
func (n *simNode) find(d *simDisk, space allocator.Space, a simAsk, shape *allocator.Shape) (attAddr, error) {
	bits := n.agent.pool.Bits4
	at := func(x netip.Addr) attAddr {
		return attAddr{addr: x, pool: poolName, lease: n.leaseName(shape.Block(x, bits))}
	}
	if a.exact.IsValid() {
		state, err := space.State(a.exact)
		must(err)
		switch x := at(a.exact); {
		case shape.Assignable(a.exact) != nil:
			return attAddr{}, errConflict
		case state == allocator.Taken:
			return attAddr{}, errTaken
		case state == allocator.Free && n.gives(d, x.lease):
			return x, nil
		}
		return attAddr{}, errNoRoom
	}
	view := allocator.View{}
	for {
		x, ok, err := space.Find(allocator.IPv4, view)
		must(err)
		if !ok {
			return attAddr{}, errNoRoom
		}
		if found := at(x); n.gives(d, found.lease) && !n.cooling(d, x) {
			return found, nil
		}
		view = without(view, x)
	}
}

// gives reports whether new addresses may be handed out of a lease now.
func (n *simNode) gives(d *simDisk, lease string) bool {
	r := d.rights[lease]
	if n.w.fault == M7 && r.Phase == protocol.Frozen {
		return true
	}
	return n.serving() && n.serves(r)
}

// put records a new attachment.
func (d *simDisk) put(a simAsk, addrs []attAddr) attachment {
	d.serial++
	x := attachment{key: a.key, pod: a.pod, boot: a.boot, gen: d.serial, addrs: addrs, claim: a.claim, use: a.use}
	d.atts[a.key] = x
	return x
}

// free gives x back to its block, if that is open.
func (d *simDisk) free(x attAddr) {
	err := d.space(x.pool, nil).Free(x.addr)
	if errors.Is(err, allocator.ErrNotTaken) || errors.Is(err, allocator.ErrNoBlock) {
		return
	}
	must(err)
	if d.ceded(x) {
		must(d.space(x.pool, nil).Bar(x.addr, true))
	}
}

// ceded reports whether x is ceded on its lease although an attachment has it.
func (d *simDisk) ceded(x attAddr) bool { return slices.Contains(d.rights[x.lease].Ceded, x.addr) }

// release gives back what an attachment has, and forgets it. A generation other
// than 0 names which.
func (n *simNode) release(d *simDisk, k attKey, gen uint64) {
	held, ok := d.atts[k]
	if !ok || gen != 0 && held.gen != gen {
		return
	}
	if held.use == "" {
		for _, x := range held.addrs {
			d.free(x)
			if n.w.fault == M41 {
				d.freed[x.addr] = n.now().Wall
			}
		}
	}
	delete(d.atts, k)
}

// without returns v less x.
func without(v allocator.View, x netip.Addr) allocator.View {
	var b netipx.IPSetBuilder
	b.AddPrefix(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	b.Remove(x)
	set, err := b.IPSet()
	must(err)
	return v.Intersect(allocator.NewView(set))
}
