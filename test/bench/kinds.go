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
func (b *bench) adds(ctx context.Context) {
	second := b.node.startAgent(ctx, b.root, secondName, secondAt)
	b.node.second = second
	m := kindly{bench: b, took: map[kind][]float64{}}
	for _, measure := range []func(context.Context){m.ordinary, m.claims, m.statics, m.handOvers} {
		m.connected(ctx, measure)
	}
	b.report.kinds(m.took)
	b.node.second = nil
	b.Must(second.Stop())
}

// kindly measures kinds of ADDs on the two nodes.
type kindly struct {
	*bench

	first, second *caller
	took          map[kind][]float64 // milliseconds
}

// connected calls measure with new connections to both agents, which close those on
// which nothing is asked for some time.
func (m *kindly) connected(ctx context.Context, measure func(context.Context)) {
	var err error
	m.first, err = dial(ctx, m.node.socket())
	m.Must(err)
	defer m.first.nc.Close()
	m.second, err = dial(ctx, m.node.secondSocket())
	m.Must(err)
	defer m.second.nc.Close()
	measure(ctx)
}

// add makes one ADD and notes how long it took.
func (m *kindly) add(k kind, on *caller, a asks) netip.Addr {
	began := time.Now()
	answer, err := on.call(a.add)
	if err != nil {
		m.Fail("%s: ADD: %w", k.title, err)
	}
	m.took[k] = append(m.took[k], millis(time.Since(began)))
	got, err := addressOf(answer)
	m.Must(err)
	return got.Addr()
}

func (m *kindly) del(on *caller, a asks) {
	if _, err := on.call(a.del); err != nil {
		m.Fail("DEL: %w", err)
	}
}

func (m *kindly) ordinary(ctx context.Context) {
	all := m.asks(ctx)
	for _, a := range all[:min(len(all), m.samples(kindCalls))] {
		m.add(ordinary, m.first, a)
		m.del(m.first, a)
	}
}

// claims has each claim used on the first node, again there, and on the second.
func (m *kindly) claims(ctx context.Context) {
	count := m.samples(kindCalls)
	m.node.claimNetwork(ctx)
	claim := func(i int) string { return fmt.Sprintf("claim-%d", i) }
	m.node.makeClaims(ctx, claim, count)
	m.node.allocated(ctx, count)
	// A claim has one pod at a time: its asks are of two pods of the first node and one
	// of the second.
	var uses [3][]asks
	for j, node := range []string{nodeName, nodeName, secondName} {
		uses[j] = m.asksFor(ctx, node, count, func(i int) attachment {
			return attachment{network: claimsName, ipam: inPool(claimsName), claim: claim(i)}
		})
	}
	for i := range count {
		for j, step := range []struct {
			kind kind
			on   *caller
		}{{claimFirst, m.first}, {claimAgain, m.first}, {claimMoved, m.second}} {
			m.add(step.kind, step.on, uses[j][i])
			m.del(step.on, uses[j][i])
		}
	}
	m.node.noClaims(ctx)
}

// asksFor returns the requests of the first interface of each of so many new pods of a
// node.
func (b *bench) asksFor(ctx context.Context, node string, count int, of func(i int) attachment) []asks {
	b.generation++
	selects := func(i int) string {
		x := of(i)
		text := fmt.Sprintf(`{"name":%q,"interface":%q`, x.network, firstInterface)
		if x.claim != "" {
			text += fmt.Sprintf(`,"ipam-claim-reference":%q`, x.claim)
		}
		return "[" + text + "}]"
	}
	pods := b.node.makePods(ctx, node, fmt.Sprintf("%s-%d", node, b.generation), count, selects)
	out := make([]asks, count)
	for i, p := range pods {
		x := of(i)
		x.box, x.ifName = sandboxOf{id: fmt.Sprintf("%032x%032x", b.generation, i), pod: p, netns: b.node.netns.Path()}, firstInterface
		a, err := x.asks()
		b.Must(err)
		out[i] = a
	}
	return out
}

// statics asks for addresses by name: in a block of the node that asks, in blocks that
// nobody has, and in a block of the other node.
func (m *kindly) statics(ctx context.Context) {
	m.node.openPool(ctx, staticName, staticRange)
	count := m.samples(kindCalls)
	own := m.blockOf(ctx, nodeName, m.first)
	other := m.blockOf(ctx, secondName, m.second)
	if own == other {
		m.Fail("both nodes have addresses in %v: no block is another node's", own)
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
		all := m.asksFor(ctx, nodeName, count, func(i int) attachment {
			return attachment{network: networkName, ipam: inPool(staticName), ips: []string{of.address(i).String()}}
		})
		for i, a := range all {
			got := m.add(of.kind, m.first, a)
			if got != of.address(i) {
				m.Fail("%s: %v was asked for, %v given", of.kind.title, of.address(i), got)
			}
		}
	}
}

// host returns an address of a block of 256.
func host(block netip.Prefix, last byte) netip.Addr {
	a := block.Addr().As4()
	a[3] = last
	return netip.AddrFrom4(a)
}

// blockOf has a node lease a block of the static pool, and returns it.
func (m *kindly) blockOf(ctx context.Context, node string, on *caller) netip.Prefix {
	all := m.asksFor(ctx, node, 1, func(int) attachment { return attachment{network: networkName, ipam: inPool(staticName)} })
	answer, err := on.call(all[0].add)
	m.Must(err)
	got, err := addressOf(answer)
	m.Must(err)
	return netip.PrefixFrom(got.Addr(), 24).Masked()
}
