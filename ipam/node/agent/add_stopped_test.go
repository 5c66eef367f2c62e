package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// stoppedCase is an ADD in a pool that was stopped.
type stoppedCase struct {
	name, sandbox, exact string
	pod                  protocol.UID // "old" has 10.0.0.1, but for freed and granted
	boot                 string       // in which it got that; empty: in this one
	freed                bool         // it has had a DEL since
	// request: "has": it has it by a request; "granted": it was granted it, and was not answered.
	request string
	pool    knownPool // with its Stopped, GivenAway and Pressure
	want    string    // empty: it waits
}

// TestStoppedPool (I1): of a pool that is stopped a node gives nothing that is free, nor of one
// that was stopped before it is open again, not even out of a block that it holds: another IPAM may
// have given it. A sandbox has its addresses again, and so has a new sandbox of its pod's, also
// after a reboot.
func TestStoppedPool(t *testing.T) {
	stopped, started := knownPool{Pool: Pool{Stopped: true}}, knownPool{Pool: Pool{GivenAway: true}}
	both, full := knownPool{Pool: Pool{Stopped: true, GivenAway: true}}, knownPool{Pool: Pool{Stopped: true, Pressure: allocator.PressureExhausted}}
	for _, tt := range []stoppedCase{
		{name: "the same sandbox", sandbox: "s1", pod: "old", want: "10.0.0.1"},
		{name: "a new sandbox of the pod", sandbox: "s2", pod: "old", want: "10.0.0.1"},
		{name: "a new sandbox, by name", sandbox: "s2", exact: "10.0.0.1", pod: "old", want: "10.0.0.1"},
		{name: "a new sandbox after a reboot", sandbox: "s2", pod: "old", boot: "before", want: "10.0.0.1"},
		{name: "a new sandbox, by a request", sandbox: "s2", pod: "old", request: "has", want: "10.0.0.1"},
		{name: "a new sandbox after a reboot, by a request", sandbox: "s2", pod: "old", boot: "before", request: "has", want: "10.0.0.1"},
		{name: "a new sandbox that asks for another address", sandbox: "s2", exact: "10.0.0.2", pod: "old"},
		{name: "a new sandbox, after the DEL of the old one", sandbox: "s2", pod: "old", freed: true},
		{name: "another pod", sandbox: "s3", pod: "new"},
		{name: "another pod, after a DEL", sandbox: "s3", pod: "new", freed: true},
		{name: "another pod, by name", sandbox: "s3", exact: "10.0.0.2", pod: "new"},
		{name: "another pod, by the name of what was freed", sandbox: "s3", exact: "10.0.0.1", pod: "new", freed: true},
	} {
		for of, pool := range map[string]knownPool{"stopped": stopped, "stopped for long": both, "stopped and full": full, "started": started} {
			tt.pool = pool
			t.Run(of+"/"+tt.name, func(t *testing.T) { synctest.Test(t, tt.run) })
		}
	}
	granted := stoppedCase{sandbox: "s1", pod: "old", request: "granted", pool: stopped}
	t.Run("granted, and not answered", func(t *testing.T) { synctest.Test(t, granted.run) })
	other := stoppedCase{sandbox: "s3", exact: "10.0.0.2", pod: "new", want: "10.0.0.2"}
	t.Run("another pod, while the pool is closed for another reason", func(t *testing.T) { synctest.Test(t, other.run) })
}

func (tt stoppedCase) run(t *testing.T) {
	a, p := newBubbleAgent(t)
	a.host, a.metrics = goneHost{}, newMetrics(nil)
	a.cfg.Fence, a.reg.registrar.Term = 0, 3
	tt.record(t, a, p)
	p.set(changed(p, func(k *knownPool) {
		k.Open, k.Waits, k.Stopped, k.GivenAway, k.Pressure = false, "it is looked at", tt.pool.Stopped, tt.pool.GivenAway, tt.pool.Pressure
	}), false)
	key := store.Key{Network: "net", ContainerID: tt.sandbox, IfName: "net1"}
	add := &addCall{
		key: key, conf: &poolspec.Config{Name: "net", CNIVersion: "1.1.0", Sources: []poolspec.Source{{Pool: "lan", Families: []allocator.Family{allocator.IPv4}}}},
		demand: assign.Demand{Key: key, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: tt.pod}, Boot: a.cfg.Boot, Gone: a.host.Gone},
	}
	if tt.exact != "" {
		add.conf.Requested = []poolspec.Requested{{Addr: netip.MustParseAddr(tt.exact)}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	att, err := a.hold(ctx, add)
	got := ""
	if err == nil {
		got = att.Addresses[0].Addr.String()
	}
	if got != tt.want || got == "" && !is[*notReadyError](err) {
		t.Errorf("gets %q, %v; want %q", got, err, tt.want)
	}
	if err != nil && tt.pool.Stopped && err.Error() != "pool lan gives no addresses: its spec.allocation is Stopped" {
		t.Errorf("%v; want that the pool is stopped", err)
	}
	if lease := leaseRight(p.known.Pool, stoppedBlock).Name; got != "" && tt.request == "" && att.Addresses[0].Lease != lease {
		t.Errorf("it is said to be of lease %q; want %q", att.Addresses[0].Lease, lease)
	}
}

// stoppedBlock is the block that the node holds.
var stoppedBlock = netip.MustParsePrefix("10.0.0.0/30")

// record records what the node has before the ADD.
func (tt stoppedCase) record(t *testing.T, a *Agent, p *pool) {
	t.Helper()
	addr, pod := netip.MustParseAddr("10.0.0.1"), protocol.PodRef{Namespace: "ns", Name: "p", UID: "old"}
	r := leaseRight(p.known.Pool, stoppedBlock)
	has := store.Attachment{
		Key: store.Key{Network: "net", ContainerID: "s1", IfName: "net1"}, Pod: pod, Boot: tt.boot, Generation: 1,
		Addresses: []store.Address{{Addr: addr, Bits: 27, Pool: "lan", Lease: r.Name}},
	}
	if tt.request != "" {
		wants := []protocol.Wanted{{Pool: "lan", Ranges: []string{"10.0.0.1-10.0.0.30"}}}
		r = protocol.Right{Kind: protocol.RightRequest, Name: "hash-1", SubLeaseRight: protocol.SubLeaseRight{
			Request: &protocol.Request{Pod: pod, Interface: "net1", Wants: wants}, Addrs: []netip.Addr{addr}, Leases: []string{r.Name},
		}}
		has.Use, has.Addresses[0].Lease = r.Name, ""
	}
	r.Phase, r.UID, r.Revision, r.Asserted, r.Term, r.Writes = protocol.Held, "u", "6", 3, 3, 1
	err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		if err := errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 3}), tx.PutRight(r)); err != nil || tt.request == "granted" {
			return err
		}
		if tt.request == "has" {
			return tx.PutAttachment(has)
		}
		space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
		err := errors.Join(space.Open(stoppedBlock), space.Take(addr), tx.PutAttachment(has))
		if tt.freed {
			_, _, released := assign.Release(tx, has.Key)
			err = errors.Join(err, released)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.rights.follows(protocol.Self{Term: 3}, protocol.Result{Next: r})
}

// TestClaimOfAStoppedPool (I1): a pod that has a claim's address has it again while its pool is
// stopped, also after a reboot. Another pod waits, though the address is the claim's: an export may
// have left it to another IPAM.
func TestClaimOfAStoppedPool(t *testing.T) {
	for _, tt := range []struct {
		name    string
		pod     protocol.UID // "old" has what the claim had
		had     string       // empty: no pod has it
		stopped bool
		has     bool
	}{
		{"its pod after a reboot", "old", "10.0.0.5", true, true},
		{"its pod, of which the claim has another address by now", "old", "10.0.0.6", true, false},
		{"its pod after a DEL", "old", "", true, false},
		{"another pod", "new", "10.0.0.5", true, false},
		{"another pod, while the pool is not stopped", "new", "10.0.0.5", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				addr, block := netip.MustParseAddr("10.0.0.5"), netip.MustParsePrefix("10.0.0.4/30")
				claim := protocol.Claim{Meta: protocol.Meta{Name: "db", UID: "c"}, Namespace: "ns", Network: "lan", IPs: []netip.Prefix{netip.PrefixFrom(addr, 27)}}
				ref := claim.Ref()
				a, p := newRegisteredAgent(t, oneLease{lease: protocol.Lease{
					Meta: protocol.Meta{Name: protocol.LeaseName("lan", block), UID: "l", Revision: "3"}, Pool: "lan", Block: block, Holder: protocol.Holder{Cluster: true},
					Grants: []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c"}}},
				}}, nil)
				a.host, a.reg.registrar.Sent = goneHost{}, a.sched.Now()
				a.cl.SubLeases, a.cl.Claims = &someUses{there: map[string]protocol.SubLease{}}, oneClaim{claim}
				p.set(changed(p, func(k *knownPool) { k.Open, k.Stopped, k.GivenAway = false, tt.stopped, true }), false)
				if tt.had != "" {
					err := a.st.Update(t.Context(), func(tx *store.Tx) error {
						return tx.PutAttachment(store.Attachment{
							Key: store.Key{Network: "lan", ContainerID: "s1", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: "db-0", UID: "old"}, Boot: "before",
							Claim: &ref, Use: protocol.UseName("c", 0), Addresses: []store.Address{{Addr: netip.MustParseAddr(tt.had), Bits: 27, Pool: "lan"}},
						})
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				ask := protocol.Use{Claim: ref, Pod: protocol.PodRef{Namespace: "ns", Name: "db-0", UID: tt.pod}, Interface: "net1"}
				conf := &poolspec.Config{Name: "lan", Sources: []poolspec.Source{{Pool: "lan"}}}
				_, got, err := a.use(ctx, claim, ask, conf, store.Key{Network: "lan", ContainerID: "s2", IfName: "net1"})
				if tt.has && (err != nil || len(got) != 1 || got[0].Addr != addr) {
					t.Errorf("has %+v, %v; want %v", got, err, addr)
				}
				if !tt.has && (err == nil || err.Error() != "pool lan gives no addresses: its spec.allocation is Stopped") {
					t.Errorf("has %+v, %v; want that the pool is stopped", got, err)
				}
			})
		})
	}
}
