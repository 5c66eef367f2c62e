package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// oneUse is an API server that has one use, which is there under its UID, and counts
// its writes.
type oneUse struct {
	SubLeases
	use    protocol.SubLease
	writes int
}

func (o *oneUse) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	if name != o.use.Name {
		return protocol.SubLease{}, protocol.NotFound, nil
	}
	return o.use, protocol.Done, nil
}

func (o *oneUse) UpdateSubLease(_ context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	if old.UID != o.use.UID || old.Revision != o.use.Revision {
		return protocol.SubLease{}, protocol.Conflict, nil
	}
	o.writes++
	o.use.Term, o.use.Writes, o.use.Use, o.use.Revision = next.Term, next.Writes, next.Use, "8"
	return o.use, protocol.Done, nil
}

// oneClaim is an API server that has one claim.
type oneClaim struct{ claim protocol.Claim }

func (o oneClaim) ReadClaim(context.Context, string, string) (protocol.Claim, protocol.Outcome, error) {
	return o.claim, protocol.Done, nil
}

// oneLease is an API server that has one lease.
type oneLease struct {
	Leases
	lease protocol.Lease
}

func (o oneLease) ReadLease(context.Context, string) (protocol.Lease, protocol.Outcome, error) {
	return o.lease, protocol.Done, nil
}

// TestUseOfAnEarlierTerm: in a new term the use of a claim is said and confirmed anew.
// If the claim is being deleted by then, or its grant is marked, nobody new may use it;
// but the pod that has its address keeps it, CHECK says so, and its next sandbox has it
// again: while its use is there nobody frees it (I3). If the grant is gone, the address
// is lost.
func TestUseOfAnEarlierTerm(t *testing.T) {
	granted := protocol.Grant{Addr: netip.MustParseAddr("10.0.0.5"), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c", Name: "db"}}
	freeing, others := granted, granted
	freeing.Freeing, freeing.Mark, others.To.UID = true, "m", "d"
	for _, tt := range []struct {
		name     string
		deleting bool
		grant    protocol.Grant
		vanished bool // the use, and was made again
		lost     bool
	}{
		{"nothing has changed", false, granted, false, false},
		{"the claim is being deleted", true, granted, false, false},
		{"its grant is being freed", true, freeing, false, false},
		{"the address is another's", true, others, false, true},
		{"the use had vanished, the claim is being deleted", true, granted, true, false},
		{"the use had vanished, its grant is being freed", true, freeing, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			block := netip.MustParsePrefix("10.0.0.0/26")
			ref := protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}
			use := protocol.Use{Claim: ref, Pod: protocol.PodRef{Namespace: "ns", Name: "db-0", UID: "p"}, Interface: "net1"}
			r := protocol.Right{
				Kind: protocol.RightUse, Name: protocol.UseName("c", 0), Phase: protocol.Held, UID: "u", Revision: "7", Writes: 1, Asserted: 1, Term: 1,
				SubLeaseRight: protocol.SubLeaseRight{Use: &use, Addrs: []netip.Addr{granted.Addr}, Leases: []string{protocol.LeaseName("lan", block)}},
			}
			if tt.vanished {
				r.Term = 0
			}
			key := store.Key{Network: "lan", ContainerID: "sandbox", IfName: "net1"}
			subs := &oneUse{use: protocol.SubLease{Meta: meta(r), Protocol: protocol.Version, Node: "n1", Term: 1, Writes: 1, Use: &use}}
			said := &warned{}
			a := assemble(&base{st: newStore(t), cfg: Config{Node: "n1"}, sched: sched.Goroutines(stoppedClock{}), log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil), cl: Cluster{
				SubLeases: subs, Events: said,
				Claims: oneClaim{protocol.Claim{
					Meta: protocol.Meta{Name: "db", UID: "c", Deleting: tt.deleting}, Namespace: "ns", Network: "lan",
					IPs: []netip.Prefix{netip.PrefixFrom(granted.Addr, 24)},
				}},
				Leases: oneLease{lease: protocol.Lease{
					Meta: protocol.Meta{Name: r.Leases[0], UID: "l", Revision: "3"}, Pool: "lan", Block: block,
					Holder: protocol.Holder{Cluster: true}, Grants: []protocol.Grant{tt.grant},
				}},
			}})
			a.reg.registrar.Term = 2
			subs.use.Store = a.st.ID()
			err := a.st.Update(t.Context(), func(tx *store.Tx) error {
				att := store.Attachment{
					Key: key, Pod: use.Pod, Claim: &ref, Use: r.Name,
					Addresses: []store.Address{{Addr: granted.Addr, Bits: 24, Pool: "lan"}},
				}
				return errors.Join(tx.PutIdentity(store.Identity{Node: "n1", Term: 2}), tx.PutRight(r), tx.PutAttachment(att))
			})
			if err != nil {
				t.Fatal(err)
			}
			now, res, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck}))
			if err != nil {
				t.Fatal(err)
			}
			if now.Usable(2) == tt.lost || subs.writes != 1 {
				t.Errorf("after %d writes the use is %s in term %d (%v, %s); lost: want %v, after one write", subs.writes, now.Phase, now.Term, res.Verdict, res.Why, tt.lost)
			}
			if (len(said.said) == 1) != tt.lost {
				t.Errorf("people were told %q; want one event: %v", said.said, tt.lost)
			}
			err = a.st.View(func(tx *store.Tx) error {
				keeps, err := assign.Leasing{Term: a.reg.term()}.Keeps(tx, r.Name, a.cfg.Boot)
				if keeps == tt.lost {
					t.Errorf("the pod's next sandbox keeps the address: %v; want %v", keeps, !tt.lost)
				}
				return errors.Join(err, checkLost(tx, key))
			})
			if (err != nil) != tt.lost {
				t.Errorf("CHECK of the running pod: %v; want an error: %v", err, tt.lost)
			}
		})
	}
}

// hurried is an API server without the claim, which the node's own rate limiter lets be
// asked until it would take longer than the caller has.
type hurried struct{}

func (hurried) ReadClaim(ctx context.Context, _, _ string) (protocol.Claim, protocol.Outcome, error) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < claimWait {
		return protocol.Claim{}, protocol.Unknown, errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	}
	return protocol.Claim{}, protocol.NotFound, nil
}

// TestClaimThatNeverComes: an ADD says that the claim does not exist, not that there was
// no time to read once more.
func TestClaimThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := assemble(&base{sched: sched.Goroutines(bubbleClock{}), cl: Cluster{Claims: hurried{}}})
		const waits = claimWait * (1 + 2 + 4) // until a read is made that is too late
		ctx, cancel := context.WithTimeout(t.Context(), waits+claimWait/2)
		defer cancel()
		add := &addCall{demand: assign.Demand{Pod: protocol.PodRef{Namespace: "ns"}}}
		_, err := a.awaitClaim(ctx, add, "db", func(protocol.Claim) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "does not exist yet") {
			t.Errorf("awaitClaim = %v; want that the claim does not exist", err)
		}
	})
}

// addPool gives a another open pool.
func addPool(t *testing.T, a *Agent, name string, ranges ...poolspec.RangeText) *pool {
	t.Helper()
	known, err := knownAs(Pool{
		Pool: protocol.Pool{Meta: protocol.Meta{Name: name, UID: protocol.UID(name)}, Open: true, Bits4: 30, Bits6: 112}, Text: poolspec.PoolText{Ranges: ranges},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(protocol.PoolName(name))
	p.known = known
	a.pools.byName[p.name] = p
	return p
}

// TestClaimedAddressesOfTheirSource: each of a claim's addresses has the gateway and the pool of
// the source that gives it, not of the first whose CIDR it lies in, and the prefix length that the
// claim's status shows. Edited ranges change neither the address nor whose it is.
func TestClaimedAddressesOfTheirSource(t *testing.T) {
	for _, tt := range []struct {
		name, ipam, claimed string
		granted             string // the pool whose lease has the grant, where leases are asked
		want                store.Address
	}{
		{"an inline range beside others' wider one", `"ipRanges":[{"range":"10.0.0.0/24"},{"range":"fd00::/64","gateway":"fd00::1"}]`, "fd00::5/64", "",
			store.Address{Gateway: netip.MustParseAddr("fd00::1"), Pool: "default-domain"}},
		{"an inline range without the gateway of others", `"ipRanges":[{"range":"10.0.0.0/24"},{"range":"fd01::/64"}]`, "fd01::5/64", "",
			store.Address{Pool: "default-domain"}},
		{"the first of two pools of one CIDR", `"pools":["low","high"]`, "10.0.0.5/24", "low", store.Address{Pool: "low"}},
		{"the second, which has what the first excludes", `"pools":["low","high"]`, "10.0.0.150/24", "high", store.Address{Pool: "high"}},
		{"the first, though it excludes it by now and the second has it", `"pools":["low","high"]`, "10.0.0.150/24", "low", store.Address{Pool: "low"}},
		{"granted by none, as the ranges say", `"pools":["low","high"]`, "10.0.0.150/24", "", store.Address{Pool: "high"}},
		{"kept, though its pool excludes it by now", `"pools":["low","far"]`, "10.0.0.150/24", "low", store.Address{Pool: "low"}},
		{"kept, though its pool has no such range by now", `"pools":["low","far"]`, "10.5.0.5/24", "far", store.Address{Pool: "far"}},
		{"kept, of the only pool", `"pool":"far"`, "10.5.0.5/24", "far", store.Address{Pool: "far"}},
		{"of another prefix than its range by now", `"pool":"far"`, "10.9.0.5/16", "", store.Address{Gateway: netip.MustParseAddr("10.9.0.254"), Pool: "far"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := newBubbleAgent(t)
				// What the network and others have said of the default domain.
				addPool(t, a, "default-domain", poolspec.RangeText{CIDR: "10.0.0.0/24"},
					poolspec.RangeText{CIDR: "fd00::/48", Gateway: "fd00::ffff"}, poolspec.RangeText{CIDR: "fd01::/64", Gateway: "fd01::1"})
				addPool(t, a, "low", poolspec.RangeText{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.100-10.0.0.199"}})
				addPool(t, a, "high", poolspec.RangeText{CIDR: "10.0.0.0/24", Start: "10.0.0.100", End: "10.0.0.199"})
				addPool(t, a, "far", poolspec.RangeText{CIDR: "10.9.0.0/24", Gateway: "10.9.0.254"})
				conf, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure",`+tt.ipam+`}}`), "")
				if err != nil {
					t.Fatal(err)
				}
				ip := netip.MustParsePrefix(tt.claimed)
				if conf, err = a.pools.place(t.Context(), conf, ip); err != nil {
					t.Fatal(err)
				}
				a.cl.Leases = grantingLeases{pool: tt.granted, grant: protocol.Grant{Addr: ip.Addr(), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c"}}}
				got, leases, err := a.claimAddresses(t.Context(), protocol.Claim{Meta: protocol.Meta{UID: "c"}, IPs: []netip.Prefix{ip}}, conf, a.pools.ready)
				if err != nil {
					t.Fatal(err)
				}
				tt.want.Addr, tt.want.Bits = ip.Addr(), ip.Bits()
				if got[0] != tt.want || !strings.HasPrefix(leases[0], string(tt.want.Pool)+".") {
					t.Errorf("%+v of lease %s; want %+v", got[0], leases[0], tt.want)
				}
			})
		})
	}
}

// grantingLeases is an API server where one pool's leases have a grant, and there are no others.
type grantingLeases struct {
	Leases
	pool  string
	grant protocol.Grant
}

func (g grantingLeases) ReadLease(_ context.Context, name string) (protocol.Lease, protocol.Outcome, error) {
	if !strings.HasPrefix(name, g.pool+".") {
		return protocol.Lease{}, protocol.NotFound, nil
	}
	return protocol.Lease{Grants: []protocol.Grant{g.grant}}, protocol.Done, nil
}

// liveHost is a host on which every network namespace that was recorded is there.
type liveHost struct{ Host }

func (liveHost) Gone(store.Attachment) bool { return false }

// TestClaimInUseOnThisNode: a pod waits for a claim that another pod on its node has, under
// whatever interface name; for one that another interface of its own has it would wait in vain.
func TestClaimInUseOnThisNode(t *testing.T) {
	for _, tt := range []struct {
		name, pod, ifName string
		gone              bool
		want              string
		later             bool
	}{
		{"another pod", "old", "net1", false, "is in use by pod ns/db on this node", true},
		{"another pod, by another name", "old", "net2", false, "is in use by pod ns/db on this node", true},
		{"another pod that is gone", "old", "net2", true, "", false},
		{"an earlier sandbox", "new", "net1", false, "is in use by pod ns/db on this node", true},
		{"another interface of the pod", "new", "net2", false, "is already used by interface net2 of this pod", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := assemble(&base{st: newStore(t), host: liveHost{}})
			if tt.gone {
				a.host = goneHost{}
			}
			err := a.st.Update(t.Context(), func(tx *store.Tx) error {
				return tx.PutAttachment(store.Attachment{
					Key: store.Key{Network: "net", ContainerID: "c1", IfName: tt.ifName}, Use: "c.0",
					Pod: protocol.PodRef{Namespace: "ns", Name: "db", UID: protocol.UID(tt.pod)},
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			ask := protocol.Use{Claim: protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}, Pod: protocol.PodRef{UID: "new"}, Interface: "net1"}
			err = a.sameNode(t.Context(), protocol.Right{Name: "c.0"}, ask, store.Key{Network: "net", ContainerID: "c2", IfName: "net1"})
			refused, isRefused := errors.AsType[*ClaimError](err)
			if isRefused != (tt.want != "") || isRefused && (refused.Why != tt.want || refused.Later != tt.later) {
				t.Errorf("%v, later: %v; want %q, later: %v", err, isRefused && refused.Later, tt.want, tt.later)
			}
		})
	}
}

// someUses is an API server with uses.
type someUses struct {
	SubLeases
	mu       sync.Mutex
	there    map[string]protocol.SubLease
	revision int
}

func (u *someUses) write(s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	u.revision++
	s.Revision = protocol.Revision(strconv.Itoa(u.revision))
	u.there[s.Name] = s
	return s, protocol.Done, nil
}

func (u *someUses) CreateSubLease(_ context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.there[s.Name]; ok {
		return protocol.SubLease{}, protocol.Exists, nil
	}
	s.UID = protocol.UID("of-" + s.Name)
	return u.write(s)
}

func (u *someUses) ReadSubLease(_ context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s, ok := u.there[name]; ok {
		return s, protocol.Done, nil
	}
	return protocol.SubLease{}, protocol.NotFound, nil
}

func (u *someUses) UpdateSubLease(_ context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.there[old.Name]
	if !ok || s.UID != old.UID || s.Revision != old.Revision {
		return protocol.SubLease{}, protocol.Conflict, nil
	}
	s.Term, s.Writes, s.Use = next.Term, next.Writes, next.Use
	return u.write(s)
}

func (u *someUses) DeleteSubLease(_ context.Context, m protocol.Meta) (protocol.Outcome, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s, ok := u.there[m.Name]; !ok || s.UID != m.UID || s.Revision != m.Revision {
		return protocol.Conflict, nil
	}
	delete(u.there, m.Name)
	return protocol.Done, nil
}

// TestUseBesideAnEarlierOne: a node has a claim's second use, and the first, of its own, too:
// a create of that has landed late, or a lost store has left it. A pod waits for that one to
// go, which a create that came late does within seconds, not at the next hour's list; and it
// is told to try again, not that it may not have the claim. In a new term, whoever has the
// claim's address on the node keeps it meanwhile.
func TestUseBesideAnEarlierOne(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lost   bool // the first is a lost store's
		served bool // within the time of an ADD
	}{
		{"whose create came late", false, true},
		{"of a lost store", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				addr, block := netip.MustParseAddr("10.0.0.5"), netip.MustParsePrefix("10.0.0.4/30")
				ref := protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}
				of := func(pod protocol.UID) *protocol.Use {
					return &protocol.Use{Claim: ref, Pod: protocol.PodRef{Namespace: "ns", Name: string(pod), UID: pod}, Interface: "net1"}
				}
				a, _ := newRegisteredAgent(t, nil, shutPools{})
				leases := []string{protocol.LeaseName("lan", block)}
				first, second := protocol.UseName("c", 0), protocol.UseName("c", 1)
				stray := protocol.SubLease{Meta: protocol.Meta{Name: first, UID: "u", Revision: "r"}, Protocol: protocol.Version, Node: "n1", Store: a.st.ID(), Term: 3, Writes: 1, Use: of("earlier")}
				if tt.lost {
					stray.Store = "lost"
				}
				held := protocol.SubLease{Meta: protocol.Meta{Name: second, UID: "v", Revision: "r"}, Protocol: protocol.Version, Node: "n1", Store: a.st.ID(), Term: 2, Writes: 1, Use: of("running")}
				uses := &someUses{there: map[string]protocol.SubLease{first: stray, second: held}}
				a.cl.SubLeases = uses
				a.cl.Claims = oneClaim{protocol.Claim{Meta: protocol.Meta{Name: "db", UID: "c"}, Namespace: "ns", Network: "lan", IPs: []netip.Prefix{netip.PrefixFrom(addr, 24)}}}
				a.cl.Leases = oneLease{lease: protocol.Lease{Meta: protocol.Meta{Name: leases[0], UID: "l", Revision: "3"}, Pool: "lan", Block: block, Holder: protocol.Holder{Cluster: true},
					Grants: []protocol.Grant{{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c", Name: "db"}}}}}
				r := protocol.Right{Kind: protocol.RightUse, Name: second, Phase: protocol.Held, UID: "v", Revision: "r", Writes: 1, Asserted: 2, Term: 2, SubLeaseRight: protocol.SubLeaseRight{Use: of("running"), Addrs: []netip.Addr{addr}, Leases: leases}}
				if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(r) }); err != nil {
					t.Fatal(err)
				}

				if got, res, err := a.rights.settle(t.Context(), r, a.rights.beginWith(protocol.Event{Kind: protocol.EventRecheck})); err != nil || !got.Usable(3) || res.Verdict != protocol.VerdictLater {
					t.Errorf("said in a new term: %v in term %d, %v (%s), %v; want that it serves who has it", got.Phase, got.Term, res.Verdict, res.Why, err)
				}
				synctest.Wait()
				if names, err := a.useNames(t.Context(), "c"); err != nil || len(names) != 1 || names[0] != second {
					t.Errorf("the next ADD tries %v, %v; want %s alone, which a pod has", names, err, second)
				}
				rechecks, end := context.WithCancel(t.Context())
				defer end()
				go func() {
					for a.wait(rechecks, dueEvery) {
						a.rights.recheckDue(rechecks)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				want := r
				want.Use = of("new")
				_, res, err := a.settleUse(ctx, want)
				if err != nil || (res.Verdict == protocol.VerdictUsable) != tt.served {
					t.Errorf("the pod's ADD: %v (%s), %v; want that it is served: %v", res.Verdict, res.Why, err, tt.served)
				}
				if !tt.served && (res.Verdict != protocol.VerdictLater || !strings.Contains(res.Why, "has not given back yet the use c.0 of pod ns/earlier")) {
					t.Errorf("the pod's ADD: %v (%s); want that it is to be tried again, and why", res.Verdict, res.Why)
				}
				uses.mu.Lock()
				defer uses.mu.Unlock()
				if _, there := uses.there[first]; there == tt.served {
					t.Errorf("the earlier use is there: %v; want %v", there, !tt.served)
				}
			})
		})
	}
}

// TestClaimThatMayBeHadLater: what stands against a pod's use of a claim for a moment alone is
// no reason to refuse it for good.
func TestClaimThatMayBeHadLater(t *testing.T) {
	addr, block := netip.MustParseAddr("10.0.0.5"), netip.MustParsePrefix("10.0.0.4/30")
	found := protocol.Claim{Meta: protocol.Meta{Name: "db", UID: "c"}, Namespace: "ns", Network: "lan", IPs: []netip.Prefix{netip.PrefixFrom(addr, 27)}}
	grant := protocol.Grant{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: "c"}}
	for _, tt := range []struct {
		name   string
		change func(found, now *protocol.Claim, g *protocol.Grant, p *protocol.Pool)
		later  bool
		want   string
	}{
		{"made again meanwhile", func(_, now *protocol.Claim, _ *protocol.Grant, _ *protocol.Pool) { now.UID = "d" }, true, "claim ns/db was deleted"},
		{"its status emptied, to be written anew", func(_, now *protocol.Claim, _ *protocol.Grant, _ *protocol.Pool) { now.IPs = nil }, true, "claim ns/db has no addresses"},
		{"its address marked, and named again", func(_, _ *protocol.Claim, g *protocol.Grant, _ *protocol.Pool) { g.Freeing = true }, true, "is being freed"},
		{"its pool widened, unheard", func(found, _ *protocol.Claim, _ *protocol.Grant, p *protocol.Pool) {
			found.IPs, p.Generation = []netip.Prefix{netip.MustParsePrefix("10.0.0.37/26")}, 2
		}, true, "pool lan was edited"},
		{"of no pool", func(found, _ *protocol.Claim, _ *protocol.Grant, _ *protocol.Pool) {
			found.IPs = []netip.Prefix{netip.MustParsePrefix("10.0.0.37/26")}
		}, false, "in no pool of network lan"},
		{"being deleted", func(_, now *protocol.Claim, _ *protocol.Grant, _ *protocol.Pool) { now.Deleting = true }, false, "is being deleted"},
		{"granted to another", func(_, _ *protocol.Claim, g *protocol.Grant, _ *protocol.Pool) { g.To.UID = "d" }, false, "has not granted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found, now, grant, pool := found, found, grant, protocol.Pool{Meta: protocol.Meta{Name: "lan", UID: "p"}, Open: true, Bits4: 30, Bits6: 112}
				tt.change(&found, &now, &grant, &pool)
				a, _ := newRegisteredAgent(t, nil, readPools{pool})
				a.host, a.reg.registrar.Sent = goneHost{}, a.sched.Now()
				a.cl.SubLeases, a.cl.Claims = &someUses{there: map[string]protocol.SubLease{}}, oneClaim{now}
				a.cl.Leases = oneLease{lease: protocol.Lease{
					Meta: protocol.Meta{Name: protocol.LeaseName("lan", block), UID: "l", Revision: "3"}, Pool: "lan", Block: block, Holder: protocol.Holder{Cluster: true}, Grants: []protocol.Grant{grant},
				}}
				pod := protocol.PodRef{Namespace: "ns", Name: "db-0", UID: "p"}
				conf := &poolspec.Config{Name: "lan", Sources: []poolspec.Source{{Pool: "lan"}}}
				_, _, err := a.use(t.Context(), found, protocol.Use{Claim: found.Ref(), Pod: pod, Interface: "net1"}, conf, store.Key{Network: "lan", ContainerID: "s", IfName: "net1"})
				code := CodeClaimRefused
				if tt.later {
					code = agentapi.CodeTryAgainLater
				}
				if err == nil || wireError(err).Code != code || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v; want code %d with %q", err, code, tt.want)
				}
			})
		})
	}
}

// readPools has one pool, for whoever reads it.
type readPools struct{ pool protocol.Pool }

func (p readPools) DomainPools(context.Context) ([]poolspec.DomainPool, error) { return nil, nil }

func (p readPools) ReadPool(context.Context, protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	return p.pool, protocol.Done, nil
}

func (readPools) Follow(context.Context, protocol.PoolName, func(Pool, bool)) error { return nil }
