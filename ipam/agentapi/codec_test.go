package agentapi

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// compare compares messages; encoding/json and the codec may leave an empty list
// nil or not.
func compare(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

// checkCodec checks that encoding/json and the codec read alike what either writes.
func checkCodec[M any, P interface {
	*M
	parse(json.RawMessage) error
}](t *testing.T, m message) {
	t.Helper()
	byHand, err := m.appendTo(nil)
	if err != nil {
		t.Fatalf("write %+v: %v", m, err)
	}
	byReflection, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("write %+v with encoding/json: %v", m, err)
	}
	for _, text := range [][]byte{byHand, byReflection} {
		if !json.Valid(text) {
			t.Fatalf("%+v was written as %s", m, text)
		}
		var got, want M
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("read %s with encoding/json: %v", text, err)
		}
		if err := P(&got).parse(text); err != nil {
			t.Fatalf("read %s: %v", text, err)
		}
		if d := compare(want, got); d != "" {
			t.Fatalf("%s is read differently (-encoding/json +codec):\n%s", text, d)
		}
	}
}

func FuzzRequestCodec(f *testing.F) {
	f.Add(1, "ADD", "c1", "/run/netns/x", "net1", "A=1;B=\"", "4:1", `{"name":"n"}`, `{"pod":{"name":"p"}}`, int64(30000))
	f.Add(0, "", "", "", "", "", "", "", "", int64(0))
	f.Add(-1, "\n", "\x00", "é\xff", "<&>", "\u2028", `\`, ` [ 1 , "]" ] `, ` null `, int64(-1))
	f.Fuzz(func(t *testing.T, v int, verb, id, netns, ifName, args, netnsID, config, ask string, deadline int64) {
		if !json.Valid([]byte(config)) {
			config = ""
		}
		if !json.Valid([]byte(ask)) {
			ask = ""
		}
		checkCodec[Request](t, Request{
			Version: v, Verb: Verb(verb), ContainerID: id, Netns: netns, IfName: ifName, Args: args, NetnsID: netnsID,
			Config: json.RawMessage(config), Ask: json.RawMessage(ask), DeadlineMillis: deadline,
		})
	})
}

func FuzzResponseCodec(f *testing.F) {
	f.Add(uint8(0xff), 1, []byte{10, 0, 0, 5}, []byte{10, 0, 0, 1}, 24, 1500, 254, "10.0.0.53", "example.org", uint32(11), "later", "because", `{"pod":{"name":"p"}}`)
	f.Add(uint8(0), 0, []byte{}, []byte{}, 0, 0, 0, "", "", uint32(0), "", "", "")
	f.Add(uint8(0x0f), 1, netip.MustParseAddr("fd00::5").AsSlice(), []byte{}, 64, 0, -1, "\"", "\xff", uint32(999), "\n", "é", ` [ "é" , null ] `)
	f.Fuzz(func(t *testing.T, has uint8, v int, addr, gw []byte, bits, mtu, table int, server, domain string, code uint32, msg, details, facts string) {
		r := Response{Version: v}
		a, _ := netip.AddrFromSlice(addr)
		g, _ := netip.AddrFromSlice(gw)
		p, err := a.Prefix(bits)
		if err != nil {
			p = netip.Prefix{}
		}
		if has&1 != 0 {
			r.Result = &Result{IPs: []IP{{Address: p, Gateway: g}, {}}}
		}
		if has&2 != 0 && r.Result != nil {
			r.Result.Routes = []Route{{Dst: p, GW: g, MTU: mtu, AdvMSS: table, Priority: mtu, Table: &table, Scope: &mtu}, {Dst: p}}
		}
		if has&4 != 0 && r.Result != nil {
			r.Result.DNS = DNS{Nameservers: []string{server, domain}, Domain: domain, Search: []string{server}, Options: []string{domain}}
		}
		if has&8 != 0 {
			r.Error = &Error{Code: Code(code), Msg: msg, Details: details}
		}
		if has&16 != 0 {
			r.Warnings = []string{msg, details}
		}
		if json.Valid([]byte(facts)) {
			r.Facts = json.RawMessage(facts)
		}
		checkCodec[Response](t, r)
	})
}

func TestCodecRefuses(t *testing.T) {
	for _, text := range []string{`[]`, `1`, `null`, `{"v":"1"}`, `{"v":1.5}`, `{"v":99999999999999999999}`, `{"verb":1}`, `{"config":{},"args":{}}`} {
		if err := new(Request).parse(json.RawMessage(text)); err == nil {
			t.Errorf("a request was read from %s", text)
		}
	}
	for _, text := range []string{
		`""`, `{"result":[]}`, `{"result":{"ips":{}}}`, `{"result":{"ips":[1]}}`, `{"result":{"ips":[{"address":"10.0.0.5"}]}}`,
		`{"result":{"ips":[{"gateway":"x"}]}}`, `{"result":{"routes":[{"table":"1"}]}}`, `{"result":{"dns":{"search":[1]}}}`,
		`{"error":{"code":-1}}`, `{"error":{"msg":1}}`, `{"warnings":"x"}`,
	} {
		if err := new(Response).parse(json.RawMessage(text)); err == nil {
			t.Errorf("a response was read from %s", text)
		}
	}
}

// TestCodecIgnoresTheUnknown: a newer peer may say more.
func TestCodecIgnoresTheUnknown(t *testing.T) {
	var r Request
	if err := r.parse(json.RawMessage(`{"v":1,"new":{"verb":"DEL"},"verb":"ADD","list":[1]}`)); err != nil || r.Verb != Add || r.Version != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := (Request{Config: json.RawMessage(`{`)}).appendTo(nil); err == nil {
		t.Error("a configuration that is not JSON was written")
	}
	if _, err := (Request{Ask: json.RawMessage(`{"a"}`)}).appendTo(nil); err == nil {
		t.Error("a question that is not JSON was written")
	}
	if _, err := (Response{Facts: json.RawMessage(`[}`)}).appendTo(nil); err == nil {
		t.Error("facts that are not JSON were written")
	}
}
