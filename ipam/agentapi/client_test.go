package agentapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestCallCarriesEverything(t *testing.T) {
	table, scope := 0, 253
	want := Response{Version: Version, Result: &Result{
		IPs: []IP{
			{Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Address: netip.MustParsePrefix("fd00::5/64")},
		},
		Routes: []Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.0.0.1"), MTU: 1400, AdvMSS: 1360, Priority: 5, Table: &table, Scope: &scope},
			{Dst: netip.MustParsePrefix("::/0")},
		},
		DNS: DNS{Nameservers: []string{"10.0.0.2"}, Domain: "d", Search: []string{"s"}, Options: []string{"o"}},
	}, Facts: json.RawMessage(`{"pod":{"name":"p"}}`)}
	sent := Request{
		Verb: Add, ContainerID: "c1", Netns: "/run/netns/x", NetnsID: "4:4026532281", IfName: "net1",
		Args: "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n", Config: json.RawMessage(`{"name":"net","ipam":{"type":"tenure"}}`),
		Ask: json.RawMessage(`{"pod":{"name":"p"}}`),
	}
	var got Request
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response { got = req; return want })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := Once(ctx, time.Minute, r.socket, sent)
	if err != nil {
		t.Fatal(err)
	}
	cmpAddrs := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	if d := cmp.Diff(want, resp, cmpAddrs); d != "" {
		t.Errorf("response (-want +got):\n%s", d)
	}
	sent.Version = Version
	if got.DeadlineMillis < 1 || got.DeadlineMillis > time.Minute.Milliseconds() {
		t.Errorf("deadline of the request is %d ms; want at most a minute", got.DeadlineMillis)
	}
	sent.DeadlineMillis = got.DeadlineMillis
	if d := cmp.Diff(sent, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

func TestSeveralCallsOnOneConnection(t *testing.T) {
	r := serve(t, testLimits(), func(_ context.Context, req Request) Response {
		return Fail(CodeTryAgainLater, "for %s", req.ContainerID)
	})
	c := r.dial(t)
	for i := range 100 {
		resp, err := c.Call(context.Background(), time.Minute, Request{Verb: Del, ContainerID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("for %d", i); resp.Error == nil || resp.Error.Msg != want {
			t.Fatalf("call %d: got %+v; want error %q", i, resp.Error, want)
		}
	}
}

func TestPingNeedsNoHandler(t *testing.T) {
	r := serve(t, testLimits(), func(context.Context, Request) Response { panic("not for the handler") })
	resp, err := Once(context.Background(), time.Minute, r.socket, Request{Verb: Ping})
	if err != nil || resp.Error != nil || resp.Version != Version {
		t.Errorf("got %+v, %v; want an empty answer of version %d", resp, err, Version)
	}
}
