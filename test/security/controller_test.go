package security_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStolenControllerCredentials: of claims the controller writes the status, those of
// StatefulSets, and makes those that pods own; of what is not Tenure's nothing at all but a map.
func TestStolenControllerCredentials(t *testing.T) {
	ctx := context.Background()
	i := newIntruder(t, "the controller", boundTo(t, "tenure-controller", podOn(t, system, "tenure-controller-0", "node-a", "tenure-controller")))
	victim := podOn(t, "team-b", "victim", "node-a", "default")
	admin := newIntruder(t, "", cp.Config())
	crowded, gated := podOn(t, "team-b", "crowded-too", "node-a", "default"), parse(`{apiVersion: v1, kind: Pod, metadata: {name: gated, namespace: team-b},
	  spec: {automountServiceAccountToken: false, schedulingGates: [`+gates(65)+`], containers: [{name: c, image: x}]}}`)
	for _, err := range []error{
		admin.patch(crowded, `{metadata: {annotations: {`+many(1025)+`}}}`), kc.Create(ctx, gated),
		admin.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: crowded, namespace: team-b, annotations: {` + many(1025) + `}}, spec: {network: lan, interface: net1}}`),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	claim := func() client.Object { return named("IPAMClaim", "team-b", "vm") }
	set := parse(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: team-b}, spec: {replicas: 0, selector: {matchLabels: {app: web}},
	  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: x}]}}}}`)
	if err := kc.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	persons := parse(fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: web-0.lan, namespace: team-b,
	  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: web, uid: %s}]}, spec: {network: lan, interface: net1}}`, set.GetUID()))
	if err := kc.Create(ctx, persons); err != nil {
		t.Fatal(err)
	}
	i.mayDo(t, []attempt{
		{"make a StatefulSet's claim", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: set-0.lan, namespace: team-b, labels: {tenure.dev/statefulset: set}}, spec: {network: lan, interface: net1}}`)
		}, ""},
		{"give it an owner", func() error {
			return i.patch(named("IPAMClaim", "team-b", "set-0.lan"), `{metadata: {ownerReferences: [{apiVersion: x.dev/v1, kind: X, name: set, uid: u}]}}`)
		}, ""},
		{"label the claim that a person made for a StatefulSet", func() error {
			return i.patch(named("IPAMClaim", "team-b", "web-0.lan"), `{metadata: {labels: {tenure.dev/statefulset: web}, ownerReferences: []}}`)
		}, ""},
		{"give a machine's claim that nobody owns to it", func() error {
			return i.patch(named("IPAMClaim", "team-b", "db.lan"), `{metadata: {ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: db, uid: u, controller: true}]}}`)
		}, ""},
		{"make a claim for an interface of a pod", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x.eth1, namespace: team-b, labels: {tenure.dev/vif-of: u}, ownerReferences: [{apiVersion: v1, kind: Pod, name: x, uid: u}]}, spec: {network: lan, interface: eth1}}`)
		}, ""},
		{"make a claim by a pod's name", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: kafka-0.lan, namespace: team-b, labels: {tenure.dev/claim-owner: u}, ownerReferences: [{apiVersion: x.dev/v1, kind: X, name: kafka, uid: u, controller: true}]}, spec: {network: lan, interface: net1}}`)
		}, ""},
		{"make a second claim of a machine", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: db.lan.2, namespace: team-b, labels: {kubevirt.io/vm: db}, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: db, uid: u, controller: true}]}, spec: {network: wan, interface: net1}}`)
		}, ""},
		{"write the map of a pod's interfaces", func() error { return i.patch(victim, `{metadata: {annotations: {tenure.dev/vifs: "{}"}}}`) }, ""},
		{"write the same in Kuryr's words", func() error { return i.patch(victim, `{metadata: {annotations: {openstack.org/kuryr-vif: "{}"}}}`) }, ""},
		{"write a claim's status", func() error { return i.patch(claim(), `{status: {ips: []}}`, "status") }, ""},
		{"grant", func() error {
			return i.patch(named("IPLease", "", leaseNames["shared"]), `{spec: {turn: 2, grants: [{address: 10.81.0.4, to: {kind: Claim, uid: u, namespace: team-b, name: vm}}]}}`)
		}, ""},
		{"tell a claim's port", func() error { return i.patch(claim(), `{metadata: {annotations: {tenure.dev/port: "{}"}}}`) }, ""},
		{"clear a grant", func() error {
			return i.patch(named("IPLease", "", leaseNames["shared"]), `{spec: {turn: 3, grants: []}}`)
		}, ""},
		{"open a pool to everybody", func() error { return i.patch(named("IPPool", "", "by-verb"), `{spec: {access: null}}`) }, ""},
		{"close it again", func() error { return i.patch(named("IPPool", "", "by-verb"), `{spec: {access: RBAC}}`) }, ""},
		{"delete a lease", func() error {
			return i.Delete(ctx, named("IPLease", "", leaseNames["granted"]), client.DryRunAll)
		}, ""},
		{"publish on a Node what a pool has", func() error {
			return i.patch(named("Node", "", "node-b"), `{status: {capacity: {tenure.dev/lan: "7"}, allocatable: {tenure.dev/lan: "7"}}}`, "status")
		}, ""},
		{"take it away again", func() error {
			return i.patch(named("Node", "", "node-b"), `{status: {capacity: {tenure.dev/lan: null}, allocatable: {tenure.dev/lan: null}}}`, "status")
		}, ""},
		{"write a definition that nodes attach PodNetworks by", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: x, namespace: tenure-system}}`)
		}, ""},
	})
	i.breakIn(t, []attempt{
		{"change a claim", func() error { return i.patch(claim(), `{spec: {network: x}}`) }, "its owners and its port alone"},
		{"change a StatefulSet's claim", func() error { return i.patch(named("IPAMClaim", "team-b", "set-0.lan"), `{spec: {network: x}}`) }, "its owners and its port alone"},
		{"annotate a claim", func() error {
			return i.patch(claim(), `{metadata: {annotations: {tenure.dev/port: "{}", tenure.dev/requested-ips: 10.0.0.1}}}`)
		}, "writes claims of StatefulSets alone"},
		{"put a finalizer on a claim", func() error {
			return i.patch(named("IPAMClaim", "team-b", "set-0.lan"), `{metadata: {finalizers: [tenure.dev/x]}}`)
		}, "its owners and its port alone"},
		{"give a claim to another StatefulSet", func() error {
			return i.patch(named("IPAMClaim", "team-b", "set-0.lan"), `{metadata: {labels: {tenure.dev/statefulset: other}}}`)
		}, "does not change it"},
		{"take a claim from its owner", func() error {
			return i.patch(named("IPAMClaim", "team-b", "owned"), `{metadata: {labels: {tenure.dev/statefulset: set}, ownerReferences: []}}`)
		}, "does not take a claim from its owner"},
		{"give a machine's claim to another machine", func() error {
			return i.patch(named("IPAMClaim", "team-b", "web.lan"), `{metadata: {ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: db, uid: u}]}}`)
		}, "writes claims of StatefulSets alone"},
		{"take a machine's claim from it", func() error {
			return i.patch(named("IPAMClaim", "team-b", "db.lan"), `{metadata: {ownerReferences: []}}`)
		}, "does not take a claim from its owner"},
		{"create a claim for an interface of a pod that does not own it", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-b, labels: {tenure.dev/vif-of: u}}, spec: {network: lan, interface: net1}}`)
		}, "writes claims of StatefulSets alone"},
		{"create a claim by a pod's name for nobody", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-b, labels: {tenure.dev/claim-owner: u}}, spec: {network: lan, interface: net1}}`)
		}, "writes claims of StatefulSets alone"},
		{"create a claim by a pod's name for another owner", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-b, labels: {tenure.dev/claim-owner: u}, ownerReferences: [{apiVersion: x.dev/v1, kind: X, name: x, uid: v}]}, spec: {network: lan, interface: net1}}`)
		}, "writes claims of StatefulSets alone"},
		{"take an owned claim for a pod's name", func() error {
			return i.patch(named("IPAMClaim", "team-b", "owned"), `{metadata: {labels: {tenure.dev/claim-owner: w}, ownerReferences: [{apiVersion: x.dev/v1, kind: X, name: x, uid: w}]}}`)
		}, "writes claims of StatefulSets alone"},
		{"create a machine's claim that it does not own", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-b, labels: {kubevirt.io/vm: db}, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: other, uid: u}]}, spec: {network: lan, interface: net1}}`)
		}, "writes claims of StatefulSets alone"},
		{"create a claim", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-b}, spec: {network: lan, interface: net1}}`)
		}, "writes claims of StatefulSets alone"},
		{"delete a claim", func() error { return i.delete(claim()) }, "writes claims of StatefulSets alone"},
		{"write a lease whole", func() error { return i.Update(ctx, named("IPLease", "", leaseNames["shared"])) }, "cannot update resource \"ipleases\""},
		{"write a pool whole", func() error { return i.Update(ctx, named("IPPool", "", "for-b")) }, "cannot update resource \"ippools\""},
		{"ask in a node's name", func() error { return i.create(requestText("forged", "node-b")) }, "cannot create resource \"ipsubleases\""},
		{"publish in a node's name", func() error {
			return i.patch(named("IPLease", "", leaseNames["lent"]), `{status: {used: 1, free: 0}}`, "status")
		}, "cannot patch resource \"ipleases/status\""},
		{"write a definition", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: x, namespace: team-b}}`)
		}, "cannot create resource \"network-attachment-definitions\""},
		{"have ten thousand annotations of a pod compared", func() error { return i.patch(crowded, `{metadata: {annotations: {tenure.dev/vifs: "{}"}}}`) }, "more than 1024 annotations"},
		{"have ten thousand gates of a pod compared", func() error { return i.patch(gated, `{metadata: {annotations: {tenure.dev/vifs: "{}"}}}`) }, "or 64 scheduling gates"},
		{"have ten thousand annotations of a claim compared", func() error {
			return i.patch(named("IPAMClaim", "team-b", "crowded"), `{metadata: {annotations: {tenure.dev/port: "{}"}}}`)
		}, "writes no claim that has more than 1024 annotations"},
		{"annotate a pod", func() error { return i.patch(victim, `{metadata: {annotations: {a: b}}}`) }, "the controller changes nothing of a pod's metadata"},
		{"annotate a pod beside its map", func() error {
			return i.patch(victim, `{metadata: {annotations: {a: b, tenure.dev/vifs: "{}"}}}`)
		}, "the controller changes nothing of a pod's metadata"},
		{"say what a pod was attached to", func() error {
			return i.patch(victim, `{metadata: {annotations: {k8s.v1.cni.cncf.io/network-status: "[]"}}}`, "status")
		}, "the controller changes nothing of a pod's metadata"},
		{"write a pod's status", func() error { return i.patch(victim, `{status: {podIP: 10.0.0.9}}`, "status") }, "the controller writes its own condition alone"},
		{"change what a pod runs", func() error { return i.patch(victim, `{spec: {activeDeadlineSeconds: 1}}`) }, "the controller changes scheduling gates alone"},
		{"have the API server let it change whatever is created", func() error {
			return i.patch(named("MutatingWebhookConfiguration", "", "pod-networks.tenure.dev"), `{webhooks: [{name: gate.pod-networks.tenure.dev, rules: [{apiGroups: ["*"]}]}]}`)
		}, "cannot patch resource \"mutatingwebhookconfigurations\""},
		{"have the API server show it whatever is created", func() error {
			return i.patch(named("ValidatingWebhookConfiguration", "", "pod-networks.tenure.dev"), `{webhooks: [{name: list.pod-networks.tenure.dev, rules: [{apiGroups: ["*"]}]}]}`)
		}, "cannot patch resource \"validatingwebhookconfigurations\""},
		{"read a secret of its namespace", func() error { return i.get(named("Secret", system, "tenure-controller-webhook")) }, "cannot get resource \"secrets\""},
		{"create a pod", func() error {
			return i.create(`{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: tenure-system}, spec: {containers: [{name: c, image: x}]}}`)
		}, "cannot create resource \"pods\""},
		{"delete a pod", func() error { return i.delete(victim) }, "cannot delete resource \"pods\""},
		{"read a secret", func() error { return i.get(named("Secret", "team-b", "password")) }, "cannot get resource \"secrets\""},
		{"have an agent's token made", func() error {
			_, err := i.kube.CoreV1().ServiceAccounts(system).CreateToken(ctx, "tenured", &authentication.TokenRequest{}, metav1.CreateOptions{})
			return err
		}, "cannot create resource \"serviceaccounts/token\""},
		{"bind itself more rights", func() error {
			return i.create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
			  subjects: [{kind: ServiceAccount, name: tenure-controller, namespace: tenure-system}]}`)
		}, "cannot create resource \"clusterrolebindings\""},
		{"impersonate an agent", func() error {
			rc := boundTo(t, "tenure-controller", nil)
			rc.Impersonate.UserName = "system:serviceaccount:tenure-system:tenured"
			_, err := newIntruder(t, i.name, rc).kube.CoreV1().Pods("team-b").Get(ctx, "victim", metav1.GetOptions{})
			return err
		}, "cannot impersonate"},
		{"say that a node is not ready", func() error {
			return i.patch(named("Node", "", "node-b"), `{status: {conditions: [{type: Ready, status: "False"}]}}`, "status")
		}, "the resources tenure.dev/ alone"},
		{"give a node another address", func() error {
			return i.patch(named("Node", "", "node-b"), `{status: {addresses: [{type: InternalIP, address: 10.0.0.9}]}}`, "status")
		}, "the resources tenure.dev/ alone"},
		{"give a node more memory", func() error {
			return i.patch(named("Node", "", "node-b"), `{status: {capacity: {tenure.dev/lan: "7", memory: 1Ti}}}`, "status")
		}, "the resources tenure.dev/ alone"},
		{"take a node's memory away", func() error {
			return i.patch(named("Node", "", "node-a"), `{status: {allocatable: {memory: null}}}`, "status")
		}, "the resources tenure.dev/ alone"},
		{"label a node", func() error {
			return i.patch(named("Node", "", "node-b"), `{metadata: {labels: {a: b}}}`, "status")
		}, "changes nothing of a Node but its status"},
		{"taint a node", func() error { return i.patch(named("Node", "", "node-b"), `{spec: {unschedulable: true}}`) }, "cannot patch resource \"nodes\""},
		{"label a namespace", func() error { return i.patch(named("Namespace", "", "team-a"), `{metadata: {labels: {team: b}}}`) }, "cannot patch resource \"namespaces\""},
		{"write the kubelet's lease", func() error {
			return i.create(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: node-b, namespace: kube-node-lease}}`)
		}, "cannot create resource \"leases\""},
		{"remove a policy", func() error { return i.delete(named("ValidatingAdmissionPolicy", "", "node-leases.tenure.dev")) }, "cannot delete resource \"validatingadmissionpolicies\""},
		{"remove a definition of kinds", func() error { return i.delete(named("CustomResourceDefinition", "", "ipleases.tenure.dev")) }, "cannot delete resource \"customresourcedefinitions\""},
		{"remove the agents", func() error { return i.delete(named("DaemonSet", system, "tenured")) }, "cannot delete resource \"daemonsets\""},
	})
}

// gates is a list of so many scheduling gates.
func gates(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{name: example.org/g%d}, `, i)
	}
	return b.String()
}
