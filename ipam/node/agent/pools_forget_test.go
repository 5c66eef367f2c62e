package agent

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// toldPools are pools whose followers are told what a test says.
type toldPools struct {
	Pools
	mu    sync.Mutex
	tells map[protocol.PoolName]func(Pool, bool)
}

func (o *toldPools) Follow(ctx context.Context, name protocol.PoolName, changed func(Pool, bool)) error {
	o.mu.Lock()
	o.tells[name] = changed
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	delete(o.tells, name)
	o.mu.Unlock()
	return nil
}

// tell says that a pool is there, or is not; it reports whether somebody follows it.
func (o *toldPools) tell(name protocol.PoolName, exists bool) bool {
	synctest.Wait()
	o.mu.Lock()
	changed, ok := o.tells[name]
	o.mu.Unlock()
	if ok {
		p := Pool{Pool: protocol.Pool{Meta: protocol.Meta{Name: string(name), UID: "p"}, Open: true, Bits4: 30}}
		p.Text.Ranges = []poolspec.RangeText{{CIDR: "10.0.0.0/24"}}
		changed(p, exists)
	}
	return ok
}

// TestForgetsPoolsThatAreGone: a pool that is gone is not followed for ever, nor after the
// next start, unless something here is of it, or somebody names it. Under its name there may
// be another later.
func TestForgetsPoolsThatAreGone(t *testing.T) {
	for _, tt := range []struct {
		name     string
		there    bool // the pool is not gone
		restored bool
		put      func(*store.Tx) error // what the node has
		between  func(*Agent)          // the calls
		calls    int
		kept     bool
	}{
		{name: "gone", calls: 2},
		{name: "gone, at the first call", calls: 1, kept: true},
		{name: "there", there: true, calls: 3, kept: true},
		{name: "named by an ADD", calls: 2, kept: true, between: func(a *Agent) { a.pools.get("old") }},
		{name: "the API server went back", restored: true, calls: 3, kept: true},
		{name: "with a lease", calls: 3, kept: true, put: func(tx *store.Tx) error {
			return tx.PutRight(protocol.Right{Kind: protocol.RightLease, Name: "old.0a000000.30", Phase: protocol.Releasing, LeaseRight: protocol.LeaseRight{Pool: "old"}})
		}},
		{name: "asked for", calls: 3, kept: true, put: func(tx *store.Tx) error {
			return tx.PutRight(protocol.Right{Kind: protocol.RightRequest, Name: "q", Phase: protocol.Noted, SubLeaseRight: protocol.SubLeaseRight{Request: &protocol.Request{Wants: []protocol.Wanted{{Pool: "old"}}}}})
		}},
		{name: "with a pod's address", calls: 3, kept: true, put: func(tx *store.Tx) error {
			return tx.PutAttachment(store.Attachment{
				Key: store.Key{Network: "net", ContainerID: "c", IfName: "net1"}, Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 24, Pool: "old"}},
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pools := &toldPools{tells: map[protocol.PoolName]func(Pool, bool){}}
				a, _ := newRegisteredAgent(t, nil, pools)
				ctx, cancel := context.WithCancel(t.Context())
				var following sync.WaitGroup
				defer following.Wait()
				defer cancel()
				a.pools.follow = a.pools.follower(ctx, func(task func() error) { following.Go(func() { _ = task() }) })
				a.pools.get("old")
				pools.tell("old", true)
				pools.tell("old", tt.there)
				if tt.restored {
					a.reg.history.Restored = &protocol.Restoration{}
				}
				if tt.put != nil {
					if err := a.st.Update(ctx, tt.put); err != nil {
						t.Fatal(err)
					}
				}
				for i := range tt.calls {
					if i > 0 && tt.between != nil {
						tt.between(a)
					}
					time.Sleep(forgetEvery)
					a.pools.forget(ctx)
				}
				if followed := pools.tell("old", false); followed != tt.kept {
					t.Errorf("followed: %v; want %v", followed, tt.kept)
				}
				err := a.st.View(func(tx *store.Tx) error {
					_, ok, err := tx.Pool("old")
					if ok != tt.kept {
						err = errors.Join(err, errors.New("the store has it still, or not any more"))
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
				if p := a.pools.get("old"); !pools.tell("old", true) || p != a.pools.byName["old"] {
					t.Errorf("named again: followed as %p; want it followed as %p", p, a.pools.byName["old"])
				}
				known, absent, _ := a.pools.byName["old"].now()
				if why := unready(known, absent); why != "" {
					t.Errorf("there again: an ADD is told that it %s", why)
				}
			})
		})
	}
}
