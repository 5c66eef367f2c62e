package pools

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// using are the networks that use every pool.
type using []networks.Network

func (u using) Using(context.Context, string) ([]networks.Network, error)  { return u, nil }
func (u using) OfPool(context.Context, string) ([]networks.Network, error) { return u, nil }

func bridge(namespace, name, config string) networks.Network {
	return networks.Read(namespace, name, time.Time{}, config)
}

// TestPoolKeepsRoutersAddresses: what a bridge takes for itself is kept from everybody who uses
// the pool, by whichever network, and where somebody has it already the pool says who.
func TestPoolKeepsRoutersAddresses(t *testing.T) {
	p := with(pool("10.0.0.0/24"), open(32))
	p.Spec.Ranges = append(p.Spec.Ranges, v1alpha1.Range{CIDR: "10.0.1.0/24", Gateway: "10.0.1.254"})
	r := &Reconciler{Log: slog.New(slog.DiscardHandler), Shapes: &Shapes{}, Networks: using{
		bridge("ns", "router", `{"cniVersion":"1.0.0","name":"l","plugins":[{"type":"bridge","isGateway":true,"ipam":{"type":"tenure","pool":"lan"}},{"type":"tuning"}]}`),
		bridge("ns", "plain", `{"cniVersion":"1.0.0","name":"m","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`),
		bridge("ns", "other", `{"cniVersion":"1.0.0","name":"o","type":"bridge","isGateway":true,"ipam":{"type":"tenure","pool":"another"}}`),
	}}
	p.Name = "lan"
	of, err := r.routersOf(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"10.0.0.1"}; !slices.Equal(of.beside, want) {
		t.Fatalf("routers have %q beside the ranges' gateways; want %q", of.beside, want)
	}
	held := func(addr string) v1alpha1.IPLease {
		return v1alpha1.IPLease{Status: v1alpha1.IPLeaseStatus{Allocations: []string{addr + " ns/web-0 net1"}}}
	}
	granted := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Grants: []v1alpha1.Grant{
		{Address: "10.0.1.254", To: v1alpha1.Grantee{Kind: v1alpha1.GranteeClaim, Namespace: "ns", Name: "db"}}, {Address: "10.0.1.7"},
	}}}
	s := seen{pool: p, now: noon, routers: of, routed: of.usedBy([]v1alpha1.IPLease{held("10.0.0.1"), held("10.0.0.2"), granted})}
	if s.shape, err = poolspec.ParsePool(kube.PoolText(p)); err != nil {
		t.Fatal(err)
	}
	st := decide(s).status
	if st == nil || !slices.Equal(st.Gateways, of.beside) {
		t.Fatalf("status %+v; want it to keep the address", st)
	}
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.PoolTwoOwners)
	for _, want := range []string{
		"address 10.0.0.1 is the gateway of network attachment definition ns/router, and pod ns/web-0 has it",
		"address 10.0.1.254 is the gateway of range 10.0.1.0/24, and claim ns/db has it",
	} {
		if c == nil || c.Reason != v1alpha1.ReasonRouterTaken || !strings.Contains(c.Message, want) {
			t.Errorf("condition %+v; want %q in it", c, want)
		}
	}
	p.Status = *st
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil || shape.Capacity(4) != 254+253-1 {
		t.Errorf("the pool gives %d addresses (%v); want all but those of routers", shape.Capacity(4), err)
	}
	if again, err := r.routersOf(t.Context(), p); err != nil || !slices.Equal(again.beside, of.beside) {
		t.Errorf("once kept, routers have %q (%v); want the same", again.beside, err)
	}
}
