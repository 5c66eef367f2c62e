package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var onNetwork = selections{{Name: networkName}}

func (d *demo) ordinaryScene() scene {
	return scene{
		"Ordinary pods: the API server is asked once for 64 addresses, not once for each",
		"The first ADD on a node creates a lease on a whole block; a lease's name is computed from the block, so that the API server itself refuses " +
			"a second one. From then on the node's agent gives addresses out of a file of its own, synced before the answer. (Here the file is on a " +
			"tmpfs; a disk adds the time of an fsync.)",
		d.playOrdinary,
	}
}

func (d *demo) playOrdinary(ctx context.Context) error {
	for i, n := range []*node{d.nodeA, d.nodeA, d.nodeA, d.nodeB, d.nodeB, d.nodeB} {
		if _, err := d.run(ctx, n, fmt.Sprintf("web-%d", i+1), onNetwork); err != nil {
			return err
		}
	}
	// For the next scene: its agent should have heard of it by then.
	var err error
	if d.waiting, err = d.create(ctx, d.nodeA, "web-7", onNetwork); err != nil {
		return err
	}
	d.screen.does("container runtimes", "ADD for each pod, by libcni: tenure-attach runs bridge, which runs tenure")
	d.showPods(d.pods...)
	owner := map[netip.Addr]string{}
	for _, p := range d.pods {
		for _, a := range p.addrs {
			if other, taken := owner[a.Addr()]; taken {
				return fmt.Errorf("%v was given to %s and to %s", a, other, p.name)
			}
			owner[a.Addr()] = p.name
		}
	}
	d.screen.ok("%d pods on two nodes have %d addresses, none of them twice.", len(d.pods), len(owner))
	pings, err := d.pingAll(ctx, d.pods, d.pods)
	if err != nil {
		return err
	}
	d.screen.ok("Every pod reaches every other, by IPv4 and by IPv6: %d pings answered.", pings)
	return d.showLeases(ctx)
}

// showLeases shows the pool's leases once their holders have published, for
// people, how many addresses are used.
func (d *demo) showLeases(ctx context.Context) error {
	inUse := map[string]int32{}
	for _, p := range d.pods {
		if p.sel[0].Claim == "" {
			inUse[p.node.name] += int32(len(p.addrs))
		}
	}
	_, err := d.screen.await(ctx, "the agents publish, for people, what they use", func(ctx context.Context) (string, error) {
		used, err := d.published(ctx)
		if err != nil {
			return "", err
		}
		for node, n := range inUse {
			if used[node] != n {
				return fmt.Sprintf("the leases of %s say %d used; want %d", node, used[node], n), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "ipleases", "-o", leaseColumns)
}

// showPool shows the pool once its counts are those of the demo's own pods and
// claims.
func (d *demo) showPool(ctx context.Context, claims ...claimed) error {
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
	_, err := d.screen.await(ctx, "the controller counts", func(ctx context.Context) (string, error) {
		var pool v1alpha1.IPPool
		if err := d.kube.Get(ctx, client.ObjectKey{Name: poolName}, &pool); err != nil {
			return "", err
		}
		c := pool.Status.Counts
		if c == nil {
			return "nothing is counted", nil
		}
		if c.Used != int64(len(used)) || c.Claimed != int64(claimed) || c.Free != c.Capacity-c.Claimed-(c.Used-usedByClaims(d.pods)) {
			return fmt.Sprintf("the pool says %d used, %d claimed and %d free of %d; want %d used and %d claimed",
				c.Used, c.Claimed, c.Free, c.Capacity, len(used), claimed), nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "ippools")
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
	if err := d.kube.List(ctx, &list); err != nil {
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

func (d *demo) frozenScene() scene {
	return scene{
		"The API server does not answer, and a pod starts all the same",
		"kube-apiserver is frozen (SIGSTOP): connections stay open, no answer comes. The node has leased its block already, and knows its own " +
			"pods, and the networks that they select, from watches.",
		d.playFrozen,
	}
}

func (d *demo) playFrozen(ctx context.Context) error {
	if err := d.playAddWhileFrozen(ctx); err != nil {
		return err
	}
	return d.reportRunning(ctx, d.waiting)
}

func (d *demo) playAddWhileFrozen(ctx context.Context) (err error) {
	if err := d.cp.PauseAPIServer(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cp.ResumeAPIServer()) }()
	d.screen.command("kill -STOP $(pidof kube-apiserver)")
	if err := d.silent(ctx); err != nil {
		return err
	}
	if err := d.attach(ctx, d.waiting); err != nil {
		return err
	}
	d.showPods(d.waiting)
	if _, err := d.pingAll(ctx, []*pod{d.waiting}, d.pods); err != nil {
		return err
	}
	d.screen.ok("%s got its addresses, and reaches the other %d pods, without the API server.", d.waiting.name, len(d.pods)-1)
	return nil
}

// silent waits until the API server answers nothing: on a busy machine its threads
// take a moment to stop.
func (d *demo) silent(ctx context.Context) error {
	_, err := d.screen.await(ctx, "the API server freezes", func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		err := d.kube.Get(ctx, client.ObjectKey{Name: poolName}, &v1alpha1.IPPool{})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return "", nil
		case err != nil:
			return "", err
		}
		return "it answers", nil
	})
	return err
}

// grants returns which addresses are granted to claims, by the claim's name.
func (d *demo) grants(ctx context.Context) (map[string][]netip.Addr, error) {
	leases, err := d.api.Leases(ctx)
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
