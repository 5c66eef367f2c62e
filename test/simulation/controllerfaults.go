package simulation

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/controller/deadnodes"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// controllerBugs are the faults of the controller's side. Each is in what the program is answered,
// or in what becomes of its calls: the program itself is the one that ships.
func controllerBugs() []Bug {
	return []Bug{
		{"M13", "delete a lease by its UID alone, whatever has been granted since", 100, []Invariant{I1, I3}, nil},
		{"M14", "grant on an informer's copy", 500, []Invariant{I1, I3}, withUses},
		{"M15", "tell grants apart by the claim's name", 600, []Invariant{I1, I3}, withUses},
		{"M16", "free what an informer knows no use of", 5000, []Invariant{I1, I3}, withUses},
		{"M17", "take over what a cached Node says is gone", 400, []Invariant{I1}, nil},
		{"M18", "take over before F", 400, []Invariant{I1}, nil},
		{"M22", "free grants before the status that does not name them is written", 4000, []Invariant{I3}, withUses},
		{"M23", "write a claim's status by its name alone", 100, []Invariant{I3, I4}, withUses},
		{"M24", "free what a cached claim does not want any more", 300, []Invariant{I3}, withUses},
		{"M25", "free a claim's address without reading its uses", 600, []Invariant{I3}, withUses},
		{"M38", "write back leases without the marks, as a program does that does not know them", 50, []Invariant{I4}, nil},
		{"M39", "own leases by their pool, so that the garbage collector deletes them", 600, []Invariant{I1, I3}, withEdits},
		{"M46", "change the block size without closing", 600, []Invariant{I1}, nil},
		{"M51", "F by a clock that jumps", 300, []Invariant{I1}, nil},
		{"M54", "open a pool whatever others of its domain have leased", 16000, []Invariant{I1, I3}, withMoves},
		{"M55", "lease what an edit has brought before the controller has seen it", 10000, []Invariant{I1, I3}, withMoves},
		{"M56", "take over what takes a person's word without it", 3000, []Invariant{I1, I2}, withConfirmed},
	}
}

// calls are what the broker calls.
func (c *simController) calls() grants.Cluster { return faultyCalls{liveCalls{c}} }

// livePools is what the pools' reconciler reads.
func (c *simController) livePools() pools.Live { return faultyPools{liveCalls{c}} }

// live is what the claims' reconciler reads.
func (c *simController) live() claims.Live { return faultyReads{liveCalls{c}} }

// granter is what the claims' reconciler has grants of.
func (c *simController) granter() claims.Granter { return granter{c.broker, c} }

// nodes are the calls that bear on dead nodes.
func (c *simController) nodes() deadnodes.Live { return faultyNodes{nodeCalls{liveCalls{c}}} }

// faultyCalls are the broker's calls, with the fault that is switched on.
type faultyCalls struct{ liveCalls }

func (c faultyCalls) DeleteLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	if c.w.fault == "M13" {
		m.Revision = ""
	}
	return c.liveCalls.DeleteLease(ctx, m)
}

func (c faultyCalls) UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error) {
	if c.w.fault == "M14" {
		old.Revision = ""
	}
	if c.w.fault == "M38" {
		next = next.Clone()
		for i := range next.Grants {
			next.Grants[i].Freeing, next.Grants[i].Mark = false, ""
		}
	}
	return c.liveCalls.UpdateLease(ctx, old, next)
}

func (c faultyCalls) ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error) {
	p, out, err := c.liveCalls.ReadPool(ctx, name)
	p.Edited = p.Edited && c.w.fault != "M55"
	return p, out, err
}

// faultyPools are the pools' reconciler's reads.
type faultyPools struct{ liveCalls }

func (c faultyPools) IPPools(ctx context.Context) ([]v1alpha1.IPPool, error) {
	all, err := c.liveCalls.IPPools(ctx)
	for i := range all {
		if c.w.fault == "M54" {
			all[i].Spec.Domain = "" // so that none is a neighbour
		}
	}
	return all, err
}

// faultyReads are the claims' reconciler's reads.
type faultyReads struct{ liveCalls }

func (c faultyReads) ReadClaim(ctx context.Context, namespace, name string) (protocol.Claim, protocol.Outcome, error) {
	if c.w.fault == "M24" {
		claim, out := c.claims.read(name)
		return claim.Claim, out, nil
	}
	return c.liveCalls.ReadClaim(ctx, namespace, name)
}

func (c faultyReads) ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error) {
	if c.w.fault == "M25" {
		return protocol.SubLease{}, protocol.NotFound, nil
	}
	if c.w.fault == "M16" {
		s, out := c.subs.read(name)
		return s, out, nil
	}
	return c.liveCalls.ReadSubLease(ctx, name)
}

// faultyNodes are the calls that bear on dead nodes.
type faultyNodes struct{ nodeCalls }

func (c faultyNodes) ReadNode(ctx context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	if c.w.fault != "M17" {
		return c.nodeCalls.ReadNode(ctx, name)
	}
	if _, ok := c.cachedNodes[name]; !ok || c.w.one(30) {
		c.cachedNodes[name], _ = c.w.nodeObject(name)
	}
	return c.cachedNodes[name], protocol.Done, nil
}

func (c faultyNodes) Pools(ctx context.Context) ([]protocol.Pool, error) {
	all, err := c.nodeCalls.Pools(ctx)
	for i := range all {
		all[i].Confirmed = all[i].Confirmed && c.w.fault != "M56"
	}
	return all, err
}

// margin is what the controller waits beyond F.
func (c *simController) margin() time.Duration {
	if c.w.fault == "M18" {
		return -defaultFence / 2
	}
	return deadnodes.DefaultMargin
}

// monotonic is the controller's clock that does not jump.
func (c *simController) monotonic() time.Duration {
	if c.w.fault == "M51" {
		return c.w.now + c.jump
	}
	return c.w.now
}

// tamper changes a patch before it is sent.
func (c *simController) tamper(obj client.Object, p patch) patch {
	_, ofClaim := obj.(*ipamclaims.IPAMClaim)
	switch {
	case c.w.fault == "M22" && ofClaim:
		c.freeOthers(p)
	case c.w.fault == "M23" && ofClaim:
		p.Metadata.UID, p.Metadata.ResourceVersion = "", ""
	case c.w.fault == "M46" && !ofClaim && p.Status != nil:
		p.Status = c.stayOpen(obj.GetName(), p.Status)
	case c.w.fault == "M62" && !ofClaim && p.Status != nil:
		p.Status = giveAtOnce(p.Status)
	}
	return p
}

// freeOthers frees what p, a patch of a claim's status, does not name.
func (c *simController) freeOthers(p patch) {
	var st ipamclaims.IPAMClaimStatus
	must(json.Unmarshal(p.Status, &st))
	others := slices.DeleteFunc(c.broker.Held(p.Metadata.UID), func(h grants.Held) bool {
		return slices.ContainsFunc(claimOf(&ipamclaims.IPAMClaim{Status: st}).IPs, func(ip netip.Prefix) bool { return ip.Addr() == h.Grant.Addr })
	})
	if len(st.IPs) == 0 || len(others) == 0 {
		return
	}
	g := c.granter()
	if marked, err := g.Mark(context.Background(), others); err == nil {
		_ = g.Clear(context.Background(), marked) // it is tried again, as the program would
	}
}

// stayOpen turns a status that closes a pool for another block size into one that
// has that size.
func (c *simController) stayOpen(name string, raw json.RawMessage) json.RawMessage {
	var st v1alpha1.IPPoolStatus
	must(json.Unmarshal(raw, &st))
	pool, out := c.pools.read(name)
	if out != protocol.Done || st.Leasing == v1alpha1.LeasingOpen || pool.Deleting || pool.obj.Status.Leasing != v1alpha1.LeasingOpen {
		return raw
	}
	st.Leasing = v1alpha1.LeasingOpen
	if b := st.BlockPrefixLengths; b != nil && b.IPv4 != nil {
		b.IPv4 = new(33 - *pool.obj.Spec.BlockSize)
	}
	changed, err := json.Marshal(st)
	must(err)
	return changed
}

// grantByName is M15: what is granted to a claim that is gone is granted to the next of
// its name.
func (w *world) grantByName(c simClaim) {
	if w.fault != "M15" || c.Network == "others" {
		return
	}
	for _, l := range w.api.leases.list(nil) {
		w.api.leases.update(l.Meta, func(l *protocol.Lease) {
			for i := range l.Grants {
				if to := &l.Grants[i].To; to.Kind == protocol.GranteeClaim && to.Name == c.Name {
					to.UID = c.UID
				}
			}
		})
	}
}

// collectLeases is the garbage collector, where leases are owned by their pool, which
// is gone.
func (w *world) collectLeases(pool simPool) {
	if w.fault != "M39" {
		return
	}
	for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.PoolUID == pool.UID }) {
		w.api.leases.remove(protocol.Meta{Name: l.Name})
	}
}

// deleteLease deletes a lease for who, of which nothing must be granted.
func (w *world) deleteLease(who string, m protocol.Meta) protocol.Outcome {
	l, _ := w.api.leases.read(m.Name)
	out := w.api.leases.remove(m)
	if out == protocol.Done && len(l.Grants) > 0 {
		w.fail(I1, "%s deleted lease %s, of which %v is granted", who, l.Name, l.Grants[0].Addr)
	}
	return out
}
