package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
)

func (d *demo) awayScene() scene {
	return scene{
		"A DEL while the agent is away",
		"The agent of node-b is killed (SIGKILL). Pods go on running, and deleting one must not wait for the agent: the CNI plugin writes the DEL " +
			"into a journal on disk and reports success. A new pod is told to try again later.",
		d.playAway,
	}
}

func (d *demo) playAway(ctx context.Context) error {
	n := d.nodeB
	gone := d.pods[slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == "web-6" })]
	d.screen.command("pkill -KILL -f 'tenured --node=%s'", n.name)
	if err := n.agent.kill(); err != nil {
		return err
	}
	d.screen.command("kubectl -n %s delete pod %s", namespace, gone.name)
	if err := d.remove(ctx, gone); err != nil {
		return err
	}
	if err := d.showJournal(n, gone); err != nil {
		return err
	}
	d.screen.ok("DEL succeeded without the agent, and waits on disk.")
	late, err := d.create(ctx, n, "web-8", onNetwork)
	if err != nil {
		return err
	}
	if err := d.refuse(ctx, late, "agent"); err != nil {
		return err
	}
	if _, err := d.pingAll(ctx, d.pods, d.pods); err != nil {
		return err
	}
	d.screen.ok("No address is given without the agent; the %d pods that run go on running.", len(d.pods))
	if err := d.screen.step("tenured on "+n.name+", started again", func(func(string)) error { return n.agent.start(ctx) }); err != nil {
		return err
	}
	if err := d.awaitFreed(ctx, n, gone); err != nil {
		return err
	}
	d.screen.ok("The agent has applied the journal: %s's addresses are free again.", gone.name)
	if err := d.start(ctx, late); err != nil {
		return err
	}
	d.showPods(late)
	d.screen.ok("The pod that was put off has its addresses.")
	return nil
}

// showJournal shows the one DEL that the journal must have.
func (d *demo) showJournal(n *node, of *pod) error {
	entries, damaged, err := delqueue.List(n.journal())
	switch {
	case err != nil:
		return err
	case len(damaged) > 0 || !slices.ContainsFunc(entries, func(e delqueue.Entry) bool { return e.ContainerID == of.sandbox }):
		return fmt.Errorf("the journal of %s has %v (damaged: %v); want the DEL of %s", n.name, entries, damaged, of.sandbox)
	}
	rows := [][]string{{"JOURNALLED ON", "NETWORK", "SANDBOX", "INTERFACE"}}
	for _, e := range entries {
		rows = append(rows, []string{n.name, e.Network, e.ContainerID[:12] + "…", e.IfName})
	}
	d.screen.table(rows...)
	return nil
}

// awaitFreed waits until a node's journal is empty, and none of its leases says
// any more that p has an address.
func (d *demo) awaitFreed(ctx context.Context, n *node, p *pod) error {
	_, err := d.screen.await(ctx, "the agent applies the journal", func(ctx context.Context) (string, error) {
		entries, _, err := delqueue.List(n.journal())
		if err != nil {
			return "", err
		}
		if len(entries) > 0 {
			return fmt.Sprintf("the journal of %s has %d entries", n.name, len(entries)), nil
		}
		var leases v1alpha1.IPLeaseList
		if err := d.kube.List(ctx, &leases); err != nil {
			return "", err
		}
		for _, l := range leases.Items {
			for _, who := range l.Status.Allocations {
				if strings.Contains(who, " "+namespace+"/"+p.name+" ") {
					return fmt.Sprintf("lease %s says %q", l.Name, who), nil
				}
			}
		}
		return "", nil
	})
	return err
}
