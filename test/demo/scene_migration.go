package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func (d *demo) migrationScene() scene {
	return scene{
		"Live migration: two pods on one claim at once",
		"A virtual machine moves while it runs: for a while it has a pod on each node, and both need its address. They are siblings, pods of one " +
			"VirtualMachineInstance, and may. Anybody else who names the claim is refused. A neighbour pings the machine all the while.",
		d.playMigration,
	}
}

func (d *demo) playMigration(ctx context.Context) (err error) {
	if d.vm, err = d.newMachine(ctx); err != nil {
		return err
	}
	d.screen.does("KubeVirt", "for VirtualMachine %s an instance, a pod, and claim %s", machineName, d.vm.claim.name())
	source, err := d.launch(ctx, d.nodeA)
	if err != nil {
		return err
	}
	if err := d.check(ctx, d.vm.claim, source); err != nil {
		return err
	}
	watch := newWatch(ctx, d.pods[0], source.addrs[0].Addr())
	defer watch.stop()

	target, err := d.migrate(ctx, d.nodeB)
	if err != nil {
		return err
	}
	if err := d.check(ctx, d.vm.claim, target); err != nil {
		return err
	}
	d.screen.does("KubeVirt", "the machine migrates: a second pod, on the other node")
	d.showPods(source, target)
	if err := d.kubectl(ctx, "get", "ipsubleases", "-o", useColumns); err != nil {
		return err
	}
	if err := d.awaitUsedBy(ctx, d.vm.claim, d.nodeA, d.nodeB); err != nil {
		return err
	}
	d.screen.ok("Both pods have the claim's addresses. While a node's use is there, nobody can free them.")

	if err := d.playStranger(ctx); err != nil {
		return err
	}
	if err := d.remove(ctx, source); err != nil {
		return err
	}
	answers, silence, err := watch.end()
	if err != nil {
		return fmt.Errorf("the neighbour: %w", err)
	}
	if _, err := d.pingAll(ctx, d.pods, []*pod{target}); err != nil {
		return err
	}
	if err := d.check(ctx, d.vm.claim, target); err != nil {
		return err
	}
	if err := d.awaitUsedBy(ctx, d.vm.claim, d.nodeB); err != nil {
		return err
	}
	d.screen.ok("The first pod is gone; the second, on %s, keeps the addresses. The neighbour's %d pings were all answered, the slowest in %s.",
		target.node.name, answers, millis(silence))
	if err := d.awaitOwner(ctx, d.vm.claim, target); err != nil {
		return err
	}
	return d.kubectl(ctx, "-n", namespace, "get", "ipamclaims", "-o", claimColumns)
}

// playStranger shows a pod that names the machine's claim and is not the machine's.
func (d *demo) playStranger(ctx context.Context) error {
	stranger, err := d.create(ctx, d.nodeA, "stranger", selections{{Name: networkName, Claim: d.vm.claim.name()}})
	if err != nil {
		return err
	}
	if err := d.refuse(ctx, stranger, d.vm.claim.name(), "VirtualMachine "+machineName); err != nil {
		return err
	}
	d.screen.ok("A stranger that names the claim is refused, and told why.")
	return d.forget(ctx, stranger)
}

// awaitUsedBy waits until a claim is used by exactly these nodes.
func (d *demo) awaitUsedBy(ctx context.Context, c claimed, nodes ...*node) error {
	var want []protocol.NodeName
	for _, n := range nodes {
		want = append(want, protocol.NodeName(n.name))
	}
	_, err := d.screen.await(ctx, "the nodes' uses of the claim", func(ctx context.Context) (string, error) {
		subs, err := d.api.SubLeases(ctx)
		if err != nil {
			return "", err
		}
		var got []protocol.NodeName
		for _, s := range subs {
			if s.Use != nil && string(s.Use.Claim.UID) == string(c.object.UID) {
				got = append(got, s.Node)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("claim %s is used by %v; want %v", c.name(), got, want), nil
		}
		return "", nil
	})
	return err
}
