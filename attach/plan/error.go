package plan

import (
	"errors"
	"strings"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// ErrUnsupported is the error of a configuration that has a key which tenure-attach does not serve.
var ErrUnsupported = errors.New("not supported")

// ErrNotFound is returned by a Disk that has no such configuration.
var ErrNotFound = errors.New("no such configuration")

// An Error is one reason why a pod cannot be attached.
type Error struct {
	Pod facts.PodRef
	// Where is what asks for it: an element of the annotation, the default network,
	// or a key of the configuration.
	Where string
	// Network is namespace/name of the definition, or the network's name; empty if
	// the fault lies before it.
	Network string
	Why     string // with the rule in parentheses where it is a specification's
	Do      string // what to do about it
	// Later says that it may pass without the pod being changed.
	Later bool
}

// MayPass reports whether every reason of an error of [Make] may pass without the pod being
// changed.
func MayPass(err error) bool {
	for _, reason := range each(err) {
		if e, ok := errors.AsType[*Error](reason); !ok || !e.Later {
			return false
		}
	}
	return true
}

// Error says all of it in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("pod " + e.Pod.Namespace + "/" + e.Pod.Name + ": ")
	if e.Where != "" {
		b.WriteString(e.Where + ": ")
	}
	if e.Network != "" {
		b.WriteString("network " + e.Network + ": ")
	}
	b.WriteString(e.Why)
	if e.Do != "" {
		b.WriteString("; " + e.Do)
	}
	return b.String()
}
