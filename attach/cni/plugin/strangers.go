package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/attach/cni/delegate"
	"github.com/tenure-ipam/tenure/attach/cni/segment"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// reasonAddressInUse is of the warning that a stranger has an address that a pod was given.
const reasonAddressInUse = "AddressInUse"

// probeTimeout is for the agent to say what is to be asked for, or to take what came of it.
const probeTimeout = time.Second

// unproved asks the agent which addresses of the attachments are to be asked for. An agent that
// does not answer, as that of the version before, has none asked for.
func (c *call) unproved(container string) func(context.Context, []plan.Step) ([]segment.Address, func()) {
	return func(ctx context.Context, steps []plan.Step) (all []segment.Address, proved func()) {
		var p agentapi.ProbeAsk
		for _, s := range steps {
			p.Of = append(p.Of, agentapi.Interface{Network: s.Network, IfName: s.IfName})
		}
		resp, err := c.reach(ctx, time.Now().Add(probeTimeout), agentapi.Request{Verb: agentapi.Probe, ContainerID: container, Ask: p.AppendTo(nil)})
		if err != nil || resp.Error != nil || len(resp.Facts) == 0 {
			return nil, nil
		}
		var answer []agentapi.Unproved
		if err := json.Unmarshal(resp.Facts, &answer); err != nil {
			c.warn("what is to be asked for on the segment: %v", err)
			return nil, nil
		}
		for _, u := range answer {
			all = append(all, segment.Address{IfName: u.IfName, Addr: u.Addr})
		}
		return all, func() { c.tellProbe(ctx, container, agentapi.ProbeAsk{Proved: true}) }
	}
}

// tellProbe tells the agent what came of asking.
func (c *call) tellProbe(ctx context.Context, container string, p agentapi.ProbeAsk) {
	ask, err := json.Marshal(p)
	if err == nil {
		var resp agentapi.Response
		resp, err = c.reach(ctx, time.Now().Add(probeTimeout), agentapi.Request{Verb: agentapi.Probe, ContainerID: container, Ask: ask})
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
	}
	if err != nil {
		c.warn("the agent was not told what strangers have, and has it asked again: %v", err)
	}
}

// tellStrangers tells the agent, and the pod's user, of strangers that have the pod's addresses, if
// err says that. The addresses are free by then.
func (c *call) tellStrangers(ctx context.Context, h journal.Head, err error) {
	e, ok := errors.AsType[*delegate.StrangersError](err)
	if !ok {
		return
	}
	var p agentapi.ProbeAsk
	report := facts.Report{Pod: h.Plan.Pod, ContainerID: h.ContainerID}
	for _, s := range e.Found {
		p.Found = append(p.Found, agentapi.Stranger{Addr: s.Addr, MAC: s.MAC.String()})
		report.Warnings = append(report.Warnings, facts.Warning{Reason: reasonAddressInUse, Message: fmt.Sprintf(
			"the pod was to have %s on %s, which %s on the segment has: it gets another address. Find out who that is: kubectl get ipreservations -l tenure.dev/stranger", s.Addr, s.IfName, s.MAC)})
	}
	c.tellProbe(ctx, h.ContainerID, p)
	c.queueNews(journal.Key{}, report)
}
