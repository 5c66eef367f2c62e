package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// importTellsWhatIsWrong: each kind of damaged or contradictory record, and of definition
// that cannot be moved, has its line; and looking writes nothing.
func importTellsWhatIsWrong(t *testing.T) {
	o := newOld(t)
	o.definition("lan", `{"type":"whereabouts","range":"10.92.0.0/24"}`)
	o.definition("mixed", `{"type":"whereabouts","range":"10.93.0.0/24"}`)
	o.definition("theirs", `{"type":"host-local","ranges":[[{"subnet":"10.93.0.0/25"}]]}`)
	o.configured("broken", `{"cniVersion":`)
	for i, name := range []string{"good", "both", "twin-a", "twin-b", "moved", "early", "unrecorded", "in-pool", "in-reservation"} {
		addrs := []string{fmt.Sprintf("10.92.0.%d", i+1)}
		switch name {
		case "twin-b":
			addrs = []string{"10.92.0.3"}
		case "early":
			addrs = nil
		}
		o.runs(name, "nowhere", "lan", addrs...)
	}
	o.runs("elsewhere", "nowhere", "")
	o.records("10.92.0.0-24", "10.92.0.0/24",
		"1 good", "2 both", "3 twin-a", "50 moved", "6 early", "8 in-pool", "20 gone", "21 elsewhere", "9 in-reservation",
		"x good", "-1 good", "256 good", "22 !nobody", "23 !a/b/c")
	o.records("10.92.0.0-28", "10.92.0.0/28", "8 gone", "3 twin-b")
	o.records("nonsense", "10.92.0.0/33", "1 good")
	o.reserves("10.92.0.1", "good")
	o.reserves("10.92.0.9", "early")
	o.reserves("not-an-address", "good")
	o.reserves("10.92.0.30", "!nobody")

	before := state(t)
	out := tenure(t, 3, "import", "--from", "whereabouts")
	if diff := changes(before, state(t)); len(diff) > 0 {
		t.Errorf("looking has written %q", diff)
	}
	ns := o.namespace
	ippool, pods := "whereabouts ippool "+ns+"/10.92.0.0-24", func(names ...string) string { return ns + "/" + strings.Join(names, ", "+ns+"/") }
	says(t, out,
		"Segment 10.92.0.0/24", "to switch "+pods("lan"), "8 running pods have 8 addresses of it, and keep them",
		"10.92.0.3 is shown by several running pods: "+pods("twin-a", "twin-b")+". It is taken from none of them: delete all but one",
		"10.92.0.3 is recorded for several pods: "+pods("twin-a", "twin-b"),
		"10.92.0.50 is recorded ("+ippool+") for pod "+pods("moved")+", whose status shows 10.92.0.5: all of them are kept",
		"10.92.0.6 is recorded ("+ippool+") for pod "+pods("early")+", whose status shows no address of the segment: it is kept",
		"10.92.0.7 is shown by pod "+pods("unrecorded")+" and recorded for nobody: it is kept",
		"10.92.0.8 is recorded for several pods: "+pods("gone", "in-pool")+". It is kept for "+pods("in-pool")+", which runs",
		"10.92.0.9 is recorded for several pods: "+pods("early", "in-reservation")+". It is taken from none of them: delete all but one of those that run",
		"10.92.0.20 is recorded ("+ippool+") for pod "+pods("gone")+", which is gone: it is not kept",
		"10.92.0.21 is recorded ("+ippool+") for pod "+pods("elsewhere")+", which runs but selects no network of the segment: it is not kept",
		"Damaged record, which keeps nothing: "+ippool+`: offset "x" is no place in 10.92.0.0/24`,
		ippool+`: offset "-1" is no place in 10.92.0.0/24`, ippool+`: offset "256" is no place in 10.92.0.0/24`,
		ippool+`: 10.92.0.22: podref "nobody" is not namespace/name`, ippool+`: 10.92.0.23: podref "a/b/c" is not namespace/name`,
		"whereabouts ippool "+ns+`/nonsense: range "10.92.0.0/33" is no CIDR`,
		"whereabouts reservation "+ns+"/not-an-address: its name is no address",
		"whereabouts reservation "+ns+`/10.92.0.30: 10.92.0.30: podref "nobody" is not namespace/name`,
		"Segment 10.93.0.0/24, 10.93.0.0/25", "in the way definition "+pods("theirs")+" names host-local, which may give addresses of the segment",
		"Definition that cannot be read: "+pods("broken")+": its configuration is no JSON",
		`"type":"tenure","range":"10.92.0.0/24"`, "nothing was written: kubectl tenure import --from whereabouts --apply switches these",
	)
	for _, quiet := range []string{"10.92.0.1 is", "10.92.0.2 is"} {
		if strings.Contains(out, quiet) {
			t.Errorf("it says something of what is as it should be: %s", out)
		}
	}
	says(t, tenure(t, 3, "import", "--from", "whereabouts", "-o", "json"), `"damaged": [`, `"inTheWay": [`, `"faulty": [`)
}

// changes returns what is in one of two states only.
func changes(was, is []string) (diff []string) {
	for _, s := range was {
		if !slices.Contains(is, s) {
			diff = append(diff, "- "+s)
		}
	}
	for _, s := range is {
		if !slices.Contains(was, s) {
			diff = append(diff, "+ "+s)
		}
	}
	return diff
}

// Where something is in the way, a segment stays as it is, and its pool is not waited for.
func TestImportLeavesWhatIsInTheWay(t *testing.T) {
	o := newOld(t)
	o.definition("lan", `{"type":"host-local","ranges":[[{"subnet":"10.94.0.0/24"}]]}`)
	o.definition("fixed", `{"type":"static","addresses":[{"address":"10.94.0.7/24"}]}`)
	before := state(t)
	says(t, tenure(t, 1, "import", "--from", "host-local", "--apply"),
		"segment 10.94.0.0/24 stays as it is: definition "+o.namespace+"/fixed names static", "Definitions switched: 0. Pools: none.", "not everything was moved")
	if diff := changes(before, state(t)); len(diff) > 0 {
		t.Errorf("it has written %q", diff)
	}
}

// What Tenure refuses or nobody can read of another IPAM's definition is in the way, and not passed
// over.
func TestImportPassesOverNoDefinition(t *testing.T) {
	o := newOld(t)
	lan := o.definition("lan", `{"type":"host-local","ranges":[[{"subnet":"10.94.1.0/24"}]]}`)
	apply := []string{"import", "--from", "host-local", "--apply"}
	before := state(t)
	for _, tt := range []struct{ ipam, want string }{
		{`{"type":"host-local","ranges":[[{"subnet":"10.94.1.0/24","range_start":"10.94.1.9"}]]}`, "segment 10.94.1.0/24 stays as it is: definition "},
		{`{"type":"whereabouts","configuration_path":"/etc/ranges"}`, "names whereabouts and may give addresses of the segment, since its ranges cannot be read (its ipam section has no range"},
	} {
		beside := o.definition("beside", tt.ipam)
		says(t, tenure(t, 1, apply...), tt.want, "not everything was moved")
		if err := kc.Delete(t.Context(), beside); err != nil {
			t.Fatal(err)
		}
	}
	if diff := changes(before, state(t)); len(diff) > 0 {
		t.Errorf("it has written %q", diff)
	}
	if err := kc.Delete(t.Context(), lan); err != nil {
		t.Fatal(err)
	}
	alone := o.definition("alone", `{"type":"host-local","ranges":[[{"subnet":7}]]}`)
	says(t, tenure(t, 1, apply...), "by which host-local may give any address: "+o.ref("alone"), "not everything was moved")
	if err := kc.Delete(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
}

// Where the API server refuses to have one definition of a segment written, none is switched.
func TestImportSwitchesAllOrNone(t *testing.T) {
	o := newOld(t)
	o.definition("a", `{"type":"host-local","ranges":[[{"subnet":"10.94.4.0/24","rangeEnd":"10.94.4.127"}]]}`)
	b := o.definition("b", `{"type":"host-local","ranges":[[{"subnet":"10.94.4.0/24","rangeStart":"10.94.4.128"}]]}`)
	name := metav1.ObjectMeta{Name: o.namespace + "-guard"}
	policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admission.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
			Operations: []admission.OperationType{admission.Update},
			Rule:       admission.Rule{APIGroups: []string{"k8s.cni.cncf.io"}, APIVersions: []string{"*"}, Resources: []string{"network-attachment-definitions"}},
		}}}},
		Validations: []admission.Validation{{Expression: fmt.Sprintf("object.metadata.namespace != %q || object.metadata.name != 'b'", o.namespace), Message: "b is guarded"}},
	}}
	create(t, policy)
	create(t, &admission.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admission.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ValidationActions: []admission.ValidationAction{admission.Deny},
	}})
	fleet.Eventually(t, 30*time.Second, func() error {
		if kc.Patch(t.Context(), b, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`)), client.DryRunAll) == nil {
			return errors.New("the policy does not hold yet")
		}
		return nil
	})
	says(t, tenure(t, 1, "import", "--from", "host-local", "--apply"), "segment 10.94.4.0/24 stays as it is: definition "+o.ref("b")+" cannot be switched", "b is guarded", "not everything was moved")
	if got := o.ipamOf("a"); got != "host-local" {
		t.Errorf("a names %s, though b cannot be switched", got)
	}
}

// A pool that somebody has stopped stays so: an import starts those alone that an export has
// stopped.
func TestImportStartsWhatAnExportHasStopped(t *testing.T) {
	o := newOld(t)
	controller(t)
	for i, marked := range []bool{false, true} {
		name, cidr := fmt.Sprintf("lan%d", i), fmt.Sprintf("10.94.%d.0/24", 2+i)
		p := &v1alpha1.IPPool{
			ObjectMeta: metav1.ObjectMeta{Name: o.namespace + "-" + name},
			Spec:       v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: cidr}}, Allocation: v1alpha1.AllocationStopped},
		}
		if marked {
			p.Annotations = map[string]string{v1alpha1.AnnotationStoppedByExport: "true"}
		}
		create(t, p)
		o.definition(name, fmt.Sprintf(`{"type":"host-local","ranges":[[{"subnet":%q}]]}`, cidr))
		want, end, allocation := "pool "+p.Name+" stays stopped, since no export has stopped it", "Pools that stay stopped: "+p.Name, v1alpha1.AllocationStopped
		if marked {
			want, end, allocation = "pool "+p.Name+" gives addresses again: an export had stopped it", "nothing is left to do", v1alpha1.AllocationAutomatic
		}
		says(t, tenure(t, 0, "import", "--from", "host-local", "--apply"), want, end, "definition "+o.ref(name)+" names Tenure", "Definitions switched: 1")
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Spec.Allocation != allocation {
			t.Errorf("spec.allocation is %s, %v; want %s", p.Spec.Allocation, err, allocation)
		}
		if _, marked := p.Annotations[v1alpha1.AnnotationStoppedByExport]; marked {
			t.Errorf("the pool is still marked as one that an export has stopped")
		}
	}
}

// The nodes of host-local may have given one address each: then its network is not moved. If it is
// switched by hand, nobody's address is taken away, and nobody is told to delete a pod that may be
// alone on its wire.
func TestImportFromHostLocal(t *testing.T) {
	o := newOld(t)
	controller(t)
	network := o.namespace + "-lan" // host-local keeps one range apart from another by the network's name
	const ipam = `{"type":%q,"ranges":[[{"subnet":"10.95.0.0/28"}]]}`
	lan := o.definition("lan", fmt.Sprintf(ipam, "host-local"))
	o.runs("one", "nowhere", "lan", "10.95.0.2")
	o.runs("two", "nowhere-else", "lan", "10.95.0.2")
	o.runs("three", "nowhere", "lan", "10.95.0.3")
	way := "host-local gives the same addresses on every node: 10.95.0.2 to pod " + o.ref("one") + " on node nowhere and to pod " + o.ref("two") + " on node nowhere-else. If each node has a network of its own"
	says(t, tenure(t, 3, "import", "--from", "host-local"), "in the way "+way)
	says(t, tenure(t, 1, "import", "--from", "host-local", "--apply"), "segment 10.95.0.0/28 stays as it is: "+way)
	if got := o.ipamOf("lan"); got != "host-local" {
		t.Fatalf("lan names %s; want it as it was", got)
	}

	lan.Spec.Config = strings.ReplaceAll(lan.Spec.Config, "host-local", "tenure")
	if err := kc.Update(t.Context(), lan); err != nil {
		t.Fatal(err)
	}
	says(t, tenure(t, 0, "import", "--from", "host-local", "--apply"), "Nothing is left to switch", "Definitions switched: 0. Pools: "+network,
		"1 address is kept from all, since several pods are said to have it", "1 pod has 1 address by host-local. It keeps what it has until it ends")
	says(t, tenure(t, 0, "who", "10.95.0.2"), "nobody: several pods are said to have it by another IPAM", "kept from all by the cluster")
	says(t, tenure(t, 0, "who", "10.95.0.3"), o.ref("three"), "which has it by another IPAM; kept for the pod")
	p := &v1alpha1.IPPool{}
	fleet.Eventually(t, 20*time.Second, func() error {
		if err := kc.Get(t.Context(), client.ObjectKey{Name: network}, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolTwoOwners)
		if c == nil || !strings.Contains(c.Message, o.ref("one")) || !strings.Contains(c.Message, o.ref("two")) {
			return fmt.Errorf("the condition is %+v; want it to name both pods", c)
		}
		return nil
	})
	said := tenure(t, 0, "check", "--apart", "0")
	says(t, said, "NOTE TwoOwners: ippool "+network+", address 10.95.0.2", "host-local gives the same addresses on every node", "no pod has to be deleted")
	if strings.Contains(said, "delete one of the pods, and see") {
		t.Errorf("it has a pod deleted: %s", said)
	}
}

// Where an agent cannot read a dataDir of host-local's, it is not taken for empty: the pool names
// the node and the directory, and waits for a word.
func TestImportWhereAnAgentCannotRead(t *testing.T) {
	m := newMover(t)
	m.definition("lan", `{"type":"host-local","ranges":[[{"subnet":"10.98.0.0/28"}]],"dataDir":"/nowhere/nfs"}`)
	m.runs("one", m.nodes[0].Name, "lan", "10.98.0.2")
	said := tenure(t, 1, "import", "--from", "host-local", "--apply", "--timeout", "10s")
	says(t, said, "node "+m.nodes[0].Name+": host-local's files of network "+m.namespace+"-lan: the agent cannot read /nowhere/nfs/"+m.namespace+"-lan", "--trust-status")
	says(t, tenure(t, 0, "import", "--from", "host-local", "--apply", "--trust-status"), "1 of 1 pools are open", "1 pod has 1 address by host-local")
}
