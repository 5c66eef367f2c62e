package operator_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// A cluster in good order: a pod with an address of its node's block, one with a claim,
// one that was granted an address, a claim that nobody uses, and another IPAM's claim.
func inOrder(t *testing.T) *world {
	w := newWorld(t)
	own := w.lease("10.40.0.0/28", w.node)
	w.published(own, "10.40.0.5 "+w.namespace+"/plain net1")
	w.podWith("plain", "10.40.0.5")
	vm, idle := w.claim("vm", "10.40.0.17/20"), w.claim("idle", "10.40.0.18/20")
	pod := w.podWith("vm-1", "10.40.0.17")
	w.use(vm, pod)
	asked := w.podWith("asked", "10.40.0.19")
	r := w.request(asked, v1alpha1.Granted{Address: "10.40.0.19", Lease: w.pool.Name + ".0a280010.28"})
	w.lease("10.40.0.16/28", "", toClaim(vm, "10.40.0.17"), toClaim(idle, "10.40.0.18"), toRequest(r, "10.40.0.19"))
	other := w.claim("other", "192.0.2.1/24")
	other.Spec.Network = "ovn"
	if err := kc.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	return w
}

func toRequest(s *v1alpha1.IPSubLease, addr string) v1alpha1.Grant {
	return v1alpha1.Grant{Address: addr, To: v1alpha1.Grantee{Kind: v1alpha1.GranteeSubLease, UID: string(s.UID), Name: s.Name}}
}

func TestCheckFindsNothingInGoodOrder(t *testing.T) {
	inOrder(t)
	says(t, tenure(t, 0, "check", "--apart=0s"), "pools 1, leases 2, sub-leases 2, claims 2, pods 3, nodes 1: all is as it must be.")
}

// What check claims to find it finds, of a cluster that is otherwise in good order; and
// it finds nothing else (I1, I2, I3, I4).
func TestCheckFindsDamage(t *testing.T) {
	ghost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ghosts", Name: "gone", UID: "no-such-uid"}}
	for _, tt := range []struct {
		name   string
		damage func(w *world)
		rules  string
		wrong  bool
		words  []string // of what it says
	}{
		{"two pods with one address", func(w *world) { w.podWith("twin", "10.40.0.5") }, "TwoOwners", true, []string{"10.40.0.5", "/plain", "/twin"}},
		{"a pod with a claim's address", func(w *world) { w.podWith("thief", "10.40.0.18") }, "TwoOwners", true, []string{"10.40.0.18", "/idle", "/thief"}},
		{"a pod with what was granted to another", func(w *world) { w.podWith("thief", "10.40.0.19") }, "TwoOwners", true, []string{"10.40.0.19", "/asked", "/thief"}},
		{"two claims that name one address", func(w *world) { w.claim("copy", "10.40.0.17/20") }, "TwoOwners ClaimNotBacked", true, []string{"10.40.0.17", "/vm", "/copy"}},
		{"leases that overlap", func(w *world) { w.lease("10.40.0.8/29", w.node) }, "TwoLeases", true, []string{"10.40.0.8/29"}},
		{"a pod whose block is not leased", func(w *world) { w.podWith("stray", "10.40.3.3") }, "PodNotBacked", true, []string{"10.40.3.3", "not leased"}},
		{"a pod whose block is the cluster's", func(w *world) { w.podWith("stray", "10.40.0.20") }, "PodNotBacked", true, []string{"10.40.0.20", "held by the cluster"}},
		{"a claim's status that nothing backs", func(w *world) { w.claim("forged", "10.40.4.4/20") }, "ClaimNotBacked", true, []string{"10.40.4.4", "/forged"}},
		{"a use of a claim without a grant", func(w *world) { w.use(w.claim("bare"), w.podWith("bare-1", "10.40.0.6")) }, "UseNotBacked", true, []string{"/bare"}},
		{"an answer without a grant", func(w *world) {
			w.request(w.podWith("hope", "10.40.0.6"), v1alpha1.Granted{Address: "10.40.0.21", Lease: w.pool.Name + ".0a280010.28"})
		}, "UseNotBacked", true, []string{"10.40.0.21"}},
		{"a lease of a pool that is gone", func(w *world) {
			p := *w.pool
			w.pool.Name, w.pool.UID = "nowhere", "no-such-uid"
			w.lease("10.41.0.0/28", "")
			*w.pool = p
		}, "PoolGone", true, []string{"nowhere.0a290000.28"}},
		{"a lease of an earlier pool of the name", func(w *world) {
			uid := w.pool.UID
			w.pool.UID = "earlier"
			w.lease("10.40.5.0/28", "")
			w.pool.UID = uid
		}, "PoolGone", true, []string{"earlier pool"}},
		{"a node that is gone, and its registration", func(w *world) { w.lease("10.40.6.0/28", "vanished") }, "NodeGone", true, []string{"node vanished", "release-node"}},
		{"a node that is silent", func(w *world) { w.quiet(time.Hour, 15*time.Minute) }, "NodeSilent", true, []string{"no heartbeat", "release-node"}},
		{"a node without a registration", func(w *world) { w.deregister() }, "NodeSilent", true, []string{"no registration"}},
		{"a registration that cannot be read", func(w *world) {
			l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: w.node}}
			if err := kc.Patch(w.t.Context(), l, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tenure.dev/turn":"x"}}}`))); err != nil {
				w.t.Fatal(err)
			}
		}, "NotUnderstood", true, []string{"registration tenure-system/", "turn"}},
		{"a pod that had the address in its last sandbox", func(w *world) {
			pod := w.podWith("restarts", "10.40.0.5")
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
			setStatus(w.t, pod)
		}, "", false, nil},
		{"two pods with one address, by what a node said that is not Ready", func(w *world) {
			w.podWith("twin", "10.40.0.5")
			w.isReady(corev1.ConditionUnknown)
		}, "TwoOwners", false, []string{"NOTE TwoOwners", "/twin"}},
		{"a store that nobody knows", func(w *world) {
			store := w.store
			w.store = "strange"
			w.lease("10.40.7.0/28", w.node)
			w.store = store
		}, "StoreUnknown", true, []string{"store strange"}},
		{"an earlier store of the node", func(w *world) {
			fleet.Amend(w.t, api, w.node, func(reg *protocol.Registration) {
				reg.Former = []protocol.Former{{Store: "earlier", Machine: reg.Machine, Term: 1}}
				reg.Writes++
			})
			store := w.store
			w.store = "earlier"
			w.lease("10.40.7.0/28", w.node)
			w.store = store
		}, "StoreFrozen", false, []string{"earlier store"}},
		{"a grant of a claim that is gone", func(w *world) {
			c := w.claim("brief")
			w.lease("10.40.8.0/28", "", toClaim(c, "10.40.8.1"))
			if err := kc.Delete(w.t.Context(), c); err != nil {
				w.t.Fatal(err)
			}
		}, "GrantLeaked", false, []string{"10.40.8.1", "/brief", "--apart=1m0s"}},
		{"a grant that the status does not name", func(w *world) {
			c := w.claim("double", "10.40.8.2/20")
			w.lease("10.40.8.0/28", "", toClaim(c, "10.40.8.2"), toClaim(c, "10.40.8.3"))
		}, "GrantLeaked", false, []string{"10.40.8.3", "/double"}},
		{"a use of a pod that is gone", func(w *world) {
			c := w.claim("left", "10.40.8.4/20")
			w.lease("10.40.8.0/28", "", toClaim(c, "10.40.8.4"))
			w.use(c, ghost)
		}, "SubLeaseLeaked", false, []string{"ghosts/gone"}},
		{"an address of a pod that is gone", func(w *world) {
			w.published(w.lease("10.40.9.0/28", w.node), "10.40.9.1 ghosts/gone net1")
		}, "AllocationLeaked", false, []string{"10.40.9.1", "ghosts/gone"}},
		{"an address of a device whose ResourceClaim is gone", func(w *world) {
			w.published(w.lease("10.40.9.0/28", w.node), "10.40.9.1 ghosts/gone eth1 resourceclaim/nic")
		}, "AllocationLeaked", false, []string{"10.40.9.1", "device eth1 of ResourceClaim ghosts/nic"}},
		{"an address outside the ranges", func(w *world) {
			c := w.claim("moved", "10.99.0.1/20")
			w.lease("10.99.0.0/28", "", toClaim(c, "10.99.0.1"))
		}, "AddressOutside", false, []string{"10.99.0.1"}},
		{"a Service that gets no names", func(w *world) {
			asks := map[string]string{"tenure.dev/network": "lan", "tenure.dev/selector": "app=db"}
			create(w.t, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "db", Annotations: asks}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			})
			create(w.t, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "served", Annotations: asks}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
			})
			create(w.t, &discovery.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "served", Labels: map[string]string{
					discovery.LabelServiceName: "served", discovery.LabelManagedBy: "names.tenure.dev",
				}}, AddressType: discovery.AddressTypeIPv4,
			})
		}, "NamesAbsent", false, []string{"/db", "cluster IP"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := inOrder(t)
			tt.damage(w)
			code := 0
			if tt.wrong {
				code = 3
			}
			out := tenure(t, code, "check", "--apart=0s")
			says(t, out, tt.words...)
			want := map[string]int{}
			for rule := range strings.FieldsSeq(tt.rules) {
				want[rule] = 1
			}
			if got := rules(t); !maps.Equal(got, want) {
				t.Errorf("found %v; want %v\n%s", got, want, out)
			}
		})
	}
}

// rules returns how many findings there are of each rule, as a program reads them.
func rules(t *testing.T) map[string]int {
	t.Helper()
	cmd := command(t, "check", "--apart=0s", "--strict", "-o", "json")
	out, _ := cmd.Output() // its code tells
	var answer struct {
		Result                 string
		Wrong, Notes, Settling int
		Looked                 struct{ Pools, Nodes int }
		Findings               []struct{ Rule string }
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	if got, want := cmd.ProcessState.ExitCode(), map[string]int{"InOrder": 0, "Notes": 4, "Wrong": 3}[answer.Result]; got != want || answer.Looked.Pools < 1 || answer.Looked.Nodes < 1 {
		t.Errorf("it exits with %d, and says %+v", got, answer)
	}
	if answer.Wrong+answer.Notes+answer.Settling != len(answer.Findings) {
		t.Errorf("the numbers do not fit the findings: %s", out)
	}
	found := map[string]int{}
	for _, f := range answer.Findings {
		found[f.Rule]++
	}
	return found
}

// A node that is gone is no fault while its fence has not passed, and one where only
// somebody's word helps.
func TestCheckTellsWhatAGoneNodeWaitsFor(t *testing.T) {
	for _, tt := range []struct {
		name         string
		quiet, fence time.Duration
		confirmed    bool
		code         int
		words        []string
	}{
		{"time", 10 * time.Minute, 15 * time.Minute, false, 0, []string{"NOTE NodeGone", "takes them over at about"}},
		{"the controller", time.Hour, 15 * time.Minute, false, 3, []string{"WRONG NodeGone", "longer than its fence"}},
		{"a word, as the pool asks", time.Hour, 15 * time.Minute, true, 3, []string{"takeOver: Confirmed", "release-node"}},
		{"a word, as there is no fence", time.Hour, 0, false, 3, []string{"fence is 0", "release-node"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.confirmed {
				w.pool.Spec.TakeOver = v1alpha1.TakeOverConfirmed
				if err := kc.Update(t.Context(), w.pool); err != nil {
					t.Fatal(err)
				}
			}
			w.lease("10.40.0.0/28", w.node)
			w.quiet(tt.quiet, tt.fence)
			w.nodeGone()
			says(t, tenure(t, tt.code, "check", "--apart=0s"), tt.words...)
		})
	}
}

func TestSeeingItAll(t *testing.T) {
	w := inOrder(t)
	says(t, tenure(t, 0, "leases"), "NAME POOL BLOCK HOLDER USED FREE CEDED CLAIMS REQUESTS",
		w.pool.Name+".0a280000.28 "+w.pool.Name+" 10.40.0.0/28 "+w.node+" 1 14 0 0 0",
		w.pool.Name+".0a280010.28 "+w.pool.Name+" 10.40.0.16/28 the cluster 3 13 0 2 1")
	if out := tenure(t, 0, "leases", "--node", w.node, "-o", "name"); out != "iplease.tenure.dev/"+w.pool.Name+".0a280000.28" {
		t.Errorf("leases of the node: %s", out)
	}
	says(t, tenure(t, 0, "pools", w.pool.Name), "10.40.0.0/20", "the cluster 1 3 13 0 3 0 -", w.node+" 1 1 14 0 0 0 -")
	says(t, tenure(t, 0, "claims", "-A", "--pool", w.pool.Name, "-o", "wide"), w.namespace+" vm lan - 10.40.0.17/20 - - "+w.pool.Name+" - vm-1 on "+w.node)
	if out := tenure(t, 0, "claims", "-A", "--pool", w.pool.Name); strings.Contains(out, "192.0.2.1") {
		t.Errorf("another's claim is shown as of the pool: %s", out)
	}
	says(t, tenure(t, 0, "who", "10.40.0.17"), "claim "+w.namespace+"/vm, used by pod "+w.namespace+"/vm-1 on node "+w.node)
	says(t, tenure(t, 0, "who", "10.40.0.19"), "pod "+w.namespace+"/asked on node "+w.node, "sub-lease request-")
	says(t, tenure(t, 3, "who", "10.40.0.254"), "nobody; its block is not leased")
	says(t, tenure(t, 3, "who", "10.40.0.0"), "is the network address")
	w.lease("10.99.0.0/28", "", toClaim(w.claim("moved", "10.99.0.1/20"), "10.99.0.1"))
	says(t, tenure(t, 1, "who", "10.40.0.17", "--at", "1h"), "10.40.0.17: no node that has answered gave it to anybody", "did not answer, and may have had it", w.node+" (it has no agent's pod now)")
	says(t, tenure(t, 1, "who", "10.98.0.1", "--since", "7d"), "10.98.0.1 is in the ranges of no pool now")
	says(t, tenure(t, 1, "who", "10.40.0.17", "--since", "7d", "-o", "json"), `"holders": []`, `"silent": "it has no agent's pod now"`)
	says(t, tenure(t, 0, "who", "10.99.0.1"), "claim "+w.namespace+"/moved")
	says(t, tenure(t, 0, "who", "10.40.0.5", "-o", "json"), `"owner": "Pod"`, `"pod": "plain"`)
	says(t, tenure(t, 0, "__complete", "leases", "--pool", ""), w.pool.Name)
	says(t, tenure(t, 0, "__complete", "pod", "-n", w.namespace, ""), "asked", "plain", "vm-1")
	says(t, tenure(t, 0, "pod", "plain", "-n", w.namespace), "net1 "+w.namespace+"/lan 10.40.0.5 "+w.pool.Name+" - yes")
}

// A pod that is pending is told why.
func TestPodTellsWhyItIsPending(t *testing.T) {
	w := inOrder(t)
	pod := w.podWith("late", "10.40.0.9")
	pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"lan","ipam-claim-reference":"none-such"}]`}
	if err := kc.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "late.1"}, Type: corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: "code 11",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: pod.Name, UID: pod.UID}, LastTimestamp: metav1.Now(), Count: 3,
	})
	sub := w.request(pod)
	sub.Status.Refused = &v1alpha1.Refusal{Reason: v1alpha1.RefusedInUse, Message: "pod shop/web has it"}
	setStatus(t, sub)
	out := tenure(t, 3, "pod", "late", "-n", w.namespace)
	says(t, out, "net1 "+w.namespace+"/lan - "+w.pool.Name+" none-such no", "claim none-such does not exist", "has not been opened", "refused: InUse: pod shop/web has it",
		"3 times, FailedCreatePodSandBox: code 11")
}
