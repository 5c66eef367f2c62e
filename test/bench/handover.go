package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// Sizes of the measurement of a full pool.
const (
	smallName = "small" // the pool
	smallSize = 8       // its addresses
	handOvers = 20
	// lead is how long an ADD has waited when an address is freed for it.
	lead = 300 * time.Millisecond
)

// A side is one node of two between which the addresses of a full pool go to and fro.
type side struct {
	on             *caller
	asks           []asks
	added, deleted int // how many of asks
}

// handOvers measures, in a pool that is full, how long after the DEL of an address on
// one node an ADD on the other is served, which has waited for it.
func (m *kindly) handOvers(ctx context.Context) {
	spec := v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.69.0.0/24", Start: "10.69.0.1", End: fmt.Sprintf("10.69.0.%d", smallSize)}}}
	m.node.open(ctx, smallName, spec)
	count := m.samples(handOvers)
	from := m.side(ctx, nodeName, m.first, smallSize+count)
	to := m.side(ctx, secondName, m.second, count)
	for range smallSize {
		m.Must(from.add(ctx))
	}
	for range count {
		took, err := pass(ctx, from, to)
		if err != nil {
			m.Fail("%s: %w", handOver.title, err)
		}
		m.took[handOver] = append(m.took[handOver], millis(took))
		from, to = to, from
	}
}

func (m *kindly) side(ctx context.Context, node string, on *caller, count int) *side {
	all := m.asksFor(ctx, node, count, func(int) attachment {
		return attachment{network: networkName, ipam: inPool(smallName)}
	})
	return &side{on: on, asks: all}
}

// pass has one side ask for an address, the other free one, and returns how long after
// that the first had it.
func pass(ctx context.Context, from, to *side) (time.Duration, error) {
	var served time.Time
	done := make(chan error, 1)
	go func() {
		err := to.add(ctx)
		served = time.Now()
		done <- err
	}()
	select {
	case err := <-done:
		return 0, errors.Join(errors.New("an ADD was answered, or failed, in a pool that is full"), err)
	case <-time.After(lead):
	}
	began := time.Now()
	if _, err := from.on.call(from.asks[from.deleted].del); err != nil {
		return 0, errors.Join(err, <-done)
	}
	from.deleted++
	err := <-done
	return served.Sub(began), err
}

// add makes the side's next ADD, again while it is told to try later, as a runtime does.
func (s *side) add(ctx context.Context) error {
	for ctx.Err() == nil {
		answer, err := s.on.call(s.asks[s.added].add)
		if err == nil {
			s.added++
			return nil
		}
		if !bytes.Contains(answer, fmt.Appendf(nil, `"code":%d`, agentapi.CodeTryAgainLater)) {
			return err
		}
	}
	return context.Cause(ctx)
}
