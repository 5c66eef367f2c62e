package agentapi

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzReadFrame feeds arbitrary bytes to the reader: it neither panics nor
// takes memory for bytes that do not come, and what it accepts survives a round
// trip.
func FuzzReadFrame(f *testing.F) {
	good, err := appendFrame(nil, Request{Version: 1, Verb: Add, ContainerID: "c", Config: json.RawMessage(`{"name":"n"}`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	asks, err := appendFrame(nil, Request{Version: 1, Verb: Facts, Ask: json.RawMessage(`{"pod":{"namespace":"n","name":"p"}}`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(asks)
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{', '}'})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte("\x00\x00\x00\x04null"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var req Request
		err := readFrame(bytes.NewReader(in), &req)
		if err != nil {
			if _, bad := err.(*FrameError); !bad && err != io.EOF {
				t.Fatalf("got %T %v; want io.EOF or a FrameError", err, err)
			}
			return
		}
		frame, err := appendFrame(nil, req)
		if err != nil {
			return // what grows past the limit by its escapes
		}
		var again Request
		if err := readFrame(bytes.NewReader(frame), &again); err != nil {
			t.Fatalf("reading back %+v: %v", req, err)
		}
		for _, raw := range [][2]json.RawMessage{{req.Config, again.Config}, {req.Ask, again.Ask}} {
			var a, b bytes.Buffer
			if len(raw[0]) > 0 && (json.Compact(&a, raw[0]) != nil || json.Compact(&b, raw[1]) != nil || a.String() != b.String()) {
				t.Fatalf("%s has become %s", raw[0], raw[1])
			}
		}
		req.Config, again.Config, req.Ask, again.Ask = nil, nil, nil, nil
		if d := cmp.Diff(req, again); d != "" {
			t.Fatalf("round trip (-sent +got):\n%s", d)
		}
	})
}

// FuzzServerResponse feeds arbitrary bytes to the client's side of the reader.
func FuzzServerResponse(f *testing.F) {
	good, err := appendFrame(nil, Fail(CodeTryAgainLater, "later"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("\x00\x00\x00\x26" + `{"v":1,"result":{"ips":[{"address":1}]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var resp Response
		if err := readFrame(bytes.NewReader(in), &resp); err == nil && resp.Result != nil {
			for _, ip := range resp.Result.IPs {
				_ = ip.Address.String()
			}
		}
	})
}
