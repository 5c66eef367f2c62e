package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

func (d *demo) playEnd(ctx context.Context) {
	d.showPool(ctx, d.postgres, d.vm.claim)
	d.showPage(ctx)
	pods := slices.Clone(d.pods)
	for _, p := range pods {
		d.verify(ctx, p)
	}
	d.OK("CNI CHECK: each of the %d pods has what its ADD answered.", len(pods))
	launcher := pods[slices.IndexFunc(pods, func(p *pod) bool { return p.sel[0].Claim == d.vm.claim.name() })]
	d.halt(ctx, launcher)
	for _, p := range pods {
		d.remove(ctx, p)
	}
	d.awaitNoUses(ctx)
	for _, c := range []claimed{d.postgres, d.vm.claim} {
		d.granted(ctx, c)
	}
	d.OK("The machine is stopped, and all %d pods are gone. Nobody uses the claims, and they still have their addresses.", len(pods))
	d.endKept(ctx)
	d.endClaims(ctx)
	d.endPools(ctx)
	d.endPrograms(ctx)
}

func (d *demo) endClaims(ctx context.Context) {
	d.Command("kubectl -n %s delete virtualmachine %s; kubectl -n %s delete ipamclaim %s", namespace, machineName, namespace, d.postgres.name())
	for _, o := range []client.Object{d.vm.vm, d.postgres.object} {
		d.Must(d.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	took := d.Await(ctx, "claims and grants go", d.claimsLeft)
	d.OK("The claims are gone, and no address is granted to anybody %s", d.Took(took))
}

// claimsLeft says which claims are there still, or which addresses are granted.
func (d *demo) claimsLeft(ctx context.Context) error {
	var claims ipamclaims.IPAMClaimList
	if err := d.Client.List(ctx, &claims); err != nil {
		return err
	}
	if len(claims.Items) > 0 {
		return fmt.Errorf("%d claims are left, one named %s", len(claims.Items), claims.Items[0].Name)
	}
	granted, err := d.grants(ctx)
	if len(granted) > 0 {
		return fmt.Errorf("granted still: %v", granted)
	}
	return err
}

// endKept waits until nothing is kept any more for pods of other IPAMs, which are gone.
func (d *demo) endKept(ctx context.Context) {
	took := d.Await(ctx, "what was kept for pods of host-local comes free", func(ctx context.Context) error {
		kept, err := d.kept(ctx)
		if len(kept) > 0 {
			return fmt.Errorf("kept still: %v", slices.Collect(maps.Keys(kept)))
		}
		return err
	})
	d.OK("The addresses that were kept for the pods of host-local are free for others %s", d.Took(took))
}

func (d *demo) endPools(ctx context.Context) {
	d.Command("kubectl -n %s delete network-attachment-definitions --all; kubectl delete ippools --all", namespace)
	d.Must(d.Client.DeleteAllOf(ctx, &nad.NetworkAttachmentDefinition{}, client.InNamespace(namespace)))
	d.Must(d.Client.DeleteAllOf(ctx, &v1alpha1.IPPool{}))
	took := d.Await(ctx, "leases are given back", d.poolsLeft)
	d.OK("The pools are gone, and with them every lease %s", d.Took(took))
}

// poolsLeft says what is left of the pools.
func (d *demo) poolsLeft(ctx context.Context) error {
	leases, err := d.API.Leases(ctx)
	if err != nil {
		return err
	}
	if len(leases) > 0 {
		return fmt.Errorf("%d leases are left, one of %v", len(leases), leases[0].Holder)
	}
	var pools v1alpha1.IPPoolList
	if err := d.Client.List(ctx, &pools); err != nil {
		return err
	}
	if len(pools.Items) > 0 {
		return fmt.Errorf("%d pools are left, one named %s", len(pools.Items), pools.Items[0].Name)
	}
	return nil
}

// endPrograms ends Tenure's programs as kubelet does, and looks into the stores
// that the agents leave.
func (d *demo) endPrograms(ctx context.Context) {
	d.During("agents and controller end", func() error {
		errs := []error{d.endKubeVirt()}
		for _, p := range d.programs() {
			errs = append(errs, p.Stop())
		}
		return errors.Join(errs...)
	})
	for _, n := range []*node{d.nodeA, d.nodeB} {
		d.Must(errors.Join(emptyStore(n), n.attachedLeft("")))
	}
	d.OK("Agents and controller have ended well; the nodes' stores are sound, and empty, and so are the meta-plugin's journals.")
	d.During("the control plane ends", d.Stop)
	d.Must(ctx.Err())
}

// emptyStore checks a node's store, and that nothing is in it.
func emptyStore(n *node) (err error) {
	st, err := store.Open(n.store(), store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.Check(); err != nil {
		return err
	}
	return st.View(func(tx *store.Tx) error {
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			return fmt.Errorf("the store of %s still has %v of pod %s", n.name, att.Key, att.Pod)
		}
		for right, err := range tx.Rights() {
			if err != nil {
				return err
			}
			return fmt.Errorf("the store of %s still has a record of %s, %s", n.name, right.Name, right.Phase)
		}
		return nil
	})
}
