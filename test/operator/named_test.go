package operator_test

import (
	"fmt"
	"strings"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNamesThatDoNotExist: a verb does not take a name that is not there for one of which there is
// nothing to show.
func TestNamesThatDoNotExist(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"claims --pool nosuch":        "pool nosuch: there is none of that name",
		"claims -n nosuch":            "namespace nosuch: there is none of that name",
		"claims db -n nosuch":         "namespace nosuch: there is none of that name",
		"claims db -n " + w.namespace: "claim db: there is none of that name",
		"claims --unused -n nosuch":   "namespace nosuch: there is none of that name",
		"claims --save -n nosuch":     "namespace nosuch: there is none of that name",
		"leases --pool nosuch":        "pool nosuch: there is none of that name",
		"leases --node nosuch":        "node nosuch: there is none of that name",
		"leases nosuch":               "lease nosuch: there is none of that name",
		"pools nosuch":                "pool nosuch: there is none of that name",
		"pools nosuch " + w.pool.Name: "pool nosuch: there is none of that name",
		"export --to whereabouts --whereabouts-namespace nosuch":         "--whereabouts-namespace: namespace nosuch: there is none of that name",
		"export --to whereabouts --whereabouts-namespace nosuch -o json": "--whereabouts-namespace: namespace nosuch: there is none of that name",
	} {
		says(t, tenure(t, 1, strings.Fields(args)...), want)
	}
	for _, args := range []string{"claims -n " + w.namespace, "claims -A --pool " + w.pool.Name, "leases --pool " + w.pool.Name, "leases --node " + w.node} {
		says(t, tenure(t, 0, strings.Fields(args)...), "There are none")
	}
}

// TestWhoOfNoPool: an address that is in no pool is not one that nobody has.
func TestWhoOfNoPool(t *testing.T) {
	w := newWorld(t)
	says(t, tenure(t, 3, "who", "192.0.2.77"), "192.0.2.77 is in no pool")
	says(t, tenure(t, 3, "who", "10.40.1.1"), "pool "+w.pool.Name+": nobody", "10.40.1.1: nobody has it")
}

// TestPublishedOfPodsThatAreGone: what nodes have published of pods that were deleted a moment ago
// is one line for check, and who says that the pod is gone.
func TestPublishedOfPodsThatAreGone(t *testing.T) {
	w := inOrder(t)
	var has []string
	for i := range 12 {
		has = append(has, fmt.Sprintf("10.40.9.%d ghosts/gone-%d net1", i+1, i))
	}
	w.published(w.lease("10.40.9.0/28", w.node), has...)
	out := tenure(t, 0, "check", "--apart=0s")
	says(t, out, "SOON AllocationLeaked: iplease", "and 11 more", "all is as it must be; on their way back 12")
	if n := strings.Count(out, "AllocationLeaked"); n != 1 {
		t.Errorf("check says it %d times: %s", n, out)
	}
	if got := rules(t)["AllocationLeaked"]; got != 12 {
		t.Errorf("a program reads %d; want 12", got)
	}
	says(t, tenure(t, 0, "who", "10.40.9.3"), "pod ghosts/gone-2 on node "+w.node, "the pod is gone from that node: so the node published it")
	w.podWith("there", "10.40.10.1")
	w.published(w.lease("10.40.10.0/28", w.node), "10.40.10.1 "+w.namespace+"/there net1")
	if out := tenure(t, 0, "who", "10.40.10.1"); strings.Contains(out, "gone") {
		t.Errorf("the pod is there: %s", out)
	}
}

// TestExportShowsWhatItWouldSwitch: a definition of a segment of which something is in the way is
// not printed as if it would be switched.
func TestExportShowsWhatItWouldSwitch(t *testing.T) {
	w := newWorld(t)
	create(t, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pooled"},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pooled","type":"bridge","ipam":{"type":"tenure","pool":%q}}`, w.pool.Name)},
	})
	out := tenure(t, 3, "export", "--to", "whereabouts")
	says(t, out, "in the way", "has no range that whereabouts reads", "definitions that stay as they are, since something is in the way: ")
	for _, word := range []string{"kind: NetworkAttachmentDefinition", "--apply switches these"} {
		if strings.Contains(out, word) {
			t.Errorf("it says %q of what cannot be switched: %s", word, out)
		}
	}
}
