package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A claimed is a claim and what its status says.
type claimed struct {
	object *ipamclaims.IPAMClaim
	ips    []netip.Prefix
	took   time.Duration // until the status had them
}

func (c claimed) name() string { return c.object.Name }

// claim creates an IPAMClaim that nobody owns and waits until its status has
// addresses.
func (d *demo) claim(ctx context.Context, name string) (claimed, error) {
	object := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamclaims.IPAMClaimSpec{Network: networkName},
	}
	if err := d.kube.Create(ctx, object); err != nil {
		return claimed{}, err
	}
	return d.awaitClaim(ctx, name)
}

// awaitClaim waits until a claim is there and its status has addresses.
func (d *demo) awaitClaim(ctx context.Context, name string) (c claimed, err error) {
	c.object = &ipamclaims.IPAMClaim{}
	c.took, err = d.screen.await(ctx, "the controller allocates the claim's addresses", func(ctx context.Context) (string, error) {
		seen, out, err := d.api.ReadClaim(ctx, namespace, name)
		switch {
		case out == protocol.NotFound:
			return fmt.Sprintf("there is no claim %s", name), nil
		case out != protocol.Done:
			return "", err
		case len(seen.IPs) == 0:
			return fmt.Sprintf("claim %s has none: %s", name, seen.Failed), nil
		}
		c.ips = seen.IPs
		return "", d.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, c.object)
	})
	return c, err
}

// check checks that p has exactly the claim's addresses, and that these are
// granted to it.
func (d *demo) check(ctx context.Context, c claimed, p *pod) error {
	if !slices.Equal(c.ips, p.addrs) {
		return fmt.Errorf("%s has %v; want the addresses of claim %s, %v", p.name, p.addrs, c.name(), c.ips)
	}
	return d.granted(ctx, c)
}

// granted checks that exactly the addresses of a claim's status are granted to it.
func (d *demo) granted(ctx context.Context, c claimed) error {
	all, err := d.grants(ctx)
	if err != nil {
		return err
	}
	got := all[c.name()]
	for _, ip := range c.ips {
		if !slices.Contains(got, ip.Addr()) || len(got) != len(c.ips) {
			return fmt.Errorf("claim %s has the grants %v; its status says %v", c.name(), got, c.ips)
		}
	}
	return nil
}

// awaitOwner waits until a claim's status names the pod that holds it.
func (d *demo) awaitOwner(ctx context.Context, c claimed, p *pod) error {
	_, err := d.screen.await(ctx, "the claim's status names its pod", func(ctx context.Context) (string, error) {
		var now ipamclaims.IPAMClaim
		if err := d.kube.Get(ctx, clientKey(c.object), &now); err != nil {
			return "", err
		}
		if o := now.Status.OwnerPod; o == nil || o.Name != p.name {
			return fmt.Sprintf("claim %s does not name %s", c.name(), p.name), nil
		}
		return "", nil
	})
	return err
}

// postgresMAC is kept with the claim. Nobody tells the neighbours of a container
// that an address has moved to another MAC: for half a minute or more they would
// go on sending to the old one.
const postgresMAC = "02:00:00:00:77:02"

func (d *demo) claimScene() scene {
	return scene{
		"A claim: an address that is there before its pod",
		"An IPAMClaim asks for addresses that outlive pods. The controller grants them out of blocks that the cluster holds, so that no node owns " +
			"them. The address can go into DNS or a firewall before anything runs.",
		d.playClaim,
	}
}

func (d *demo) playClaim(ctx context.Context) (err error) {
	if d.postgres, err = d.claim(ctx, "postgres.lan"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "-n", namespace, "get", "ipamclaims", "-o", claimColumns); err != nil {
		return err
	}
	if err := d.granted(ctx, d.postgres); err != nil {
		return err
	}
	d.screen.ok("%s after it was created, the claim has its addresses, and no pod names it yet.", millis(d.postgres.took))
	p, err := d.run(ctx, d.nodeA, "postgres", selections{{Name: networkName, Claim: d.postgres.name(), MAC: postgresMAC}})
	if err != nil {
		return err
	}
	d.screen.annotation(p.name, p.sel)
	d.showPods(p)
	if err := d.check(ctx, d.postgres, p); err != nil {
		return err
	}
	d.screen.ok("The pod on %s has exactly the claim's addresses.", p.node.name)
	if err := d.showLeases(ctx); err != nil {
		return err
	}
	if _, err := d.pingAll(ctx, d.pods, []*pod{p}); err != nil {
		return err
	}
	d.screen.ok("The other %d pods reach it there.", len(d.pods)-1)
	return d.awaitOwner(ctx, d.postgres, p)
}

func (d *demo) moveScene() scene {
	return scene{
		"The pod is deleted, and made anew on the other node: the same address",
		"Between the two pods the address belongs to the claim: nobody else is given it. (The pod asks for its MAC as well, so that what its " +
			"neighbours remember stays right.)",
		d.playMove,
	}
}

func (d *demo) playMove(ctx context.Context) error {
	old := d.pods[slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == "postgres" })]
	d.screen.command("kubectl -n %s delete pod %s", namespace, old.name)
	if err := d.remove(ctx, old); err != nil {
		return err
	}
	if err := d.awaitNoUses(ctx); err != nil {
		return err
	}
	if err := d.granted(ctx, d.postgres); err != nil {
		return err
	}
	d.screen.ok("The pod is gone, nobody uses the claim, and the claim still has its addresses.")
	wanted := d.postgres.ips[0]
	squatter, err := d.create(ctx, d.nodeB, "squatter", selections{{Name: networkName, IPs: []string{wanted.String()}}})
	if err != nil {
		return err
	}
	if err := d.refuse(ctx, squatter, wanted.Addr().String(), d.postgres.name()); err != nil {
		return err
	}
	d.screen.ok("Another pod asks for %v by name, and does not get it.", wanted.Addr())
	if err := d.forget(ctx, squatter); err != nil {
		return err
	}
	p, err := d.run(ctx, d.nodeB, old.name, old.sel)
	if err != nil {
		return err
	}
	d.showPods(old, p)
	if p.object.UID == old.object.UID {
		return fmt.Errorf("%s is the same pod as before", p.name)
	}
	if err := d.check(ctx, d.postgres, p); err != nil {
		return err
	}
	d.screen.ok("A new pod, with another UID, on %s instead of %s, has the same addresses.", p.node.name, old.node.name)
	if _, err := d.pingAll(ctx, d.pods, []*pod{p}); err != nil {
		return err
	}
	d.screen.ok("The other %d pods reach it there.", len(d.pods)-1)
	return d.awaitOwner(ctx, d.postgres, p)
}

// awaitNoUses waits until no node uses a claim.
func (d *demo) awaitNoUses(ctx context.Context) error {
	_, err := d.screen.await(ctx, "the nodes let go of the claims", func(ctx context.Context) (string, error) {
		subs, err := d.api.SubLeases(ctx)
		if err != nil || len(subs) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d sub-leases are left, one of %s", len(subs), subs[0].Node), nil
	})
	return err
}
