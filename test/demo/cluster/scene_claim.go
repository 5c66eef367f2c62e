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
	"github.com/tenure-ipam/tenure/test/demo/show"
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
func (d *demo) claim(ctx context.Context, name string) claimed {
	object := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamclaims.IPAMClaimSpec{Network: networkName},
	}
	d.Must(d.Client.Create(ctx, object))
	return d.awaitClaim(ctx, name)
}

// awaitClaim waits until a claim is there and its status has addresses.
func (d *demo) awaitClaim(ctx context.Context, name string) (c claimed) {
	c.object = &ipamclaims.IPAMClaim{}
	c.took = d.Await(ctx, "the controller allocates the claim's addresses", func(ctx context.Context) error {
		seen, out, err := d.API.ReadClaim(ctx, namespace, name)
		switch {
		case out == protocol.NotFound:
			return fmt.Errorf("there is no claim %s", name)
		case out != protocol.Done:
			return err
		case len(seen.IPs) == 0:
			return fmt.Errorf("claim %s has none: %s", name, seen.Failed)
		}
		c.ips = seen.IPs
		return d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, c.object)
	})
	return c
}

// check checks that p has exactly the claim's addresses, and that these are
// granted to it.
func (d *demo) check(ctx context.Context, c claimed, p *pod) {
	if !slices.Equal(c.ips, p.addrs) {
		d.Fail("%s has %v; want the addresses of claim %s, %v", p.name, p.addrs, c.name(), c.ips)
	}
	d.granted(ctx, c)
}

// granted checks that exactly the addresses of a claim's status are granted to it.
func (d *demo) granted(ctx context.Context, c claimed) {
	all, err := d.grants(ctx)
	d.Must(err)
	got := all[c.name()]
	for _, ip := range c.ips {
		if !slices.Contains(got, ip.Addr()) || len(got) != len(c.ips) {
			d.Fail("claim %s has the grants %v; its status says %v", c.name(), got, c.ips)
		}
	}
}

// awaitOwner waits until a claim's status names the pod that holds it.
func (d *demo) awaitOwner(ctx context.Context, c claimed, p *pod) {
	d.Await(ctx, "the claim's status names its pod", func(ctx context.Context) error {
		var now ipamclaims.IPAMClaim
		if err := d.Client.Get(ctx, clientKey(c.object), &now); err != nil {
			return err
		}
		if o := now.Status.OwnerPod; o == nil || o.Name != p.name {
			return fmt.Errorf("claim %s does not name %s", c.name(), p.name)
		}
		return nil
	})
}

// postgresMAC is kept with the claim. Nobody tells the neighbours of a container
// that an address has moved to another MAC: for half a minute or more they would
// go on sending to the old one.
const postgresMAC = "02:00:00:00:77:02"

func (d *demo) playClaim(ctx context.Context) {
	d.postgres = d.claim(ctx, "postgres.lan")
	d.kubectl(ctx, "-n", namespace, "get", "ipamclaims", "-o", claimColumns)
	d.granted(ctx, d.postgres)
	d.OK("%s after it was created, the claim has its addresses, and no pod names it yet.", show.Millis(d.postgres.took))
	p := d.run(ctx, d.nodeA, "postgres", selections{{Name: networkName, Claim: d.postgres.name(), MAC: postgresMAC}})
	d.annotation(p.name, p.sel)
	d.showPods(p)
	d.check(ctx, d.postgres, p)
	d.OK("The pod on %s has exactly the claim's addresses.", p.node.name)
	d.showLeases(ctx)
	d.pingAll(ctx, d.pods, []*pod{p})
	d.OK("The other %d pods reach it there.", len(d.pods)-1)
	d.awaitOwner(ctx, d.postgres, p)
}

func (d *demo) playMove(ctx context.Context) {
	old := d.pods[slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == "postgres" })]
	d.Command("kubectl -n %s delete pod %s", namespace, old.name)
	d.remove(ctx, old)
	d.awaitNoUses(ctx)
	d.granted(ctx, d.postgres)
	d.OK("The pod is gone, nobody uses the claim, and the claim still has its addresses.")
	wanted := d.postgres.ips[0]
	squatter := d.create(ctx, d.nodeB, "squatter", selections{{Name: networkName, IPs: []string{wanted.String()}}})
	d.refuse(ctx, squatter, wanted.Addr().String(), d.postgres.name())
	d.OK("Another pod asks for %v by name, and does not get it.", wanted.Addr())
	d.forget(ctx, squatter)
	p := d.run(ctx, d.nodeB, old.name, old.sel)
	d.showPods(old, p)
	if p.object.UID == old.object.UID {
		d.Fail("%s is the same pod as before", p.name)
	}
	d.check(ctx, d.postgres, p)
	d.OK("A new pod, with another UID, on %s instead of %s, has the same addresses.", p.node.name, old.node.name)
	d.pingAll(ctx, d.pods, []*pod{p})
	d.OK("The other %d pods reach it there.", len(d.pods)-1)
	d.awaitOwner(ctx, d.postgres, p)
}

// awaitNoUses waits until no node uses a claim.
func (d *demo) awaitNoUses(ctx context.Context) {
	d.Await(ctx, "the nodes let go of the claims", func(ctx context.Context) error {
		subs, err := d.API.SubLeases(ctx)
		if err != nil || len(subs) == 0 {
			return err
		}
		return fmt.Errorf("%d sub-leases are left, one of %s", len(subs), subs[0].Node)
	})
}
