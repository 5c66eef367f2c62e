package foreign

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// TestSelectedAsMultusReads: a pod selects what Multus attaches it to as well, which reads more
// than the specification allows. Else its owner could hide from a look what the pod selects.
func TestSelectedAsMultusReads(t *testing.T) {
	const status = `[{"name":"ns/lan","interface":"net1","ips":["10.0.0.5"]}]`
	for _, tt := range []struct {
		name, networks string
		want           []string
	}{
		{"as the specification has it", `[{"name":"lan","interface":"net1"},{"name":"lan"}]`, []string{"ns/lan", "ns/lan"}},
		{"names", "lan@net1, lan", []string{"ns/lan", "ns/lan"}},
		{"a key in another case", `[{"Name":"lan"}]`, []string{"ns/", "ns/lan"}},
		{"a second key in another case, which counts", `[{"name":"other","NAME":"lan"}]`, []string{"ns/other", "ns/lan"}},
		{"the namespace in another case", `[{"name":"lan","nameSpace":"ns"}]`, []string{"else/lan", "ns/lan"}},
		{"blanks around names", "ns /lan @net1", []string{"ns /lan ", "ns/lan"}},
		{"no namespace before the slash", "/lan", []string{"/lan", "ns/lan"}},
		{"more than can be", strings.Repeat("other,", npwg.MaxSelections) + "lan", append(slices.Repeat([]string{"ns/other"}, npwg.MaxSelections), "ns/lan")},
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", Annotations: map[string]string{
			npwg.AnnotationNetworks: tt.networks, npwg.AnnotationStatus: status,
		}}}
		if strings.Contains(tt.networks, "nameSpace") {
			o.Namespace = "else"
		}
		p := ReadPod(o)
		if !slices.Equal(p.Selected, tt.want) {
			t.Errorf("%s: it selects %.200s; want %.200s", tt.name, fmt.Sprint(p.Selected), fmt.Sprint(tt.want))
		}
		if len(p.Shows) != 1 || p.Shows[0].Definition != "ns/lan" {
			t.Errorf("%s: it shows %v; want an address of ns/lan", tt.name, p.Shows)
		}
	}
}

// TestSelectedAsDefault: a pod's own default network is selected, and what its status shows of the
// default network is of that. Without that annotation the default network is the cluster's.
func TestSelectedAsDefault(t *testing.T) {
	for _, tt := range []struct {
		name, network, status, ip, want string
	}{
		{"a definition", "ns/lan", "ns/lan", "10.0.0.5", "[ns/lan] [{ns/lan eth0 [10.0.0.5] false true}]"},
		{"of Multus's namespace", "lan", "kube-system/lan", "10.0.0.5", "[kube-system/lan] [{kube-system/lan eth0 [10.0.0.5] false true}]"},
		{"as JSON", `[{"name":"lan","namespace":"ns"}]`, "ns/lan", "10.0.0.5", "[ns/lan] [{ns/lan eth0 [10.0.0.5] false true}]"},
		{"the status has another name for it", "ns/lan", "the-bridge", "10.0.0.5", "[ns/lan] [{ns/lan eth0 [10.0.0.5] false true}]"},
		{"the cluster's", "", "cbr0", "10.0.0.5", "[] []"},
		{"with the length of the subnet", "ns/lan", "lan", "10.0.0.5/24", "[ns/lan] [{ns/lan eth0 [10.0.0.5] true true}]"},
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "else", Name: "p", UID: "p", Annotations: map[string]string{
			npwg.AnnotationDefaultNetwork: tt.network, npwg.AnnotationStatus: fmt.Sprintf(`[{"name":%q,"interface":"eth0","ips":[%q],"default":true}]`, tt.status, tt.ip),
		}}}
		if tt.network == "" {
			delete(o.Annotations, npwg.AnnotationDefaultNetwork)
		}
		p := ReadPod(o)
		if got := fmt.Sprint(p.Selected, " ", p.Shows); got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.name, got, tt.want)
		}
	}
}
