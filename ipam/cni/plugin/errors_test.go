package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// TestCNIError (C16).
func TestCNIError(t *testing.T) {
	if err := cniError(nil); err != nil {
		t.Errorf("cniError(nil) = %v; want nil", err)
	}
	faults := errors.Join(fmt.Errorf("ipam.a: x%w", poolspec.ErrConfig), errors.New("ipam.b: y"))
	for _, tt := range []struct {
		err  error
		code uint
		msg  string
	}{
		{agentapi.ErrNoAgent, types.ErrTryAgainLater, "no agent listens"},
		{agentapi.ErrNoAnswer, types.ErrTryAgainLater, "no answer from the agent"},
		{fmt.Errorf("%w: %w", agentapi.ErrNoAnswer, context.DeadlineExceeded), types.ErrTryAgainLater, ""},
		{&agentapi.FrameError{Reason: "rubbish"}, types.ErrTryAgainLater, "node socket: rubbish"},
		{&agentapi.Error{Code: 101, Msg: "m", Details: "d"}, 101, "m"},
		{&assign.NoRoomError{Slot: assign.Slot{Pool: "p", Family: 4}}, types.ErrTryAgainLater, "pool p has no free IPv4 address"},
		{faults, types.ErrInvalidNetworkConfig, "ipam.a: x" + poolspec.ErrConfig.Error() + " | ipam.b: y"},
		{errors.New("other"), types.ErrInternal, "other"},
	} {
		e, ok := errors.AsType[*types.Error](cniError(tt.err))
		if !ok || e.Code != tt.code || tt.msg != "" && e.Msg != tt.msg {
			t.Errorf("cniError(%v) = %+v; want code %d, %q", tt.err, e, tt.code, tt.msg)
		}
	}
}
