package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// errEarly says that the node's registration has not been seen since the agent started. It alone
// may show that the API server has gone back; before, a lease that this node is to put back would
// pass for taken, because the data name who had the block then.
var errEarly = errors.New("the node's registration has not been read yet: nothing is concluded about its leases")

// carefulLeases does not send calls on leases, nor pass on answers, of an API
// server that has gone back. What the store has given away goes on being given
// back: it may stand in the way of him who has leased it since.
type carefulLeases struct {
	Leases
	rs *rights
}

func (c carefulLeases) CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if err := c.rs.pools.underRestore(l.Pool); err != nil && !c.rs.holds(l.Name) {
		return protocol.Lease{}, protocol.Unknown, err
	}
	s := c.rs.reg.era()
	got, out, err := c.Leases.CreateLease(ctx, l)
	return careful(got, out, err, c.rs.reg.wrote(ctx, s, got.Revision))
}

func (c carefulLeases) ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	s, r := c.rs.reg.era(), c.rs.known(name)
	if r.Phase == protocol.Held && !c.rs.reg.isSeen() {
		return protocol.Lease{}, protocol.Unknown, errEarly
	}
	got, out, err := c.Leases.ReadLease(ctx, name)
	if out == protocol.NotFound {
		c.rs.reg.noteDisputed(name, false)
	}
	if out != protocol.Done {
		return got, out, err
	}
	others := got.Store != c.rs.st.ID() && (r.Store == "" || got.Store != r.Store)
	got, out, err = careful(got, out, err, c.rs.reg.read(ctx, s, s.history.RecordBehind(r, got.Meta, got.Writes, others) || s.history.Supplanted(r, got.Meta, s.term)))
	if out == protocol.Done {
		if wait := c.rs.disputed(name, r, got.Store); wait != nil {
			return protocol.Lease{}, protocol.Unknown, wait
		}
	}
	return got, out, err
}

func (c carefulLeases) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if err := c.rs.pools.underRestore(next.Pool); err != nil && !c.rs.holds(next.Name) {
		return protocol.Lease{}, protocol.Unknown, err
	}
	s := c.rs.reg.era()
	got, out, err := c.Leases.UpdateLease(ctx, old, next)
	return careful(got, out, err, c.rs.reg.wrote(ctx, s, got.Revision))
}

func (c carefulLeases) NodeLeases(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, protocol.Revision, error) {
	return carefulList(ctx, c.rs, func() ([]protocol.Lease, protocol.Revision, error) { return c.Leases.NodeLeases(ctx, node) })
}

// disputed returns an error if a live read shows a right that this node holds to be another
// store's. After a restore that proves nothing while the right's pools wait for nodes: the other
// gives it back, if it did so before. A lease of an earlier pool of the name is not waited for: the
// pool that is there now may wait for it, and the node for the pool.
func (rs *rights) disputed(name string, r protocol.Right, shown protocol.StoreID) error {
	var wait error
	if r.Phase == protocol.Held && shown != rs.st.ID() {
		wait = rs.pools.keptBack(r)
	}
	rs.reg.noteDisputed(name, wait != nil)
	return wait
}

// carefulList judges a live list like a write: what it returns is not older than any answer
// before.
func carefulList[T any](ctx context.Context, rs *rights, list func() ([]T, protocol.Revision, error)) ([]T, protocol.Revision, error) {
	s := rs.reg.era()
	all, rev, err := list()
	if rev == "" { // no answer
		return all, rev, err
	}
	if rewound := rs.reg.wrote(ctx, s, rev); rewound != nil {
		return nil, "", rewound
	}
	return all, rev, err
}

// carefulSubLeases is carefulLeases for sub-leases.
type carefulSubLeases struct {
	SubLeases
	rs *rights
}

func (c carefulSubLeases) CreateSubLease(ctx context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	if err := c.underRestore(s.Name); err != nil && !c.rs.holds(s.Name) {
		return protocol.SubLease{}, protocol.Unknown, err
	}
	seen := c.rs.reg.era()
	got, out, err := c.SubLeases.CreateSubLease(ctx, s)
	return careful(got, out, err, c.rs.reg.wrote(ctx, seen, got.Revision))
}

func (c carefulSubLeases) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	s, r := c.rs.reg.era(), c.rs.known(name)
	got, out, err := c.SubLeases.ReadSubLease(ctx, name)
	if out == protocol.NotFound {
		c.rs.reg.noteDisputed(name, false)
	}
	if out != protocol.Done {
		return got, out, err
	}
	got, out, err = careful(got, out, err, c.rs.reg.read(ctx, s, s.history.RecordBehind(r, got.Meta, got.Writes, false) || s.history.Supplanted(r, got.Meta, s.term)))
	if out == protocol.Done {
		if wait := c.rs.disputed(name, r, got.Store); wait != nil {
			return protocol.SubLease{}, protocol.Unknown, wait
		}
	}
	return got, out, err
}

func (c carefulSubLeases) UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	if err := c.underRestore(next.Name); err != nil && !c.rs.holds(next.Name) {
		return protocol.SubLease{}, protocol.Unknown, err
	}
	seen := c.rs.reg.era()
	got, out, err := c.SubLeases.UpdateSubLease(ctx, old, next)
	return careful(got, out, err, c.rs.reg.wrote(ctx, seen, got.Revision))
}

func (c carefulSubLeases) NodeSubLeases(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error) {
	return carefulList(ctx, c.rs, func() ([]protocol.SubLease, protocol.Revision, error) { return c.SubLeases.NodeSubLeases(ctx, node) })
}

func (c carefulSubLeases) underRestore(name string) error {
	r, ok := c.rs.right(name)
	if !ok {
		return nil
	}
	return c.rs.pools.rightUnderRestore(r)
}

// carefulPools does not confirm leases of a pool that waits for nodes.
type carefulPools struct {
	Pools
	rs *rights
}

func (c carefulPools) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	if err := c.rs.pools.underRestore(name); err != nil {
		return protocol.Pool{}, protocol.Unknown, err
	}
	p, out, err := c.Pools.ReadPool(ctx, name)
	if out != protocol.Done {
		return p, out, err
	}
	if err := c.rs.reg.readEpoch(ctx, p); err != nil {
		return protocol.Pool{}, protocol.Unknown, fmt.Errorf("record the epoch of pool %s: %w", name, err)
	}
	if restored := c.rs.reg.restored(); restored != nil && !p.Deleting && !restored.EndedFor(p.Epoch) {
		return protocol.Pool{}, protocol.Unknown, &restoreError{Pool: name, Of: name}
	}
	return p, out, err
}

// carefulRegistrations compares the node's registration with what is known of it.
type carefulRegistrations struct {
	Registrations
	rs *rights
}

func (c carefulRegistrations) ReadRegistration(ctx context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	s := c.rs.reg.era()
	got, out, err := c.Registrations.ReadRegistration(ctx, node)
	return c.judged(ctx, s, got, out, err)
}

func (c carefulRegistrations) CreateRegistration(ctx context.Context, reg protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	s := c.rs.reg.era()
	got, out, err := c.Registrations.CreateRegistration(ctx, reg)
	return c.judged(ctx, s, got, out, err)
}

func (c carefulRegistrations) UpdateRegistration(ctx context.Context, reg protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	s := c.rs.reg.era()
	got, out, err := c.Registrations.UpdateRegistration(ctx, reg)
	return c.judged(ctx, s, got, out, err)
}

func (c carefulRegistrations) judged(ctx context.Context, s era, got protocol.Registration, out protocol.Outcome, err error) (protocol.Registration, protocol.Outcome, error) {
	if out != protocol.Done {
		return got, out, err
	}
	return careful(got, out, err, c.rs.reg.judgeRegistration(ctx, s, got))
}

// careful returns an answer, or that nothing is known if it is not to be relied
// upon.
func careful[T any](got T, out protocol.Outcome, err, rewound error) (T, protocol.Outcome, error) {
	if rewound != nil {
		var none T
		return none, protocol.Unknown, rewound
	}
	return got, out, err
}
