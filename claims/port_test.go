package claims

import (
	"net/netip"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/ports"
)

// port is the one that the claims of these tests have.
var port = vif.Port{ID: "p1", MAC: "fa:16:3e:00:00:01", Network: "n"}

// made is the answer that a claim has its port, with these addresses.
func made(addrs ...string) *ports.Answer {
	a := &ports.Answer{Port: port}
	for _, text := range addrs {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(text))
	}
	return a
}

func refused(r neutron.Reason) *ports.Answer {
	return &ports.Answer{Problem: ports.Problem{Reason: r, Message: "because", Holder: &neutron.Holder{PortID: "p2"}}}
}

// told adds the annotation that names the port.
func (c claim) told() claim {
	c.port = port
	return c
}

// TestPortBeforeGrant (K4): a claim of a pool with a source gets its port, is told of it, is
// granted its addresses and has them written, in this order.
func TestPortBeforeGrant(t *testing.T) {
	s := seen{claim: fresh(), now: noon, network: known(), admission: &admission{}, sourced: []ports.Source{{Pool: "p"}}, ported: true}
	if p := decide(s); p.port == nil || p.ask != nil || p.port.Granted || p.port.UID != "u1" {
		t.Fatalf("plan %+v; want to ask for a port first", p)
	}
	s.portAnswer = &ports.Answer{}
	if p := decide(s); p.ask != nil || p.status != nil || p.tellPort != nil {
		t.Fatalf("plan %+v; want to wait for the port", p)
	}
	s.portAnswer = made("10.0.0.5")
	if p := decide(s); p.tellPort == nil || p.tellPort.ID != port.ID || p.ask != nil {
		t.Fatalf("plan %+v; want to tell the port", p)
	}
	s.claim = s.claim.told()
	p := decide(s)
	if p.ask == nil || !slices.Equal(p.ask.Requested, s.portAnswer.Addresses) {
		t.Fatalf("plan %+v; want to ask for the port's addresses", p)
	}
	s.answer = granted(s.claim.revision, "10.0.0.5/24")
	if p := decide(s); p.status == nil || !slices.Equal(p.status.ips, []string{"10.0.0.5/24"}) || !p.settlePort {
		t.Fatalf("plan %+v; want to write the addresses, and to settle the port", p)
	}
}

// TestPortIsRefused: where the port's addresses are another's here, the port goes, and what was
// granted of it.
func TestPortIsRefused(t *testing.T) {
	for _, why := range []grants.Reason{grants.Taken, grants.Unassignable} {
		s := seen{
			claim: fresh().told(), now: noon, network: known(), admission: &admission{}, sourced: []ports.Source{{Pool: "p"}}, ported: true,
			portAnswer: made("10.0.0.5", "fd00::5"), answer: waits(why, noon), held: held("10.0.0.5"),
		}
		if p := decide(s); p.refusePort == nil || len(p.giveBack) != 1 || p.status == nil || p.settlePort {
			t.Errorf("%v: plan %+v; want to refuse the port, and to give back what is granted", why, p)
		}
	}
}

// TestWhyNoPort: what Neutron refuses is in the claim's condition, in the words of its reason.
func TestWhyNoPort(t *testing.T) {
	for reason, want := range map[neutron.Reason]string{
		neutron.SubnetExhausted: ReasonExhausted, neutron.AddressInUse: ReasonRequestedTaken, ports.Unassignable: ReasonRequestInvalid,
		neutron.QuotaExceeded: "QuotaExceeded", neutron.Unavailable: "Unavailable", v1alpha1.ReasonNotConfigured: "NotConfigured",
	} {
		s := seen{claim: fresh(), now: noon, network: known(), admission: &admission{}, sourced: []ports.Source{{Pool: "p"}}, ported: true, portAnswer: refused(reason)}
		p := decide(s)
		if p.status == nil || p.status.news == nil || p.status.news.Reason != want || p.ask != nil {
			t.Errorf("%s: plan %+v; want the reason %s", reason, p, want)
		}
	}
}

// TestLostPort: a claim whose port was deleted asks for it again, with its addresses. Its status
// stays, and says so only if that cannot be.
func TestLostPort(t *testing.T) {
	s := seen{claim: shows("10.0.0.5/24").happy().told(), now: noon, held: held("10.0.0.5"), ported: true, portLost: true}
	if p := decide(s); !p.resolve {
		t.Fatalf("plan %+v; want to find out the network", p)
	}
	s.network, s.sourced = known(), []ports.Source{{Pool: "p"}}
	if p := decide(s); p.port == nil || !p.port.Granted || !slices.Equal(p.port.Addresses, []netip.Addr{netip.MustParseAddr("10.0.0.5")}) {
		t.Fatalf("plan %+v; want to ask for a port with the claim's addresses", p)
	}
	s.portAnswer = &ports.Answer{}
	if p := decide(s); p.status != nil || p.settlePort {
		t.Fatalf("plan %+v; want to wait", p)
	}
	s.portAnswer = refused(neutron.AddressInUse)
	p := decide(s)
	if p.status == nil || p.settlePort || p.withdraw {
		t.Fatalf("plan %+v; want it to be said", p)
	}
	if c := meta.FindStatusCondition(p.status.conditions, ConditionPortReady); c == nil || c.Status != metav1.ConditionFalse || c.Reason != ReasonTwoOwners {
		t.Errorf("condition %+v; want %s", c, ReasonTwoOwners)
	}
	s.claim.conditions = p.status.conditions
	s.portAnswer = made("10.0.0.5")
	if p := decide(s); !p.settlePort || p.status == nil || meta.FindStatusCondition(p.status.conditions, ConditionPortReady) != nil {
		t.Errorf("plan %+v; want the condition to go", p)
	}
}
