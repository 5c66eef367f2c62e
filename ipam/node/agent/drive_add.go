package agent

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// driveForADD is drive for an ADD, which waits for it no longer than ctx allows: what it has
// begun is settled all the same. A right that was found gone is begun anew, once.
func (a *Agent) driveForADD(ctx context.Context, fresh protocol.Right, begin beginning) (protocol.Right, protocol.Result, error) {
	type driven struct {
		right protocol.Right
		res   protocol.Result
		err   error
	}
	var d driven
	done, add := make(chan struct{}), ctx
	a.background(func(ctx context.Context) {
		d.right, d.res, d.err = a.driveWhile(ctx, add, fresh, begin)
		close(done)
	})
	if a.sched.Wait(ctx, sched.Forever, done) != 0 {
		return fresh, protocol.Result{Verdict: protocol.VerdictLater}, context.Cause(ctx)
	}
	return d.right, d.res, d.err
}

// driveWhile is what driveForADD does in the background. It begins nothing for an ADD, whose
// context is add, that has ended: another ADD may come after it and be answered with the
// right, which must not become the first one's again. So the right stays locked all the
// while, and that other one's drive is the later.
func (a *Agent) driveWhile(ctx, add context.Context, fresh protocol.Right, begin beginning) (protocol.Right, protocol.Result, error) {
	release, err := a.rights.Lock(ctx, a.sched, fresh.Name)
	if err != nil {
		return fresh, protocol.Result{Verdict: protocol.VerdictLater, Why: err.Error()}, err
	}
	defer release()
	if add.Err() != nil {
		return fresh, protocol.Result{Verdict: protocol.VerdictLater}, context.Cause(add)
	}
	r, res, err := a.driveLocked(ctx, fresh, begin)
	if err == nil && res.Verdict == protocol.VerdictGone && add.Err() == nil {
		return a.driveLocked(ctx, fresh, begin)
	}
	return r, res, err
}
