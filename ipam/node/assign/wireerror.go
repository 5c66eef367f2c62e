package assign

import (
	"context"
	"errors"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// CodeCheckFailed is the CNI error code with which CHECK reports a
// [*CheckError]. CNI leaves the codes from 100 on to plugins.
const CodeCheckFailed agentapi.Code = 100

// WireError is the one place where errors of serving a request meet the CNI
// codes, on the node's agent and in local mode alike. It returns nil for nil.
func WireError(err error) *agentapi.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*agentapi.Error](err); ok {
		return e
	}
	return &agentapi.Error{Code: code(err), Msg: err.Error()}
}

func code(err error) agentapi.Code {
	switch {
	case is[*NoRoomError](err), is[*TakenError](err), is[*ConflictError](err), is[*LostError](err), is[*UnconfirmedError](err):
		return agentapi.CodeTryAgainLater // another pod may go
	case is[*UnassignableError](err):
		return agentapi.CodeInvalidConfig
	case is[*CheckError](err):
		return CodeCheckFailed
	case errors.Is(err, poolspec.ErrDecode):
		return agentapi.CodeDecoding
	case errors.Is(err, poolspec.ErrArgs):
		return agentapi.CodeInvalidEnvironment
	case errors.Is(err, poolspec.ErrUnsupported):
		return agentapi.CodeUnsupportedField
	case errors.Is(err, poolspec.ErrConfig), errors.Is(err, poolspec.ErrPool):
		return agentapi.CodeInvalidConfig
	case errors.Is(err, poolspec.ErrVersion):
		return agentapi.CodeIncompatibleVersion
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return agentapi.CodeTryAgainLater
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNewerSchema), errors.Is(err, store.ErrReadOnly),
		errors.Is(err, store.ErrOlder),
		errors.Is(err, allocator.ErrCorrupt):
		return agentapi.CodeIO
	default:
		return agentapi.CodeInternal
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
