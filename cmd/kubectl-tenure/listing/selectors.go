package listing

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
)

// poolPressureCell writes the pressure of a pool. Where nodes of some selectors alone find no
// address, it says so: the pool's numbers do not.
func poolPressureCell(p *v1alpha1.IPPool) screen.Cell {
	c := pressureCell(pressure(p))
	full := func(s v1alpha1.SelectorStatus) bool { return s.Exhausted != "" }
	some := slices.ContainsFunc(p.Status.Selectors, full)
	all := !slices.ContainsFunc(p.Status.Selectors, func(s v1alpha1.SelectorStatus) bool { return !full(s) })
	if c.Text == string(v1alpha1.PressureExhausted) && some && !all {
		c.Text += " (some nodes)"
	}
	return c
}

// writeSelectors writes how full the ranges with each node selector are, where there are some.
func writeSelectors(to screen.Screen, all []v1alpha1.SelectorStatus) {
	if len(all) == 0 {
		return
	}
	to.Title("Nodes that the ranges select")
	table := screen.Table{Heads: []string{"SELECTOR", "NODES", "USAGE", "USED", "FREE", "CAPACITY", "PRESSURE"}}
	for _, p := range all {
		pressed := p.Pressure
		if pressed == v1alpha1.PressureExhausted && p.Exhausted == "" { // as of the whole pool
			pressed = v1alpha1.PressureHigh
		}
		nodes := screen.Plain(fmt.Sprint(p.Nodes))[0]
		if p.Nodes == 0 {
			nodes.Look = screen.LookWarn
		}
		row := append(screen.Plain(cmp.Or(p.Selector, "(all nodes)")), nodes)
		row = append(row, screen.Plain(percent(p.Capacity-p.Free, p.Capacity), fmt.Sprint(p.Used), many(p.Free), many(p.Capacity))...)
		table.Row(append(row, pressureCell(pressed))...)
	}
	table.Write(to, false)
}
