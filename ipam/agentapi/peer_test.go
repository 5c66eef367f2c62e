package agentapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRefusedByTheServerItself(t *testing.T) {
	r := serve(t, testLimits(), func(context.Context, Request) Response { panic("not for the handler") })
	for _, tt := range []struct {
		name string
		req  Request
		code Code
		msg  string
	}{
		{"newer version", Request{Version: Version + 1, Verb: Add}, CodeTryAgainLater, "upgrade the agent first"},
		{"no version", Request{Verb: Add}, CodeTryAgainLater, "not 0"},
		{"unknown verb", Request{Version: Version, Verb: "EAT"}, CodeDecoding, `"EAT"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := r.raw(t)
			if _, err := nc.Write(mustFrame(t, tt.req)); err != nil {
				t.Fatal(err)
			}
			var resp Response
			if err := readFrame(nc, &resp); err != nil {
				t.Fatal(err)
			}
			if resp.Error == nil || resp.Error.Code != tt.code || !strings.Contains(resp.Error.Msg, tt.msg) {
				t.Errorf("got %+v; want code %d with %q", resp.Error, tt.code, tt.msg)
			}
		})
	}
}

func TestOnlyOneUserIsServed(t *testing.T) {
	lim := testLimits()
	lim.UID++
	r := serve(t, lim, func(context.Context, Request) Response { panic("served a stranger") })
	nc := r.raw(t)
	var resp Response
	if err := readFrame(nc, &resp); err != nil {
		t.Fatal(err)
	}
	if resp.Error == nil || !strings.Contains(resp.Error.Msg, fmt.Sprintf("user %d may not", os.Getuid())) {
		t.Errorf("got %+v; want a refusal that names the user", resp.Error)
	}
}

// TestBadPeers sends what no client sends. The server must answer or hang up,
// must not call the handler, and must go on serving others.
func TestBadPeers(t *testing.T) {
	handle := func(_ context.Context, req Request) Response {
		if req.ContainerID != "good" {
			panic("a bad request reached the handler")
		}
		return Response{}
	}
	patient := serve(t, testLimits(), handle)
	lim := testLimits()
	lim.Idle = 500 * time.Millisecond
	hasty := serve(t, lim, handle) // for those who are silent: on a busy machine others can be slow, too
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for _, tt := range []struct {
		name  string
		send  []byte
		close bool   // hang up the sending side after it
		want  string // part of the error answered; empty: hung up without a word
	}{
		{"nothing", nil, false, ""},
		{"hang up at once", nil, true, ""},
		{"half a length", []byte{0, 0}, true, "inside a frame's length"},
		{"half a length and silence", []byte{0, 0}, false, ""},
		{"length zero", length(0), false, "0 bytes"},
		{"length too great", length(MaxFrame + 1), false, "1048577 bytes"},
		{"length of a gigabyte", length(1 << 30), false, "bytes"},
		{"half a body", append(length(100), "{"...), true, "inside a frame of 100"},
		{"half a body and silence", append(length(100), "{"...), false, ""},
		{"not JSON", append(length(4), "what"...), false, "not a message"},
		{"wrong type", append(length(9), `{"v":"1"}`...), false, "not a message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := patient
			if tt.want == "" && !tt.close {
				r = hasty
			}
			nc := r.raw(t)
			if _, err := nc.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			if tt.close {
				if err := nc.(*net.UnixConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			var resp Response
			err := readFrame(nc, &resp)
			switch {
			case tt.want == "" && err != io.EOF:
				t.Errorf("got %+v, %v; want the server to hang up", resp, err)
			case tt.want != "" && (err != nil || resp.Error == nil || !strings.Contains(resp.Error.Msg, tt.want)):
				t.Errorf("got %+v, %v; want an error with %q", resp.Error, err, tt.want)
			}
			// The hasty server may hang up on one that is slow on a busy machine.
			for deadline := time.Now().Add(time.Minute); ; {
				resp, err := Once(context.Background(), time.Minute, r.socket, Request{Verb: Add, ContainerID: "good"})
				if err == nil && resp.Error == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("another caller afterwards: %+v, %v; want success", resp, err)
				}
			}
		})
	}
}

func TestRequestSentAheadEndsTheConnection(t *testing.T) {
	cause := make(chan error, 1)
	r := serve(t, testLimits(), func(ctx context.Context, _ Request) Response {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Response{}
	})
	nc := r.raw(t)
	frame := mustFrame(t, Request{Version: Version, Verb: Add})
	if _, err := nc.Write(append(frame, frame...)); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; !errors.Is(err, ErrHungUp) {
		t.Errorf("the handler's context ended with %v; want ErrHungUp", err)
	}
	if _, err := io.ReadAll(nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v; want the server to hang up", err)
	}
}

func TestMessagesThatDoNotFit(t *testing.T) {
	r := serve(t, testLimits(), func(context.Context, Request) Response {
		return Fail(CodeInternal, "%s", strings.Repeat("x", MaxFrame))
	})
	_, err := Once(context.Background(), time.Minute, r.socket, Request{Verb: GC, Args: strings.Repeat("x", MaxFrame)})
	if _, bad := errors.AsType[*FrameError](err); !bad {
		t.Errorf("request: got %v; want a FrameError before anything is sent", err)
	}
	resp, err := Once(context.Background(), time.Minute, r.socket, Request{Verb: GC, Args: strings.Repeat("x", MaxFrame-1000)})
	if err != nil || resp.Error == nil || !strings.Contains(resp.Error.Msg, "cannot be sent") {
		t.Errorf("answer: got %+v, %v; want an error in its place", resp.Error, err)
	}
}
