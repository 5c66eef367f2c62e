package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
)

func (d *demo) playAway(ctx context.Context) {
	n := d.nodeB
	gone := d.pods[slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == "web-6" })]
	d.Command("pkill -KILL -f 'tenured --node=%s'", n.name)
	d.Must(n.agent.Kill())
	d.Command("kubectl -n %s delete pod %s", namespace, gone.name)
	d.remove(ctx, gone)
	d.showJournal(n, gone)
	d.OK("DEL succeeded without the agent, and waits on disk.")
	late := d.create(ctx, n, "web-8", onNetwork)
	d.refuse(ctx, late, "agent")
	d.pingAll(ctx, d.pods, d.pods)
	d.OK("No address is given without the agent; the %d pods that run go on running.", len(d.pods))
	d.Step("tenured on "+n.name+", started again", func() error { return n.agent.Start(ctx) })
	d.awaitFreed(ctx, n, gone)
	d.OK("The agent has applied the journal: %s's addresses are free again.", gone.name)
	d.start(ctx, late)
	d.showPods(late)
	d.OK("The pod that was put off has its addresses.")
}

// showJournal shows the one DEL that the journal must have.
func (d *demo) showJournal(n *node, of *pod) {
	entries, damaged, err := delqueue.List(n.journal())
	d.Must(err)
	if len(damaged) > 0 || !slices.ContainsFunc(entries, func(e delqueue.Entry) bool { return e.ContainerID == of.sandbox }) {
		d.Fail("the journal of %s has %v (damaged: %v); want the DEL of %s", n.name, entries, damaged, of.sandbox)
	}
	rows := [][]string{{"JOURNALLED ON", "NETWORK", "SANDBOX", "INTERFACE"}}
	for _, e := range entries {
		rows = append(rows, []string{n.name, e.Network, e.ContainerID[:12] + "…", e.IfName})
	}
	d.Table(rows...)
}

// awaitFreed waits until a node's journal is empty, and none of its leases says
// any more that p has an address.
func (d *demo) awaitFreed(ctx context.Context, n *node, p *pod) {
	d.Await(ctx, "the agent applies the journal", func(ctx context.Context) error {
		entries, _, err := delqueue.List(n.journal())
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("the journal of %s has %d entries", n.name, len(entries))
		}
		var leases v1alpha1.IPLeaseList
		if err := d.Client.List(ctx, &leases); err != nil {
			return err
		}
		for _, l := range leases.Items {
			for _, who := range l.Status.Allocations {
				if strings.Contains(who, " "+namespace+"/"+p.name+" ") {
					return fmt.Errorf("lease %s says %q", l.Name, who)
				}
			}
		}
		return nil
	})
}
