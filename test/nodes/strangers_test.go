package nodes_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/fleet"
)

const printer = "02:00:00:00:0a:0b"

// probe sends a Probe about p, and returns what is to be asked for.
func (p *pod) probe(t testing.TB, what agentapi.ProbeAsk) (asked []agentapi.Unproved) {
	t.Helper()
	ask, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := agentapi.Once(t.Context(), 10*time.Second, p.node.Socket(), agentapi.Request{Verb: agentapi.Probe, ContainerID: p.Sandbox, Ask: ask})
	if err != nil || resp.Error != nil {
		t.Fatalf("%v, %v", err, resp.Error)
	}
	if len(resp.Facts) == 0 {
		return nil
	}
	must(t, json.Unmarshal(resp.Facts, &asked))
	return asked
}

// isAskedFor fails unless p's address is to be asked for, or not.
func (p *pod) isAskedFor(t testing.TB, want bool) {
	t.Helper()
	asked := p.probe(t, agentapi.ProbeAsk{Of: []agentapi.Interface{{Network: p.Network, IfName: p.IfName}}})
	if got := len(asked) == 1 && asked[0].Addr == p.addrs[0].Addr() && asked[0].IfName == p.IfName; got != want || len(asked) > 1 {
		t.Errorf("of pod %s with %v is to be asked for: %+v; want it: %t", p.Pod, p.addrs, asked, want)
	}
}

// answered is what tenure-attach does when a stranger answers for p's address: it undoes the
// attachment, and tells the agent.
func (p *pod) answered(t testing.TB) netip.Addr {
	t.Helper()
	a := p.addrs[0].Addr()
	p.isAskedFor(t, true)
	must(t, p.node.Del(p.Interface))
	p.probe(t, agentapi.ProbeAsk{Found: []agentapi.Stranger{{Addr: a, MAC: printer}}})
	return a
}

// again gives p a new sandbox, as the runtime does after a failure.
func (p *pod) again(t testing.TB, w *network) {
	t.Helper()
	p.Interface = w.renewed(p.Interface)
	must(t, p.attach())
}

// TestStranger: an address that a stranger has is given to no pod of any node, also after the agent
// was started anew, until its reservation is deleted, by a person or with the pool. An address
// is asked for once; a claim's never.
func TestStranger(t *testing.T) {
	w := newNetwork(t, "strangers", 1, cidr("10.63.0.0/29")) // six addresses, in blocks of one
	n := w.nodes[0]
	plain := w.attached(n, "strangers-plain")
	plain.isAskedFor(t, false) // the pool does not want it
	pool := readPool(t, w.name)
	fleet.Edit(t, kc, pool, func() { pool.Spec.DetectConflicts = true })
	eventually(t, time.Minute, func() error {
		if len(plain.probe(t, agentapi.ProbeAsk{Of: []agentapi.Interface{{Network: plain.Network, IfName: plain.IfName}}})) == 0 {
			return fmt.Errorf("the agent has not heard of the pool's edit")
		}
		return nil
	})
	plain.probe(t, agentapi.ProbeAsk{Proved: true})
	plain.isAskedFor(t, false) // nobody has answered

	owned := w.runWith(n, "strangers-claim", w.claim("strangers-claim"))
	must(t, owned.attach())
	owned.isAskedFor(t, false) // where it was before it may answer yet

	p := w.attached(n, "strangers-p")
	taken := p.answered(t)
	p.again(t, w)
	if p.addrs[0].Addr() == taken {
		t.Errorf("the next sandbox has %v, which a stranger has", taken)
	}
	w.poolSays(v1alpha1.PoolStrangers, v1alpha1.ReasonAddressesKept, taken.String(), printer, "delete its IPReservation")
	kept := &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: "stranger-strangers-" + dashed(taken)}}
	w.keeps(kept, printer)
	fleet.Event(t, kc, pool, "AddressInUse", taken.String())

	n.Stop()
	n = w.fleet.Start(n.Name)
	full := []*pod{plain, owned, p}
	plain.node, owned.node, p.node = n, n, n
	for i := range 2 { // one of six is the stranger's
		full = append(full, w.attached(n, fmt.Sprintf("strangers-%d", i)))
	}
	for _, q := range full {
		if q.addrs[0].Addr() == taken {
			t.Errorf("pod %s has %v, which a stranger has", q.Pod, taken)
		}
	}
	last := w.run(n, "strangers-last")
	n.Refused(t, last.Interface, "strangers")
	fleet.Delete(t, kc, kept)
	if err := last.attach(); err != nil || last.addrs[0].Addr() != taken {
		t.Errorf("when the reservation is deleted a pod has %v, %v; want %v", last.addrs, err, taken)
	}
	last.answered(t) // it is there still
	w.keeps(kept, printer)
	for _, q := range append(full, last) {
		q.end(t)
	}
	fleet.Delete(t, kc, &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "strangers-claim"}})
	fleet.Delete(t, kc, pool) // it does not wait for what nobody but Tenure has made
	w.nothingLeft(time.Minute)
	for _, o := range []client.Object{pool, kept} {
		fleet.Gone(t, kc, o, time.Minute)
	}
}

func dashed(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("%d-%d-%d-%d", b[0], b[1], b[2], b[3])
}
