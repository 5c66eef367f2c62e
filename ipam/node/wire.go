package node

import (
	"context"
	"errors"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/wire"
)

// CodeCheckFailed is the CNI error code with which CHECK reports a
// [*CheckError]. CNI leaves the codes from 100 on to plugins.
const CodeCheckFailed wire.Code = 100

// WireError is the one place where errors of serving a request meet the CNI
// codes, on the node's agent and in local mode alike. It returns nil for nil.
func WireError(err error) *wire.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	return &wire.Error{Code: code(err), Msg: err.Error()}
}

func code(err error) wire.Code {
	switch {
	case is[*NoRoomError](err), is[*TakenError](err), is[*ConflictError](err), is[*LostError](err):
		return wire.CodeTryAgainLater // another pod may go
	case is[*UnassignableError](err):
		return wire.CodeInvalidConfig
	case is[*CheckError](err):
		return CodeCheckFailed
	case errors.Is(err, poolspec.ErrDecode):
		return wire.CodeDecoding
	case errors.Is(err, poolspec.ErrArgs):
		return wire.CodeInvalidEnvironment
	case errors.Is(err, poolspec.ErrConfig), errors.Is(err, poolspec.ErrPool):
		return wire.CodeInvalidConfig
	case errors.Is(err, poolspec.ErrVersion):
		return wire.CodeIncompatibleVersion
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return wire.CodeTryAgainLater
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNewerSchema), errors.Is(err, store.ErrReadOnly),
		errors.Is(err, store.ErrOlder),
		errors.Is(err, allocator.ErrCorrupt):
		return wire.CodeIO
	default:
		return wire.CodeInternal
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
