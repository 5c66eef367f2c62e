package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"syscall"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simDisk is what a node's store has.
type simDisk struct {
	store   protocol.StoreID
	term    int64
	history protocol.History // how far the API server was seen to come
	rights  map[string]protocol.Right
	atts    map[attKey]attachment
}

// attKey is the key of an attachment; all are of one network.
type attKey struct{ cid, ifName string }

// attachment is the record of what an ADD was answered.
type attachment struct {
	key   attKey
	pod   protocol.PodRef
	addrs []attAddr
	claim *protocol.ClaimRef
	use   string // the use or request under which the addresses are the pod's
	// device says that it is of a device of a ResourceClaim.
	device bool
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

// restsOn reports whether an address of an attachment rests on a right that is so.
func (d *simDisk) restsOn(a attachment, so func(protocol.Right) bool) bool {
	return slices.ContainsFunc(a.addrs, func(x attAddr) bool { return so(d.rights[a.under(x)]) })
}

// frozen reports whether a right is of a lost store.
func frozen(r protocol.Right) bool { return r.Phase == protocol.Frozen }

func newDisk(store protocol.StoreID) *simDisk {
	return &simDisk{store: store, rights: map[string]protocol.Right{}, atts: map[attKey]attachment{}}
}

// keys returns the keys of d's attachments that keep accepts, in order.
func (d *simDisk) keys(keep func(attachment) bool) []attKey {
	var keys []attKey
	for k, a := range d.atts {
		if keep(a) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b attKey) int { return cmp.Or(compareIDs(a.cid, b.cid), compareIDs(a.ifName, b.ifName)) })
	return keys
}

// recordText says what a record is, for the trace.
func recordText(r protocol.Right) string {
	if r.Phase == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s(uid %s, rev %s, turn %d, asserted %d, term %d)", r.Phase, r.UID, r.Revision, r.Writes, r.Asserted, r.Term)
}

// compareIDs orders names that end in a number by it.
func compareIDs(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// must panics on what a simulated disk cannot do.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("simulation: %v", err))
	}
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

// powerOff takes the machine's power: its pods end, and memory with them.
func (n *simNode) powerOff() {
	if n.agent != nil {
		n.die()
		n.stop()
	}
	n.forgetWitness()
	if n.memory != nil {
		n.memory.PowerCut(n.w.one(2))
	}
	n.off, n.paused, n.valid = true, false, nil
	for _, s := range n.sandboxes {
		s.netns, s.adding = false, false
		n.end(s)
	}
	n.endGuests()
}

// drive is a node's [disk.Disk] as the store uses it.
type drive struct {
	*disk.Memory
	n *simNode
}

func (d drive) Begin(writable bool) (disk.Tx, error) {
	tx, err := d.Memory.Begin(writable)
	return driveTx{tx, d.n, d.Memory}, err
}

type driveTx struct {
	disk.Tx
	n *simNode
	m *disk.Memory
}

func (tx driveTx) Full() error {
	if tx.n.full {
		return syscall.ENOSPC
	}
	return nil
}

// errPower is what a commit ends with during which the power fails. Nobody hears of it.
var errPower = errors.New("the power has failed")

func (tx driveTx) Commit() error {
	n, w := tx.n, tx.n.w
	if a := n.agent; a != nil {
		tx.m.Sync = func() error {
			a.dirty, a.untold = true, true
			if w.calm || w.rng.IntN(400) != 399 {
				return nil
			}
			w.logf("%s: power fails during a commit", n.machine)
			a.dead, n.failing = true, true
			return errPower
		}
	}
	return tx.Tx.Commit()
}

// runFile is the [store.Witness], the counter in /run: it survives the process, and no boot.
type runFile struct{ line []byte }

func (r *runFile) Read() ([]byte, error) {
	if r.line == nil {
		return nil, fmt.Errorf("counter: %w", fs.ErrNotExist)
	}
	return r.line, nil
}

func (r *runFile) Write(line []byte) error {
	r.line = append([]byte{}, line...)
	return nil
}

func (*runFile) Close() error   { return nil }
func (*runFile) String() string { return "the counter in /run" }

// forgetWitness empties /run.
func (n *simNode) forgetWitness() {
	if n.w.fault != "M44" {
		n.run = runFile{}
	}
}

// meddle puts an image of the disk back, as people and hypervisors do, or the disk is lost. The
// agent does not run.
func (n *simNode) meddle() {
	w := n.w
	if w.holding || n.unsaid() {
		return
	}
	switch w.rng.IntN(3) {
	case 0, 1:
		if n.backup == nil {
			return
		}
		w.logf("%s: the disk goes back to an image", n.machine)
		n.memory = n.backup.Clone()
	case 2:
		w.logf("%s: the disk is lost", n.machine)
		n.memory = nil
	}
	n.meddled = true
	n.forgetDevices()
}
