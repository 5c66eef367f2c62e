package plugin

import (
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
)

// cniError is the one place where errors meet CNI's. What the agent or local
// mode answered keeps its code. No answer means that the agent is not there, or
// not yet: try again later. It returns nil, untyped, for nil.
func cniError(err error) error {
	if err == nil {
		return nil
	}
	if noAnswer(err) {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "is the node's agent (tenured) running?")
	}
	e := assign.WireError(err)
	// Every fault of a configuration is told at once, one a line; logs and
	// events have one line for all of them.
	return types.NewError(uint(e.Code), strings.ReplaceAll(e.Msg, "\n", " | "), e.Details)
}

// noAnswer reports whether err says that the agent has not answered.
func noAnswer(err error) bool {
	_, format := errors.AsType[*agentapi.FrameError](err)
	return format || errors.Is(err, agentapi.ErrNoAgent) || errors.Is(err, agentapi.ErrNoAnswer)
}
