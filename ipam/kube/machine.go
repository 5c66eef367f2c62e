package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// VirtualMachine is the kind of KubeVirt's machines.
var VirtualMachine = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"}

// AnnotationMachineAddresses is the annotation by which the template of a VirtualMachine
// asks for addresses: {"INTERFACE": ["ADDRESS", …]}, an address with or without a prefix
// length.
const AnnotationMachineAddresses = "network.kubevirt.io/addresses"

// ErrMachineAddresses says that a VirtualMachine's [AnnotationMachineAddresses] cannot be read.
var ErrMachineAddresses = errors.New(`it must be {"INTERFACE": ["ADDRESS", …]}`)

// RequestedByMachine returns the addresses that a VirtualMachine asks for on one of its
// interfaces, separated by commas: nothing, if it asks for none, if there is no such machine
// or no KubeVirt, or if this process must not read it. It is an [ErrMachineAddresses] if the
// annotation cannot be read.
func (a *API) RequestedByMachine(ctx context.Context, namespace, machine, iface string) (string, error) {
	call, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var vm unstructured.Unstructured
	vm.SetGroupVersionKind(VirtualMachine)
	err := a.c.Get(call, client.ObjectKey{Namespace: namespace, Name: machine}, &vm)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read VirtualMachine %s/%s: %w", namespace, machine, err)
	}
	annotations, _, _ := unstructured.NestedStringMap(vm.Object, "spec", "template", "metadata", "annotations")
	text := annotations[AnnotationMachineAddresses]
	var byInterface map[string][]string
	if text == "" {
		return "", nil
	}
	if err := json.Unmarshal([]byte(text), &byInterface); err != nil {
		return "", fmt.Errorf("%w: %w", ErrMachineAddresses, err)
	}
	return strings.Join(byInterface[iface], ","), nil
}
