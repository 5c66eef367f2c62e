package neutron

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
)

// TestExplain: what Neutron, Keystone and the network say, in our words. Those of a real
// Neutron are in test/neutron; here is what such a one cannot be made to say.
func TestExplain(t *testing.T) {
	answer := func(status int, body string) error {
		return gophercloud.ErrUnexpectedResponseCode{Actual: status, Body: []byte(body)}
	}
	for _, tt := range []struct {
		name    string
		err     error
		reason  Reason
		message string
	}{
		{"bad gateway, of a proxy", answer(502, "<html>"), Unavailable, "op: OpenStack answers 502: look at its log if this goes on"},
		{"a conflict of another kind", answer(409, `{"NeutronError":{"type":"MacAddressInUse","message":"MAC in use."}}`), Rejected, "op: MAC in use: change what is asked for"},
		{"Keystone's words", answer(401, `{"error": {"code": 401}}`), Unauthorized, `op: {"error": {"code": 401}}: renew the credentials in clouds.yaml`},
		{
			"Keystone refuses a new token", &gophercloud.ErrUnableToReauthenticate{ErrOriginal: answer(401, ""), ErrReauth: answer(401, "gone")},
			Unauthorized, "op: renew the token: gone: renew the credentials in clouds.yaml",
		},
		{
			"Keystone is away when the token ends", &gophercloud.ErrUnableToReauthenticate{ErrOriginal: answer(401, ""), ErrReauth: answer(503, "")},
			Unavailable, "op: renew the token: OpenStack answers 503: look at its log if this goes on",
		},
		{
			"refused with the new token", &gophercloud.ErrErrorAfterReauthentication{ErrOriginal: answer(403, "no role")},
			Forbidden, "op: no role: give the credentials a role that may do this, or share the network with their project",
		},
		{"half an answer", io.ErrUnexpectedEOF, Unavailable, "op: no answer: unexpected EOF: see whether the endpoint is right and reachable"},
		{"no name server", &net.DNSError{Err: "no such host", Name: "neutron"}, Unavailable, "op: no answer: lookup neutron: no such host: see whether the endpoint is right and reachable"},
		{"the caller's end", context.Canceled, Unavailable, "op: no answer: context canceled: see whether the endpoint is right and reachable"},
		{"no network service", &gophercloud.ErrEndpointNotFound{}, Rejected, "op: No suitable endpoint could be found in the service catalog.: check clouds.yaml and the version of Neutron"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := explain("op", tt.err)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Reason != tt.reason || e.Message != tt.message {
				t.Errorf("got %+v; want %s, %q", err, tt.reason, tt.message)
			}
			if !errors.Is(explain("other", err), err) {
				t.Error("what is explained is explained again")
			}
		})
	}
	if err := explain("op", nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}
