package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/demo/show"
)

func (d *demo) playMigration(ctx context.Context) {
	d.vm = d.newMachine(ctx)
	d.Does("KubeVirt", "for VirtualMachine %s an instance, a pod, and claim %s", machineName, d.vm.claim.name())
	source := d.launch(ctx, d.nodeA)
	d.check(ctx, d.vm.claim, source)
	watch := newWatch(ctx, d.pods[0], source.addrs[0].Addr())

	target := d.migrate(ctx, d.nodeB)
	d.check(ctx, d.vm.claim, target)
	d.Does("KubeVirt", "the machine migrates: a second pod, on the other node")
	d.showPods(source, target)
	d.kubectl(ctx, "get", "ipsubleases", "-o", useColumns)
	d.awaitUsedBy(ctx, d.vm.claim, d.nodeA, d.nodeB)
	d.OK("Both pods have the claim's addresses. While a node's use is there, nobody can free them.")

	d.playStranger(ctx)
	d.remove(ctx, source)
	answers, silence := d.end(watch)
	d.pingAll(ctx, d.pods, []*pod{target})
	d.check(ctx, d.vm.claim, target)
	d.awaitUsedBy(ctx, d.vm.claim, d.nodeB)
	d.OK("The first pod is gone; the second, on %s, keeps the addresses. The neighbour's %d pings were all answered, the slowest in %s.",
		target.node.name, answers, show.Millis(silence))
	d.awaitOwner(ctx, d.vm.claim, target)
	d.kubectl(ctx, "-n", namespace, "get", "ipamclaims", "-o", claimColumns)
}

// playStranger shows a pod that names the machine's claim and is not the machine's.
func (d *demo) playStranger(ctx context.Context) {
	stranger := d.create(ctx, d.nodeA, "stranger", selections{{Name: networkName, Claim: d.vm.claim.name()}})
	d.refuse(ctx, stranger, d.vm.claim.name(), "VirtualMachine "+machineName)
	d.OK("A stranger that names the claim is refused, and told why.")
	d.forget(ctx, stranger)
}

// awaitUsedBy waits until a claim is used by exactly these nodes.
func (d *demo) awaitUsedBy(ctx context.Context, c claimed, nodes ...*node) {
	var want []protocol.NodeName
	for _, n := range nodes {
		want = append(want, protocol.NodeName(n.name))
	}
	d.Await(ctx, "the nodes' uses of the claim", func(ctx context.Context) error {
		subs, err := d.API.SubLeases(ctx)
		if err != nil {
			return err
		}
		var got []protocol.NodeName
		for _, s := range subs {
			if s.Use != nil && string(s.Use.Claim.UID) == string(c.object.UID) {
				got = append(got, s.Node)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("claim %s is used by %v; want %v", c.name(), got, want)
		}
		return nil
	})
}
