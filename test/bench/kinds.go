package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Sizes of the measurement of kinds of ADDs, and the networks that they are on.
const (
	kindCalls   = 100      // of each kind
	claimsName  = "claims" // a network with claims, and its pool
	claimsRange = "10.128.0.0/10"
	staticName  = "static" // a pool where addresses are asked for by name
	staticRange = "10.68.0.0/16"
)

// A kind is one kind of ADD.
type kind struct{ key, title string }

// The kinds.
var (
	ordinary    = kind{"ordinary", "ordinary, out of a block of the node"}
	claimFirst  = kind{"claim", "claim, first time on the node"}
	claimAgain  = kind{"claim-again", "claim, again on the node"}
	claimMoved  = kind{"claim-moved", "claim, moved from another node"}
	staticOwn   = kind{"static-own", "static, in a block of the node"}
	staticFree  = kind{"static-free", "static, in nobody's block"}
	staticOther = kind{"static-other", "static, in another node's block"}
	handOver    = kind{"hand-over", "the address that another node frees, of a full pool"}
)

// kinds are in the order of the table.
var kinds = []kind{ordinary, claimFirst, claimAgain, claimMoved, staticOwn, staticFree, staticOther, handOver}

// adds measures ADDs of every kind, one at a time, from the request on the node's
// socket to the answer.
func (b *bench) adds(ctx context.Context) error {
	if err := b.node.startSecond(ctx, b.root); err != nil {
		return err
	}
	m := kindly{bench: b, took: map[kind][]float64{}}
	for _, measure := range []func(context.Context) error{m.ordinary, m.claims, m.statics, m.handOvers} {
		if err := m.connected(ctx, measure); err != nil {
			return err
		}
	}
	b.report.kinds(m.took)
	err := b.node.second.Stop()
	b.node.second = nil
	return err
}

// kindly measures kinds of ADDs on the two nodes.
type kindly struct {
	*bench

	first, second *caller
	took          map[kind][]float64 // milliseconds
}

// connected calls measure with new connections to both agents, which close those on
// which nothing is asked for some time.
func (m *kindly) connected(ctx context.Context, measure func(context.Context) error) (err error) {
	if m.first, err = dial(ctx, m.node.socket()); err != nil {
		return err
	}
	defer m.first.nc.Close()
	if m.second, err = dial(ctx, m.node.secondSocket()); err != nil {
		return err
	}
	defer m.second.nc.Close()
	return measure(ctx)
}

// add makes one ADD and notes how long it took.
func (m *kindly) add(k kind, on *caller, a asks) (netip.Addr, error) {
	began := time.Now()
	answer, err := on.call(a.add)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s: ADD: %w", k.title, err)
	}
	m.took[k] = append(m.took[k], millis(time.Since(began)))
	got, err := addressOf(answer)
	return got.Addr(), err
}

func (m *kindly) del(on *caller, a asks) error {
	if _, err := on.call(a.del); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	return nil
}

func (m *kindly) ordinary(ctx context.Context) error {
	all, err := m.asks(ctx)
	if err != nil {
		return err
	}
	for _, a := range all[:min(len(all), m.samples(kindCalls))] {
		if _, err := m.add(ordinary, m.first, a); err != nil {
			return err
		}
		if err := m.del(m.first, a); err != nil {
			return err
		}
	}
	return nil
}

// claims has each claim used on the first node, again there, and on the second.
func (m *kindly) claims(ctx context.Context) error {
	count := m.samples(kindCalls)
	if err := m.node.claimNetwork(ctx); err != nil {
		return err
	}
	claim := func(i int) string { return fmt.Sprintf("claim-%d", i) }
	if err := m.node.makeClaims(ctx, claim, count); err != nil {
		return err
	}
	if _, err := m.node.allocated(ctx, count); err != nil {
		return err
	}
	// A claim has one pod at a time: its asks are of two pods of the first node and one
	// of the second.
	var uses [3][]asks
	for j, node := range []string{nodeName, nodeName, secondName} {
		var err error
		uses[j], err = m.asksFor(ctx, node, count, func(i int) attachment {
			return attachment{network: claimsName, ipam: inPool(claimsName), claim: claim(i)}
		})
		if err != nil {
			return err
		}
	}
	for i := range count {
		for j, step := range []struct {
			kind kind
			on   *caller
		}{{claimFirst, m.first}, {claimAgain, m.first}, {claimMoved, m.second}} {
			if _, err := m.add(step.kind, step.on, uses[j][i]); err != nil {
				return err
			}
			if err := m.del(step.on, uses[j][i]); err != nil {
				return err
			}
		}
	}
	return m.node.noClaims(ctx)
}

// asksFor returns the requests of the first interface of each of so many new pods of a
// node.
func (b *bench) asksFor(ctx context.Context, node string, count int, of func(i int) attachment) ([]asks, error) {
	b.generation++
	selects := func(i int) string {
		x := of(i)
		text := fmt.Sprintf(`{"name":%q,"interface":%q`, x.network, firstInterface)
		if x.claim != "" {
			text += fmt.Sprintf(`,"ipam-claim-reference":%q`, x.claim)
		}
		return "[" + text + "}]"
	}
	pods, err := b.node.makePods(ctx, node, fmt.Sprintf("%s-%d", node, b.generation), count, selects)
	if err != nil {
		return nil, err
	}
	out := make([]asks, count)
	for i, p := range pods {
		x := of(i)
		x.box, x.ifName = sandboxOf{id: fmt.Sprintf("%032x%032x", b.generation, i), pod: p, netns: b.node.netns.Path()}, firstInterface
		if out[i], err = x.asks(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// statics asks for addresses by name: in a block of the node that asks, in blocks that
// nobody has, and in a block of the other node.
func (m *kindly) statics(ctx context.Context) error {
	if err := m.node.openPool(ctx, staticName, staticRange); err != nil {
		return err
	}
	count := m.samples(kindCalls)
	own, err := m.blockOf(ctx, nodeName, m.first)
	if err != nil {
		return err
	}
	other, err := m.blockOf(ctx, secondName, m.second)
	if err != nil {
		return err
	}
	if own == other {
		return fmt.Errorf("both nodes have addresses in %v: no block is another node's", own)
	}
	bytes := netip.MustParsePrefix(staticRange).Addr().As4()
	for _, of := range []struct {
		kind    kind
		address func(i int) netip.Addr
	}{
		{staticOwn, func(i int) netip.Addr { return host(own, byte(2+i)) }},
		{staticFree, func(i int) netip.Addr {
			a := bytes
			a[2] = byte(i)
			for a[2] == own.Addr().As4()[2] || a[2] == other.Addr().As4()[2] {
				a[2] += 128 // the samples are fewer
			}
			return host(netip.PrefixFrom(netip.AddrFrom4(a), 24), 7)
		}},
		{staticOther, func(i int) netip.Addr { return host(other, byte(2+i)) }},
	} {
		all, err := m.asksFor(ctx, nodeName, count, func(i int) attachment {
			return attachment{network: networkName, ipam: inPool(staticName), ips: []string{of.address(i).String()}}
		})
		if err != nil {
			return err
		}
		for i, a := range all {
			got, err := m.add(of.kind, m.first, a)
			if err != nil {
				return err
			}
			if got != of.address(i) {
				return fmt.Errorf("%s: %v was asked for, %v given", of.kind.title, of.address(i), got)
			}
		}
	}
	return nil
}

// host returns an address of a block of 256.
func host(block netip.Prefix, last byte) netip.Addr {
	a := block.Addr().As4()
	a[3] = last
	return netip.AddrFrom4(a)
}

// blockOf has a node lease a block of the static pool, and returns it.
func (m *kindly) blockOf(ctx context.Context, node string, on *caller) (netip.Prefix, error) {
	all, err := m.asksFor(ctx, node, 1, func(int) attachment { return attachment{network: networkName, ipam: inPool(staticName)} })
	if err != nil {
		return netip.Prefix{}, err
	}
	answer, err := on.call(all[0].add)
	if err != nil {
		return netip.Prefix{}, err
	}
	got, err := addressOf(answer)
	return netip.PrefixFrom(got.Addr(), 24).Masked(), err
}
