package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/wire"
)

// Sizes of the measurement of the socket.
const (
	callers      = 64
	socketRounds = 10
	socketPods   = 1024
	singleCalls  = 500
)

// asks are the frames of one attachment, ready to be sent: what is measured is the
// agent, so its callers do as little as possible.
type asks struct{ add, del []byte }

// socket measures how many addresses a second one agent gives out, and takes back,
// out of blocks that its node holds: 64 connections, each with one request under
// way. Every answer is durable before it comes.
func (b *bench) socket(ctx context.Context) error {
	all, err := b.asks(ctx)
	if err != nil {
		return err
	}
	conns := make([]*caller, callers)
	for i := range conns {
		if conns[i], err = dial(ctx, b.node.socket()); err != nil {
			return err
		}
		defer conns[i].nc.Close() //nolint:revive // there are 64, until this returns
	}
	var adds, dels, cpu []float64
	for round := range socketRounds + 1 {
		used, err := b.node.agent.cpuTime()
		if err != nil {
			return err
		}
		added, answers, err := storm(ctx, conns, all, func(a asks) []byte { return a.add })
		if err != nil {
			return fmt.Errorf("ADD: %w", err)
		}
		if err := distinct(answers); err != nil {
			return err
		}
		usedAfter, err := b.node.agent.cpuTime()
		if err != nil {
			return err
		}
		deleted, _, err := storm(ctx, conns, all, func(a asks) []byte { return a.del })
		if err != nil {
			return fmt.Errorf("DEL: %w", err)
		}
		if round == 0 {
			continue // the node leases its blocks
		}
		n := float64(len(all))
		adds, dels = append(adds, n/added.Seconds()), append(dels, n/deleted.Seconds())
		cpu = append(cpu, (usedAfter-used).Seconds()*1e6/n)
	}
	single, err := b.single(conns[0], all)
	if err != nil {
		return err
	}
	b.report.socket(adds, dels, cpu, single)
	return nil
}

// single returns, in milliseconds, how long one ADD at a time takes over a
// connection that is there already.
func (b *bench) single(c *caller, all []asks) ([]float64, error) {
	var took []time.Duration
	for _, a := range all[:min(len(all), b.samples(singleCalls))] {
		began := time.Now()
		if _, err := c.call(a.add); err != nil {
			return nil, fmt.Errorf("ADD: %w", err)
		}
		took = append(took, time.Since(began))
		if _, err := c.call(a.del); err != nil {
			return nil, fmt.Errorf("DEL: %w", err)
		}
	}
	return []float64{millis(percentile(took, 50))}, nil
}

// asks returns the requests of four interfaces of every pod.
func (b *bench) asks(ctx context.Context) ([]asks, error) {
	boxes, err := b.sandboxes(ctx, max(callers, b.samples(socketPods)))
	if err != nil {
		return nil, err
	}
	configs, err := networkConfigs(map[string]any{"type": "tenure", "pool": poolName})
	if err != nil {
		return nil, err
	}
	var out []asks
	for _, box := range boxes {
		for i := range interfacesPerPod {
			r := wire.Request{
				Version: wire.Version, Verb: wire.Add, ContainerID: box.id, Netns: box.netns, NetnsID: netns.ID(box.netns),
				IfName: fmt.Sprintf("net%d", i+1), Args: box.pod.args(box.id), Config: configs["ADD"], DeadlineMillis: 30_000,
			}
			var a asks
			if a.add, err = frame(r); err != nil {
				return nil, err
			}
			r.Verb, r.Config = wire.Del, configs["DEL"]
			if a.del, err = frame(r); err != nil {
				return nil, err
			}
			out = append(out, a)
		}
	}
	return out, nil
}

func frame(r wire.Request) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// A caller is one connection to the agent.
type caller struct {
	nc net.Conn
	r  *bufio.Reader
}

func dial(ctx context.Context, socket string) (*caller, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &caller{nc: nc, r: bufio.NewReader(nc)}, nil
}

// call sends a frame and returns the answer's JSON.
func (c *caller) call(frame []byte) ([]byte, error) {
	if _, err := c.nc.Write(frame); err != nil {
		return nil, err
	}
	var header [4]byte
	if _, err := io.ReadFull(c.r, header[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(header[:]))
	_, err := io.ReadFull(c.r, body)
	if err == nil && bytes.Contains(body, []byte(`"error"`)) {
		err = fmt.Errorf("answered %s", body)
	}
	return body, err
}

// storm sends one frame of each of all, over all connections at once, and returns
// how long that took and the answers.
func storm(ctx context.Context, conns []*caller, all []asks, pick func(asks) []byte) (time.Duration, [][]byte, error) {
	answers := make([][]byte, len(all))
	errs := make([]error, len(conns))
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= len(all) {
					return
				}
				answers[n], errs[i] = c.call(pick(all[n]))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return 0, nil, err
		}
	}
	return took, answers, context.Cause(ctx)
}

// distinct reports answers to ADDs that share an address, or have none.
func distinct(answers [][]byte) error {
	owner := map[netip.Prefix]int{}
	for i, text := range answers {
		var r wire.Response
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		if r.Result == nil || len(r.Result.IPs) != 1 {
			return fmt.Errorf("ADD answered %s", text)
		}
		a := r.Result.IPs[0].Address
		if first, taken := owner[a]; taken {
			return fmt.Errorf("%v was given out twice: to %d and %d", a, first, i)
		}
		owner[a] = i
	}
	return nil
}
