package security_test

import (
	"context"
	"strings"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStolenAgentCredentials: the token of node-a's agent, in the hands of who has taken
// that node over, does nothing to other nodes, to what is granted, or to anything that is
// not Tenure's.
func TestStolenAgentCredentials(t *testing.T) {
	ctx := context.Background()
	own := podOn(t, system, "tenured-a", "node-a", "tenured")
	other := podOn(t, system, "tenured-b", "node-b", "tenured")
	here, there := podOn(t, "team-b", "here", "node-a", "default"), podOn(t, "team-b", "there", "node-b", "default")
	crowded := podOn(t, "team-b", "crowded", "node-a", "default")
	if err := newIntruder(t, "", cp.Config()).patch(crowded, `{metadata: {annotations: {`+many(1025)+`}}}`); err != nil {
		t.Fatal(err)
	}
	i := newIntruder(t, "the agent of node-a", boundTo(t, "tenured", own))
	lease := func(name string) client.Object { return named("IPLease", "", leaseNames[name]) }
	reg := func(patch string) error { return i.patch(named("Lease", system, "node-a"), patch) }
	const annotation, status = `{metadata: {annotations: {k8s.v1.cni.cncf.io/network-status: "[]"}}}`, "status"
	event := func(kind, name, host string) string {
		return `{apiVersion: v1, kind: Event, metadata: {generateName: e-, namespace: default}, involvedObject: {kind: ` + kind + `, name: ` + name + `},
		  reason: Said, message: m, type: Warning, source: {component: tenured, host: ` + host + `}}`
	}

	i.mayDo(t, []attempt{
		{"lease a block", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510005.32}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.5/32, turn: 1, holder: {kind: Node, node: node-a}, store: sa, term: 1}}`)
		}, ""},
		{"fence it", func() error { return i.patch(named("IPLease", "", "free.0a510005.32"), `{spec: {term: 2, turn: 2}}`) }, ""},
		{"cede of it", func() error { return i.patch(named("IPLease", "", "free.0a510005.32"), `{spec: {ceded: [10.81.0.5]}}`) }, ""},
		{"take back", func() error { return i.patch(named("IPLease", "", "free.0a510005.32"), `{spec: {ceded: []}}`) }, ""},
		{"publish what it has", func() error {
			return i.patch(named("IPLease", "", "free.0a510005.32"), `{status: {used: 0, free: 1, published: "2026-01-02T03:04:05Z"}}`, status)
		}, ""},
		{"give it back", func() error { return i.delete(named("IPLease", "", "free.0a510005.32")) }, ""},
		{"fence a lease to which somebody else has given a finalizer", func() error { return i.patch(lease("kept"), `{spec: {term: 2, turn: 2}}`) }, ""},
		{"fence a lease with grants", func() error { return i.patch(lease("granted"), `{spec: {term: 2, turn: 2}}`) }, ""},
		{"ask for addresses", func() error { return i.create(requestText("asked", "node-a")) }, ""},
		{"give the request back", func() error { return i.delete(named("IPSubLease", "", "asked")) }, ""},
		{"use a claim", func() error { return i.create(useText("c1", "node-a")) }, ""},
		{"give the use back", func() error { return i.delete(named("IPSubLease", "", "c1.0")) }, ""},
		{"register", func() error { return i.create(regText("node-a")) }, ""},
		{"beat", func() error {
			return i.patch(named("Lease", system, "node-a"), `{metadata: {annotations: {tenure.dev/turn: "8"}}, spec: {holderIdentity: sa, leaseTransitions: 4}}`)
		}, ""},
		{"beat without a fence", func() error { return i.patch(named("Lease", system, "node-a"), `{spec: {leaseDurationSeconds: null}}`) }, ""},
		{"tell what a pod of its node has", func() error { return i.patch(here, annotation, status) }, ""},
		{"tell of its node", func() error { return i.create(event("Node", "node-a", "node-a")) }, ""},
	})

	ofB := "writes leases of its own node alone: lease " + leaseNames["lent"] + " is held by node node-b"
	i.breakIn(t, []attempt{
		{"lease a block in another node's name", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510006.32}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.6/32, holder: {kind: Node, node: node-b}, store: sb, term: 1}}`)
		}, "the agent of node node-a writes leases of its own node alone"},
		{"lease a block in the cluster's name", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510006.32}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.6/32, holder: {kind: Cluster}}}`)
		}, "is held by the cluster"},
		{"lease a block with a grant", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510006.32}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.6/32, holder: {kind: Node, node: node-a}, store: sa, term: 1,
			  ceded: [10.81.0.6], grants: [{address: 10.81.0.6, to: {kind: Claim, uid: u, namespace: team-a, name: vm}}]}}`)
		}, "changes no grants: they are the controller's"},
		{"lease a block with a finalizer", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510006.32, finalizers: [example.org/stays]}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.6/32, holder: {kind: Node, node: node-a}, store: sa, term: 1}}`)
		}, "neither finalizers nor owners"},
		{"fence another node's lease", func() error { return i.patch(lease("lent"), `{spec: {term: 9, turn: 9}}`) }, ofB},
		{"cede of another node's lease", func() error { return i.patch(lease("lent"), `{spec: {ceded: [10.81.0.1]}}`) }, ofB},
		{"take another node's lease", func() error { return i.patch(lease("lent"), `{spec: {holder: {node: node-a}, store: sa}}`) }, "nodes never hand leases to each other"},
		{"publish for another node", func() error {
			return i.patch(lease("lent"), `{status: {used: 1, free: 0, published: "2026-01-02T03:04:05Z"}}`, status)
		}, ofB},
		{"delete another node's lease", func() error { return i.delete(lease("lent")) }, ofB},
		{"delete all leases", func() error { return i.DeleteAllOf(ctx, named("IPLease", "", "")) }, "cannot deletecollection resource"},
		{"write its own lease whole", func() error { return i.Update(ctx, lease("mine")) }, "cannot update resource \"ipleases\""},
		{"write its own sub-lease whole", func() error { return i.Update(ctx, named("IPSubLease", "", "of-a")) }, "cannot update resource \"ipsubleases\""},
		{"write its own registration whole", func() error { return i.Update(ctx, named("Lease", system, "node-a")) }, "cannot update resource \"leases\""},
		{"list all claims", func() error { return i.List(ctx, &ipamclaims.IPAMClaimList{}) }, "cannot list resource \"ipamclaims\""},
		{"give a lease to the cluster", func() error {
			return i.patch(lease("mine"), `{spec: {holder: {kind: Cluster, node: null}, store: null, term: 0}}`)
		}, "writes leases of its own node alone"},
		{"take the cluster's lease", func() error {
			return i.patch(lease("shared"), `{spec: {holder: {kind: Node, node: node-a}, store: sa}}`)
		}, "nodes never hand leases to each other"},
		{"delete the cluster's lease", func() error { return i.delete(lease("shared")) }, "is held by the cluster"},
		{"grant itself an address", func() error {
			return i.patch(lease("mine"), `{spec: {ceded: [10.81.0.2], grants: [{address: 10.81.0.2, to: {kind: Claim, uid: u, namespace: team-a, name: vm}}]}}`)
		}, "changes no grants"},
		{"clear a grant", func() error { return i.patch(lease("granted"), `{spec: {grants: []}}`) }, "changes no grants"},
		{"turn a grant to another claim", func() error {
			return i.patch(lease("granted"), `{spec: {grants: [{address: 10.81.0.3, to: {kind: Claim, uid: other, namespace: team-a, name: vm}}]}}`)
		}, "changes no grants"},
		{"take back what is granted", func() error { return i.patch(lease("granted"), `{spec: {ceded: []}}`) }, "not taken back while granted"},
		{"delete a lease with grants", func() error { return i.delete(lease("granted")) }, "does not delete a lease with grants: 10.81.0.3 of lease " + leaseNames["granted"] + " belongs to Claim vm"},
		{"own a lease, to have it collected", func() error {
			return i.patch(lease("mine"), `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: x}]}}`)
		}, "neither finalizers nor owners"},
		{"have ten thousand annotations compared", func() error { return i.patch(crowded, annotation, status) }, "of a pod that has more than 1024 of them"},
		{"fill a lease with labels", func() error { return i.patch(lease("mine"), `{metadata: {labels: {x: x}}}`) }, "owners, labels or annotations"},
		{"fill a sub-lease with annotations", func() error {
			return i.patch(named("IPSubLease", "", "of-a"), `{metadata: {annotations: {x: x}}}`)
		}, "owners, labels or annotations"},
		{"write a lease as a newer program would, to keep it", func() error { return i.patch(lease("mine"), `{spec: {protocol: 2147483647}}`) }, "writes no protocol later than 1"},
		{"write a sub-lease as a newer program would", func() error {
			return i.patch(named("IPSubLease", "", "of-a"), `{spec: {protocol: 2, turn: 1}}`)
		}, "writes no protocol later than 1"},
		{"leave its registration, so that its term cannot be ended", func() error { return i.patch(named("Lease", system, "node-a"), `{spec: {holderIdentity: ""}}`) }, "names itself on its registration"},
		{"hide its registration", func() error { return reg(`{metadata: {annotations: null}}`) }, "names its machine, its boot and its turn"},
		{"register in no boot", func() error { return reg(`{metadata: {annotations: {tenure.dev/boot: null}}}`) }, "names its machine, its boot and its turn"},
		{"register on no machine", func() error { return reg(`{metadata: {annotations: {tenure.dev/machine: ""}}}`) }, "names its machine, its boot and its turn"},
		{"garble its turn", func() error { return reg(`{metadata: {annotations: {tenure.dev/turn: "8x"}}}`) }, "names its machine, its boot and its turn"},
		{"raise its turn beyond all others", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/turn: "9223372036854775807"}}}`)
		}, "names its machine, its boot and its turn"},
		{"garble the former agents", func() error { return reg(`{metadata: {annotations: {tenure.dev/former: "x"}}}`) }, "writes lists into"},
		{"garble a former agent", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":"s","term":1},{"store":}]'}}}`)
		}, "writes lists into"},
		{"say that one was registered before for longer than numbers go", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":"s","term":9223372036854775808}]'}}}`)
		}, "writes lists into"},
		{"say of a former agent what no store is", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":5,"term":1}]'}}}`)
		}, "writes lists into"},
		{"say of a former agent what no term is", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":"s","term":"1"}]'}}}`)
		}, "writes lists into"},
		{"say of a former agent what is neither true nor false", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":"s","term":1,"ended":1}]'}}}`)
		}, "writes lists into"},
		{"say of a former agent what nobody asks", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":"s","term":1,"host":"h"}]'}}}`)
		}, "writes lists into"},
		{"write a number of a former agent that JSON does not know", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[{"store":"s","term":01}]'}}}`)
		}, "writes lists into"},
		{"have the controller look at thousands of former agents", func() error {
			return reg(`{metadata: {annotations: {tenure.dev/former: '[` + strings.Repeat(`{"ended":true},`, 3000) + `{"term":1}]'}}}`)
		}, "names 64 former agents at most"},
		{"garble what is recalled", func() error { return reg(`{metadata: {annotations: {tenure.dev/recalls: "{}"}}}`) }, "writes lists into"},
		{"lower its term, so that what it held is not of it", func() error { return reg(`{spec: {leaseTransitions: 0}}`) }, "does not lower its term"},
		{"have no term", func() error { return reg(`{spec: {leaseTransitions: null}}`) }, "does not lower its term"},
		{"have the last term that there is", func() error { return reg(`{spec: {leaseTransitions: 2147483647}}`) }, "nor raise it above 1000000000"},
		{"have a fence of many years", func() error { return reg(`{spec: {leaseDurationSeconds: 2147483647}}`) }, "fence is an hour at most"},
		{"take a finalizer off that is another's", func() error { return i.patch(lease("kept"), `{metadata: {finalizers: []}}`) }, "neither finalizers nor owners"},
		{"ask in another node's name", func() error { return i.create(requestText("forged", "node-b")) }, "writes sub-leases of its own node alone: this one is of node node-b"},
		{"use a claim in another node's name", func() error { return i.create(useText("c2", "node-b")) }, "this one is of node node-b"},
		{"change another node's sub-lease", func() error { return i.patch(named("IPSubLease", "", "of-b"), `{spec: {turn: 9}}`) }, "this one is of node node-b"},
		{"delete another node's sub-lease", func() error { return i.delete(named("IPSubLease", "", "of-b")) }, "this one is of node node-b"},
		{"answer its own request", func() error {
			return i.patch(named("IPSubLease", "", "of-a"), `{status: {granted: [{address: 10.81.0.9, lease: free.0a510009.32}]}}`, status)
		}, "cannot patch resource \"ipsubleases/status\""},
		{"take another node's registration", func() error { return i.patch(named("Lease", system, "node-b"), `{spec: {holderIdentity: sa}}`) }, "writes its own registration alone, and not node-b"},
		{"make another node's registration", func() error { return i.create(regText("node-c")) }, "writes its own registration alone, and not node-c"},
		{"lead in the controller's place", func() error {
			return i.patch(named("Lease", system, "tenure-controller"), `{spec: {holderIdentity: me}}`)
		}, "writes its own registration alone, and not tenure-controller"},
		{"delete its registration", func() error { return i.delete(named("Lease", system, "node-a")) }, "cannot delete resource \"leases\""},
		{"write the kubelet's lease", func() error {
			return i.create(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: node-b, namespace: default}}`)
		}, "cannot create resource \"leases\""},
		{"tell what a pod of another node has", func() error { return i.patch(there, annotation, status) }, "pod team-b/there is not on node node-a"},
		{"write another annotation", func() error { return i.patch(here, `{metadata: {annotations: {example.org/x: another}}}`, status) }, "writes no other annotation of pods"},
		{"write a pod's label", func() error { return i.patch(here, `{metadata: {labels: {app: x}}}`, status) }, "changes nothing of pods but annotations"},
		{"write a pod's phase", func() error { return i.patch(here, `{status: {phase: Failed}}`, status) }, "changes nothing of pods but annotations"},
		{"change what a pod runs", func() error { return i.patch(here, `{spec: {containers: [{name: c, image: evil}]}}`) }, "cannot patch resource \"pods\""},
		{"create a pod", func() error {
			return i.create(`{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: team-b}, spec: {containers: [{name: c, image: x}]}}`)
		}, "cannot create resource \"pods\""},
		{"delete a pod", func() error { return i.delete(there) }, "cannot delete resource \"pods\""},
		{"run a command in a pod", func() error {
			return i.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace("team-b").Name("here").SubResource("exec").Param("command", "id").Do(ctx).Error()
		}, "cannot create resource \"pods/exec\""},
		{"tell of another node", func() error { return i.create(event("Node", "node-b", "node-b")) }, "writes events of tenured on node node-a alone"},
		{"tell of another node in its own name", func() error { return i.create(event("Node", "node-b", "node-a")) }, "writes events of pods, and of its node node-a"},
		{"tell of a deployment", func() error { return i.create(event("Deployment", "x", "node-a")) }, "writes events of pods, and of its node node-a"},
		{"write a claim's status", func() error {
			return i.patch(named("IPAMClaim", "team-b", "vm"), `{status: {ips: [10.81.0.3/24]}}`, status)
		}, "cannot patch resource \"ipamclaims/status\""},
		{"change a claim", func() error { return i.patch(named("IPAMClaim", "team-b", "vm"), `{spec: {network: x}}`) }, "cannot patch resource \"ipamclaims\""},
		{"delete a claim", func() error { return i.delete(named("IPAMClaim", "team-b", "vm")) }, "cannot delete resource \"ipamclaims\""},
		{"change a pool", func() error { return i.patch(named("IPPool", "", "for-b"), `{spec: {namespaceSelector: null}}`) }, "cannot patch resource \"ippools\""},
		{"open a pool", func() error { return i.patch(named("IPPool", "", "free"), `{status: {leasing: Open}}`, status) }, "cannot patch resource \"ippools/status\""},
		{"write a definition", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: x, namespace: team-b}}`)
		}, "cannot create resource \"network-attachment-definitions\""},
		{"read a secret", func() error { return i.get(named("Secret", "team-b", "password")) }, "cannot get resource \"secrets\""},
		{"read Tenure's own secrets", func() error { return i.get(named("Secret", system, "password")) }, "cannot get resource \"secrets\""},
		{"have another agent's token made", func() error {
			_, err := i.kube.CoreV1().ServiceAccounts(system).CreateToken(ctx, "tenured", &authentication.TokenRequest{
				Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: other.Name, UID: other.UID}},
			}, metav1.CreateOptions{})
			return err
		}, "cannot create resource \"serviceaccounts/token\""},
		{"have a secret with a token made", func() error {
			return i.create(`{apiVersion: v1, kind: Secret, metadata: {name: t, namespace: tenure-system, annotations: {kubernetes.io/service-account.name: tenure-controller}}, type: kubernetes.io/service-account-token}`)
		}, "cannot create resource \"secrets\""},
		{"bind itself more rights", func() error {
			return i.create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
			  subjects: [{kind: ServiceAccount, name: tenured, namespace: tenure-system}]}`)
		}, "cannot create resource \"clusterrolebindings\""},
		{"widen its role", func() error {
			return i.patch(named("ClusterRole", "", "tenured"), `{rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}`)
		}, "cannot patch resource \"clusterroles\""},
		{"impersonate an administrator", func() error {
			rc := boundTo(t, "tenured", own)
			rc.Impersonate.UserName, rc.Impersonate.Groups = "admin", []string{"system:masters"}
			_, err := newIntruder(t, i.name, rc).kube.CoreV1().Secrets("team-b").Get(ctx, "password", metav1.GetOptions{})
			return err
		}, "cannot impersonate"},
		{"remove a policy", func() error { return i.delete(named("ValidatingAdmissionPolicy", "", "node-leases.tenure.dev")) }, "cannot delete resource \"validatingadmissionpolicies\""},
		{"remove a policy's binding", func() error { return i.delete(named("ValidatingAdmissionPolicyBinding", "", "node-leases.tenure.dev")) }, "cannot delete resource \"validatingadmissionpolicybindings\""},
		{"remove a definition of kinds", func() error { return i.delete(named("CustomResourceDefinition", "", "ipleases.tenure.dev")) }, "cannot delete resource \"customresourcedefinitions\""},
		{"remove the agents", func() error { return i.delete(named("DaemonSet", system, "tenured")) }, "cannot delete resource \"daemonsets\""},
		{"taint a node", func() error {
			return i.patch(named("Node", "", "node-b"), `{spec: {taints: [{key: node.kubernetes.io/out-of-service, effect: NoExecute}]}}`)
		}, "cannot patch resource \"nodes\""},
		{"delete a node", func() error { return i.delete(named("Node", "", "node-b")) }, "cannot delete resource \"nodes\""},
		{"label a namespace, to be let into a pool", func() error { return i.patch(named("Namespace", "", "team-a"), `{metadata: {labels: {team: b}}}`) }, "cannot patch resource \"namespaces\""},
	})

	// A token that was copied out of its pod's life is worth less: it names no node, or
	// ends with the pod.
	loose := newIntruder(t, "the agent, without a node", boundTo(t, "tenured", nil))
	loose.breakIn(t, []attempt{
		{"lease a block", func() error {
			return loose.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510006.32}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.6/32, holder: {kind: Node, node: node-a}, store: sa, term: 1}}`)
		}, "with a token that names no node: bind it to a pod"},
		{"delete a lease", func() error { return loose.delete(lease("mine")) }, "with a token that names no node"},
		{"ask for addresses", func() error { return loose.create(requestText("loose", "node-a")) }, "with a token that names no node"},
		{"register", func() error { return loose.create(regText("node-d")) }, "with a token that names no node"},
		{"tell what a pod has", func() error { return loose.patch(here, annotation, status) }, "its token names no node"},
		{"tell of a node", func() error { return loose.create(event("Node", "node-a", "node-a")) }, "with a token that names no node"},
	})
}
