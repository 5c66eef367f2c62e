package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/daemon"
	"github.com/tenure-ipam/tenure/ipam/wire"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// BenchmarkAdd reports durable addresses a second over the node socket, out of
// blocks that the node holds.
func BenchmarkAdd(b *testing.B) {
	const callers, addrs = 64, 20000
	openPoolB(b, "throughput", "10.64.0.0/16")
	f := fleet.New(b, cp.Config())
	f.Change = func(c *daemon.Config) { c.Agent.Idle = time.Hour; c.Agent.Wait = time.Minute }
	n := f.Start("throughput")
	conf, _ := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "lan", "type": "bridge", "ipam": map[string]any{"type": "tenure", "pool": "throughput"}})
	all := func(verb wire.Verb) time.Duration {
		var next atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for range callers {
			wg.Go(func() {
				conn, err := wire.Dial(context.Background(), n.Config().Socket)
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				for i := next.Add(1); i <= addrs; i = next.Add(1) {
					resp, err := conn.Call(context.Background(), wire.Request{Verb: verb, ContainerID: fmt.Sprintf("c%d", i), IfName: "net1", Config: conf})
					if err != nil || resp.Error != nil {
						b.Error(err, resp.Error)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	b.Log("cold ADD", all(wire.Add))
	b.Log("DEL", all(wire.Del))
	for b.Loop() {
		took := all(wire.Add)
		b.ReportMetric(addrs/took.Seconds(), "adds/s")
		b.StopTimer()
		took = all(wire.Del)
		b.ReportMetric(addrs/took.Seconds(), "dels/s")
		b.StartTimer()
	}
}
