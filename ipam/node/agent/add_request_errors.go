package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// An unaskableError says why the cluster cannot be asked.
type unaskableError struct{ Cause error }

func (e *unaskableError) Error() string {
	return e.Cause.Error() + "; and the cluster cannot be asked for an address, since the runtime does not say for which pod (K8S_POD_UID)"
}

func (e *unaskableError) Unwrap() error { return e.Cause }

// An OutsideError says that a pool has no address, free or not, that the network may take
// without being asked for it by name.
type OutsideError struct{ Slot assign.Slot }

func (e *OutsideError) Error() string {
	may := ""
	if !e.Slot.View.IsAll() {
		may = fmt.Sprintf(" in what the network may take (%v)", e.Slot.View)
	}
	return fmt.Sprintf("pool %s has no %v address to give unasked%s: see its ranges and conditions (kubectl tenure pools %s), and the Events of the network's definition",
		e.Slot.Pool, e.Slot.Family, may, e.Slot.Pool)
}

// A RefusedError is the controller's refusal of a request.
type RefusedError struct{ protocol.Refusal }

func (e *RefusedError) Error() string { return e.Message }

// refusedNotAssignable is the reason of a refusal that no waiting changes; see the
// API's constants.
const refusedNotAssignable = "NotAssignable"

// code is the CNI code that says whether trying again may help.
func (e *RefusedError) code() agentapi.Code {
	if e.Reason == refusedNotAssignable {
		return agentapi.CodeInvalidConfig
	}
	return agentapi.CodeTryAgainLater
}

// A waitingError says for what a request still waits when its ADD's time is up.
type waitingError struct{ Why string }

func (e *waitingError) Error() string { return e.Why }

// stillWaits says why r has not been answered in time: its pools are exhausted, the
// API server does not answer, or the controller does not.
func (a *Agent) stillWaits(ctx context.Context, add *addCall, r protocol.Right, err error) error {
	for _, w := range r.Request.Wants {
		if known, _, _ := a.pools.get(w.Pool).now(); known != nil && known.Pressure == allocator.PressureExhausted && known.Exhausted != "" {
			return &waitingError{Why: known.Exhausted}
		}
	}
	if errors.Is(err, errUnanswered) || is[*restoreError](err) {
		return err
	}
	if cause := context.Cause(ctx); !is[*waitedError](cause) { // the runtime has given up, or the agent stops
		return cause
	}
	return &waitingError{Why: fmt.Sprintf("the controller has not answered request %s of pod %s for %s within %v: does tenure-controller run?",
		r.Name, add.demand.Pod, wantText(r.Request.Wants), a.cfg.Wait)}
}

func wantText(wants []protocol.Wanted) string {
	texts := make([]string, len(wants))
	for i, w := range wants {
		what := "an address"
		if len(w.Ranges) == 1 {
			what = w.Ranges[0]
		}
		texts[i] = what + " of pool " + string(w.Pool)
	}
	return strings.Join(texts, " and ")
}
