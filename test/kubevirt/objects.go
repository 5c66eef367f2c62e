package kubevirt

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names that KubeVirt and its IPAM extension use.
const (
	// LabelVM is on claims, with the virtual machine's name.
	LabelVM = "kubevirt.io/vm"
	// labelLauncher, with the value "virt-launcher", is on launcher pods, and
	// LabelName the machine's name.
	labelLauncher = "kubevirt.io"
	labelName     = "vm.kubevirt.io/name"
	// claimFinalizer keeps a claim until no launcher pod can need it.
	claimFinalizer = "kubevirt.io/persistent-ipam"

	// LauncherImage is that of launcher pods, of whose programs nothing is known here.
	LauncherImage = "none.example/virt-launcher:1"

	vmFinalizer  = "kubevirt.io/virtualMachineControllerFinalize"
	vmiFinalizer = "foregroundDeleteVirtualMachine"

	// AnnotationNetworks is where a pod's networks are selected.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
)

// The kinds.
var (
	vmKind  = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"}
	vmiKind = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
)

// A Network is one interface of a machine.
type Network struct {
	// Name is the machine's own name for it.
	Name string
	// Definition names the NetworkAttachmentDefinition, as "name" or
	// "namespace/name".
	Definition string
	// MAC is the guest's hardware address; empty: the network's plugin chooses.
	MAC string
}

// VM returns a running machine with these networks. Finalizers are put on its
// instance, as a template of KubeVirt's can.
func VM(namespace, name string, networks []Network, finalizers ...string) *unstructured.Unstructured {
	vm := object(vmKind, namespace, name)
	vm.Object["spec"] = map[string]any{
		"runStrategy": "Always",
		"template": map[string]any{
			"metadata": map[string]any{"finalizers": anySlice(finalizers)},
			"spec":     specOf(networks),
		},
	}
	return vm
}

// AskForAddresses has a machine ask for addresses by the annotation of its template: JSON by the
// names of its interfaces.
func AskForAddresses(vm *unstructured.Unstructured, addresses string) {
	template := vm.Object["spec"].(map[string]any)["template"].(map[string]any)
	template["metadata"].(map[string]any)["annotations"] = map[string]any{"network.kubevirt.io/addresses": addresses}
}

// VMI returns an instance of its own, without a machine.
func VMI(namespace, name string, networks []Network) *unstructured.Unstructured {
	vmi := object(vmiKind, namespace, name)
	vmi.Object["spec"] = specOf(networks)
	vmi.SetFinalizers([]string{vmiFinalizer})
	return vmi
}

func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func anySlice(list []string) []any {
	out := []any{}
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// specOf returns the specification of an instance with these networks.
func specOf(list []Network) map[string]any {
	networks, interfaces := []any{}, []any{}
	for _, n := range list {
		networks = append(networks, map[string]any{"name": n.Name, "multus": map[string]any{"networkName": n.Definition}})
		i := map[string]any{"name": n.Name}
		if n.MAC != "" {
			i["macAddress"] = n.MAC
		}
		interfaces = append(interfaces, i)
	}
	return map[string]any{
		"networks": networks, "domain": map[string]any{"devices": map[string]any{"interfaces": interfaces}},
	}
}

// networksOf reads the networks of an instance.
func networksOf(vmi *unstructured.Unstructured) []Network {
	list, _, _ := unstructured.NestedSlice(vmi.Object, "spec", "networks") // ours, and well-formed
	interfaces, _, _ := unstructured.NestedSlice(vmi.Object, "spec", "domain", "devices", "interfaces")
	macs := map[string]string{}
	for _, item := range interfaces {
		i, _ := item.(map[string]any)
		name, _, _ := unstructured.NestedString(i, "name")
		macs[name], _, _ = unstructured.NestedString(i, "macAddress")
	}
	var out []Network
	for _, item := range list {
		n, _ := item.(map[string]any)
		name, _, _ := unstructured.NestedString(n, "name")
		definition, _, _ := unstructured.NestedString(n, "multus", "networkName")
		out = append(out, Network{Name: name, Definition: definition, MAC: macs[name]})
	}
	return out
}

// definition splits the name of a definition, whose namespace may be left out.
func (n Network) definition(namespace string) client.ObjectKey {
	if ns, name, ok := strings.Cut(n.Definition, "/"); ok {
		return client.ObjectKey{Namespace: ns, Name: name}
	}
	return client.ObjectKey{Namespace: namespace, Name: n.Definition}
}

// ClaimName returns the name of the claim of a machine's network.
func ClaimName(vm, network string) string { return vm + "." + network }

// InterfaceName returns the name of a network's interface in a launcher pod.
func InterfaceName(network string) string {
	return fmt.Sprintf("pod%x", sha256.Sum256([]byte(network)))[:14]
}

// launcher returns a launcher pod of an instance. Networks with a claim refer to
// it, as the IPAM extension's webhook has it.
func launcher(vmi *unstructured.Unstructured, claims map[string]bool) (*corev1.Pod, error) {
	type selection struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Interface string `json:"interface"`
		MAC       string `json:"mac,omitempty"`
		Claim     string `json:"ipam-claim-reference,omitempty"`
	}
	var selections []selection
	for _, n := range networksOf(vmi) {
		key := n.definition(vmi.GetNamespace())
		s := selection{Name: key.Name, Namespace: key.Namespace, Interface: InterfaceName(n.Name), MAC: n.MAC}
		if claims[n.Name] {
			s.Claim = ClaimName(vmi.GetName(), n.Name)
		}
		selections = append(selections, s)
	}
	annotation, err := json.Marshal(selections)
	if err != nil {
		return nil, fmt.Errorf("launcher of %s: %w", vmi.GetName(), err)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.GetNamespace(), GenerateName: "virt-launcher-" + vmi.GetName() + "-",
			Labels:          map[string]string{labelLauncher: "virt-launcher", labelName: vmi.GetName(), "kubevirt.io/created-by": string(vmi.GetUID())},
			Annotations:     map[string]string{AnnotationNetworks: string(annotation)},
			OwnerReferences: []metav1.OwnerReference{ownerOf(vmi)},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "compute", Image: LauncherImage}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{labelName: vmi.GetName()}}, TopologyKey: corev1.LabelHostname,
			}}}}, // a machine does not migrate to where it is
		},
	}, nil
}

// ownerOf returns the reference by which an object owns others.
func ownerOf(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}
