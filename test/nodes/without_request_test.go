package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// These tests stand in for the controller: what it answers, and when, is what they
// are about.

// asking is interface net1 of a new pod on a node, on a network over pool. ips are the
// addresses that it asks for by name.
func asking(t *testing.T, node, pool, pod string, ips ...string) fleet.Interface {
	t.Helper()
	i := newPod(t, node, pod, "", onPool(pool, pod, "net1"))
	if len(ips) > 0 {
		i = naming(i, ips...)
	}
	i.Netns = file(t, "netns-"+pod)
	return i
}

// answered is what became of an ADD.
type answered struct {
	res *agentapi.Result
	err error
}

// begin begins an ADD.
func begin(n *fleet.Node, i fleet.Interface) <-chan answered {
	done := make(chan answered, 1)
	go func() {
		res, err := n.Add(i)
		done <- answered{res, err}
	}()
	return done
}

// finish waits for an ADD that must succeed, if not at once then when it is made
// again, and returns its addresses.
func finish(t *testing.T, n *fleet.Node, i fleet.Interface, begun <-chan answered) []netip.Prefix {
	t.Helper()
	if a := <-begun; a.err != nil {
		fleet.WantCode(t, a.err, agentapi.CodeTryAgainLater, "")
		t.Logf("the first ADD has ended too soon: %v", a.err)
	}
	return mustAdd(t, n, i) // C10: the same again
}

// requestsOf returns a node's requests.
func requestsOf(t *testing.T, node string) []protocol.SubLease {
	t.Helper()
	subs, err := api.SubLeasesOfNode(t.Context(), protocol.NodeName(node))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(subs, func(s protocol.SubLease) bool { return s.Request == nil })
}

// onlyRequest waits until a node has exactly one request, and returns it.
func onlyRequest(t *testing.T, node string) protocol.SubLease {
	t.Helper()
	var all []protocol.SubLease
	eventually(t, 20*time.Second, func() error {
		if all = requestsOf(t, node); len(all) != 1 {
			return fmt.Errorf("%s has %d requests; want 1", node, len(all))
		}
		return nil
	})
	return all[0]
}

func noRequests(t *testing.T, node string) func() error {
	return func() error {
		if all := requestsOf(t, node); len(all) > 0 {
			return fmt.Errorf("%s has the requests %v; want none", node, all)
		}
		return nil
	}
}

// grant grants addresses of a pool to a request, as the controller does: first on the
// blocks' leases, then in the request's status.
func grant(t *testing.T, pool string, to protocol.SubLease, addrs ...string) {
	t.Helper()
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		l := changeLease(t, pool, addr, func(l *protocol.Lease) {
			l.Grants = append(l.Grants, protocol.Grant{Addr: addr, To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: to.UID, Name: to.Name}})
		})
		to.Granted = append(to.Granted, protocol.Granted{Addr: addr, Lease: l.Name})
	}
	answer(t, to)
}

// changeLease changes the lease of a's block, whoever else writes it, and returns it.
func changeLease(t *testing.T, pool string, a netip.Addr, change func(*protocol.Lease)) (next protocol.Lease) {
	t.Helper()
	eventually(t, 10*time.Second, func() error { // its holder may publish in between
		l := leaseOf(t, pool, a)
		next = l.Clone()
		change(&next)
		next.Writes++
		if _, out, err := api.UpdateLease(t.Context(), l, next); out != protocol.Done {
			return fmt.Errorf("lease %s: %v %w", l.Name, out, err)
		}
		return nil
	})
	return next
}

func answer(t *testing.T, s protocol.SubLease) {
	t.Helper()
	if out, err := api.AnswerSubLease(t.Context(), s); out != protocol.Done {
		t.Fatalf("answer %s: %v %v", s.Name, out, err)
	}
}

// leaseOf returns the lease of a's block, one of the cluster's if nobody has it.
func leaseOf(t *testing.T, pool string, a netip.Addr) protocol.Lease {
	t.Helper()
	for _, l := range leasesOf(t, pool) {
		if l.Block.Contains(a) {
			return l
		}
	}
	p := readPool(t, pool)
	bits := p.Status.BlockPrefixLengths.IPv4
	if a.Is6() {
		bits = p.Status.BlockPrefixLengths.IPv6
	}
	block := netip.PrefixFrom(a, int(*bits)).Masked()
	l, out, err := api.CreateLease(t.Context(), protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName(protocol.PoolName(pool), block)}, Protocol: protocol.Version,
		Pool: protocol.PoolName(pool), PoolUID: protocol.UID(p.UID), Block: block, Holder: protocol.Holder{Cluster: true}, Writes: 1,
	})
	if out != protocol.Done {
		t.Fatal(out, err)
	}
	return l
}

// press sets a pool's pressure, and its condition Exhausted if message is not empty.
func press(t *testing.T, pool string, pressure v1alpha1.Pressure, message string) {
	t.Helper()
	setStatus(t, pool, func(p *v1alpha1.IPPool) {
		p.Status.Pressure, p.Status.Conditions = pressure, nil
		if message != "" {
			p.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.PoolExhausted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoAddressFree, Message: message, LastTransitionTime: metav1.Now(),
			}}
		}
	})
}

func shortWait(c *daemon.Config) {
	c.Agent.Wait, c.Agent.Idle, c.Agent.PublishEvery = time.Second, time.Second, time.Second
}

// TestRequestKeepsItsPlace: a static address in a block that another node holds. The
// kubelet's retries, also after a restart of the agent, find the request that waits.
func TestRequestKeepsItsPlace(t *testing.T) {
	const pool = "keeps-place"
	openPool(t, pool, v1alpha1.Range{CIDR: "10.40.0.0/20", Gateway: "10.40.0.1"})
	f := newFleet(t, shortWait)
	a, b := f.Start("keeps-place-a"), f.Start("keeps-place-b")
	neighbour := mustAdd(t, a, asking(t, "keeps-place-a", pool, "keeps-place-neighbour"))[0].Addr()
	wanted := neighbour.Next() // in a's block, and free
	i := asking(t, "keeps-place-b", pool, "keeps-place-pod", wanted.String())

	b.Refused(t, i, "the controller has not answered")
	first := onlyRequest(t, "keeps-place-b")
	if want := []protocol.Wanted{{Pool: pool, Ranges: []string{fmt.Sprintf("%v-%v", wanted, wanted)}}}; !equalWants(first.Request.Wants, want) {
		t.Errorf("the request wants %v; want %v", first.Request.Wants, want)
	}
	b.Refused(t, i, "the controller has not answered")
	b.Stop()
	b = f.Start("keeps-place-b")
	b.Refused(t, i, "the controller has not answered")
	if again := onlyRequest(t, "keeps-place-b"); again.UID != first.UID {
		t.Errorf("a retry made request %s; want %s", again.Name, first.Name)
	}
	// Its holder cedes it, the cluster grants it, and nobody waits: the next try
	// finds it.
	cedeByRecall(t, "keeps-place-a", leaseOf(t, pool, wanted).Name, fmt.Sprintf("%v-%v", wanted, wanted))
	grant(t, pool, onlyRequest(t, "keeps-place-b"), wanted.String())
	res, err := b.Insist(i)
	if err != nil || len(res.IPs) != 1 || res.IPs[0].Address != netip.PrefixFrom(wanted, 20) || res.IPs[0].Gateway != netip.MustParseAddr("10.40.0.1") {
		t.Fatalf("got %+v, %v; want %v/20 by 10.40.0.1", res, err, wanted)
	}
	if again := mustAdd(t, b, i); again[0].Addr() != wanted {
		t.Errorf("C10: got %v; want %v again", again, wanted)
	}
	b.Stop()
	b = f.Start("keeps-place-b")
	if again := mustAdd(t, b, i); again[0].Addr() != wanted {
		t.Errorf("C10: after a restart got %v; want %v again", again, wanted)
	}
	mustDel(t, b, i)
	eventually(t, 10*time.Second, noRequests(t, "keeps-place-b"))
}

// TestGrantWakesItsADD: an ADD that waits is answered when its request is, not at its
// next look.
func TestGrantWakesItsADD(t *testing.T) {
	const pool = "wakes"
	openPool(t, pool, cidr("10.41.0.0/20"))
	press(t, pool, v1alpha1.PressureExhausted, "")
	n := newFleet(t, waits(time.Minute)).Start("wakes")
	i := asking(t, "wakes", pool, "wakes-pod")
	got := begin(n, i)
	s := onlyRequest(t, "wakes")
	if len(leasesOf(t, pool)) > 0 {
		t.Error("a block of an exhausted pool was leased; want a request at once")
	}
	began := time.Now()
	grant(t, pool, s, "10.41.0.77")
	a := <-got
	if a.err != nil || a.res.IPs[0].Address != netip.MustParsePrefix("10.41.0.77/20") {
		t.Fatalf("got %+v, %v; want 10.41.0.77/20", a.res, a.err)
	}
	t.Logf("the grant took %v to reach the runtime", time.Since(began))
	mustDel(t, n, i)
	eventually(t, 10*time.Second, noRequests(t, "wakes"))
}

// TestDualStackRequest: one family lacks, both are asked for at once.
func TestDualStackRequest(t *testing.T) {
	const pool = "both-families"
	openPool(t, pool, cidr("10.42.0.0/30"), cidr("fd42::/120"))
	n := newFleet(t, shortWait).Start("both-families")
	for _, pod := range []string{"both-families-1", "both-families-2"} {
		mustAdd(t, n, asking(t, "both-families", pool, pod))
	}
	i := asking(t, "both-families", pool, "both-families-3")
	n.Refused(t, i, "the controller has not answered")
	s := onlyRequest(t, "both-families")
	want := []protocol.Wanted{{Pool: pool, Ranges: []string{"10.42.0.1-10.42.0.2"}}, {Pool: pool, Ranges: []string{"fd42::1-fd42::ff"}}}
	if !equalWants(s.Request.Wants, want) {
		t.Errorf("the request wants %v; want %v", s.Request.Wants, want)
	}
}

func equalWants(a, b []protocol.Wanted) bool {
	return slices.EqualFunc(a, b, func(x, y protocol.Wanted) bool { return x.Pool == y.Pool && slices.Equal(x.Ranges, y.Ranges) })
}

// TestRefusedRequest: the controller's words reach the runtime, and the request goes.
func TestRefusedRequest(t *testing.T) {
	const pool = "refused"
	openPool(t, pool, cidr("10.43.0.0/20"))
	f := newFleet(t, waits(time.Minute))
	a, b := f.Start("refused-a"), f.Start("refused-b")
	taken := mustAdd(t, a, asking(t, "refused-a", pool, "refused-neighbour"))[0].Addr()
	for _, tt := range []struct {
		reason string
		code   agentapi.Code
	}{{v1alpha1.RefusedInUse, agentapi.CodeTryAgainLater}, {v1alpha1.RefusedNotAssignable, agentapi.CodeInvalidConfig}, {v1alpha1.RefusedPoolNotReady, agentapi.CodeTryAgainLater}} {
		t.Run(tt.reason, func(t *testing.T) {
			i := asking(t, "refused-b", pool, "refused-"+strings.ToLower(tt.reason), taken.String())
			got := begin(b, i)
			s := onlyRequest(t, "refused-b")
			s.Refused = &protocol.Refusal{Reason: tt.reason, Message: "because of " + tt.reason}
			answer(t, s)
			fleet.WantCode(t, (<-got).err, tt.code, "because of "+tt.reason)
			eventually(t, 10*time.Second, noRequests(t, "refused-b"))
		})
	}
}

// TestForgottenRequestIsGivenBack (I4): no ADD comes for it again.
func TestForgottenRequestIsGivenBack(t *testing.T) {
	proof.Only(t)
	const pool = "forgotten"
	openPool(t, pool, cidr("10.44.0.0/20"))
	press(t, pool, v1alpha1.PressureExhausted, "")
	n := newFleet(t, shortWait, func(c *daemon.Config) { c.Agent.KeepRequest = 10 * time.Second }).Start("forgotten")
	for _, granted := range []bool{false, true} {
		t.Run(fmt.Sprintf("granted %v", granted), func(t *testing.T) {
			n.Refused(t, asking(t, "forgotten", pool, fmt.Sprintf("forgotten-%v", granted)), "the controller has not answered")
			if granted {
				grant(t, pool, onlyRequest(t, "forgotten"), "10.44.0.9")
			}
			eventually(t, 30*time.Second, noRequests(t, "forgotten"))
		})
	}
}

// TestExhaustedSaysSo: the runtime reads what the pool's condition says, or that the
// runtime does not say for whom it asks.
func TestExhaustedSaysSo(t *testing.T) {
	const pool, message = "says-so", "pool says-so is exhausted: 2 of 2 in use"
	openPool(t, pool, cidr("10.45.0.0/30"))
	n := newFleet(t, shortWait).Start("says-so")
	first := asking(t, "says-so", pool, "says-so-1")
	mustAdd(t, n, first)
	mustAdd(t, n, asking(t, "says-so", pool, "says-so-2"))
	press(t, pool, v1alpha1.PressureExhausted, message)
	eventually(t, 10*time.Second, func() error {
		_, err := n.Add(asking(t, "says-so", pool, fmt.Sprintf("says-so-%d", time.Now().UnixNano())))
		var e *agentapi.Error
		if !errors.As(err, &e) || e.Code != agentapi.CodeTryAgainLater || e.Msg != message {
			return fmt.Errorf("got %w; want code 11 with %q", err, message)
		}
		return nil
	})
	n.Refused(t, onPool(pool, "nobody", "net1"), "K8S_POD_UID")
	n.Refused(t, onPool(pool, "nobody", "net1"), message)
}

// TestNewSandboxOnARequest: a new sandbox of the pod has what the request was
// granted, once the old network namespace is gone; and something else before.
func TestNewSandboxOnARequest(t *testing.T) {
	const pool = "again-request"
	openPool(t, pool, cidr("10.46.0.0/20"))
	press(t, pool, v1alpha1.PressureExhausted, "")
	n := newFleet(t, shortWait).Start("again-request")
	old := asking(t, "again-request", pool, "again-request")
	n.Refused(t, old, "the controller has not answered")
	grant(t, pool, onlyRequest(t, "again-request"), "10.46.0.9")
	first := mustAdd(t, n, old)

	fresh := old
	fresh.Sandbox, fresh.Netns = "again-request-new", file(t, "again-request-new")
	n.Refused(t, fresh, "the controller has not answered") // it asks for another
	eventually(t, 10*time.Second, func() error {           // the ADD may have ended before its request was made
		if all := requestsOf(t, "again-request"); len(all) != 2 {
			return fmt.Errorf("there are %d requests; want 2: the old sandbox is alive", len(all))
		}
		return nil
	})
	must(t, os.Remove(old.Netns))
	if got := mustAdd(t, n, fresh); !slices.Equal(got, first) {
		t.Errorf("the new sandbox got %v; want the old one's %v", got, first)
	}
	mustDel(t, n, old) // late: must free nothing
	if got := mustAdd(t, n, fresh); !slices.Equal(got, first) {
		t.Errorf("after the old one's DEL: %v; want %v", got, first)
	}
	mustDel(t, n, fresh)
}

// TestKilledBetweenRequestAndGrant kills the agent at each point of a request's life:
// the next try has what the request was granted, and nothing is left in the end (I2,
// I4).
func TestKilledBetweenRequestAndGrant(t *testing.T) {
	const pool, node = "killed-request", "killed-request"
	openPool(t, pool, cidr("10.47.0.0/20"))
	press(t, pool, v1alpha1.PressureExhausted, "")
	p := fleet.Build(t, cp, "tenured")
	f := newFleet(t)
	// The agent may be killed before it has begun to give the request back: then that
	// is due when no ADD has come for it for so long.
	f.Change = func(c *daemon.Config) { c.Agent.KeepRequest = 10 * time.Second }
	n := f.LaunchProcess(p, node)
	n.AwaitServing()
	again := func() {
		n.Kill()
		n = f.LaunchProcess(p, node)
		n.AwaitServing()
	}
	i := asking(t, node, pool, "killed-request")
	failed := begin(n, i)
	s := onlyRequest(t, node)
	again() // the request is there, its ADD hangs up
	if a := <-failed; a.err == nil {
		t.Fatal("an ADD was answered by a killed agent")
	}
	got := begin(n, i)
	grant(t, pool, onlyRequest(t, node), "10.47.0.5")
	if addrs := finish(t, n, i, got); addrs[0].Addr() != netip.MustParseAddr("10.47.0.5") {
		t.Errorf("got %v; want 10.47.0.5", addrs)
	}
	if now := onlyRequest(t, node); now.UID != s.UID {
		t.Errorf("after the kill there is request %s; want %s", now.Name, s.Name)
	}
	again() // the attachment rests on it
	if addrs := mustAdd(t, n, i); addrs[0].Addr() != netip.MustParseAddr("10.47.0.5") {
		t.Errorf("I2: got %v; want 10.47.0.5 again", addrs)
	}
	mustDel(t, n, i)
	again() // the delete may be under way
	eventually(t, 30*time.Second, noRequests(t, node))
	n.Stop()
}
