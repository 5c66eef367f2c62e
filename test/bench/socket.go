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

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/netns"
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
func (b *bench) socket(ctx context.Context) {
	all := b.asks(ctx)
	conns, hangUp, err := dialAll(ctx, b.node.socket(), callers)
	b.Must(err)
	defer hangUp()
	var adds, dels, cpu []float64
	for round := range socketRounds + 1 {
		used, err := b.node.agent.CPUTime()
		b.Must(err)
		added, answers, err := storm(ctx, conns, all, func(a asks) []byte { return a.add })
		if err != nil {
			b.Fail("ADD: %w", err)
		}
		b.Must(distinct(answers))
		usedAfter, err := b.node.agent.CPUTime()
		b.Must(err)
		deleted, _, err := storm(ctx, conns, all, func(a asks) []byte { return a.del })
		if err != nil {
			b.Fail("DEL: %w", err)
		}
		if round == 0 {
			continue // the node leases its blocks
		}
		n := float64(len(all))
		adds, dels = append(adds, n/added.Seconds()), append(dels, n/deleted.Seconds())
		cpu = append(cpu, (usedAfter-used).Seconds()*1e6/n)
	}
	single := b.single(conns[0], all)
	b.report.socket(adds, dels, cpu, single)
}

// single returns, in milliseconds, how long one ADD at a time takes over a
// connection that is there already.
func (b *bench) single(c *caller, all []asks) []float64 {
	var took []time.Duration
	for _, a := range all[:min(len(all), b.samples(singleCalls))] {
		began := time.Now()
		if _, err := c.call(a.add); err != nil {
			b.Fail("ADD: %w", err)
		}
		took = append(took, time.Since(began))
		if _, err := c.call(a.del); err != nil {
			b.Fail("DEL: %w", err)
		}
	}
	return []float64{millis(percentile(took, 50))}
}

// asks returns the requests of four interfaces of every pod, for the pool that all
// parts share.
func (b *bench) asks(ctx context.Context) []asks {
	return b.asksOf(ctx, max(callers, b.samples(socketPods)), poolName)
}

// asksOf returns the requests of four interfaces of each of so many pods, for a pool.
func (b *bench) asksOf(ctx context.Context, pods int, pool string) []asks {
	boxes := b.sandboxes(ctx, pods)
	var out []asks
	for _, box := range boxes {
		for i := range interfacesPerPod {
			a, err := attachment{box: box, network: networkName, ifName: fmt.Sprintf("net%d", i+1), ipam: inPool(pool)}.asks()
			b.Must(err)
			out = append(out, a)
		}
	}
	return out
}

// inPool is an "ipam" section that names a pool.
func inPool(pool string) map[string]any { return map[string]any{"type": "tenure", "pool": pool} }

// An attachment is one interface of a sandbox.
type attachment struct {
	box             sandboxOf
	network, ifName string
	ipam            map[string]any
	ips             []string // that the runtime asks for
	claim           string   // that the pod names; "" is none
}

// asks returns the attachment's requests.
func (x attachment) asks() (asks, error) {
	configs, err := networkConfigs(x.network, x.ipam, x.ips)
	if err != nil {
		return asks{}, err
	}
	r := agentapi.Request{
		Version: agentapi.Version, Verb: agentapi.Add, ContainerID: x.box.id, Netns: x.box.netns, NetnsID: netns.ID(x.box.netns),
		IfName: x.ifName, Args: x.box.pod.args(x.box.id), Config: configs["ADD"], DeadlineMillis: 30_000,
	}
	var a asks
	if a.add, err = frame(r); err != nil {
		return a, err
	}
	r.Verb, r.Config = agentapi.Del, configs["DEL"]
	a.del, err = frame(r)
	return a, err
}

func frame(r agentapi.Request) ([]byte, error) {
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

// dialAll opens so many connections. The caller closes them all by hangUp.
func dialAll(ctx context.Context, socket string, count int) (conns []*caller, hangUp func(), err error) {
	hangUp = func() {
		for _, c := range conns {
			c.nc.Close()
		}
	}
	for range count {
		c, err := dial(ctx, socket)
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	return conns, hangUp, nil
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
		a, err := addressOf(text)
		if err != nil {
			return err
		}
		if first, taken := owner[a]; taken {
			return fmt.Errorf("%v was given out twice: to %d and %d", a, first, i)
		}
		owner[a] = i
	}
	return nil
}

// addressOf returns the one address of an ADD's answer.
func addressOf(answer []byte) (netip.Prefix, error) {
	var r agentapi.Response
	if err := json.Unmarshal(answer, &r); err != nil {
		return netip.Prefix{}, err
	}
	if r.Result == nil || len(r.Result.IPs) != 1 {
		return netip.Prefix{}, fmt.Errorf("ADD answered %s", answer)
	}
	return r.Result.IPs[0].Address, nil
}
