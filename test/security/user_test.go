package security_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	authentication "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestUserOfANamespace: alice may edit team-a, as Kubernetes' role edit has it with what
// Tenure adds to it.
func TestUserOfANamespace(t *testing.T) {
	ctx := context.Background()
	rc, err := cp.AddUser("alice")
	if err != nil {
		t.Fatal(err)
	}
	i := newIntruder(t, "who may edit a namespace", rc)
	hers := podOn(t, "team-a", "hers", "node-a", "default")
	const claimOfHers = `{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: probe, namespace: team-a}, spec: {network: lan, interface: net1}}`
	// The roles are aggregated.
	fleet.Eventually(t, 20*time.Second, func() error { return i.Create(ctx, parse(claimOfHers), client.DryRunAll) })
	i.mayDo(t, []attempt{
		{"make a claim", func() error { return i.create(claimOfHers) }, ""},
		{"delete it", func() error { return i.delete(named("IPAMClaim", "team-a", "probe")) }, ""},
		{"annotate her pod", func() error { return i.patch(hers, `{metadata: {annotations: {k8s.v1.cni.cncf.io/networks: "lan"}}}`) }, ""},
		{"make a pod that selects a network", func() error { return i.create(told("fine", `k8s.v1.cni.cncf.io/networks: lan`)) }, ""},
		{"make parameters for an attachment", func() error {
			return i.create(parameters(`mtu: 1400, bridge: {hairpin: true, checkMAC: true, bandwidth: {ingressRate: 1000000}}`))
		}, ""},
		{"make others", func() error { return i.create(parameters(`mtu: 1400, sriov: {checkMAC: true}`)) }, ""},
		{"make some of macvlan", func() error { return i.create(parameters(`mtu: 1400, macvlan: {}`)) }, ""},
		{"make a copy of a pod without networks", func() error { return i.create(told("copied", attached)) }, ""},
	})
	i.breakIn(t, []attempt{
		{"delete a lease", func() error { return i.delete(named("IPLease", "", leaseNames["lent"])) }, "cannot delete resource \"ipleases\""},
		{"delete all leases", func() error { return i.DeleteAllOf(ctx, named("IPLease", "", "")) }, "cannot deletecollection resource \"ipleases\""},
		{"change a lease", func() error { return i.patch(named("IPLease", "", leaseNames["lent"]), `{spec: {turn: 9}}`) }, "cannot patch resource \"ipleases\""},
		{"make a lease", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPLease, metadata: {name: free.0a510006.32}, spec: {protocol: 1, pool: free, poolUID: u, block: 10.81.0.6/32, holder: {kind: Cluster}}}`)
		}, "cannot create resource \"ipleases\""},
		{"delete a sub-lease", func() error { return i.delete(named("IPSubLease", "", "of-b")) }, "cannot delete resource \"ipsubleases\""},
		{"make a sub-lease", func() error { return i.create(requestText("hers", "node-a")) }, "cannot create resource \"ipsubleases\""},
		{"answer a sub-lease", func() error { return i.patch(named("IPSubLease", "", "of-b"), `{status: {}}`, "status") }, "cannot patch resource \"ipsubleases/status\""},
		{"make a pool", func() error {
			return i.create(`{apiVersion: tenure.dev/v1alpha1, kind: IPPool, metadata: {name: hers}, spec: {ranges: [{cidr: 10.82.0.0/24}]}}`)
		}, "cannot create resource \"ippools\""},
		{"open a pool to herself", func() error { return i.patch(named("IPPool", "", "for-b"), `{spec: {namespaceSelector: null}}`) }, "cannot patch resource \"ippools\""},
		{"delete a pool", func() error { return i.delete(named("IPPool", "", "for-b")) }, "cannot delete resource \"ippools\""},
		{"write her claim's status", func() error {
			return i.patch(named("IPAMClaim", "team-a", "vm"), `{status: {ips: [10.82.0.3/24]}}`, "status")
		}, "cannot patch resource \"ipamclaims/status\""},
		{"tell the port of her claim", func() error {
			return i.patch(named("IPAMClaim", "team-a", "vm"), `{metadata: {annotations: {tenure.dev/port: '{"id":"p","mac":"fa:16:3e:00:00:01"}'}}}`)
		}, "the annotation tenure.dev/port of IPAMClaim team-a/vm is for Tenure's controller to write"},
		{"make a claim that tells its port", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-a, annotations: {tenure.dev/port: "{}"}}, spec: {network: lan, interface: net1}}`)
		}, "the annotation tenure.dev/port of IPAMClaim team-a/x is for Tenure's controller to write"},
		{"change another namespace's claim", func() error { return i.patch(named("IPAMClaim", "team-b", "vm"), `{spec: {network: x}}`) }, "cannot patch resource \"ipamclaims\""},
		{"delete another namespace's claim", func() error { return i.delete(named("IPAMClaim", "team-b", "vm")) }, "cannot delete resource \"ipamclaims\""},
		{"make a claim in another namespace", func() error {
			return i.create(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: x, namespace: team-b}, spec: {network: lan, interface: net1}}`)
		}, "cannot create resource \"ipamclaims\""},
		{"forge what her pod was attached to", func() error {
			return i.patch(hers, `{metadata: {annotations: {k8s.v1.cni.cncf.io/network-status: '[{"name":"lan","ips":["10.82.0.3"]}]'}}}`)
		}, "annotations k8s.v1.cni.cncf.io/network-status and tenure.dev/pod-ips of pod team-a/hers are written by who attaches it: alice may not write the status of pods"},
		{"have an interface of the node", func() error { return i.create(parameters(`macvlan: {master: eth0, mode: passthru}`)) }, "may create neither NetworkAttachmentDefinitions in namespace team-a nor PodNetworks"},
		{"have an interface of a bridge of the node", func() error { return i.create(parameters(`bridge: {bridge: cni0, checkMAC: true}`)) }, "say more than an attachment may vary"},
		{"have a VLAN of the node", func() error { return i.create(parameters(`vlan: {id: 7}`)) }, "say more than an attachment may vary"},
		{"send from any hardware address", func() error { return i.create(parameters(`sriov: {checkMAC: false}`)) }, "say more than an attachment may vary"},
		{"make a pod that tells what it was attached to", func() error {
			return i.create(told("f1", `k8s.v1.cni.cncf.io/networks: lan, `+attached))
		}, "pod team-a/f1 selects networks, and comes with the annotation k8s.v1.cni.cncf.io/network-status or tenure.dev/pod-ips, which who attaches it writes: leave that out"},
		{"make one that selects PodNetworks", func() error {
			return i.create(told("f2", `tenure.dev/pod-networks: '[{"podNetworkName":"lan"}]', tenure.dev/pod-ips: '[]'`))
		}, "alice may not write the status of pods"},
		{"make one that names its default network", func() error {
			return i.create(told("f4", `v1.multus-cni.io/default-network: team-a/lan, `+attached))
		}, "pod team-a/f4 selects networks, and comes with the annotation"},
		{"have a controller make such pods", func() error {
			its, err := cp.AddUser("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts")
			if err != nil {
				t.Fatal(err)
			}
			return newIntruder(t, i.name, its).create(told("f3", `k8s.v1.cni.cncf.io/networks: lan, `+attached))
		}, "replicaset-controller may not write the status of pods"},
		{"select networks for a pod that came with a status", func() error {
			return i.patch(named("Pod", "team-a", "copied"), `{metadata: {annotations: {k8s.v1.cni.cncf.io/networks: lan}}}`)
		}, "pod team-a/copied selects networks, and comes with the annotation"},
		{"name a default network for it", func() error {
			return i.patch(named("Pod", "team-a", "copied"), `{metadata: {annotations: {v1.multus-cni.io/default-network: lan}}}`)
		}, "pod team-a/copied selects networks, and comes with the annotation"},
		{"forge her pod's status", func() error { return i.patch(hers, `{status: {podIP: 10.82.0.3}}`, "status") }, "cannot patch resource \"pods/status\""},
		{"label her namespace, to be let into a pool", func() error { return i.patch(named("Namespace", "", "team-a"), `{metadata: {labels: {team: b}}}`) }, "cannot patch resource \"namespaces\""},
		{"bind the verb use to her namespace", func() error {
			return i.create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: hers}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
			  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:team-a"}]}`)
		}, "cannot create resource \"clusterrolebindings\""},
		{"take a node's registration", func() error { return i.patch(named("Lease", system, "node-b"), `{spec: {holderIdentity: me}}`) }, "cannot patch resource \"leases\""},
		{"run a pod as the agent", func() error {
			return i.create(`{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: tenure-system}, spec: {serviceAccountName: tenured, containers: [{name: c, image: x}]}}`)
		}, "cannot create resource \"pods\""},
		{"have the agent's token made", func() error {
			_, err := i.kube.CoreV1().ServiceAccounts(system).CreateToken(ctx, "tenured", &authentication.TokenRequest{}, metav1.CreateOptions{})
			return err
		}, "cannot create resource \"serviceaccounts/token\""},
		{"impersonate the agent", func() error {
			as := *rc
			as.Impersonate.UserName = "system:serviceaccount:tenure-system:tenured"
			_, err := newIntruder(t, i.name, &as).kube.CoreV1().Pods("team-a").Get(ctx, "hers", metav1.GetOptions{})
			return err
		}, "cannot impersonate"},
		{"read Tenure's secrets", func() error { return i.get(named("Secret", system, "password")) }, "cannot get resource \"secrets\""},
		{"say that a node is off", func() error {
			return i.patch(named("Node", "", "node-b"), `{spec: {taints: [{key: node.kubernetes.io/out-of-service, effect: NoExecute}]}}`)
		}, "cannot patch resource \"nodes\""},
		{"delete a node", func() error { return i.delete(named("Node", "", "node-b")) }, "cannot delete resource \"nodes\""},
	})
}

// TestNetworksOfAPodThatIsAttached: bob may edit pods in team-a. Of one that is being attached he
// cannot hide to what: pools that move in from another IPAM wait for it.
func TestNetworksOfAPodThatIsAttached(t *testing.T) {
	ctx := context.Background()
	rc, err := cp.AddUser("bob")
	if err != nil {
		t.Fatal(err)
	}
	if err := kc.Create(ctx, parse(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: bob, namespace: team-a},
	  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]}`)); err != nil {
		t.Fatal(err)
	}
	i, admin := newIntruder(t, "who may edit pods", rc), newIntruder(t, "the administrator", cp.Config())
	his := podOn(t, "team-a", "his", "node-a", "default")
	fleet.Eventually(t, 20*time.Second, func() error { return i.Create(ctx, parse(told("probe", `a: b`)), client.DryRunAll) })
	selects := func(who intruder, pod client.Object, networks string) error {
		return who.patch(pod, `{metadata: {annotations: {k8s.v1.cni.cncf.io/networks: `+networks+`}}}`)
	}
	defaults := func(who intruder, network string) error {
		return who.patch(his, `{metadata: {annotations: {v1.multus-cni.io/default-network: `+network+`}}}`)
	}
	const refused = "pod team-a/his is being attached to the networks that its annotations k8s.v1.cni.cncf.io/networks and v1.multus-cni.io/default-network select. " +
		"If it hangs, delete it, and make it again with the right ones; else change them once it has an IP address. " +
		"Before that they are changed by who may write the status of pods, both by update and by patch: bob may not"
	i.mayDo(t, []attempt{
		{"select a network", func() error { return selects(i, his, "lan") }, ""},
		{"name a default network", func() error { return defaults(i, "lan") }, ""},
		{"make a pod that selects one", func() error { return i.create(told("unbound", `k8s.v1.cni.cncf.io/networks: lan`)) }, ""},
		{"select another for a pod without a node", func() error { return selects(i, named("Pod", "team-a", "unbound"), "other") }, ""},
		{"write another annotation", func() error { return i.patch(his, `{metadata: {annotations: {a: b}}}`) }, ""},
	})
	i.breakIn(t, []attempt{
		{"hide what the pod is attached to", func() error { return selects(i, his, "null") }, refused},
		{"say that it is attached to something else", func() error { return selects(i, his, "other") }, refused},
		{"hide its own default network", func() error { return defaults(i, "null") }, refused},
	})
	admin.mayDo(t, []attempt{{"mend what it selects", func() error { return selects(admin, his, "wan") }, ""}})
	status := func(phase, sandbox string) {
		t.Helper()
		if err := admin.patch(his, `{status: {phase: `+phase+`, podIP: 10.0.0.8, podIPs: [{ip: 10.0.0.8}], conditions: [{type: PodReadyToStartContainers, status: "`+sandbox+`"}]}}`, "status"); err != nil {
			t.Fatal(err)
		}
	}
	status("Running", "False")
	i.breakIn(t, []attempt{{"hide what the pod is attached to anew", func() error { return selects(i, his, "null") }, refused}})
	status("Running", "True")
	i.mayDo(t, []attempt{{"select another network once it is attached", func() error { return selects(i, his, "other") }, ""}})
	status("Succeeded", "False")
	i.mayDo(t, []attempt{{"select another network for a pod that has ended", func() error { return selects(i, his, "lan") }, ""}})
}

// parameters are InterfaceParameters of alice's.
func parameters(spec string) string {
	return `{apiVersion: tenure.dev/v1alpha1, kind: InterfaceParameters, metadata: {generateName: p-, namespace: team-a}, spec: {` + spec + `}}`
}

// attached is an annotation that tells that a pod has an address on a network.
const attached = `k8s.v1.cni.cncf.io/network-status: '[{"name":"team-a/lan","interface":"net1","ips":["10.82.0.3"]}]'`

// told is a pod of alice's with annotations.
func told(name, annotations string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: team-a, annotations: {%s}}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: x}]}}`, name, annotations)
}

// TestPodsThatWereAttachedBefore: who may write the status of pods, as a tool that restores
// everything may, makes a pod with the annotations that it had.
func TestPodsThatWereAttachedBefore(t *testing.T) {
	i := newIntruder(t, "who restores a cluster", cp.Config())
	i.mayDo(t, []attempt{{"make a pod with its status", func() error { return i.create(told("restored", `k8s.v1.cni.cncf.io/networks: lan, `+attached)) }, ""}})
}

// TestPodsMadeForOthers: who makes pods with annotations that their users give, as KubeVirt's
// virt-controller does, cannot be had to make one with a status, though it may patch that itself.
// Nor can a binding bring one, whose annotations become the pod's.
func TestPodsMadeForOthers(t *testing.T) {
	ctx := context.Background()
	rc, err := cp.AddUser("virt-controller")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: virt-controller}, rules: [
		  {apiGroups: [""], resources: [pods], verbs: [create, patch]}, {apiGroups: [""], resources: [pods/status], verbs: [patch]}, {apiGroups: [""], resources: [pods/binding], verbs: [create]}]}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: virt-controller}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: virt-controller},
		  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: virt-controller}]}`,
	} {
		if err := kc.Create(ctx, parse(text)); err != nil {
			t.Fatal(err)
		}
	}
	i := newIntruder(t, "who makes pods for others", rc)
	fleet.Eventually(t, 20*time.Second, func() error { return i.Create(ctx, parse(told("probe", `a: b`)), client.DryRunAll) })
	bind := func(name, annotations string) error {
		return i.SubResource("binding").Create(ctx, named("Pod", "team-a", name),
			parse(fmt.Sprintf(`{apiVersion: v1, kind: Binding, metadata: {name: %s, namespace: team-a, annotations: {%s}}, target: {kind: Node, name: node-a}}`, name, annotations)))
	}
	const networks = `k8s.v1.cni.cncf.io/networks: lan`
	selects := func(name string) error {
		return i.patch(named("Pod", "team-a", name), `{metadata: {annotations: {`+networks+`}}}`)
	}
	i.mayDo(t, []attempt{
		{"make a pod that selects a network", func() error { return i.create(told("v1", networks)) }, ""},
		{"make a pod with a status and no networks", func() error { return i.create(told("v2", attached)) }, ""},
	})
	i.breakIn(t, []attempt{
		{"make a pod with a status", func() error { return i.create(told("v3", networks+", "+attached)) }, "virt-controller may not write the status of pods"},
		{"select networks for one that came with a status", func() error { return selects("v2") }, "virt-controller may not write the status of pods"},
		{"bind a pod and tell its status", func() error { return bind("v1", attached) }, "the binding of pod team-a/v1"},
		{"bind one that came with a status and select networks", func() error { return bind("v2", networks) }, "the binding of pod team-a/v2"},
		{"bind it and name a default network", func() error { return bind("v2", `v1.multus-cni.io/default-network: lan`) }, "the binding of pod team-a/v2"},
	})
	if err := newIntruder(t, i.name, cp.Config()).patch(named("Pod", "team-a", "v2"), `{status: {podIP: 10.0.0.9, podIPs: [{ip: 10.0.0.9}]}}`, "status"); err != nil {
		t.Fatal(err)
	}
	if err := newIntruder(t, i.name, cp.Config()).patch(named("Pod", "team-a", "v2"), `{metadata: {annotations: {`+many(1024)+`}}}`); err != nil {
		t.Fatal(err)
	}
	i.breakIn(t, []attempt{
		{"select networks for one of which no agent writes a status", func() error { return selects("v2") }, "virt-controller may not write the status of pods"},
	})
	if err := newIntruder(t, i.name, cp.Config()).patch(named("Pod", "team-a", "v2"), `{metadata: {annotations: {`+strings.ReplaceAll(many(1024), `""`, "null")+`}}}`); err != nil {
		t.Fatal(err)
	}
	i.mayDo(t, []attempt{
		{"bind a pod", func() error { return bind("v1", `a: b`) }, ""},
		{"select networks for a pod that has been attached", func() error { return selects("v2") }, ""},
	})
}

// TestAnAdministratorByAccident: who may do everything must mean it.
func TestAnAdministratorByAccident(t *testing.T) {
	i := newIntruder(t, "an administrator, by accident", cp.Config())
	lease := named("IPLease", "", leaseNames["lent"])
	i.breakIn(t, []attempt{
		{"delete a lease", func() error { return i.delete(lease) }, "kubectl annotate ipleases " + leaseNames["lent"] + " tenure.dev/deletion=confirmed"},
		{"delete all leases", func() error { return i.DeleteAllOf(context.Background(), named("IPLease", "", "")) }, "takes addresses from running pods"},
		{"delete a sub-lease", func() error { return i.delete(named("IPSubLease", "", "of-b")) }, "kubectl annotate ipsubleases of-b"},
	})
	if err := i.patch(lease, `{metadata: {annotations: {tenure.dev/deletion: confirmed}}}`); err != nil {
		t.Fatal(err)
	}
	if err := i.Delete(t.Context(), lease, client.DryRunAll); err != nil {
		t.Errorf("deleting on purpose: %v", err)
	}
	if err := i.patch(lease, `{metadata: {annotations: null}}`); err != nil {
		t.Fatal(err)
	}
}

// TestPoolsOfOthers, with controller and agent at work under their own roles and
// policies: what alice's namespace may not use it does not get, whatever is written in it.
func TestPoolsOfOthers(t *testing.T) {
	ctx := context.Background()
	stop, err := fleet.StartController(ctx, boundTo(t, "tenure-controller", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	rc, err := cp.AddUser("alice")
	if err != nil {
		t.Fatal(err)
	}
	i := newIntruder(t, "who may edit a namespace", rc)
	for _, namespace := range []string{"team-a", "team-b"} {
		for _, pool := range []string{"for-b", "by-verb"} {
			text := fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: %s, namespace: %s},
			  spec: {config: '{"cniVersion":"1.0.0","name":"%s-%s","type":"bridge","ipam":{"type":"tenure","pool":"%s"}}'}}`, pool, namespace, pool, namespace, pool)
			if err := kc.Create(ctx, parse(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := fleet.New(t, boundTo(t, "tenured", podOn(t, system, "tenured-c", "node-c", "tenured")))
	f.Change = func(c *daemon.Config) { c.Agent.Wait = time.Minute }
	n := f.Start("node-c")
	pod := func(namespace, name, pool string) fleet.Interface {
		p := podOn(t, namespace, name, "node-c", "default")
		return fleet.Interface{
			Network: pool + "-" + namespace, Sandbox: name, IfName: "eth0", Namespace: namespace, Pod: name, PodUID: string(p.UID),
			IPAM: map[string]any{"type": "tenure", "pool": pool},
		}
	}
	add := func(p fleet.Interface) error { _, err := n.Add(p); return err }
	i.mayDo(t, []attempt{{"use its own pool, as team-b", func() error { return add(pod("team-b", "fine", "for-b")) }, ""}})

	claimed := func(name, network string) error {
		text := fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1alpha1, kind: IPAMClaim, metadata: {name: %s, namespace: team-a}, spec: {network: %s, interface: net1}}`, name, network)
		if err := i.create(text); err != nil {
			return fmt.Errorf("the test is wrong: %w", err)
		}
		return refusedClaim(t, name)
	}
	i.breakIn(t, []attempt{
		{"a pod on a pool for others", func() error { return add(pod("team-a", "p1", "for-b")) }, "namespace team-a may not use pool for-b: the IPPool's spec.namespaceSelector (team=b) does not select it"},
		{"a static address of it", func() error {
			p := pod("team-a", "p2", "for-b")
			p.Top = map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.82.0.77/24"}}}
			return add(p)
		}, "namespace team-a may not use pool for-b"},
		{"a pod on a pool whose use must be allowed", func() error { return add(pod("team-a", "p3", "by-verb")) }, "group system:serviceaccounts:team-a is not allowed the verb use on ippools.tenure.dev/by-verb"},
		{"a claim on a pool for others, by her own definition", func() error { return claimed("c1", "for-b-team-a") }, "PoolNotAllowed: namespace team-a may not use pool for-b"},
		{"a claim by another namespace's definition", func() error { return claimed("c2", "for-b-team-b") }, "PoolNotAllowed: namespace team-a may not use pool for-b"},
		{"a claim on a pool whose use must be allowed", func() error { return claimed("c3", "by-verb-team-a") }, "PoolNotAllowed: namespace team-a may not use pool by-verb: the IPPool's spec.access is RBAC"},
	})
}

// refusedClaim waits until the controller has said something of a claim, and returns that
// as an error; nil if the claim has addresses.
func refusedClaim(t *testing.T, name string) (refusal error) {
	t.Helper()
	c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
	fleet.Eventually(t, 10*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(c.Status.Conditions, kube.ConditionIPsAllocated)
		switch {
		case len(c.Status.IPs) > 0:
			return nil
		case cond == nil:
			return fmt.Errorf("nothing is said of claim %s", name)
		}
		refusal = errors.New(cond.Reason + ": " + cond.Message)
		return nil
	})
	return refusal
}
