package delegate

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/cni/segment"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// A Runner carries out plans for one call of the meta-plugin.
type Runner struct {
	State journal.Dir
	// Path are the directories of the plugins, in order.
	Path []string
	// Stderr gets the plugins' standard error.
	Stderr io.Writer
	// Lock is what plugins inherit; whoever runs a container's plan holds its lock.
	// Nil for calls that are about no container.
	Lock *journal.Lock
	// Boot is the ID of this boot.
	Boot string
	// Unproved, unless it is nil, returns which addresses of the steps' attachments are to be asked
	// for on their segments, and what is to be told if nobody has answered.
	Unproved func(ctx context.Context, steps []plan.Step) (all []segment.Address, proved func())
	// CIDRs asks for a status with prefix lengths.
	CIDRs bool
	// Limit is after how long a plugin is killed, where no runtime waits that would; 0: never.
	Limit time.Duration

	meanwhile func() // is done once, while the next plugin runs; nil for nothing
}

// stepError adds to err which step it is of. The code of a plugin's error stays, except that for an
// unknown container: what one plugin does not know, another may hold, so that the runtime has to
// clean up.
func stepError(s plan.Step, verb string, err error) error {
	code := codeOf(err)
	if code == types.ErrUnknownContainer {
		code = types.ErrInternal
	}
	what := "network"
	if s.Default {
		what = "default network"
	}
	return &types.Error{Code: code, Msg: fmt.Sprintf("%s of %s %s on %s: %v", verb, what, s.Name, s.IfName, oneLine(err))}
}

// oneLine is an error's text in one line, as logs and events have it.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
