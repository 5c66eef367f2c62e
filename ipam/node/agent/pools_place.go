package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// placeEvery is how often the pools of the default domain are listed at most, for all ADDs that
// wait for one.
const placeEvery = time.Second

// A listing is the pools of the default domain as they were listed last.
type listing struct {
	lock  sched.Locks[struct{}] // held while they are listed
	pools []poolspec.DomainPool // guarded by lock
	at    protocol.Instant      // guarded by lock
}

// An unplacedError says why the pool of a configuration that does not name it is not known; it may
// change.
type unplacedError struct{ Why string }

func (e *unplacedError) Error() string { return e.Why }

// place returns conf with its pool. A configuration of ranges without a name does not tell it: it
// is the pool of the default domain that has the ranges; of a claim, the one that has its
// addresses, if one has. Whatever is found, no address is given twice by it: pools of one domain
// that share addresses are not open at a time.
func (ps *pools) place(ctx context.Context, conf *poolspec.Config, addrs ...netip.Prefix) (*poolspec.Config, error) {
	cidrs := poolspec.UnnamedCIDRs(conf.Sources)
	if len(cidrs) == 0 {
		return conf, nil
	}
	var of []netip.Prefix // single addresses
	for _, x := range addrs {
		of = append(of, netip.PrefixFrom(x.Addr(), x.Addr().BitLen()))
	}
	for {
		pool, err := ps.placeOf(ctx, cidrs, of)
		if err == nil {
			placed := *conf
			placed.Sources = poolspec.InPool(conf.Sources, pool)
			return &placed, nil
		}
		if !ps.wait(ctx, placeEvery) {
			return nil, err
		}
	}
}

// placeOf returns the pool that has all of addrs, if there are any, else of cidrs.
func (ps *pools) placeOf(ctx context.Context, cidrs, addrs []netip.Prefix) (string, error) {
	if len(addrs) > 0 {
		if name, ok := ps.openPlace(addrs); ok {
			return name, nil
		}
	} else if name, ok := ps.openPlace(cidrs); ok {
		return name, nil
	}
	pools, err := ps.domainPools(ctx)
	if err != nil {
		return "", &unplacedError{fmt.Sprintf("the pool that has %v is not known: %v", cidrs, err)}
	}
	if len(addrs) > 0 {
		if p, ok, err := poolspec.Place(addrs, pools); ok && err == nil {
			return p.Name, nil
		}
	}
	p, ok, err := poolspec.Place(cidrs, pools)
	if err != nil {
		return "", &unplacedError{err.Error()}
	}
	if !ok {
		return "", &unplacedError{fmt.Sprintf("no pool has %v yet: the controller makes one; an Event of the network's definition says what is in the way", cidrs)}
	}
	if lacks, ok := p.Lacks(cidrs); ok {
		return "", &unplacedError{fmt.Sprintf("pool %s does not have %v yet: the controller adds it; an Event of the network's definition says what is in the way", p.Name, lacks)}
	}
	return p.Name, nil
}

// openPlace returns the pool of the default domain with all of cidrs, if this node follows one that
// is open: there is no other.
func (ps *pools) openPlace(cidrs []netip.Prefix) (name string, ok bool) {
	for _, p := range ps.followed() {
		known, absent, _ := p.now()
		if absent || known == nil || !known.Open || known.Deleting || !known.unnamed() {
			continue
		}
		has := poolspec.DomainPool{Name: string(p.name)}
		for _, r := range known.whole.Ranges() {
			has.CIDRs = append(has.CIDRs, r.Prefix)
		}
		if _, lacks := has.Lacks(cidrs); lacks {
			continue
		}
		if ok { // the node has not heard yet which of the two is
			return "", false
		}
		name, ok = has.Name, true
	}
	return name, ok
}

// domainPools lists the pools of the default domain, unless somebody has a moment ago.
func (ps *pools) domainPools(ctx context.Context) ([]poolspec.DomainPool, error) {
	l := &ps.listing
	unlock, err := l.lock.Lock(ctx, ps.sched, struct{}{})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if now := ps.sched.Now(); l.pools == nil || now.Since(l.at) >= placeEvery {
		pools, err := ps.cl.Pools.DomainPools(ctx)
		if err != nil {
			return nil, err
		}
		l.pools, l.at = append([]poolspec.DomainPool{}, pools...), now
	}
	return l.pools, nil
}

// ofSources reports whether all of addrs are of the pools of sources.
func (ps *pools) ofSources(addrs []store.Address, sources []poolspec.Source) bool {
	return !slices.ContainsFunc(addrs, func(x store.Address) bool {
		return !slices.ContainsFunc(sources, func(src poolspec.Source) bool {
			if !src.Unnamed {
				return src.Pool == string(x.Pool)
			}
			known, _, _ := ps.get(x.Pool).now()
			return known != nil && known.unnamed()
		})
	})
}
