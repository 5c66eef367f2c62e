package store

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Check reads the whole store, which stops Updates for about a millisecond per
// thousand attachments, and reports every fault, joined: of the file, as Open
// does, and of what it says:
//
//   - an address of an attachment is taken in its pool, and no other attachment
//     has it. One that the cluster granted is not taken, and the attachments that
//     have it are of one claim or of one request;
//   - a taken address is an attachment's;
//   - an attachment's lease is a right that was confirmed, of a block of that
//     pool with that address; its use is a right that was confirmed, of its claim,
//     or of the request of its pod and interface that was granted its addresses;
//   - of an open block exactly those addresses are barred that its lease has ceded;
//   - the indexes have what the attachments say;
//   - the allocator finds its tables sound.
func (s *Store) Check() error {
	s.wait(unending, s.turn, nil)
	defer s.pass()
	bt, err := s.disk.Begin(false)
	if err == nil && s.broken != nil {
		err = errors.Join(s.broken, bt.Rollback())
	}
	if err != nil {
		return s.explain(err)
	}
	number := bt.Number()
	return s.read(bt, func(tx *Tx) error {
		found, err := survey(s.disk)
		if err == nil && (found.number != number || found.st != tx.st || found.id != tx.id) {
			err = corrupt(fmt.Errorf("the file is at transaction %d with %+v, and memory at %d with %+v", found.number, found.st, number, tx.st))
		}
		if err != nil {
			return s.explain(err) // what it says would be noise
		}
		c := checker{tx: tx, owners: map[place]owner{}}
		c.attachments()
		c.cessions()
		c.pools()
		return errors.Join(c.faults...)
	})
}

// place is an address where it has at most one owner.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

// owner is who has an address: an attachment, or all those of a claim or of a
// request.
type owner struct {
	key     Key
	grantee string // the claim's UID or the request's name
}

// checker collects what disagrees.
type checker struct {
	tx     *Tx
	owners map[place]owner
	faults []error
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

func (c *checker) attachments() {
	pods, uses := 0, 0
	for a, err := range c.tx.Attachments() {
		if err != nil {
			c.fault("attachments: %w", err)
			return
		}
		for _, x := range a.Addresses {
			c.address(a, x)
		}
		if a.Use != "" {
			uses++
			c.use(a)
			c.listed(a, "use "+a.Use, c.tx.OfUse(a.Use))
		}
		if a.Pod.UID != "" {
			pods++
			c.listed(a, "pod "+string(a.Pod.UID), c.tx.OfPod(a.Pod.UID, a.IfName))
		}
	}
	c.count("pods", &c.tx.pods, pods)
	c.count("uses", &c.tx.uses, uses)
}

// address checks one address of a.
func (c *checker) address(a Attachment, x Address) {
	at := place{x.Pool, x.Addr}
	now := owner{key: a.Key}
	granted := (a.Claim != nil || a.Use != "") && x.Lease == ""
	switch {
	case granted && a.Claim != nil:
		now.grantee = string(a.Claim.UID)
	case granted:
		now.grantee = a.Use
	}
	was, ok := c.owners[at]
	if ok && (was.grantee == "" || was.grantee != now.grantee) {
		c.fault("%v of pool %s is recorded for two: %v and %v", x.Addr, x.Pool, was.key, a.Key)
	}
	c.owners[at] = now
	state, err := allocator.NewSpace(c.tx.Table(x.Pool), nil).State(x.Addr)
	switch {
	case err != nil:
		c.fault("%v of pool %s: %w", x.Addr, x.Pool, err)
	case granted && state == allocator.Taken:
		c.fault("%v has %v of pool %s by %s, but the node's own blocks have it as %v", a.Key, x.Addr, x.Pool, a.Use, state)
	case !granted && state != allocator.Taken:
		c.fault("%v has %v of pool %s, which is %v there", a.Key, x.Addr, x.Pool, state)
	}
	if x.Lease != "" {
		c.lease(a.Key, x)
	}
}

// lease checks the right that x was handed out of.
func (c *checker) lease(k Key, x Address) {
	r, ok, err := c.tx.Right(x.Lease)
	switch {
	case err != nil:
		c.fault("%v: %w", k, err)
	case !ok:
		c.fault("%v has %v of lease %s, of which there is no record", k, x.Addr, x.Lease)
	case r.Kind != protocol.RightLease || !confirmed(r):
		c.fault("%v has %v of lease %s, which is a %s that is %s", k, x.Addr, x.Lease, r.Kind, r.Phase)
	case r.Pool != x.Pool || !r.Block.Contains(x.Addr):
		c.fault("%v has %v of pool %s from lease %s, which is of block %v of pool %s", k, x.Addr, x.Pool, x.Lease, r.Block, r.Pool)
	}
}

// use checks the right by which a has what the cluster granted.
func (c *checker) use(a Attachment) {
	r, ok, err := c.tx.Right(a.Use)
	switch {
	case err != nil:
		c.fault("%v: %w", a.Key, err)
	case !ok:
		c.fault("%v needs use %s, of which there is no record", a.Key, a.Use)
	case r.Kind == protocol.RightLease || !confirmed(r):
		c.fault("%v needs use %s, which is a %s that is %s", a.Key, a.Use, r.Kind, r.Phase)
	case r.Kind == protocol.RightRequest:
		c.request(a, r)
	case a.Claim == nil || r.Use == nil || r.Use.Claim.UID != a.Claim.UID:
		c.fault("%v needs use %s, which is of another claim", a.Key, a.Use)
	}
}

// request checks that r was made for a, and was granted what a has.
func (c *checker) request(a Attachment, r protocol.Right) {
	if a.Claim != nil || r.Request == nil || r.Request.Pod.UID != a.Pod.UID || r.Request.Interface != a.IfName {
		c.fault("%v needs request %s, which is not its own", a.Key, a.Use)
	}
	for _, x := range a.Addresses {
		if !slices.Contains(r.Addrs, x.Addr) {
			c.fault("%v has %v, which request %s was not granted", a.Key, x.Addr, a.Use)
		}
	}
}

// confirmed reports whether the object behind r was seen to exist: nothing may
// stand on a right that was only noted.
func confirmed(r protocol.Right) bool {
	return slices.Contains([]protocol.Phase{protocol.Held, protocol.Releasing, protocol.Lost, protocol.Frozen}, r.Phase)
}

// listed checks that an index finds a.
func (c *checker) listed(a Attachment, what string, found func(func(Attachment, error) bool)) {
	for b, err := range found {
		if err != nil {
			c.fault("attachments of %s: %w", what, err)
			return
		}
		if b.Key == a.Key {
			return
		}
	}
	c.fault("%v is not among the attachments of %s", a.Key, what)
}

// count checks that an index has want entries, that is none that nobody wants.
func (c *checker) count(name string, index *bucket, want int) {
	got := 0
	for _, err := range c.tx.entries(index, nil) {
		if err != nil {
			c.fault("index %s: %w", name, err)
			return
		}
		got++
	}
	if got != want {
		c.fault("index %s has %d entries, want %d", name, got, want)
	}
}

// cessions checks that what a lease has ceded is barred in its block, and nothing
// else is.
func (c *checker) cessions() {
	ceded := map[place]bool{}
	for r, err := range c.tx.Rights() {
		if err != nil {
			c.fault("rights: %w", err)
			return
		}
		if r.Kind != protocol.RightLease {
			continue
		}
		space := allocator.NewSpace(c.tx.Table(r.Pool), nil)
		open, err := space.IsOpen(r.Block)
		if err != nil {
			c.fault("lease %s: %w", r.Name, err)
		}
		for _, a := range r.Ceded {
			ceded[place{r.Pool, a}] = true
			if state, err := space.State(a); open && (err != nil || state != allocator.Barred) {
				c.fault("lease %s has ceded %v, which its block has as %v: %w", r.Name, a, state, err)
			}
		}
	}
	for _, pool := range c.tx.Pools() {
		space := allocator.NewSpace(c.tx.Table(pool), nil)
		for _, f := range allocator.Families() {
			for b, err := range space.Blocks(f) {
				if err != nil {
					break // pools reports it
				}
				c.barred(ceded, pool, space, b)
			}
		}
	}
}

// barred checks that what is barred in a block has been ceded.
func (c *checker) barred(ceded map[place]bool, pool protocol.PoolName, space allocator.Space, b allocator.BlockInfo) {
	left := b.Barred
	for a := b.Prefix.Addr(); left > 0 && b.Prefix.Contains(a); a = a.Next() {
		if state, err := space.State(a); err != nil || state != allocator.Barred {
			continue
		}
		left--
		if !ceded[place{pool, a}] {
			c.fault("%v of pool %s is barred, and no lease has ceded it", a, pool)
		}
	}
}

// pools checks the tables, and that every taken address is an attachment's.
func (c *checker) pools() {
	for _, pool := range c.tx.Pools() {
		space := allocator.NewSpace(c.tx.Table(pool), nil)
		if err := space.Check(); err != nil {
			c.fault("pool %s: %w", pool, err)
			continue
		}
		for _, f := range allocator.Families() {
			for b, err := range space.Blocks(f) {
				if err != nil {
					c.fault("pool %s: %w", pool, err)
					break
				}
				c.taken(pool, space, b.Prefix)
			}
		}
	}
}

func (c *checker) taken(pool protocol.PoolName, space allocator.Space, block netip.Prefix) {
	for a, err := range space.Addresses(block) {
		if err != nil {
			c.fault("pool %s: %w", pool, err)
			return
		}
		if _, ok := c.owners[place{pool, a}]; !ok {
			c.fault("%v of pool %s is taken, and no attachment has it", a, pool)
		}
	}
}
