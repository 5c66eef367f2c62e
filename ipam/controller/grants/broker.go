package grants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Cluster is what the broker needs of the API server. Every read is live. The
// outcome says what is known of a call; the error says what went wrong where the
// outcome is not Done.
type Cluster interface {
	CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error)
	ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error)
	// UpdateLease changes old into next, by compare-and-swap on old's UID and
	// Revision.
	UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error)
	DeleteLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error)
	Leases(ctx context.Context) ([]protocol.Lease, error)
	ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error)
	// ReadRegistration reads a node's registration. UpdateRegistration writes s by
	// compare-and-swap on its UID and Revision: recalls stand there.
	ReadRegistration(ctx context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error)
	UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error)
}

var (
	// errNotSo: a grant to remove has another mark, a grant to unmark is gone, or the lease is of
	// a later version of the protocol.
	errNotSo = errors.New("a grant is not as it was")
	// errRestored: see [Config.Restored].
	errRestored = errors.New("the API server's data went back in time, and the nodes have not put back yet what they hold")
	// errBusy: every try of a write met another writer's.
	errBusy = errors.New("the lease is changed too often")
)

// Config configures a Broker.
type Config struct {
	// IdleAfter is how long a lease of the cluster stays without a grant before it goes back to
	// the pool. In a pool that is under pressure it is two seconds at most.
	IdleAfter time.Duration
	// Calls is how many calls to the API server may be under way at once.
	Calls int
	// RoundSize is how many asks one round takes on.
	RoundSize int
	// ID tells this broker's recalls from those of every other, past and to come: at
	// most 32 characters, without a dot.
	ID string
	// Restored, if not nil, reports whether nothing of one of these pools may be granted or freed,
	// because the API server's data went back in time. It may know that before [PoolState] does.
	Restored func(ctx context.Context, pools ...protocol.PoolName) (bool, error)
	// Now is the clock.
	Now func() time.Time
}

// DefaultConfig returns the Config for production.
func DefaultConfig() Config {
	return Config{IdleAfter: time.Minute, Calls: 64, RoundSize: 1024, ID: rand.Text(), Now: time.Now}
}

// validate reports every fault of c.
func (c Config) validate() error {
	var errs []error
	if c.IdleAfter <= 0 {
		errs = append(errs, fmt.Errorf("IdleAfter is %v, must be positive", c.IdleAfter))
	}
	if c.Calls < 1 {
		errs = append(errs, fmt.Errorf("Calls is %d, must be positive", c.Calls))
	}
	if c.RoundSize < 1 {
		errs = append(errs, fmt.Errorf("RoundSize is %d, must be positive", c.RoundSize))
	}
	if c.ID == "" || len(c.ID) > 32 || strings.Contains(c.ID, ".") {
		errs = append(errs, fmt.Errorf("ID is %q, must have 1 to 32 characters and no dot", c.ID))
	}
	if c.Now == nil {
		errs = append(errs, errors.New("Now is nil"))
	}
	return errors.Join(errs...)
}

// A Broker grants addresses of the cluster's blocks. Its methods may be called
// concurrently. Nothing is written while Run does not run; what is observed and
// asked meanwhile is kept.
type Broker struct {
	cfg     Config
	cluster Cluster
	notify  Notify
	log     *slog.Logger
	metrics *Metrics
	work    chan struct{} // holds a value while there may be something to do

	mu    sync.Mutex
	book  *book  // guarded by mu
	jobs  []*job // guarded by mu
	sweep bool   // guarded by mu: leases may have to be given back at once
}

// New returns a Broker.
func New(cfg Config, cluster Cluster, notify Notify, m *Metrics, log *slog.Logger) (*Broker, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	book := newBook(cfg.Now)
	book.id = cfg.ID
	return &Broker{
		cfg: cfg, cluster: cluster, notify: notify, log: log, metrics: m,
		work: make(chan struct{}, 1), book: book,
	}, nil
}

// SetPool tells what was seen of a pool.
func (b *Broker) SetPool(s PoolState) {
	b.mu.Lock()
	news := b.book.setPool(s)
	b.sweep = b.sweep || news && (s.Deleting || s.scarce() || s.Restored)
	b.mu.Unlock()
	if news {
		b.signal()
	}
}

// DropPool tells that a pool is gone.
func (b *Broker) DropPool(name protocol.PoolName, uid protocol.UID) {
	b.mu.Lock()
	b.book.dropPool(name, uid)
	b.mu.Unlock()
	b.signal()
}

// Observe tells what a watch has shown of a lease.
func (b *Broker) Observe(l protocol.Lease) { b.observe(l, 0) }

// begin returns when a call begins, for observe.
func (b *Broker) begin() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.begin()
}

func (b *Broker) observe(l protocol.Lease, begun uint64) {
	b.mu.Lock()
	changed := b.book.Observe(l, begun)
	b.mu.Unlock()
	b.notifyGrantees(changed)
	b.signal()
}

// Forget tells that a lease is gone.
func (b *Broker) Forget(name string, uid protocol.UID) {
	b.mu.Lock()
	changed := b.book.forget(name, uid)
	b.mu.Unlock()
	b.notifyGrantees(changed)
	b.signal()
}

// Ask says what became of a so far. If a has not been granted it waits, and its grantee is notified
// when there is news.
func (b *Broker) Ask(a Ask) Answer { return b.ask(a, never) }

func (b *Broker) ask(a Ask, read uint64) Answer {
	b.mu.Lock()
	answer := b.book.ask(a, read)
	pending := b.book.pending()
	b.mu.Unlock()
	if pending {
		b.signal()
	}
	return answer
}

// Verify is like Ask, but reads the leases of the grants live. a must have a Stamp, and an answer
// that grants something has that Stamp. Call it between reading the grantee and writing the grants
// into its status. Whoever frees grants of an existing grantee marks them first and then changes
// its status. So either Verify sees the mark, or the write of the status fails.
func (b *Broker) Verify(ctx context.Context, a Ask) (Answer, error) {
	begun := b.begin()
	for range tries {
		for _, h := range b.Held(a.To.UID) {
			if _, _, err := b.read(ctx, protocol.LeaseName(h.Pool, h.Block)); err != nil {
				return Answer{}, fmt.Errorf("verify grants: %w", err)
			}
		}
		answer := b.ask(a, begun)
		if len(answer.Granted) == 0 || answer.Stamp == a.Stamp {
			return answer, nil
		}
		// While they were read, a watch that is behind has shown others.
	}
	return Answer{}, fmt.Errorf("verify grants: %w", errBusy)
}

// ReadLease reads a lease live, for a caller that is about to refuse. ok is false if there is no
// such lease. The next Ask goes by what was read.
func (b *Broker) ReadLease(ctx context.Context, name string) (l protocol.Lease, ok bool, err error) {
	l, ok, err = b.read(ctx, name)
	if err != nil {
		return l, false, fmt.Errorf("read lease %s: %w", name, err)
	}
	return l, ok, nil
}

// WithdrawKept withdraws the ask to keep one address of a pool for a pod.
func (b *Broker) WithdrawKept(pool protocol.PoolName, pod protocol.UID, addr netip.Addr) {
	b.Withdraw(keepKey(pool, pod, addr))
}

// Withdraw forgets the ask of a grantee, and its answer. What has been granted stays.
func (b *Broker) Withdraw(uid protocol.UID) {
	b.mu.Lock()
	b.book.withdraw(uid)
	starving := b.book.takeChanged()
	b.mu.Unlock()
	b.notifyPools(starving)
}

// Starving reports whether asks wait for addresses of a pool although every node that could cede
// some was asked. Addresses outside the asks' views may be free. If part is not nil, those asks
// alone count whose views have addresses of that part of the pool.
func (b *Broker) Starving(pool protocol.PoolName, part *allocator.Shape) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.book.pools[pool]
	if p == nil {
		return false
	}
	for _, s := range p.starving {
		if part == nil || len(part.OrdinaryWithin(s.want.family, s.want.view)) > 0 {
			return true
		}
	}
	return false
}

// Held returns a copy of the grants to a claim, sub-lease or reservation of that UID that have been
// seen.
func (b *Broker) Held(uid protocol.UID) []Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.book.heldBy(uid))
}

// Known returns the UIDs that have grants or an ask under a claim's name.
func (b *Broker) Known(key ClaimKey) []protocol.UID { return b.known(key.grantee()) }

// KnownSubLeases is Known for the name of a sub-lease.
func (b *Broker) KnownSubLeases(name string) []protocol.UID {
	return b.known(protocol.Grantee{Kind: protocol.GranteeSubLease, Name: name})
}

// KnownReservations is Known for the name of a reservation.
func (b *Broker) KnownReservations(name string) []protocol.UID {
	return b.known(protocol.Grantee{Kind: protocol.GranteeReservation, Name: name})
}

// Kept returns what is kept for pods of other IPAMs.
func (b *Broker) Kept() []Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.kept()
}

func (b *Broker) known(name protocol.Grantee) []protocol.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.known(name)
}

// Claims returns the claims that grants name.
func (b *Broker) Claims() []ClaimKey {
	var keys []ClaimKey
	for _, g := range b.granteesOfKind(protocol.GranteeClaim) {
		keys = append(keys, ClaimKey{g.Namespace, g.Name})
	}
	return keys
}

// SubLeases returns the names of the sub-leases that grants name.
func (b *Broker) SubLeases() []string { return b.namesOf(protocol.GranteeSubLease) }

// Reservations returns the names of the reservations that grants name.
func (b *Broker) Reservations() []string { return b.namesOf(protocol.GranteeReservation) }

func (b *Broker) namesOf(kind protocol.GranteeKind) []string {
	var names []string
	for _, g := range b.granteesOfKind(kind) {
		names = append(names, g.Name)
	}
	return names
}

// granteesOfKind returns the grantees of a kind that grants name, without their UIDs.
func (b *Broker) granteesOfKind(kind protocol.GranteeKind) []protocol.Grantee {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.granteesOfKind(kind)
}

// MayFree reports whether grants may be freed now. They may not while one of their pools is closed,
// or about to be closed, because the API server's data went back in time: the record that a pod
// uses them may be missing. Call it before Mark and Drop. It is false when the error is not nil.
func (b *Broker) MayFree(ctx context.Context, grants []Held) (bool, error) {
	if b.cfg.Restored == nil {
		return true, nil
	}
	restored, err := b.cfg.Restored(ctx, poolsOf(grants)...)
	return !restored && err == nil, err
}

// Mark sets freeing on grants. When the error is nil each is marked, or gone; those that are marked
// are returned as they are then, for Clear.
//
// A grant may have been marked by another controller before. In either case, whatever the caller
// reads or writes after Mark has returned comes after the mark, and Clear removes only grants that
// still have this mark.
func (b *Broker) Mark(ctx context.Context, grants []Held) ([]Held, error) {
	if err := b.change(ctx, Mark, grants); err != nil {
		return nil, err
	}
	return b.Marked(grants), nil
}

// Marked returns those of grants that are marked, as they are now.
func (b *Broker) Marked(grants []Held) []Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	var marked []Held
	for _, h := range grants {
		for _, now := range b.book.held[holdingOf(h.Grant.To)] {
			if now.Grant.Freeing && now.Pool == h.Pool && now.Grant.Addr == h.Grant.Addr {
				marked = append(marked, now)
			}
		}
	}
	return marked
}

// Unmark takes the mark off grants that are not to be freed after all. It fails
// for one that is gone.
func (b *Broker) Unmark(ctx context.Context, grants []Held) error {
	return b.change(ctx, Unmark, grants)
}

// Clear removes grants that Mark has returned. It fails if one has another mark by then, or none.
// One that is gone is no failure.
func (b *Broker) Clear(ctx context.Context, grants []Held) error {
	return b.change(ctx, Clear, grants)
}

// Drop removes grants, marked or not. The caller has read live that nobody can come to use them:
// the grantee is gone, or its status, which is written once, names other addresses.
func (b *Broker) Drop(ctx context.Context, grants []Held) error {
	return b.change(ctx, Drop, grants)
}

// Submit has the next round change grants. The channel that it returns gets the outcome, once.
// Mark, Unmark, Clear and Drop wait for it.
func (b *Broker) Submit(v Verb, grants []Held) <-chan error {
	j := &job{verb: v, grants: grants, result: make(chan error, 1)}
	b.mu.Lock()
	b.jobs = append(b.jobs, j)
	b.mu.Unlock()
	b.signal()
	return j.result
}

func (b *Broker) change(ctx context.Context, v Verb, grants []Held) error {
	select {
	case err := <-b.Submit(v, grants):
		return err
	case <-ctx.Done():
		return context.Cause(ctx) // the change may still be made
	}
}

func (b *Broker) signal() {
	select {
	case b.work <- struct{}{}:
	default:
	}
}
