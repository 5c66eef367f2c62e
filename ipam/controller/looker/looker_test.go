package looker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// keeper is a Granter that only tells what is kept.
type keeper struct {
	Granter
	kept []grants.Held
}

func (k keeper) Kept() []grants.Held { return k.kept }

// Of two pods with one address, the one that has it kept already goes on having it: in
// whatever order a look finds them, it undoes nothing.
func TestOneOfTwoPodsKeepsTheAddress(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.2")
	at := place{"lan", addr}
	bar := func(uid protocol.UID) foreign.Bar {
		return foreign.Bar{Pool: "lan", Addr: addr, To: protocol.Grantee{Kind: protocol.GranteePod, UID: uid, Namespace: "ns", Name: string(uid)}}
	}
	kept := func(uid protocol.UID) []grants.Held {
		return []grants.Held{{Pool: "lan", Grant: protocol.Grant{Addr: addr, To: bar(uid).To}}}
	}
	asked := func(uid protocol.UID) map[place]grants.Ask { return map[place]grants.Ask{at: {To: bar(uid).To}} }
	for _, c := range []struct {
		name  string
		asked map[place]grants.Ask
		kept  []grants.Held
		want  protocol.UID
	}{
		{"nobody has it: the first", nil, nil, "a"},
		{"asked for", asked("b"), nil, "b"},
		{"kept, after a restart", nil, kept("b"), "b"},
		{"kept for one and asked for another", asked("a"), kept("b"), "b"},
		{"kept for a third pod: the first", nil, kept("gone"), "a"},
	} {
		l := &round{Looker: &Looker{Broker: keeper{kept: c.kept}, asking: c.asked}}
		if got := l.choose([]foreign.Bar{bar("a"), bar("b")})[at].To.UID; got != c.want {
			t.Errorf("%s: kept for %q, want %q", c.name, got, c.want)
		}
	}
}

// noCache has no definition.
type noCache struct{ client.Reader }

func (noCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// quiet is a cluster whose one agent never answers.
type quiet struct {
	Live
	looks int
	asked func()
	pools []v1alpha1.IPPool
	pods  []*corev1.Pod
}

func (q *quiet) IPPools(context.Context) ([]v1alpha1.IPPool, error) { q.looks++; return q.pools, nil }
func (q *quiet) BoundPods(_ context.Context, see func(*corev1.Pod)) (int, error) {
	for _, p := range q.pods {
		see(p)
	}
	return 1, nil
}
func (q *quiet) LeasesOfPool(context.Context, protocol.PoolName) ([]protocol.Lease, error) {
	return nil, nil
}
func (q *quiet) WhereaboutsPools(context.Context, func(*unstructured.Unstructured)) (bool, error) {
	return false, nil
}
func (q *quiet) SubLeases(context.Context) ([]protocol.SubLease, error) { return nil, nil }
func (q *quiet) AskNode(context.Context, protocol.Meta, string) (protocol.Outcome, error) {
	q.asked()
	return protocol.Done, nil
}
func (q *quiet) ReadNode(context.Context, protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	return protocol.Node{}, protocol.Done, nil
}

// What changes while a look waits for the nodes' agents, the look has not seen: the next
// one comes as soon as it ends, and not only after half a minute.
func TestChangeDuringLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{}
		l := &Looker{
			Cache: noCache{}, Live: q, Calls: 1, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Broker: keeper{kept: []grants.Held{{Pool: "lan", Grant: protocol.Grant{To: protocol.Grantee{Kind: protocol.GranteePod, UID: "gone", Node: "n1"}}}}},
			Registrations: func(context.Context) ([]protocol.Registration, error) {
				return []protocol.Registration{{Node: "n1", Store: "s"}}, nil
			},
			Beats: func(protocol.NodeName) bool { return true }, Told: func(protocol.PoolName) {},
		}
		q.asked = func() {
			if q.looks == 1 {
				l.Wake()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(answerWithin + 2*time.Second)
		synctest.Wait()
		if q.looks != 2 {
			t.Errorf("it has looked %d times; want 2: when it began, and after the change", q.looks)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What an edit adds to a pool is usable after the first look, though the agent of the node with the
// pool's pod never answers: nothing of another IPAM touches it. Where a pod shows an address of
// what was added, the reason names the node that is waited for.
func TestWiderPoolWaitsForNobody(t *testing.T) {
	for _, tt := range []struct{ shows, why string }{{"10.0.0.2", ""}, {"10.0.1.2", "the agents of nodes n1 are asked what their pods have"}} {
		size := int32(32)
		pool := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan", UID: "p1"}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/16"}}}}
		pool.Status.Leasing, pool.Status.BlockPrefixLengths = v1alpha1.LeasingOpen, &v1alpha1.BlockPrefixLengths{IPv4: &size}
		pool.Status.Withheld = []string{"10.0.1.0-10.0.255.254"}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{
			npwg.AnnotationNetworks: "net", npwg.AnnotationStatus: fmt.Sprintf(`[{"name":"ns/net","interface":"net1","ips":[%q]}]`, tt.shows),
		}}}
		pod.Spec.NodeName = "n1"
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		q := &quiet{pools: []v1alpha1.IPPool{pool}, pods: []*corev1.Pod{pod}, asked: func() {}}
		l := &Looker{
			Cache: oneDefinition{}, Live: q, Broker: keeper{}, Calls: 1, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
			Registrations: func(context.Context) ([]protocol.Registration, error) {
				return []protocol.Registration{{Node: "n1", Store: "s"}}, nil
			},
			Beats: func(protocol.NodeName) bool { return true }, Told: func(protocol.PoolName) {},
		}
		if _, err := l.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := l.Of("lan"); v.Clear != (tt.why == "") || v.Why != tt.why {
			t.Errorf("a pod shows %s: clear %v, %q; want %q", tt.shows, v.Clear, v.Why, tt.why)
		}
	}
}

// oneDefinition has the definition ns/net, of pool lan.
type oneDefinition struct{ client.Reader }

func (oneDefinition) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net"}}
	d.Spec.Config = `{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`
	into.(*nad.NetworkAttachmentDefinitionList).Items = []nad.NetworkAttachmentDefinition{d}
	return nil
}

// A look that took long because it was held up, as by an API server that does not answer,
// does not put the next one off for hours: what has ended would be kept until then.
func TestLooksAgainSoonAfterALongLook(t *testing.T) {
	for _, c := range []struct {
		name       string
		took, want time.Duration
	}{
		{"a short look", time.Second, idleEvery},
		{"many pods", 4 * time.Second, 80 * time.Second},
		{"held up for an hour", time.Hour, 10 * time.Minute},
	} {
		if got := (&round{Looker: &Looker{}}).nextLook(c.took); got != c.want {
			t.Errorf("%s: again after %v, want %v", c.name, got, c.want)
		}
	}
}

// The fence of a pool counts from when it was first seen, not from the time that its status
// names: that is when the status was thought of, and it may have been long on its way.
func TestFenceCountsFromWhenItIsSeen(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := &Looker{Now: func() time.Time { return now }}
	pool := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan", UID: "p1"}}
	pool.Status.FencedSince, pool.Status.Fenced = new(metav1.NewTime(now.Add(-time.Minute))), []string{"10.0.0.0-24"}
	see := func(want time.Time) {
		t.Helper()
		if l.seeFences([]v1alpha1.IPPool{pool}); !l.fences["lan"].since.Equal(want) {
			t.Errorf("the fence counts from %v, want %v", l.fences["lan"].since, want)
		}
	}
	first := now
	see(first)
	now = now.Add(3 * time.Second)
	see(first)
	pool.Status.Fenced = append(pool.Status.Fenced, "fd00---64")
	see(now)
}

// What was published is not changed any more, and whoever asks for it meanwhile does not meet the
// round at work.
func TestVerdictsAreNotChangedOncePublished(t *testing.T) {
	var told []protocol.PoolName
	l := &Looker{Told: func(pool protocol.PoolName) { told = append(told, pool) }}
	r := &round{Looker: l, verdicts: map[protocol.PoolName]foreign.Verdict{}}
	w := &waiting{pool: foreign.Pool{Name: "lan"}}
	r.say(w, "the nodes' agents are asked what their pods have")
	l.publish(r.verdicts)
	var readers sync.WaitGroup
	readers.Go(func() {
		for range 100 {
			l.Of("lan")
		}
	})
	for range 100 {
		r.say(w, "it waits for node n1")
	}
	readers.Wait()
	if why := l.Of("lan").Why; why != "the nodes' agents are asked what their pods have" {
		t.Errorf("before it was published, others read %q", why)
	}
	l.publish(r.verdicts)
	if why := l.Of("lan").Why; why != "it waits for node n1" || len(told) != 2 {
		t.Errorf("after it was published: %q, told %d times; want the new reason, told twice", why, len(told))
	}
}

// stuck is a Granter that cannot free what is kept: its lease is of a later protocol, say.
type stuck struct{ keeper }

func (stuck) MayFree(context.Context, []grants.Held) (bool, error) {
	return false, errors.New("the lease is of a later protocol")
}

// One address that cannot be freed hides no verdict.
func TestVerdictsAreToldThoughNothingCanBeFreed(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	held := grants.Held{Pool: "other", Grant: protocol.Grant{Addr: netip.MustParseAddr("10.1.0.2"), To: protocol.Grantee{Kind: protocol.GranteePod, UID: "gone", Node: "n1"}}}
	l := &Looker{
		Broker: stuck{keeper{kept: []grants.Held{held}}}, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Told: func(protocol.PoolName) {},
		endings: map[place]ending{{"other", held.Grant.Addr}: {"gone", now.Add(-time.Minute)}},
	}
	l.current = &round{
		Looker: l, facts: foreign.Facts{Now: now}, without: map[protocol.NodeName]bool{}, ended: map[protocol.NodeName]bool{"n1": true},
		waiting: []*waiting{{pool: foreign.Pool{Name: "lan"}}}, verdicts: map[protocol.PoolName]foreign.Verdict{"lan": {}},
	}
	if _, err := l.Round(t.Context()); err == nil {
		t.Error("nobody hears that the address cannot be freed")
	}
	if !l.Of("lan").Clear {
		t.Errorf("the verdict on another pool is %+v; want it clear", l.Of("lan"))
	}
}
