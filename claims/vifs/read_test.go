package vifs

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestInvalidForItsVersion (K2, A2): an element is read by the version of the specification that
// its definition says, 1.3 if it says none. If one is invalid by it, no claim is made for any.
func TestInvalidForItsVersion(t *testing.T) {
	const long = "80:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22"
	for name, tt := range map[string]struct{ networks, why string }{
		"a hardware address of 20 bytes, by 1.3":            {`[{"name": "lan"}, {"name": "plain", "mac": "` + long + `"}]`, `is no 6-byte MAC address`},
		"the same, of the VIF itself":                       {`[{"name": "lan", "mac": "` + long + `"}]`, `is no 6-byte MAC address`},
		"the same, by 1":                                    {`[{"name": "lan"}, {"name": "plain1", "mac": "` + long + `"}]`, ""},
		"a prefix length, by 1":                             {`[{"name": "lan1", "ips": ["10.0.0.9/24"]}]`, `has a prefix length, which version 1 of the specification does not know`},
		"the same, by 1.3":                                  {`[{"name": "lan", "ips": ["10.0.0.9/24"]}]`, ""},
		"a wrong value of a key that 1 does not know":       {`[{"name": "lan1", "bandwidth": 3}]`, ""},
		"that value, by 1.3":                                {`[{"name": "lan", "bandwidth": 3}]`, "bandwidth: "},
		"a claim that it refers to, which 1 has no key for": {`[{"name": "lan1", "ipam-claim-reference": "mine"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := kube.Scheme()
			if err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(scheme)
			for name, annotations := range map[string]map[string]string{
				"lan": {vif.AnnotationNetwork: "{}"}, "lan1": {vif.AnnotationNetwork: "{}", "tenure.dev/spec-version": "1"},
				"plain": nil, "plain1": {"tenure.dev/spec-version": "1"},
			} {
				b.WithObjects(&nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Annotations: annotations}})
			}
			r := &Reconciler{Cache: b.Build(), Log: slog.New(slog.DiscardHandler), Now: time.Now}
			f, err := r.facts(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "web", UID: "u", Annotations: map[string]string{npwg.AnnotationNetworks: tt.networks},
			}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range f.elements { // its definition is made
				f.elements[i].network = &network{name: "vif.team.lan", takesMAC: true}
				if f.elements[i].Claim != "" {
					t.Errorf("it refers to claim %s", f.elements[i].Claim)
				}
			}
			p := decide(f)
			switch {
			case tt.why == "" && (len(p.create) != 1 || len(p.faults) > 0):
				t.Errorf("got %q; want one claim", p.words())
			case tt.why != "" && (len(p.create) > 0 || len(p.faults) != 1 || p.faults[0].reason != ReasonRefused || !strings.Contains(p.faults[0].message, tt.why)):
				t.Errorf("got %q; want it refused with %q", p.words(), tt.why)
			}
		})
	}
}
