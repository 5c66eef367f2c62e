package main

import (
	"context"
	"fmt"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tenure-ipam/tenure/ipam/cluster"
)

// kubevirtCRDs stand in for KubeVirt's: objects that own, and that the garbage
// collector knows.
const kubevirtCRDs = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: virtualmachines.kubevirt.io
spec:
  group: kubevirt.io
  names: {kind: VirtualMachine, plural: virtualmachines, singular: virtualmachine, shortNames: [vm]}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: virtualmachineinstances.kubevirt.io
spec:
  group: kubevirt.io
  names: {kind: VirtualMachineInstance, plural: virtualmachineinstances, singular: virtualmachineinstance, shortNames: [vmi]}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// kubevirtFinalizer keeps a claim until KubeVirt's controller lets it go.
const kubevirtFinalizer = "kubevirt.io/persistent-ipam"

// A machine is a virtual machine, its instance and the claim of its interface.
type machine struct {
	vm, vmi *unstructured.Unstructured
	claim   claimed
}

// newMachine makes what KubeVirt's controllers make of a virtual machine that
// starts: the instance, and the claim of its interface.
func (d *demo) newMachine(ctx context.Context, name string) (m machine, err error) {
	if m.vm, err = d.kubevirtObject(ctx, "VirtualMachine", name); err != nil {
		return m, err
	}
	if m.vmi, err = d.kubevirtObject(ctx, "VirtualMachineInstance", name, controlledBy(m.vm)); err != nil {
		return m, err
	}
	m.claim, err = d.claim(ctx, name+"."+networkName, metav1.ObjectMeta{
		Labels: map[string]string{cluster.VMLabel: name}, Finalizers: []string{kubevirtFinalizer},
		OwnerReferences: []metav1.OwnerReference{controlledBy(m.vm)},
	})
	return m, err
}

func (d *demo) kubevirtObject(ctx context.Context, kind, name string, owners ...metav1.OwnerReference) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("kubevirt.io/v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetOwnerReferences(owners)
	return o, d.kube.Create(ctx, o)
}

func controlledBy(o *unstructured.Unstructured) metav1.OwnerReference {
	return *metav1.NewControllerRef(o, o.GroupVersionKind())
}

// letGo takes the finalizer off a claim that is being deleted, as KubeVirt's
// controller does once the virtual machine is gone. missing says what is still to
// come.
func (d *demo) letGo(ctx context.Context, c claimed) (missing string, err error) {
	var now ipamclaims.IPAMClaim
	if err := d.kube.Get(ctx, clientKey(c.object), &now); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if now.DeletionTimestamp == nil {
		return fmt.Sprintf("the garbage collector has not deleted claim %s yet", c.name()), nil
	}
	if controllerutil.RemoveFinalizer(&now, kubevirtFinalizer) {
		if err := client.IgnoreNotFound(d.kube.Update(ctx, &now)); err != nil && !apierrors.IsConflict(err) {
			return "", err
		}
	}
	return fmt.Sprintf("claim %s is being deleted", c.name()), nil
}

func clientKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
