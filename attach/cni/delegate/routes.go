package delegate

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/tenure-ipam/tenure/attach/cni/route"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// A move gives default routes to one step of a plan.
type move struct {
	to     int // the step
	family route.Family
}

// movesOf returns the moves of default routes that a plan asks for: that of a step with
// default-route, or those of PodNetworks, by family.
func movesOf(p plan.Plan) (moves []move) {
	for i, s := range p.Steps {
		if s.DefaultRoute != nil {
			moves = append(moves, move{to: i})
		}
		if s.Gateway4 {
			moves = append(moves, move{i, route.IPv4})
		}
		if s.Gateway6 {
			moves = append(moves, move{i, route.IPv6})
		}
	}
	return moves
}

// change returns the change of default routes that a move is, given the result of its step.
func (m move) change(s plan.Step, r *types100.Result) (route.Change, error) {
	c := route.Change{Only: m.family, Own: route.Defaults(r)}
	switch {
	case m.family == 0:
		c.Gateways = *s.DefaultRoute
	case !s.Default: // the default network keeps its own routes, whatever they are
		gateway, ok := route.GatewayOf(r, m.family)
		if !ok {
			return c, fmt.Errorf("isDefaultGW%d is set, and the network has no gateway of IPv%d: give its range one, or set the flag on another network", m.family, m.family)
		}
		c.Gateways = append(c.Gateways, gateway)
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			c.Keeper = append(c.Keeper, i.Name)
		}
	}
	if len(c.Keeper) == 0 { // a version of CNI without interfaces, or a plugin that names none
		c.Keeper = []string{s.IfName}
	}
	return c, nil
}

// moveDefaultRoutes gives the default routes to the steps that ask for them, and has the
// results say so.
func (a *attaching) moveDefaultRoutes() error {
	moves := movesOf(a.Plan)
	for _, m := range moves {
		s := a.Plan.Steps[m.to]
		change, err := m.change(s, a.done[m.to].full)
		if err == nil {
			err = change.Apply(a.Netns)
		}
		if err != nil {
			return stepError(s, "ADD", err)
		}
		for i := range a.Plan.Steps {
			switch {
			case a.done[i].full == nil: // it is not attached
			case i == m.to:
				change.Keep(a.done[i].full)
			default:
				change.Lose(a.done[i].full)
			}
		}
	}
	if len(moves) == 0 {
		return nil
	}
	for i, s := range a.Plan.Steps {
		if a.done[i].full == nil {
			continue
		}
		if err := a.renote(i); err != nil {
			return stepError(s, "ADD", err)
		}
	}
	return nil
}

// renote writes a result that was changed to where the old one is.
func (a *attaching) renote(i int) error {
	s := a.Plan.Steps[i]
	changed, err := a.done[i].full.GetAsVersion(a.done[i].result.Version())
	if err != nil {
		return fmt.Errorf("its result: %w", err)
	}
	text, err := json.Marshal(changed)
	if err != nil {
		return fmt.Errorf("its result: %w", err)
	}
	a.done[i].result = changed
	if err := a.log.Done(i, text); err != nil {
		return err
	}
	list, err := parse(s.List)
	if err != nil {
		return err
	}
	return a.keep(a.Key, callOf(a.ContainerID, a.Netns, s).record(list, text))
}

// checkDefaultRoutes reports whether the default routes are still where the ADD
// has put them.
func checkDefaultRoutes(e *journal.Entry, netns string) error {
	for _, m := range movesOf(e.Plan) {
		s := e.Plan.Steps[m.to]
		result, err := create.CreateFromBytes(e.Steps[m.to].Result)
		if err != nil {
			return err
		}
		full, err := fullOf(result)
		if err != nil {
			return err
		}
		change, err := m.change(s, full)
		if err == nil {
			err = change.Check(netns, route.Defaults(full))
		}
		if err != nil {
			return stepError(s, "CHECK", &types.Error{Code: types.ErrInternal, Msg: oneLine(err)})
		}
	}
	return nil
}
