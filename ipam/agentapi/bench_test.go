package agentapi

import (
	"context"
	"encoding/json"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var benchRequest = Request{
	Verb: Add, ContainerID: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	Netns: "/var/run/netns/cni-01234567-89ab-cdef-0123-456789abcdef", NetnsID: "4:4026532281", IfName: "net1",
	Args: "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=01234567-89ab-cdef-0123-456789abcdef",
	Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"vlan10","type":"macvlan","master":"eth1","mode":"bridge",` +
		`"ipam":{"type":"tenure","pool":"vlan10"}}`),
}

func doNothing(context.Context, Request) Response {
	return Response{Result: &Result{IPs: []IP{{Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")}}}}
}

// callers runs b.N calls from 64 goroutines; each makes its own call function.
func callers(b *testing.B, newCall func() func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			call := newCall()
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkCallers64 is the socket's own cost on the hot path: 64 callers that
// keep their connections, a handler that does nothing.
func BenchmarkCallers64(b *testing.B) {
	r := serve(b, testLimits(), doNothing)
	callers(b, func() func() error {
		c := r.dial(b)
		return func() error {
			_, err := c.Call(context.Background(), time.Minute, benchRequest)
			return err
		}
	})
}

// BenchmarkCallers64Dialling is the same with a connection for each call, as
// plugins make them.
func BenchmarkCallers64Dialling(b *testing.B) {
	r := serve(b, testLimits(), doNothing)
	callers(b, func() func() error {
		return func() error {
			_, err := Once(context.Background(), time.Minute, r.socket, benchRequest)
			return err
		}
	})
}
