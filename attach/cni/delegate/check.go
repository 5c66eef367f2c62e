package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/journal"
)

// Check has the plugins of every step look at their attachment, in the plan's order,
// and returns the first failure. Networks whose configuration is older than CNI
// 0.4.0 are passed over: their plugins know no CHECK.
//
// No error has CNI's code for an unknown container, by which a runtime need not clean up: without
// a journal, a DEL may still find what to undo (see [Runner.Detach]).
func (r *Runner) Check(ctx context.Context, k journal.Key, netns string) error {
	e, err := r.State.Read(k)
	if errors.Is(err, fs.ErrNotExist) {
		return &types.Error{Code: types.ErrInternal, Msg: fmt.Sprintf("container %s, interface %s: there is no journal of its ADD; DEL is to come first", k.ContainerID, k.IfName)}
	}
	if err != nil {
		return err
	}
	if !e.Answered {
		why := "its ADD has not come to an end"
		if e.Lost != "" {
			why += ", or the journal has lost it: " + e.Lost
		}
		return &types.Error{Code: types.ErrInternal, Msg: fmt.Sprintf("container %s, interface %s: %s; DEL is to come first", k.ContainerID, k.IfName, why)}
	}
	r.addCachedResults(e)
	for i, s := range e.Plan.Steps {
		if e.Lost == "" && e.Steps[i].Ended() {
			continue
		}
		list, err := parse(s.List)
		if err == nil && e.Steps[i].Result == nil {
			err = fmt.Errorf("its result is lost, or who attached it to the running pod was killed: %s", e.Lost)
		}
		if err == nil {
			err = r.checkChain(ctx, list, callOf(k.ContainerID, netns, s), e.Steps[i].Result)
		}
		if err != nil {
			return stepError(s, "CHECK", err)
		}
	}
	return checkDefaultRoutes(e, netns)
}

// Status asks the plugins of the default network whether they can serve an ADD. Of
// a network that is older than CNI 1.1.0, it sees only whether the plugins are
// there.
func (r *Runner) Status(ctx context.Context, text json.RawMessage) error {
	list, err := parse(text)
	if err != nil {
		return err
	}
	for _, p := range list.plugins {
		if _, err := r.find(p.kind); err != nil {
			return &types.Error{Code: types.ErrPluginNotAvailable, Msg: fmt.Sprintf("default network %s: %v", list.name, err)}
		}
	}
	err = r.statusChain(ctx, list)
	if err == nil {
		return nil
	}
	code := types.ErrPluginNotAvailable
	if codeOf(err) == types.ErrLimitedConnectivity {
		code = types.ErrLimitedConnectivity
	}
	return &types.Error{Code: code, Msg: fmt.Sprintf("default network %s: %s", list.name, oneLine(err))}
}
