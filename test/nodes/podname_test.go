package nodes_test

import (
	"fmt"
	"slices"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// operated is a reference to an object of an operator, of a kind that nobody here knows.
func operated(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "operator.example/v1", Kind: kind, Name: name, UID: types.UID(kind + "-" + name), Controller: new(true)}
}

// asking are the annotations of a pod that asks for a claim of the world's network by its name.
func (w *world) asking() map[string]string {
	return map[string]string{kube.AnnotationNetworks: w.definition, workload.AnnotationClaims: w.definition, workload.ClaimsBy: workload.ByPodName}
}

// named names the claim that a pod has by its name.
func (w *world) named(pod string) *ipamclaims.IPAMClaim {
	return &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod + "." + w.definition}}
}

// TestClaimsByPodName: the pods of a controller of which nothing is known keep their addresses by
// their names, on whatever node they are made again; what another owner's pods, or a person, has of
// these names is left alone or taken over as it is for StatefulSets.
func TestClaimsByPodName(t *testing.T) {
	w := newWorld(t, "byname", "default", "10.85.0.0/24", "fd00:85::/64")
	set := operated("PodSet", "byname")
	theirs := w.named("byname-2")
	theirs.OwnerReferences, theirs.Spec.Network = []metav1.OwnerReference{operated("Database", "main")}, w.name
	fleet.Create(t, kc, theirs)
	mine := w.claim("byname-1." + w.definition)
	early := allocated(t, mine)

	nodes := []*fleet.Node{w.a, w.b}
	var claims []*ipamclaims.IPAMClaim
	for round := range 2 {
		for i := range 2 {
			name := fmt.Sprintf("byname-%d", i)
			pod := w.podWith(nodes[(i+round)%2], name, w.asking(), set)
			got := mustAdd(t, nodes[(i+round)%2], pod)
			c := w.named(name)
			if want := allocated(t, c); !slices.Equal(got, want) || len(want) != 2 {
				t.Errorf("%s has %v; want those of its claim, %v", name, got, want)
			}
			if o := c.OwnerReferences; len(o) != 1 || o[0].UID != set.UID || c.Labels[workload.LabelOwner] != string(set.UID) {
				t.Errorf("claim %s belongs to %+v, by its label to %q; want the pods' owner", c.Name, o, c.Labels[workload.LabelOwner])
			}
			if claims = append(claims, c); round == 1 && claims[i].UID != c.UID {
				t.Errorf("claim %s was made anew", c.Name)
			}
			endPod(t, nodes[(i+round)%2], pod)
		}
	}
	if c := claims[1]; c.UID != mine.UID || !slices.Equal(kube.ClaimOf(c).IPs, early) {
		t.Errorf("the claim that was there is %s with %v; want %s with %v", c.UID, c.Status.IPs, mine.UID, early)
	}

	w.a.Refused(t, w.podWith(w.a, "byname-2", w.asking(), set), "is not the pod's")
	said(t, "Pod", "byname-2", "ClaimTaken", "it belongs to Database main")
	_, err := w.a.Insist(w.pod(w.a, "byname-stranger", claims[0].Name, ""))
	fleet.WantCode(t, err, 101, "is for the pods of PodSet byname")
	_, err = w.a.Insist(w.podWith(w.a, "byname-5f-x2k4p", w.asking(), replicaSet(t, "byname-5f")))
	fleet.WantCode(t, err, 7, "a ReplicaSet gives each of its pods another name")
	said(t, "Pod", "byname-5f-x2k4p", "InvalidClaimsAnnotation", "a ReplicaSet gives each of its pods another name")
}

// TestMachineMovesToAnotherNetwork: a machine whose network names another definition by now has an
// address of that network, which persists from then on, though KubeVirt's claim is of the network
// before. That claim keeps its address, and is used again when the machine comes back.
func TestMachineMovesToAnotherNetwork(t *testing.T) {
	w := newWorld(t, "moves", "default", "10.86.0.0/24")
	to := newNetwork(t, "moved", 0, cidr("10.87.0.0/24"))
	vm, vmi := owner("VirtualMachine", "vm-moves"), owner("VirtualMachineInstance", "vm-moves")
	c := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "vm-moves.lan", Labels: map[string]string{kube.VMLabel: "vm-moves"},
			OwnerReferences: []metav1.OwnerReference{vm}, Finalizers: []string{"kubevirt.io/persistent-ipam"},
		},
		Spec: ipamclaims.IPAMClaimSpec{Network: w.name},
	}
	fleet.Create(t, kc, c)
	first := allocated(t, c)
	launch := func(in *network, n *fleet.Node, name string) fleet.Interface {
		pod := in.pod(n, name, c.Name, "", vmi)
		fleet.Patch(t, kc, podOf(pod), fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, kube.LauncherLabel, kube.Launcher))
		if in != w.network { // the observer is to know of which claim it has an address
			pod.Top[fleet.ClaimKey] = workload.MachineClaimName(c.Name, in.name)
		}
		return pod
	}
	source := launch(w.network, w.a, "moves-source")
	same(t, w.a, source, first)

	target := launch(to, w.b, "moves-target")
	got := mustAdd(t, w.b, target)
	second := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: workload.MachineClaimName(c.Name, to.name)}}
	if want := allocated(t, second); !slices.Equal(got, want) || second.Spec.Network != to.name {
		t.Errorf("on the new network it has %v; want %v of the claim of network %q", got, want, second.Spec.Network)
	}
	if o := second.OwnerReferences; len(o) != 1 || o[0].UID != vm.UID || len(second.Finalizers) > 0 || second.Labels[kube.VMLabel] != "vm-moves" {
		t.Errorf("the second claim has owners %+v, finalizers %v, labels %v; want the machine's alone", o, second.Finalizers, second.Labels)
	}
	endPod(t, w.a, source)
	same(t, w.b, target, got) // of the same sandbox

	// A migration on the new network, and one back to the old one.
	again := launch(to, w.a, "moves-again")
	same(t, w.a, again, got)
	endPod(t, w.b, target)
	back := launch(w.network, w.b, "moves-back")
	same(t, w.b, back, first)
	endPod(t, w.a, again)
	same(t, w.a, launch(to, w.a, "moves-once-more"), got)

	// A stranger's pod that names the claim gets nothing of that.
	_, err := w.a.Insist(to.pod(w.a, "moves-stranger", c.Name, "", owner("VirtualMachineInstance", "other")))
	fleet.WantCode(t, err, 101, "is of network")
}
