package podnetwork

import (
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// familiesOf has pools of one family, and of both.
func familiesOf(pool string) ([]allocator.Family, error) {
	switch pool {
	case "lan", "lan4":
		return []allocator.Family{allocator.IPv4}, nil
	case "lan6":
		return []allocator.Family{allocator.IPv6}, nil
	case "both":
		return allocator.Families(), nil
	}
	return nil, Missing("IPPool %s does not exist", pool)
}

// TestCheckDefinition (P13, W6): an interface gets one address of a family.
func TestCheckDefinition(t *testing.T) {
	const two = "gives an interface 2 IPv4 addresses, of "
	for _, tt := range []struct{ name, ipam, reason, fault string }{
		{name: "a pool", ipam: `{"type":"tenure","pool":"both"}`},
		{name: "a pool of each family", ipam: `{"type":"tenure","pools":["lan4","lan6"]}`},
		{name: "two of a family", ipam: `{"type":"tenure","pools":["lan4","both"]}`, reason: v1alpha1.ReasonParamsInvalid, fault: two + "pool lan4 and of pool both"},
		{name: "a pool that is not there", ipam: `{"type":"tenure","pool":"none"}`, reason: v1alpha1.ReasonParamsMissing, fault: "IPPool none does not exist"},
		{name: "ranges of both families", ipam: `{"type":"tenure","ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"fd00::/64"}]]}`},
		{name: "ranges of one family", ipam: `{"type":"tenure","ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"10.0.1.0/24"}]]}`, reason: v1alpha1.ReasonParamsInvalid, fault: two},
		{name: "a misspelt key", ipam: `{"type":"tenure","poll":"lan"}`, reason: v1alpha1.ReasonParamsInvalid, fault: "spec.config: "},
		{name: "host-local, one set", ipam: `{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"},{"subnet":"10.0.1.0/24"}]]}`},
		{name: "host-local, two sets", ipam: `{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"10.0.1.0/24"}]]}`, reason: v1alpha1.ReasonParamsInvalid, fault: two + "10.0.0.0/24 and of 10.0.1.0/24"},
		{name: "host-local, a subnet and a set", ipam: `{"type":"host-local","subnet":"10.0.0.0/24","ranges":[[{"subnet":"10.0.1.0/24"}]]}`, reason: v1alpha1.ReasonParamsInvalid, fault: two},
		{name: "static", ipam: `{"type":"static","addresses":[{"address":"10.0.0.5/24"},{"address":"fd00::5/64"}]}`},
		{name: "static, two of a family", ipam: `{"type":"static","addresses":[{"address":"10.0.0.5/24"},{"address":"10.0.0.6/24"}]}`, reason: v1alpha1.ReasonParamsInvalid, fault: two + "10.0.0.5/24 and of 10.0.0.6/24"},
		{name: "whereabouts, two of a family", ipam: `{"type":"whereabouts","range":"10.0.0.0/24","ipRanges":[{"range":"10.0.1.0/24"}]}`, reason: v1alpha1.ReasonParamsInvalid, fault: two},
		{name: "of others", ipam: `{"type":"calico-ipam","ranges":7}`},
		{name: "none", ipam: `{}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := facts.Ref{Namespace: "infra", Name: "lan"}
			single := `{"cniVersion":"1.0.0","name":"lan","type":"bridge","ipam":` + tt.ipam + `}`
			wantFault(t, CheckDefinition(at, single, familiesOf), tt.reason, tt.fault)
			list := `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"bridge","ipam":` + tt.ipam + `},{"type":"tuning"}]}`
			wantFault(t, CheckDefinition(at, list, familiesOf), tt.reason, tt.fault)
		})
	}
	at := facts.Ref{Namespace: "infra", Name: "lan"}
	wantFault(t, CheckDefinition(at, "", familiesOf), "", "")
	wantFault(t, CheckDefinition(at, "{", familiesOf), v1alpha1.ReasonParamsInvalid, "NetworkAttachmentDefinition infra/lan: spec.config")
}
