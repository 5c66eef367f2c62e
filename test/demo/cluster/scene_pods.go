package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var onNetwork = selections{{Name: networkName}}

func (d *demo) playOrdinary(ctx context.Context) {
	for i, n := range []*node{d.nodeA, d.nodeA, d.nodeA, d.nodeB, d.nodeB, d.nodeB} {
		d.run(ctx, n, fmt.Sprintf("web-%d", i+1), onNetwork)
	}
	// For the next scene: its agent should have heard of it by then.
	d.waiting = d.create(ctx, d.nodeA, "web-7", onNetwork)
	d.Does("container runtimes", "ADD for each pod, by libcni: tenure-attach runs bridge, which runs tenure")
	d.showPods(d.pods...)
	owner := map[netip.Addr]string{}
	for _, p := range d.pods {
		for _, a := range p.addrs {
			if other, taken := owner[a.Addr()]; taken {
				d.Fail("%v was given to %s and to %s", a, other, p.name)
			}
			owner[a.Addr()] = p.name
		}
	}
	d.OK("%d pods on two nodes have %d addresses, none of them twice.", len(d.pods), len(owner))
	pings := d.pingAll(ctx, d.pods, d.pods)
	d.OK("Every pod reaches every other, by IPv4 and by IPv6: %d pings answered.", pings)
	d.showLeases(ctx)
}

// showLeases shows the pool's leases once their holders have published, for
// people, how many addresses are used.
func (d *demo) showLeases(ctx context.Context) {
	inUse := map[string]int32{}
	for _, p := range d.pods {
		if p.sel[0].Claim == "" {
			inUse[p.node.name] += int32(len(p.addrs))
		}
	}
	d.Await(ctx, "the agents publish, for people, what they use", func(ctx context.Context) error {
		used, err := d.published(ctx)
		if err != nil {
			return err
		}
		for node, n := range inUse {
			if used[node] != n {
				return fmt.Errorf("the leases of %s say %d used; want %d", node, used[node], n)
			}
		}
		return nil
	})
	d.kubectl(ctx, "get", "ipleases", "-o", leaseColumns)
}

// showPool shows the pool once its counts are those of the demo's own pods and
// claims.
func (d *demo) showPool(ctx context.Context, claims ...claimed) {
	used := map[netip.Addr]bool{}
	for _, p := range d.pods {
		for _, a := range p.addrs {
			used[a.Addr()] = true
		}
	}
	var claimed int
	for _, c := range claims {
		claimed += len(c.ips)
	}
	d.Await(ctx, "the controller counts", func(ctx context.Context) error {
		var pool v1alpha1.IPPool
		if err := d.Client.Get(ctx, client.ObjectKey{Name: poolName}, &pool); err != nil {
			return err
		}
		c := pool.Status.Counts
		if c == nil {
			return errors.New("nothing is counted")
		}
		if c.Used != int64(len(used)) || c.Claimed != int64(claimed) || c.Free != c.Capacity-c.Claimed-(c.Used-usedByClaims(d.pods)) {
			return fmt.Errorf("the pool says %d used, %d claimed and %d free of %d; want %d used and %d claimed",
				c.Used, c.Claimed, c.Free, c.Capacity, len(used), claimed)
		}
		return nil
	})
	d.kubectl(ctx, "get", "ippools")
}

// usedByClaims returns how many addresses of claims pods use.
func usedByClaims(pods []*pod) (n int64) {
	seen := map[netip.Addr]bool{}
	for _, p := range pods {
		for _, a := range p.addrs {
			if p.sel[0].Claim != "" && !seen[a.Addr()] {
				seen[a.Addr()] = true
				n++
			}
		}
	}
	return n
}

// published returns how many addresses each node says are used.
func (d *demo) published(ctx context.Context) (map[string]int32, error) {
	var list v1alpha1.IPLeaseList
	if err := d.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	used := map[string]int32{}
	for _, l := range list.Items {
		if l.Spec.Holder.Kind == v1alpha1.HolderNode && l.Status.Used != nil {
			used[l.Spec.Holder.Node] += *l.Status.Used
		}
	}
	return used, nil
}

func (d *demo) playFrozen(ctx context.Context) {
	d.playAddWhileFrozen(ctx)
	d.reportRunning(ctx, d.waiting)
}

func (d *demo) playAddWhileFrozen(ctx context.Context) {
	d.Must(d.PauseAPIServer())
	defer func() { d.Must(d.ResumeAPIServer()) }()
	d.Command("kill -STOP $(pidof kube-apiserver)")
	d.Must(d.attach(ctx, d.waiting))
	d.showPods(d.waiting)
	d.pingAll(ctx, []*pod{d.waiting}, d.pods)
	d.OK("%s got its addresses, and reaches the other %d pods, without the API server.", d.waiting.name, len(d.pods)-1)
}

// grants returns which addresses are granted to claims, by the claim's name.
func (d *demo) grants(ctx context.Context) (map[string][]netip.Addr, error) {
	leases, err := d.API.Leases(ctx)
	if err != nil {
		return nil, err
	}
	granted := map[string][]netip.Addr{}
	for _, l := range leases {
		for _, g := range l.Grants {
			if g.To.Kind == protocol.GranteeClaim {
				granted[g.To.Name] = append(granted[g.To.Name], g.Addr)
			}
		}
	}
	return granted, nil
}
