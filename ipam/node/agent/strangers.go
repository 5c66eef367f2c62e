package agent

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// probeTime is how long after the question the meta-plugin may tell what came of it.
const probeTime = time.Minute

// strangers knows which addresses of this node nobody else on their segment has answered for, and
// keeps the node from those that somebody has. It is not kept on disk: after a restart each
// address is asked for once more.
type strangers struct {
	*base
	reg    *registration
	pools  *pools
	blocks *blocks

	mu     sync.Mutex
	asked  map[string]probe             // guarded by mu; by container
	proved map[poolAddress]protocol.UID // guarded by mu; the right that each was proved under
}

type poolAddress struct {
	pool protocol.PoolName
	addr netip.Addr
}

// probe is what the meta-plugin was told to ask for.
type probe struct {
	at    protocol.Instant
	addrs []unproved
}

// unproved is an address that its right gives for the first time.
type unproved struct {
	poolAddress
	ifName, lease string
	right         protocol.UID
}

// serve answers a Probe.
func (s *strangers) serve(ctx context.Context, req agentapi.Request) (json.RawMessage, error) {
	var p agentapi.ProbeAsk
	if err := json.Unmarshal(req.Ask, &p); err != nil {
		return nil, &agentapi.Error{Code: agentapi.CodeDecoding, Msg: "what it asks: " + err.Error()}
	}
	if len(p.Of) > 0 {
		return s.question(ctx, req.ContainerID, p.Of)
	}
	told := s.take(req.ContainerID)
	if p.Proved {
		s.prove(told)
	}
	for _, f := range p.Found {
		i := slices.IndexFunc(told, func(u unproved) bool { return u.addr == f.Addr })
		if i < 0 {
			s.log.WarnContext(ctx, "a stranger's address is not one that was asked for", "sandbox", req.ContainerID, "address", f.Addr)
			continue
		}
		s.keepAway(ctx, told[i], f.MAC)
	}
	return nil, nil
}

// question returns which addresses of a container's attachments are to be asked for: those of
// pools that want it, each once while this node has the right by which it gives it. A claim's are
// never asked for: where they were before they may answer until a machine has moved.
func (s *strangers) question(ctx context.Context, container string, of []agentapi.Interface) (json.RawMessage, error) {
	if !slices.ContainsFunc(s.pools.followed(), (*pool).detects) {
		return nil, nil
	}
	var found []unproved
	err := s.st.ViewContext(ctx, func(tx *store.Tx) (err error) {
		found, err = s.unprovedIn(tx, container, of)
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	now := s.sched.Now()
	s.mu.Lock()
	for c, a := range s.asked { // whose call was killed
		if now.Since(a.at) > probeTime {
			delete(s.asked, c)
		}
	}
	s.asked[container] = probe{now, found}
	s.mu.Unlock()
	answer := make([]agentapi.Unproved, len(found))
	for i, u := range found {
		answer[i] = agentapi.Unproved{IfName: u.ifName, Addr: u.addr}
	}
	return json.Marshal(answer)
}

func (s *strangers) unprovedIn(tx *store.Tx, container string, of []agentapi.Interface) (found []unproved, err error) {
	for _, i := range of {
		att, ok, err := tx.Attachment(store.Key{Network: i.Network, ContainerID: container, IfName: i.IfName})
		if err != nil {
			return nil, err
		}
		if !ok || att.Claim != nil {
			continue
		}
		for _, x := range att.Addresses {
			name := x.Lease
			if att.Use != "" {
				name = att.Use
			}
			p := s.pools.entry(x.Pool)
			r, ok, err := tx.Right(name)
			if err != nil {
				return nil, err
			}
			u := unproved{poolAddress{x.Pool, x.Addr}, i.IfName, x.Lease, r.UID}
			if ok && p != nil && p.detects() && !s.isProved(u) {
				found = append(found, u)
			}
		}
	}
	return found, nil
}

// detects reports whether strangers are asked for the pool's addresses.
func (p *pool) detects() bool {
	known, _, _ := p.now()
	return known != nil && known.DetectConflicts
}

func (s *strangers) isProved(u unproved) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	by, ok := s.proved[u.poolAddress]
	return ok && by == u.right
}

// prove notes that nobody has answered for addresses.
func (s *strangers) prove(all []unproved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range all {
		s.proved[u.poolAddress] = u.right
	}
}

// take returns what was asked for a container, and forgets it.
func (s *strangers) take(container string) []unproved {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[container]
	delete(s.asked, container)
	return a.addrs
}

// forget drops what was proved under rights that this node has not any more.
func (s *strangers) forget(ctx context.Context) {
	rights, err := s.rightsThat(func(protocol.Right) bool { return true })
	if err != nil {
		s.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	there := map[protocol.UID]bool{}
	for _, r := range rights {
		there[r.UID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.proved, func(_ poolAddress, right protocol.UID) bool { return !there[right] })
}

// keepAway cedes an address that a stranger has. So the disk has it as not this node's to give, and
// the controller, which hears of it, keeps it from everybody. The ADD that was given it has been
// undone.
func (s *strangers) keepAway(ctx context.Context, u unproved, mac string) {
	s.log.WarnContext(ctx, "a stranger has an address of the pool", "pool", u.pool, "address", u.addr, "mac", mac)
	s.reg.tellStranger(protocol.Stranger{Pool: u.pool, Addr: u.addr, MAC: mac, At: s.sched.Now().Wall.Truncate(time.Second).UTC()})
	r, ok := s.right(u.lease)
	if !ok || r.Kind != protocol.RightLease { // it is the cluster's, and goes back to it with the request
		return
	}
	var b netipx.IPSetBuilder
	b.Add(u.addr)
	within, err := b.IPSet()
	if err != nil {
		s.log.ErrorContext(ctx, "a stranger's address is not ceded", "address", u.addr, "error", err)
		return
	}
	s.blocks.cedeOf(ctx, r, within)
}
