package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simDisk is a node's store: what it has is on the disk.
type simDisk struct {
	store   protocol.StoreID
	commits uint64 // how many transactions there were

	// The identity: of which boot the last accepted heartbeat was, and of what term.
	boot  string
	term  int64
	sent  protocol.Instant
	fence time.Duration

	history protocol.History // how far the API server was seen to come

	pool   protocol.Pool    // as last heard of
	shape  *allocator.Shape // its ranges then
	rights map[string]protocol.Right
	atts   map[attKey]attachment
	tables map[protocol.PoolName]*simSpaceTable
	serial uint64                   // the last generation
	freed  map[netip.Addr]time.Time // of M41
	// lost is what was noted of stores that this machine has lost.
	lost map[protocol.StoreID]lostStore
	// gone says that there is no store at all.
	gone bool
}

// lostStore is what is noted when a store was lost: the boot in which that was
// noticed, and the sandboxes of that moment. While one of them is there nothing of
// the lost store is given back.
type lostStore struct {
	boot    string
	waiting map[string]bool
}

// attKey is the key of an attachment; all are of one network.
type attKey struct{ cid, ifName string }

// attachment is the record of what an ADD was answered.
type attachment struct {
	key   attKey
	pod   protocol.PodRef
	boot  string
	gen   uint64
	addrs []attAddr
	claim *protocol.ClaimRef
	use   string // the use or request under which the addresses are the pod's
}

// attAddr is one address of an attachment, and the lease that gave it, if it is of
// a block of this node's.
type attAddr struct {
	addr  netip.Addr
	pool  protocol.PoolName
	lease string
}

func (a attAddr) String() string { return a.addr.String() }

func (a attachment) has(x netip.Addr) bool {
	return slices.ContainsFunc(a.addrs, func(h attAddr) bool { return h.addr == x })
}

// under names the right that x rests on.
func (a attachment) under(x attAddr) string {
	if a.use != "" {
		return a.use
	}
	return x.lease
}

func newDisk(store protocol.StoreID) *simDisk {
	return &simDisk{
		store: store, rights: map[string]protocol.Right{}, atts: map[attKey]attachment{},
		tables: map[protocol.PoolName]*simSpaceTable{}, lost: map[protocol.StoreID]lostStore{},
		freed: map[netip.Addr]time.Time{},
	}
}

// clone returns an image of d.
func (d *simDisk) clone() *simDisk {
	c := *d
	c.rights, c.atts, c.freed, c.lost = maps.Clone(d.rights), maps.Clone(d.atts), maps.Clone(d.freed), maps.Clone(d.lost)
	c.tables = make(map[protocol.PoolName]*simSpaceTable, len(d.tables))
	for name, t := range d.tables {
		c.tables[name] = &simSpaceTable{entries: slices.Clone(t.entries)}
	}
	return &c
}

func (d *simDisk) table(pool protocol.PoolName) *simSpaceTable {
	t := d.tables[pool]
	if t == nil {
		t = &simSpaceTable{}
		d.tables[pool] = t
	}
	return t
}

// space returns the allocation state of a pool.
func (d *simDisk) space(pool protocol.PoolName, shape *allocator.Shape) allocator.Space {
	return allocator.NewSpace(d.table(pool), shape)
}

// keys returns the keys of d's attachments that keep accepts, in order.
func (d *simDisk) keys(keep func(attachment) bool) []attKey {
	var keys []attKey
	for k, a := range d.atts {
		if keep(a) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b attKey) int {
		if c := compareIDs(a.cid, b.cid); c != 0 {
			return c
		}
		return compareIDs(a.ifName, b.ifName)
	})
	return keys
}

// compareIDs orders names that end in a number by it.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return bytes.Compare([]byte(a), []byte(b))
}

// ofUse reports whether an attachment rests on a use or a request.
func (d *simDisk) ofUse(name string) bool {
	for _, a := range d.atts {
		if a.use == name {
			return true
		}
	}
	return false
}

// unused reports whether nothing rests on r.
func (d *simDisk) unused(r protocol.Right) bool {
	if r.Kind != protocol.RightLease {
		return !d.ofUse(r.Name)
	}
	space := d.space(r.Pool, nil)
	if open, err := space.IsOpen(r.Block); err != nil || !open {
		must(err)
		return true
	}
	for _, err := range space.Addresses(r.Block) {
		must(err)
		return false
	}
	return true
}

// must panics on what a simulated disk cannot do.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("simulation: %v", err))
	}
}

// simSpaceTable is an [allocator.Table] that is cheap to copy: a few dozen entries
// in order.
type simSpaceTable struct{ entries []simEntry }

type simEntry struct{ key, value []byte }

func (t *simSpaceTable) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(t.entries, key, func(e simEntry, k []byte) int { return bytes.Compare(e.key, k) })
}

func (t *simSpaceTable) Get(key []byte) []byte {
	if i, ok := t.find(key); ok {
		return t.entries[i].value
	}
	return nil
}

func (t *simSpaceTable) Put(key, value []byte) error {
	i, ok := t.find(key)
	if ok {
		t.entries[i].value = value
		return nil
	}
	t.entries = slices.Insert(t.entries, i, simEntry{bytes.Clone(key), value})
	return nil
}

func (t *simSpaceTable) Delete(key []byte) error {
	if i, ok := t.find(key); ok {
		t.entries = slices.Delete(t.entries, i, i+1)
	}
	return nil
}

func (t *simSpaceTable) Seek(key []byte) (k, v []byte) {
	if i, _ := t.find(key); i < len(t.entries) {
		return t.entries[i].key, t.entries[i].value
	}
	return nil, nil
}

// witness is the counter in /run: it survives the process, and no boot.
type witness struct {
	present bool
	store   protocol.StoreID
	commits uint64
}

// processEnd is thrown where the agent's process ends in the middle of what it does.
type processEnd struct{}

// outlive lets the agent do f, which may end its process. One that panics has lost its
// way, and who knows what it has given out.
func (n *simNode) outlive(f func()) {
	defer func() {
		switch p := recover().(type) {
		case nil, processEnd:
		default:
			n.w.fail(I1, "%s panics: %v", n.machine, p)
		}
	}()
	f()
}

// commit is one transaction of the node's store and its fsync. It may throw [processEnd]:
// then either all of it is on disk or nothing.
func (n *simNode) commit(tx func(d *simDisk)) {
	w := n.w
	fate := 0
	if !w.calm {
		fate = w.rng.IntN(400)
	}
	if fate == 399 { // nothing of it reaches the disk
		w.logf("%s: power fails before a commit", n.machine)
		n.powerOff()
		panic(processEnd{})
	}
	tx(n.disk)
	n.disk.commits++
	switch {
	case fate == 398:
		w.logf("%s: power fails after a commit", n.machine)
		n.sync()
		n.powerOff()
		panic(processEnd{})
	case fate >= 395:
		w.logf("%s: dies after a commit", n.machine)
		n.sync()
		n.crash()
		panic(processEnd{})
	}
	if w.fault != M9 || w.one(6) { // M9: whoever asked is answered before the disk is
		n.sync()
	}
	if w.fault != M50 {
		n.run = witness{present: true, store: n.disk.store, commits: n.disk.commits}
	}
}

// sync makes what was committed survive.
func (n *simNode) sync() {
	if n.w.fault == M9 {
		n.synced = n.disk.clone()
	}
}

// onDisk returns what a power failure now would leave.
func (n *simNode) onDisk() *simDisk {
	if n.w.fault == M9 && n.synced != nil {
		return n.synced
	}
	return n.disk
}

// powerOff takes the machine's power: its pods end, and memory with them.
func (n *simNode) powerOff() {
	if n.agent != nil {
		n.die()
		n.agent = nil
	}
	if n.synced != nil {
		n.disk = n.synced.clone()
	}
	n.off, n.paused, n.run, n.valid = true, false, witness{}, nil
	for _, s := range n.sandboxes {
		s.netns, s.adding = false, false
		n.end(s)
	}
	n.endGuests()
	n.w.count("power off")
}
