package delegate

import (
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/tenure-ipam/tenure/attach/cniresult"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/attach/route"
)

// keeper returns the number of the step with default-route, or -1.
func keeper(p plan.Plan) int {
	return slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.DefaultRoute != nil })
}

// changeOf returns the change of default routes that a step with default-route
// asks for, given its result.
func changeOf(s plan.Step, r *types100.Result) route.Change {
	c := route.Change{Gateways: *s.DefaultRoute, Own: route.Defaults(r)}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			c.Keeper = append(c.Keeper, i.Name)
		}
	}
	if len(c.Keeper) == 0 { // a version of CNI without interfaces, or a plugin that names none
		c.Keeper = []string{s.IfName}
	}
	return c
}

// moveDefaultRoutes gives the default routes to the step that asks for them, and
// has the results say so.
func (a *attaching) moveDefaultRoutes() error {
	k := keeper(a.Plan)
	if k < 0 {
		return nil
	}
	s := a.Plan.Steps[k]
	change := changeOf(s, a.done[k].full)
	if err := change.Apply(a.Netns); err != nil {
		return stepError(s, "ADD", err)
	}
	for i, s := range a.Plan.Steps {
		switch {
		case i == k:
			change.Keep(a.done[i].full)
		case s.LosesDefaultRoute:
			change.Lose(a.done[i].full)
		default:
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
	text, err := cniresult.Text(changed)
	if err != nil {
		return fmt.Errorf("its result: %w", err)
	}
	a.done[i].result, a.done[i].text = changed, text
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
	k := keeper(e.Plan)
	if k < 0 {
		return nil
	}
	result, err := create.CreateFromBytes(e.Steps[k].Result)
	if err != nil {
		return err
	}
	full, err := fullOf(result)
	if err != nil {
		return err
	}
	if err := changeOf(e.Plan.Steps[k], full).Check(netns, route.Defaults(full)); err != nil {
		return stepError(e.Plan.Steps[k], "CHECK", &types.Error{Code: types.ErrInternal, Msg: oneLine(err)})
	}
	return nil
}
