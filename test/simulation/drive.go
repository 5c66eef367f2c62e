package simulation

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
)

// drive is a node's disk as the store uses it.
type drive struct {
	*disk.Memory
	n *simNode
}

// Begin implements [disk.Disk].
func (d drive) Begin(writable bool) (disk.Tx, error) {
	tx, err := d.Memory.Begin(writable)
	return driveTx{tx, d.n, d.Memory}, err
}

type driveTx struct {
	disk.Tx
	n *simNode
	m *disk.Memory
}

// Full implements [disk.Tx].
func (tx driveTx) Full() error {
	if tx.n.full {
		return syscall.ENOSPC
	}
	return nil
}

// errPower is what a commit ends with during which the power fails. Nobody hears of it.
var errPower = errors.New("the power has failed")

// Commit implements [disk.Tx].
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

// runFile is the counter in /run: it survives the process, and no boot.
type runFile struct{ line []byte }

// Read implements [store.Witness].
func (r *runFile) Read() ([]byte, error) {
	if r.line == nil {
		return nil, fmt.Errorf("counter: %w", fs.ErrNotExist)
	}
	return r.line, nil
}

// Write implements [store.Witness].
func (r *runFile) Write(line []byte) error {
	r.line = append([]byte{}, line...)
	return nil
}

// Close implements [store.Witness].
func (*runFile) Close() error { return nil }

// String implements [store.Witness].
func (*runFile) String() string { return "the counter in /run" }

// forgetWitness empties /run.
func (n *simNode) forgetWitness() {
	if n.w.fault != "M44" {
		n.run = runFile{}
	}
}

// saveImage takes a backup of the disk.
func (n *simNode) saveImage() {
	if n.memory != nil {
		n.backup = n.memory.Clone()
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
		w.count("disk put back")
		n.memory = n.backup.Clone()
	case 2:
		w.logf("%s: the disk is lost", n.machine)
		w.count("disk lost")
		n.memory = nil
	}
	n.meddled = true
	n.forgetDevices()
}
