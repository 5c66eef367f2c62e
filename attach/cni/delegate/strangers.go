package delegate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/cni/segment"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// askFor is how long neighbours have to answer whether an address is theirs.
const askFor = 200 * time.Millisecond

// tenureIPAM is the type of the IPAM plugin whose addresses a stranger might have.
const tenureIPAM = "tenure"

// A StrangersError says that a pod was given addresses that strangers on the segment have. The
// attachments have been undone, where the error is all that Attach has returned.
type StrangersError struct {
	Found []segment.Stranger
	err   *types.Error
}

// Error says which address a stranger has, and that the next try gets another.
func (e *StrangersError) Error() string { return e.err.Error() }

// Unwrap returns the error for the runtime.
func (e *StrangersError) Unwrap() error { return e.err }

// findStrangers asks for the addresses that are to be asked for. Its error is a [*StrangersError]
// if somebody else has one. That it cannot be asked is a warning: then all is as in a pool that
// does not want it.
func (a *attaching) findStrangers(ctx context.Context) error {
	if a.Unproved == nil {
		return nil
	}
	var steps []plan.Step
	for i, s := range a.Plan.Steps {
		if slices.ContainsFunc(a.lists[i].plugins, func(p plugin) bool { return p.ipam == tenureIPAM }) {
			steps = append(steps, s)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	all, proved := a.Unproved(ctx, steps)
	if len(all) == 0 {
		return nil
	}
	found, asked, err := segment.Ask(a.Netns, all, askFor)
	if err != nil {
		fmt.Fprintf(a.Stderr, "tenure-attach: container %s: whether strangers have its addresses is not known: %s\n", a.ContainerID, oneLine(err))
		return nil
	}
	if len(found) == 0 {
		if asked {
			proved()
		}
		return nil
	}
	e := &types.Error{
		Code: types.ErrTryAgainLater, Msg: fmt.Sprintf("address %s of interface %s is in use on the segment by %s, which is no pod that has it by this pool", found[0].Addr, found[0].IfName, found[0].MAC),
		Details: "the address is given to no pod until the IPReservation that is made of it is deleted; the next try gets another",
	}
	return &StrangersError{found, e}
}
