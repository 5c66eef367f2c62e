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

func (d *demo) endScene() scene {
	return scene{
		"Everything is deleted, and every address comes back by itself",
		"The virtual machine is stopped, and all pods are deleted: the claims keep their addresses. Then the machine, with which Kubernetes' garbage " +
			"collector deletes its claim; the other claim; and the pools, which wait until nobody holds a lease of them.",
		d.playEnd,
	}
}

func (d *demo) playEnd(ctx context.Context) error {
	if err := d.showPool(ctx, d.postgres, d.vm.claim); err != nil {
		return err
	}
	pods := slices.Clone(d.pods)
	for _, p := range pods {
		if err := d.verify(ctx, p); err != nil {
			return err
		}
	}
	d.screen.ok("CNI CHECK: each of the %d pods has what its ADD answered.", len(pods))
	launcher := pods[slices.IndexFunc(pods, func(p *pod) bool { return p.sel[0].Claim == d.vm.claim.name() })]
	if err := d.halt(ctx, launcher); err != nil {
		return err
	}
	for _, p := range pods {
		if err := d.remove(ctx, p); err != nil {
			return err
		}
	}
	if err := d.awaitNoUses(ctx); err != nil {
		return err
	}
	for _, c := range []claimed{d.postgres, d.vm.claim} {
		if err := d.granted(ctx, c); err != nil {
			return err
		}
	}
	d.screen.ok("The machine is stopped, and all %d pods are gone. Nobody uses the claims, and they still have their addresses.", len(pods))
	if err := d.endKept(ctx); err != nil {
		return err
	}
	if err := d.endClaims(ctx); err != nil {
		return err
	}
	if err := d.endPools(ctx); err != nil {
		return err
	}
	return d.endPrograms(ctx)
}

func (d *demo) endClaims(ctx context.Context) error {
	d.screen.command("kubectl -n %s delete virtualmachine %s; kubectl -n %s delete ipamclaim %s", namespace, machineName, namespace, d.postgres.name())
	for _, o := range []client.Object{d.vm.vm, d.postgres.object} {
		if err := d.kube.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return err
		}
	}
	took, err := d.screen.await(ctx, "claims and grants go", d.claimsLeft)
	if err != nil {
		return err
	}
	d.screen.ok("The claims are gone, and no address is granted to anybody %s", d.screen.in(dim, "("+seconds(took)+")"))
	return nil
}

// claimsLeft says which claims are there still, or which addresses are granted.
func (d *demo) claimsLeft(ctx context.Context) (string, error) {
	var claims ipamclaims.IPAMClaimList
	if err := d.kube.List(ctx, &claims); err != nil {
		return "", err
	}
	if len(claims.Items) > 0 {
		return fmt.Sprintf("%d claims are left, one named %s", len(claims.Items), claims.Items[0].Name), nil
	}
	granted, err := d.grants(ctx)
	if len(granted) > 0 {
		return fmt.Sprintf("granted still: %v", granted), err
	}
	return "", err
}

// endKept waits until nothing is kept any more for pods of other IPAMs, which are gone.
func (d *demo) endKept(ctx context.Context) error {
	took, err := d.screen.await(ctx, "what was kept for pods of host-local comes free", func(ctx context.Context) (string, error) {
		kept, err := d.kept(ctx)
		if len(kept) > 0 {
			return fmt.Sprintf("kept still: %v", slices.Collect(maps.Keys(kept))), err
		}
		return "", err
	})
	if err != nil {
		return err
	}
	d.screen.ok("The addresses that were kept for the pods of host-local are free for others %s", d.screen.in(dim, "("+seconds(took)+")"))
	return nil
}

func (d *demo) endPools(ctx context.Context) error {
	d.screen.command("kubectl -n %s delete network-attachment-definitions --all; kubectl delete ippools --all", namespace)
	if err := d.kube.DeleteAllOf(ctx, &nad.NetworkAttachmentDefinition{}, client.InNamespace(namespace)); err != nil {
		return err
	}
	if err := d.kube.DeleteAllOf(ctx, &v1alpha1.IPPool{}); err != nil {
		return err
	}
	took, err := d.screen.await(ctx, "leases are given back", d.poolsLeft)
	if err != nil {
		return err
	}
	d.screen.ok("The pools are gone, and with them every lease %s", d.screen.in(dim, "("+seconds(took)+")"))
	return nil
}

// poolsLeft says what is left of the pools.
func (d *demo) poolsLeft(ctx context.Context) (string, error) {
	leases, err := d.api.Leases(ctx)
	if err != nil {
		return "", err
	}
	if len(leases) > 0 {
		return fmt.Sprintf("%d leases are left, one of %v", len(leases), leases[0].Holder), nil
	}
	var pools v1alpha1.IPPoolList
	if err := d.kube.List(ctx, &pools); err != nil {
		return "", err
	}
	if len(pools.Items) > 0 {
		return fmt.Sprintf("%d pools are left, one named %s", len(pools.Items), pools.Items[0].Name), nil
	}
	return "", nil
}

// endPrograms ends Tenure's programs as kubelet does, and looks into the stores
// that the agents leave.
func (d *demo) endPrograms(ctx context.Context) error {
	_, err := d.screen.during("agents and controller end", func(func(string)) error {
		errs := []error{d.endKubeVirt()}
		for _, p := range d.programs() {
			errs = append(errs, p.stop())
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	for _, n := range []*node{d.nodeA, d.nodeB} {
		if err := errors.Join(emptyStore(n), n.attachedLeft("")); err != nil {
			return err
		}
	}
	d.screen.ok("Agents and controller have ended well; the nodes' stores are sound, and empty, and so are the meta-plugin's journals.")
	_, err = d.screen.during("the control plane ends", func(func(string)) error { return d.cp.Stop() })
	return errors.Join(err, ctx.Err())
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
