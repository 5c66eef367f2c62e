package looker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// lan is pool 10.0.0.0/16 in the middle of being made larger: what is above 10.0.0.255 waits.
func lan() v1alpha1.IPPool {
	size := int32(28)
	pool := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan", UID: "p1"}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.0.0.0/16"}}}}
	pool.Status.Leasing, pool.Status.BlockPrefixLengths = v1alpha1.LeasingOpen, &v1alpha1.BlockPrefixLengths{IPv4: &size}
	pool.Status.Withheld = []string{"10.0.1.0-10.0.255.254"}
	return pool
}

// showing is a pod on node n1 whose status shows an address.
func showing(name, addr string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{
		npwg.AnnotationNetworks: "net", npwg.AnnotationStatus: fmt.Sprintf(`[{"name":"ns/net","interface":"net1","ips":[%q]}]`, addr),
	}}}
	pod.Spec.NodeName = "n1"
	return pod
}

// keptFor is an address of lan that is kept for a pod of a node.
func keptFor(pod protocol.UID, addr string) grants.Held {
	to := protocol.Grantee{Kind: protocol.GranteePod, UID: pod, Namespace: "ns", Name: string(pod), Node: "n1"}
	return grants.Held{Pool: "lan", Grant: protocol.Grant{Addr: netip.MustParseAddr(addr), To: to}}
}

// cluster is what a Looker sees: a pool, pods, a definition ns/net of the pool, and the agent of
// node n1, which beats, and answers by answer.
type cluster struct {
	*Looker
	now    time.Time
	pools  []v1alpha1.IPPool
	pods   []*corev1.Pod
	leases []protocol.Lease
	regs   []protocol.Registration
	// answer is what n1 says when it is asked; nil is nothing.
	answer func(protocol.Query) protocol.Report
	asked  []protocol.Query
	looks  int
	kept   []grants.Held
	asks   map[netip.Addr]grants.Ask // what is asked for
	gives  func(grants.Ask) grants.Answer
	freed  []netip.Addr
	stuck  error // why nothing can be freed
	told   int
	node   protocol.Node
	reads  time.Duration // how long it takes to read the pods
	// networks is how many networks the pools have together, beside net.
	networks int
	more     []string // configurations of further definitions
	domains  string   // their annotation tenure.dev/domain
	// theirs says that a definition of whereabouts' has the addresses of pool lan.
	theirs bool
	// theirDomain is its annotation tenure.dev/domain.
	theirDomain string
	record      map[string]any // the spec of whereabouts' IPPool; nil is none
	object      string         // its name, "z" if left out
	// objects is how many more IPPools of that spec whereabouts has.
	objects int
	// live is the revision of registrations as they are read live, if not as the cache has them.
	live protocol.Revision
	// answer2 is what n2 says, where it is registered.
	answer2 func(protocol.Query) protocol.Report
}

func newCluster() *cluster {
	c := &cluster{
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), asks: map[netip.Addr]grants.Ask{},
		regs:  []protocol.Registration{{Meta: protocol.Meta{Name: "n1"}, Node: "n1", Store: "s"}},
		gives: func(grants.Ask) grants.Answer { return grants.Answer{} },
	}
	c.Looker = &Looker{
		Cache: c, Live: c, Broker: c, Calls: 1, Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return c.now },
		Registrations: func(context.Context) ([]protocol.Registration, error) { return slices.Clone(c.regs), nil },
		Beats:         func(protocol.NodeName) bool { return true }, Notify: func(protocol.PoolName) { c.told++ },
		MayUse: func(context.Context, *v1alpha1.IPPool, string) bool { return true },
	}
	return c
}

func (c *cluster) IPPools(context.Context) ([]v1alpha1.IPPool, error) { c.looks++; return c.pools, nil }
func (c *cluster) BoundPods(_ context.Context, see func(*corev1.Pod)) error {
	c.now = c.now.Add(c.reads)
	for _, p := range c.pods {
		see(p)
	}
	return nil
}

func (c *cluster) LeasesOfPool(context.Context, protocol.PoolName) ([]protocol.Lease, error) {
	return c.leases, nil
}

func (c *cluster) WhereaboutsPools(_ context.Context, see func(*unstructured.Unstructured)) (bool, error) {
	if c.record != nil {
		for i := range 1 + c.objects {
			name := cmp.Or(c.object, "z")
			if i > 0 {
				name = fmt.Sprint("a-", i)
			}
			see(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": c.record}})
		}
	}
	return c.record != nil, nil
}

func (c *cluster) WhereaboutsReservations(context.Context, func(*unstructured.Unstructured)) (bool, error) {
	return false, nil
}
func (c *cluster) FencePolicy(context.Context) (bool, error) { return true, nil }

func (c *cluster) SubLeases(context.Context) ([]protocol.SubLease, error) { return nil, nil }
func (c *cluster) AskNode(_ context.Context, m protocol.Meta, text string) (protocol.Outcome, error) {
	look, err := protocol.ParseQuery(text)
	c.asked = append(c.asked, look)
	for i, answer := range []func(protocol.Query) protocol.Report{c.answer, c.answer2} {
		if answer != nil && c.regs[i].Name == m.Name {
			c.regs[i].Report = answer(look).String()
		}
	}
	return protocol.Done, err
}

func (c *cluster) ReadNode(context.Context, protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	return c.node, protocol.Done, nil
}

func (c *cluster) ReadRegistration(_ context.Context, name protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	for _, reg := range c.regs {
		if reg.Node == name {
			reg.Revision = cmp.Or(c.live, reg.Revision)
			return reg, protocol.Done, nil
		}
	}
	return protocol.Registration{}, protocol.NotFound, nil
}

func (c *cluster) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.ErrUnsupported
}

func (c *cluster) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	all := into.(*nad.NetworkAttachmentDefinitionList)
	for i := range c.networks + 1 {
		d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net"}}
		if i > 0 {
			d.Name = fmt.Sprint("net-", i)
		}
		pool := "lan"
		if n := len(c.pools); n > 1 {
			pool = fmt.Sprint("pool-", (i+n-1)%n)
		}
		d.Spec.Config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":{"type":"tenure","pool":%q}}`, d.Name, pool)
		all.Items = append(all.Items, d)
	}
	for i, config := range c.more {
		d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("more-", i)}}
		d.Spec.Config = config
		if c.domains != "" {
			d.Annotations = map[string]string{v1alpha1.AnnotationDomain: c.domains}
		}
		all.Items = append(all.Items, d)
	}
	if c.theirs {
		d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs", Annotations: map[string]string{v1alpha1.AnnotationDomain: c.theirDomain}}}
		d.Spec.Config = `{"cniVersion":"1.0.0","name":"theirs","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16"}}`
		all.Items = append(all.Items, d)
	}
	return nil
}

func (c *cluster) Ask(a grants.Ask) grants.Answer {
	c.asks[a.From[0].Addr] = a
	return c.gives(a)
}

func (c *cluster) WithdrawKept(_ protocol.PoolName, _ protocol.UID, addr netip.Addr) {
	delete(c.asks, addr)
}
func (c *cluster) Kept() []grants.Held { return c.kept }
func (c *cluster) MayFree(context.Context, []grants.Held) (bool, error) {
	return c.stuck == nil, c.stuck
}

func (c *cluster) Drop(_ context.Context, held []grants.Held) error {
	for _, h := range held {
		c.freed = append(c.freed, h.Grant.Addr)
	}
	return nil
}

// look goes on until a look has ended, or, if no agent answers, has waited for them in vain.
func (c *cluster) look(t *testing.T) foreign.Verdict {
	t.Helper()
	for ended := false; !ended; {
		before := c.now
		again, err := c.Round(t.Context())
		if err != nil && c.stuck == nil {
			t.Fatal(err)
		}
		if ended = c.current == nil; !ended {
			c.now = before.Add(again)
		}
	}
	return c.Of("lan")
}

// lookAndAnswerAfter is a look in which the agent of n1 answers, that pod p runs, after a while.
func (c *cluster) lookAndAnswerAfter(t *testing.T, after time.Duration) foreign.Verdict {
	t.Helper()
	for first := (time.Time{}); ; {
		again, err := c.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.current == nil {
			return c.Of("lan")
		}
		if first.IsZero() {
			first = c.now
		}
		if c.now = c.now.Add(again); c.now.Sub(first) >= after {
			c.regs[0].Report = protocol.Report{ID: c.asked[len(c.asked)-1].ID, Running: []protocol.UID{"p"}}.String()
		}
	}
}

// What an edit adds to a pool is usable after the first look, though the agent of the node with the
// pool's pod never answers: nothing of another IPAM touches it. Where a pod shows an address of
// what was added, the reason names the node that is waited for; and when the agent has not answered
// for long, the pool goes on without it, and says so.
func TestWiderPoolWaitsForNobody(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.0.2")}
	if v := c.look(t); !v.Clear() || len(c.asked) > 0 {
		t.Errorf("a pod of what it had: stage %d, %q, asked %d times", v.Stage, v.Why, len(c.asked))
	}
	c.pods = []*corev1.Pod{showing("p", "10.0.1.2")}
	if v := c.look(t); v.Stage != foreign.StageReports || v.Why != "the agents of nodes n1 have yet to say what their pods have" {
		t.Errorf("a pod of what was added: stage %d, %q", v.Stage, v.Why)
	}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	for begun := c.now; c.now.Sub(begun) < passAfter-time.Minute; c.now = c.now.Add(waitEvery) {
		if v := c.look(t); v.Clear() {
			t.Fatal("the node was passed over too soon")
		}
	}
	c.now = c.now.Add(time.Minute)
	if v := c.look(t); !v.Clear() || !slices.Equal(v.PassedOver, []protocol.NodeName{"n1"}) {
		t.Errorf("after %v: stage %d, %q, passed over %v", passAfter, v.Stage, v.Why, v.PassedOver)
	}
	c.pools[0].Status.Withheld, c.pods = nil, nil
	if v := c.look(t); len(v.PassedOver) == 0 {
		t.Error("once nothing waits it is not said any more")
	}
	late := netip.MustParseAddr("10.0.1.7")
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Has: []protocol.Sighting{{Addr: late, Sandbox: "box", Network: "net", IPAM: "host-local"}}}
	}
	if v := c.look(t); len(v.PassedOver) > 0 || c.asks[late].To.UID != "box" {
		t.Errorf("after it has answered: passed over %v, asks for %v", v.PassedOver, c.asks)
	}
}

// A pod that passes for the mirror of another pod, which selects no network, has nothing kept: that
// would stay kept as long as the other runs, however many such pods come and go.
func TestMirrorOfAnotherPod(t *testing.T) {
	c := newCluster()
	thief, other := showing("thief", "10.0.1.2"), showing("other", "10.0.1.3")
	thief.Annotations["kubernetes.io/config.mirror"], other.Annotations = "other", nil
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{thief, other}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"other"}}
	}
	if v := c.look(t); !v.Clear() || len(c.asks) > 0 {
		t.Errorf("stage %d, %q, asks for %v; want nothing kept", v.Stage, v.Why, c.asks)
	}
}

// A report that goes on is asked for to its end.
func TestReportInParts(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	last := netip.MustParseAddr("10.0.1.9")
	c.answer = func(look protocol.Query) protocol.Report {
		r := protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
		from := cmp.Or(look.From, netip.MustParseAddr("10.0.1.2"))
		r.Has = []protocol.Sighting{{Addr: from, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "p"}, Network: "net", IPAM: "host-local"}}
		if from != last {
			r.Next = from.Next()
		}
		return r
	}
	if v := c.look(t); !v.Clear() || len(c.asks) != 8 || c.asks[last].To.UID != "p" {
		t.Errorf("stage %d, %q: asks for %d addresses; want 10.0.1.2 to %v", v.Stage, v.Why, len(c.asks), last)
	}
}

// A report that says that there is more, and not where to go on, is not whole.
func TestReportThatDoesNotGoOn(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.answer = func(look protocol.Query) protocol.Report {
		has := []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.1.2"), Pod: protocol.PodRef{UID: "p"}, Network: "net", IPAM: "host-local"}}
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}, Has: has, Next: netip.MustParseAddr("10.0.1.9"), After: strings.Repeat("x", 1<<14)}
	}
	if v := c.look(t); v.Stage != foreign.StageReports || !strings.Contains(v.Why, "from 10.0.1.9 on") {
		t.Errorf("stage %d, %q; want that it waits for the rest", v.Stage, v.Why)
	}
}

// What a part of a report could not read is not forgotten with the next part.
func TestReportInPartsOfWhichOneIsNotWhole(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	c.answer = func(look protocol.Query) protocol.Report {
		r := protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
		if !look.From.IsValid() {
			r.Next, r.Unseen = netip.MustParseAddr("10.0.1.9"), []protocol.Unseen{{HostLocal: look.HostLocal[0], Why: "cannot read net"}}
			r.Has = []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.1.2"), Pod: protocol.PodRef{UID: "p"}, Network: "net", IPAM: "host-local"}}
		}
		return r
	}
	if v := c.look(t); v.Stage != foreign.StageReports || !strings.Contains(v.Why, "cannot read net") {
		t.Errorf("stage %d, %q; want that it waits for what cannot be read", v.Stage, v.Why)
	}
}

// A report whose parts never end counts as none: after a while the pool goes on without it.
func TestReportThatNeverEnds(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	c.answer = func(look protocol.Query) protocol.Report {
		from := cmp.Or(look.From, netip.MustParseAddr("10.0.1.0"))
		return protocol.Report{ID: look.ID, Has: []protocol.Sighting{{Addr: from, Sandbox: "s", Network: "else"}}, Next: from.Next()}
	}
	for range int(passAfter/time.Minute) + 1 {
		c.look(t)
		c.now = c.now.Add(time.Minute)
	}
	if v := c.look(t); !v.Clear() || !slices.Equal(v.PassedOver, []protocol.NodeName{"n1"}) {
		t.Errorf("stage %d, %q, passed over %v; want that it goes on without n1", v.Stage, v.Why, v.PassedOver)
	}
}

// However much a node has to say, and however often it says that: what is kept of it has a bound.
// Beyond that its report is not whole.
func TestReportHasABound(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	for what, answer := range map[string]func(r *protocol.Report, part int){
		"the same": func(r *protocol.Report, _ int) { r.Has = slices.Repeat([]protocol.Sighting{{Sandbox: "s"}}, 2000) },
		"sightings": func(r *protocol.Report, part int) {
			for i := range 2000 {
				r.Has = append(r.Has, protocol.Sighting{Sandbox: fmt.Sprint(part, i)})
			}
		},
		"what cannot be read": func(r *protocol.Report, part int) {
			r.Has = []protocol.Sighting{{Sandbox: "s"}}
			for i := range 1500 {
				r.Unseen = append(r.Unseen, protocol.Unseen{HostLocal: protocol.HostLocal{Network: fmt.Sprint(part, i)}})
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			part := 0
			c.answer = func(look protocol.Query) protocol.Report {
				r := protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
				if part++; part < 100 {
					r.Next = cmp.Or(look.From, netip.MustParseAddr("10.0.1.0")).Next()
				}
				answer(&r, part)
				return r
			}
			most, why := 0, ""
			for ended := false; !ended; c.now = c.now.Add(time.Millisecond) {
				if _, err := c.Round(t.Context()); err != nil {
					t.Fatal(err)
				}
				if ended = c.current == nil; !ended {
					heard := c.current.asked["n1"].heard
					most = max(most, len(heard.Has)+len(heard.Unseen))
				}
				why = c.Of("lan").Why
			}
			if most > mostHeard {
				t.Errorf("%d things are kept of what it has said; want %d at most", most, mostHeard)
			}
			if whole := what == "the same"; whole != (why == "") || !whole && !strings.Contains(why, "more than") {
				t.Errorf("the pool waits: %q", why)
			}
		})
	}
}

// A pool of so many networks that one question has no room for them is asked for in several: the
// answer tells of all.
func TestQuestionInParts(t *testing.T) {
	c := newCluster()
	c.networks = 2000
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	networks := map[string]bool{}
	c.answer = func(look protocol.Query) protocol.Report {
		if n := len(look.String()); n > protocol.MaxQuery+128 {
			t.Errorf("a question has %d bytes; want no more than %d", n, protocol.MaxQuery)
		}
		r := protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
		for _, n := range look.HostLocal {
			if networks[n.Network] = true; n.Network == "net-7" {
				r.Has = []protocol.Sighting{{Addr: netip.MustParseAddr("10.0.1.7"), Sandbox: "box", Network: "net-7", IPAM: "host-local"}}
			}
		}
		return r
	}
	if v := c.look(t); !v.Clear() || len(networks) != 2001 || c.asks[netip.MustParseAddr("10.0.1.7")].To.UID != "box" {
		t.Errorf("stage %d, %q, asked for %d networks, asks for %v", v.Stage, v.Why, len(networks), c.asks)
	}
}

// Of the pods that have asked Tenure those count that a node tells of for the networks of each
// question.
func TestAskedInParts(t *testing.T) {
	q := question{sightings: map[protocol.Sighting]bool{}, unseen: map[protocol.Unseen]bool{}}
	for _, network := range []string{"a", "b"} {
		q.HostLocal = []protocol.HostLocal{{Network: network}}
		q.hear(protocol.Report{Asked: map[string][]protocol.UID{network: {"p"}, "else": {"p"}}})
	}
	if got, want := q.heard.Asked, map[string][]protocol.UID{"a": {"p"}, "b": {"p"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("heard %v; want %v", got, want)
	}
}

// The nodes have their time from when they were asked, though it took long to read the pods.
func TestNodesHaveTimeAfterALongRead(t *testing.T) {
	c := newCluster()
	c.reads = 2 * answerWithin
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	if v := c.lookAndAnswerAfter(t, time.Second); !v.Clear() {
		t.Errorf("stage %d, %q; want the answer heard", v.Stage, v.Why)
	}
}

// Who writes definitions makes no question too long: a network whose name is too long for a
// directory has no files of host-local.
func TestQuestionOfALongName(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.more = []string{fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`, strings.Repeat("x", 300<<10))}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
	}
	c.look(t)
	if len(c.asked) == 0 {
		t.Error("nobody is asked")
	}
	for _, look := range c.asked {
		if n := len(look.String()); n > protocol.MaxQuery {
			t.Errorf("a question takes %d bytes, want %d at most", n, protocol.MaxQuery)
		}
	}
}

// Who writes definitions fences no more than the status takes, which could not be written then: of
// whereabouts' objects those come first that are there.
func TestFenceHasABound(t *testing.T) {
	c := newCluster()
	c.pools, c.record = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}
	for i := range 32 {
		var ranges []string
		for k := range 63 {
			ranges = append(ranges, fmt.Sprintf(`{"range":"10.%d.%d.0/24"}`, i, k))
		}
		c.more = append(c.more, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"b","type":"macvlan","ipam":{"type":"tenure","network_name":"lan","ipRanges":[%s]}}`, strings.Join(ranges, ",")))
	}
	v := c.look(t)
	if len(v.Fence) != maxFence || v.Fence[maxFence-1] != "z" {
		t.Errorf("it fences %d objects, the last of them %q; want %d, and z, which is there", len(v.Fence), v.Fence[len(v.Fence)-1], maxFence)
	}
}

// A pool for which more of whereabouts' objects are there than can be fenced is not opened: one of
// those left out could give an address. It says what to do.
func TestMoreObjectsThanCanBeFenced(t *testing.T) {
	c := newCluster()
	c.pools, c.record, c.objects = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}, maxFence
	c.pools[0].Status.Fenced = c.look(t).Fence
	c.look(t)
	c.now = c.now.Add(fenceWithin)
	if v := c.look(t); v.Clear() || !strings.Contains(v.Why, "Delete IPPools") {
		t.Errorf("it is at stage %d, since %q; want it to wait, and to say what to do", v.Stage, v.Why)
	}
}

// A definition of whereabouts' for another network whose excludes part the pool's addresses into
// more ranges than can be fenced is named: to delete IPPools does not help then.
func TestMoreRangesThanCanBeFenced(t *testing.T) {
	c := newCluster()
	pool := lan()
	pool.Spec.Domain = "b"
	var exclude []string
	for i := range maxFence + 1 {
		exclude = append(exclude, fmt.Sprintf(`"10.0.%d.%d/32"`, i/128, i%128*2))
	}
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":"macvlan","ipam":{"type":"whereabouts","network_name":"x","range":"10.0.0.0/16","exclude":[%s]}}`, strings.Join(exclude, ","))
	c.pools, c.record = []v1alpha1.IPPool{pool}, map[string]any{"range": "10.0.0.0/16"}
	c.domains, c.more = "a", []string{config}
	if v := c.look(t); v.Stage != foreign.StageFence || strings.Contains(v.Why, "cannot be kept") {
		t.Errorf("it is at stage %d, since %q; want all fenced, since the network_name is another", v.Stage, v.Why)
	}
	c.more = []string{strings.Replace(config, `"network_name":"x",`, "", 1)}
	if v := c.look(t); v.Stage != foreign.StageFence || !strings.Contains(v.Why, "definition ns/more-0, which names whereabouts, and leaves 1025 ranges") || strings.Contains(v.Why, "Delete IPPools") {
		t.Errorf("it is at stage %d, since %.300q; want the definition named, and what to do", v.Stage, v.Why)
	}
	c.more, c.objects = []string{config}, maxFence
	if v := c.look(t); !strings.Contains(v.Why, "Delete IPPools") || strings.Contains(v.Why, "Definition") {
		t.Errorf("it is at stage %d, since %.300q; want the definition passed over, which has a network_name of its own", v.Stage, v.Why)
	}
}

// A node that goes on answering parts of a question has the time for one for each: who writes many
// definitions has no node passed over.
func TestTimeForEachPart(t *testing.T) {
	c := newCluster()
	c.pools, c.pods, c.networks = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}, 3000
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	var due time.Time
	for begun := c.now; ; {
		again, err := c.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.current == nil {
			break
		}
		if last := c.asked[len(c.asked)-1].ID; due.IsZero() || c.now.After(due) {
			c.regs[0].Report = protocol.Report{ID: last, Running: []protocol.UID{"p"}}.String()
			due = c.now.Add(2 * time.Second)
		}
		if c.now = c.now.Add(again); c.now.Sub(begun) > time.Hour {
			t.Fatal("the look does not end")
		}
	}
	if v := c.Of("lan"); !v.Clear() || len(c.asked) < 4 {
		t.Errorf("it waits after %d parts: %q", len(c.asked), v.Why)
	}
}

// A node that needs half a minute for each answer is heard before it is passed over.
func TestSlowNodeIsHeard(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	for begun := c.now; c.now.Sub(begun) < 2*slowAfter; c.now = c.now.Add(waitEvery) {
		if v := c.lookAndAnswerAfter(t, 20*time.Second); v.Clear() {
			return
		}
	}
	t.Errorf("it is not heard within %v: %q", 2*slowAfter, c.Of("lan").Why)
}

// A node that was passed over, and has come back, is heard, though others are not waited for.
func TestPassedOverNodeComesBack(t *testing.T) {
	c := newCluster()
	c.pools, c.kept = []v1alpha1.IPPool{lan()}, []grants.Held{keptFor("gone", "10.0.0.2")}
	for range int(passAfter/time.Minute) + 2 {
		c.look(t)
		c.now = c.now.Add(time.Minute)
	}
	for range 2 {
		c.lookAndAnswerAfter(t, time.Second)
		c.now = c.now.Add(endEvery)
	}
	if len(c.freed) != 1 {
		t.Errorf("freed %v; want what its pod had, as its node says that it is gone", c.freed)
	}
}

// What the controller slept is no silence of a node's. A node that was asked before a long sleep is
// not passed over after it, and what pods show there is granted to nobody before it answers.
func TestNoSilenceWhileTheControllerSleeps(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	for range 3 {
		if _, err := c.Round(t.Context()); err != nil || c.current == nil {
			t.Fatalf("no node is asked, error %v", err)
		}
		c.now = c.now.Add(2 * passAfter)
		if v := c.look(t); v.Clear() || len(v.PassedOver) > 0 || len(c.asks) > 0 {
			t.Fatalf("after a sleep: stage %d, passed over %v, asks for %v; want it to wait for the node", v.Stage, v.PassedOver, c.asks)
		}
		c.now = c.now.Add(waitEvery)
	}
}

// manyPools is a cluster of three pools, of which each takes most of a question, and what is asked
// for of each is granted at once. Of each a pod shows an address.
func manyPools() *cluster {
	c := newCluster()
	c.networks = 3 * 400
	for i := range 3 {
		pool := lan()
		pool.Name, pool.UID = fmt.Sprint("pool-", i), types.UID(fmt.Sprint(i))
		pool.Spec.Ranges[0].CIDR, pool.Status.Withheld = fmt.Sprintf("10.%d.0.0/16", i), []string{fmt.Sprintf("10.%d.1.0-10.%d.1.255", i, i)}
		pod := showing(fmt.Sprint("p", i), fmt.Sprintf("10.%d.1.2", i))
		pod.Annotations[npwg.AnnotationNetworks] = fmt.Sprint("net-", i+1)
		pod.Annotations[npwg.AnnotationStatus] = strings.ReplaceAll(pod.Annotations[npwg.AnnotationStatus], "ns/net", fmt.Sprint("ns/net-", i+1))
		c.pools, c.pods = append(c.pools, pool), append(c.pods, pod)
	}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	return c
}

// A node that answers of other pools alone keeps no pool waiting for ever: that pool goes on
// without its word, and says so, and the others do not.
func TestSilenceCountsForEachPool(t *testing.T) {
	c := manyPools()
	c.answer = func(look protocol.Query) protocol.Report {
		if look.Ranges[0] == "10.0.0.0-10.0.255.255" {
			return protocol.Report{}
		}
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p0", "p1", "p2"}}
	}
	var passed [3][]protocol.NodeName
	for begun := c.now; c.now.Sub(begun) < passAfter+2*time.Minute; c.now = c.now.Add(waitEvery) {
		c.look(t)
		for i := range passed {
			passed[i] = c.Of(protocol.PoolName(fmt.Sprint("pool-", i))).PassedOver
		}
		if passed[0] != nil && c.now.Sub(begun) < passAfter {
			t.Fatal("the node was passed over too soon")
		}
	}
	if v := c.Of("pool-0"); !v.Clear() || len(passed[0]) != 1 || len(passed[1])+len(passed[2]) > 0 {
		t.Errorf("stage %d, %q, passed over for the pools: %v; want for the first alone", v.Stage, v.Why, passed)
	}
}

// Whoever may make definitions may make many networks of a pool, and many nodes are asked of it.
// What they are asked is worked out once: what it takes for one more node does not grow with the
// networks.
func TestManyNodesAreAskedOfManyNetworks(t *testing.T) {
	c := newCluster()
	c.pools, c.pods, c.networks = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}, 2000
	l, err := c.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	of := map[protocol.PoolName]bool{"lan": true}
	first := l.question("n1", of)
	if n := len(first.HostLocal) + len(first.rest); n != 2001 {
		t.Errorf("n1 is asked of %d networks; want 2001", n)
	}
	if took := testing.AllocsPerRun(3, func() { l.question("n2", of) }); took > 50 {
		t.Errorf("to ask one more node takes %.0f allocations; want a few", took)
	}
	if !l.facts.Asked[foreign.Word{Node: "n1", Pool: "lan"}] || !l.facts.Asked[foreign.Word{Node: "n2", Pool: "lan"}] {
		t.Errorf("asked: %v; want both nodes", l.facts.Asked)
	}
}

// A question has a bound. What it has no room for the next looks ask, so that no pool waits for
// ever.
func TestQuestionsHaveABound(t *testing.T) {
	c := manyPools()
	c.answer = func(look protocol.Query) protocol.Report {
		if n := len(look.String()); n > protocol.MaxQuery+128 || len(look.Ranges) != 1 {
			t.Errorf("a question has %d bytes, and ranges of %d pools; want no more than %d, and of one", n, len(look.Ranges), protocol.MaxQuery)
		}
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p0", "p1", "p2"}}
	}
	clear := map[string]bool{}
	for range 4 {
		c.look(t)
		for i := range 3 {
			name := fmt.Sprint("pool-", i)
			clear[name] = clear[name] || c.Of(protocol.PoolName(name)).Clear()
		}
	}
	if len(clear) != 3 || !clear["pool-0"] || !clear["pool-1"] || !clear["pool-2"] {
		t.Errorf("clear after four looks: %v; want all three", clear)
	}
}

// What is kept for a sandbox whose pod nobody knows comes free once the node, asked for it, does
// not tell of it any more. A look that has asked for other pools alone says nothing of it.
func TestFreesOnlyWhatWasAskedFor(t *testing.T) {
	addr := netip.MustParseAddr("10.0.1.9")
	for _, there := range []bool{true, false} {
		c := manyPools()
		box := keptFor("box", addr.String())
		box.Pool = "pool-0"
		c.kept = []grants.Held{box}
		c.answer = func(look protocol.Query) protocol.Report {
			r := protocol.Report{ID: look.ID, Running: []protocol.UID{"p0", "p1", "p2"}}
			if there && look.Ranges[0] == "10.0.0.0-10.0.255.255" {
				r.Has = []protocol.Sighting{{Addr: addr, Sandbox: "box", Network: "net-1", IPAM: "host-local"}}
			}
			return r
		}
		for range 12 {
			c.look(t)
			c.now = c.now.Add(endEvery)
		}
		if got := slices.Contains(c.freed, addr); got == there {
			t.Errorf("its sandbox is there: %v; freed: %v", there, got)
		}
	}
}

// What can never be kept, what somebody else has, and what lies in the block of a dead node, is
// said and not waited for. A block of a node that lives is waited for, and of a pool that was never
// open every lease but the cluster's own of that pool.
func TestWaitsForNothingThatDoesNotCome(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reason grants.Reason
		lease  string
		want   foreign.Stage
		said   bool
	}{
		{"the pool has its addresses from Neutron", grants.Unassignable, "", foreign.StageClear, true},
		{"somebody else has it", grants.Taken, "", foreign.StageClear, true},
		{"it is in the block of a dead node", grants.Silent, "of-n2", foreign.StageClear, true},
		{"it is in the block of a node that lives", grants.Silent, "of-n1", foreign.StageGrants, false},
		{"it is being asked for", grants.NoProblem, "", foreign.StageGrants, false},
		{"a node says that it is in use, of a pool that was never open", grants.Taken, "of-n1", foreign.StageGrants, false},
		{"it is in the block of a dead node, of a pool that was never open", grants.Silent, "of-n2", foreign.StageGrants, false},
		{"it is in a block of the cluster's, of a pool that was never open", grants.Taken, "of-cluster", foreign.StageClear, true},
		{"it is in a block of an earlier pool, of a pool that was never open", grants.Taken, "of-earlier", foreign.StageGrants, false},
		{"it is in a block that was leased since, of a pool that was never open", grants.Taken, "of-later", foreign.StageGrants, false},
	} {
		c := newCluster()
		o := lan()
		if strings.Contains(tt.name, "never open") {
			o.Status.Leasing, o.Status.Withheld, o.Status.FencedSince = "", nil, new(metav1.NewTime(c.now.Add(-time.Hour)))
		}
		c.pools, c.pods = []v1alpha1.IPPool{o}, []*corev1.Pod{showing("p", "10.0.1.2")}
		for _, n := range []protocol.NodeName{"n1", "n2"} {
			c.leases = append(c.leases, protocol.Lease{Meta: protocol.Meta{Name: "of-" + string(n)}, PoolUID: "p1", Holder: protocol.Holder{Node: n}, Block: netip.MustParsePrefix("10.0.9.0/28")})
		}
		for name, uid := range map[string]protocol.UID{"of-cluster": "p1", "of-earlier": "p0"} {
			c.leases = append(c.leases, protocol.Lease{Meta: protocol.Meta{Name: name}, PoolUID: uid, Holder: protocol.Holder{Cluster: true}, Block: netip.MustParsePrefix("10.0.8.0/28")})
		}
		c.answer = func(look protocol.Query) protocol.Report {
			return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
		}
		c.gives = func(grants.Ask) grants.Answer {
			return grants.Answer{Problem: grants.Problem{Reason: tt.reason, Message: tt.name, Lease: tt.lease}}
		}
		if v := c.look(t); v.Stage != tt.want || (len(v.Conflicts) == 1) != tt.said {
			t.Errorf("%s: stage %d, %q, conflicts %v; want stage %d", tt.name, v.Stage, v.Why, v.Conflicts, tt.want)
		}
	}
}

// An address that was kept for one pod, and that a second is found to have, is kept from all: the
// grant to the one becomes the grant to nobody in one write.
func TestSecondPodOfAnAddress(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2"), showing("q", "10.0.1.2")}
	c.kept = []grants.Held{keptFor("p", "10.0.1.2")}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p", "q"}}
	}
	c.look(t)
	ask := c.asks[netip.MustParseAddr("10.0.1.2")]
	if ask.To != c.kept[0].Grant.To.ToSeveral() || ask.Pod.UID != "p" {
		t.Errorf("asks for %+v; want it kept from all, in place of pod p", ask)
	}
}

// A status that somebody writes takes no address from the pod that it is kept for: that pod's node
// is asked, and says that the pod has it. Nor does it before that node has answered.
func TestStatusOfAnotherPodOfAnAddress(t *testing.T) {
	c := newCluster()
	addr := netip.MustParseAddr("10.0.1.2")
	forged := showing("q", addr.String())
	forged.Spec.NodeName = "n2"
	c.pools, c.pods, c.kept = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", addr.String()), forged}, []grants.Held{keptFor("p", addr.String())}
	c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s2"})
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	c.answer2 = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"q"}}
	}
	if v := c.look(t); v.Clear() || c.asks[addr].To != c.kept[0].Grant.To {
		t.Errorf("while the node of pod p has yet to answer: stage %d, asks for %+v; want it kept for p, and that the pool waits", v.Stage, c.asks[addr])
	}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}, Has: []protocol.Sighting{{
			Addr: addr, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "p"}, Network: "net", IPAM: "host-local",
		}}}
	}
	if v := c.look(t); !v.Clear() || c.asks[addr].To != c.kept[0].Grant.To || len(v.Conflicts) != 1 {
		t.Errorf("after its answer: stage %d, %q, asks for %+v, conflicts %v; want it kept for p, and said", v.Stage, v.Why, c.asks[addr], v.Conflicts)
	}
}

// An address that is kept for a pod of which nothing tells any more comes free once its node says
// that it does not run, and the pool waits for that. While it runs on, another pod that is said to
// have the address keeps no pool closed: it is kept from all.
func TestKeptForAPodThatRunsOn(t *testing.T) {
	addr := netip.MustParseAddr("10.0.1.2")
	for _, tt := range []struct {
		name    string
		running []protocol.UID
		want    foreign.Stage
		to      protocol.UID
	}{
		{"it runs", []protocol.UID{"p", "q"}, foreign.StageClear, "several/p"},
		{"it does not", []protocol.UID{"q"}, foreign.StageGrants, "q"},
	} {
		c := newCluster()
		c.pools, c.pods, c.kept = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("q", addr.String())}, []grants.Held{keptFor("p", addr.String())}
		c.answer = func(look protocol.Query) protocol.Report {
			return protocol.Report{ID: look.ID, Running: tt.running}
		}
		c.gives = func(a grants.Ask) grants.Answer {
			if a.To.UID == "several/p" && a.Pod.UID == "p" {
				return grants.Answer{Granted: make([]grants.Granted, 1)}
			}
			return grants.Answer{Problem: grants.Problem{Reason: grants.Taken, Message: "it is kept for pod p"}}
		}
		v := c.look(t)
		if v.Stage != tt.want || c.asks[addr].To.UID != tt.to || (len(v.Conflicts) > 0) != (tt.want == foreign.StageClear) {
			t.Errorf("%s: stage %d, %q, conflicts %v, kept for %q; want stage %d, and kept for %q", tt.name, v.Stage, v.Why, v.Conflicts, c.asks[addr].To.UID, tt.want, tt.to)
		}
	}
}

// A node that names a pod of another node's by its UID keeps an address for it that the pod then
// comes to have. Whose it is, is told by UID and node: it is kept from all, and never the first
// node's to ask for.
func TestKeptForThePodOfAnotherNode(t *testing.T) {
	c := newCluster()
	addr := netip.MustParseAddr("10.0.1.2")
	victim := showing("p", addr.String())
	victim.Spec.NodeName = "n2"
	c.pools, c.pods, c.kept = []v1alpha1.IPPool{lan()}, []*corev1.Pod{victim}, []grants.Held{keptFor("p", addr.String())}
	c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s2"})
	c.answer = func(look protocol.Query) protocol.Report { // it says that p runs on n1
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
	}
	c.answer2 = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}, Has: []protocol.Sighting{{
			Addr: addr, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "p"}, Network: "net", IPAM: "host-local",
		}}}
	}
	v := c.look(t)
	if ask := c.asks[addr]; ask.To != c.kept[0].Grant.To.ToSeveral() || len(v.Conflicts) != 1 {
		t.Errorf("it asks for %+v, conflicts %v; want it kept from all, and said", ask, v.Conflicts)
	}
	c.answer = func(look protocol.Query) protocol.Report { return protocol.Report{ID: look.ID} }
	c.look(t)
	c.now = c.now.Add(endEvery)
	c.look(t)
	if ask := c.asks[addr]; ask.To.Node != "n2" || ask.Pod != c.kept[0].Grant.To {
		t.Errorf("once n1 says that it is gone there, it asks for %+v; want it to become the pod's of n2", ask)
	}
}

// What was kept for a pod that is gone, and is another's by now, is never free in between: somebody
// who has waited longer would get it.
func TestPassesOnWhatIsAnothers(t *testing.T) {
	c := newCluster()
	addr := netip.MustParseAddr("10.0.1.2")
	gone := keptFor("gone", addr.String())
	c.pools, c.pods, c.kept = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("q", addr.String())}, []grants.Held{gone}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"q"}}
	}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Problem: grants.Problem{Reason: grants.Taken}} }
	c.look(t)
	if a := c.asks[addr]; a.To.UID != "q" || a.Pod.UID != "" {
		t.Errorf("at first it asks for %+v; want it for q, once it is free", a)
	}
	c.now = c.now.Add(endEvery)
	c.look(t)
	if a := c.asks[addr]; a.To.UID != "q" || a.Pod != gone.Grant.To || len(c.freed) > 0 {
		t.Errorf("it asks for %+v, and has freed %v; want the grant to become that to q", a, c.freed)
	}
}

// However much becomes another pod's at once, as when a runtime tells the pods of its sandboxes at
// last: what has ended is gone over once, and not for each address.
func TestMuchIsPassedOn(t *testing.T) {
	c, addr, pool := newCluster(), netip.MustParseAddr("10.0.1.0"), lan()
	l, report := c.newLook(), protocol.Report{}
	for i := range 200 {
		pod := protocol.PodRef{Namespace: "ns", Name: fmt.Sprint("p-", i), UID: protocol.UID(fmt.Sprint("p-", i))}
		l.facts.Pods = append(l.facts.Pods, foreign.Pod{PodRef: pod, Node: "n1", Selected: []string{"ns/net"}})
		for range 300 {
			c.kept = append(c.kept, keptFor("box-"+pod.UID, addr.String()))
			report.Has = append(report.Has, protocol.Sighting{Addr: addr, Pod: pod, Sandbox: "box-" + pod.Name, Network: "net", IPAM: "host-local"})
			addr = addr.Next()
		}
	}
	var err error
	if l.facts.Definitions, l.facts.Former, err = c.definitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.facts.Kept, l.facts.Agents["n1"], l.facts.Reports["n1"], l.facts.Asked, l.over = l.kept(), true, report, nil, true
	l.see(t.Context(), []v1alpha1.IPPool{pool}, c.keptByPool())
	l.findOthers(l.pools[0])
	l.consider(l.pools[0])
	begun := time.Now()
	l.weigh()
	l.keep(t.Context())
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it takes %v", took)
	}
	if a := c.asks[netip.MustParseAddr("10.0.1.0")]; len(l.ended) != len(report.Has) || len(c.asks) != len(report.Has) || a.To.UID != "p-0" {
		t.Errorf("of %d addresses %d have ended, and %d are asked for, the first for %q", len(report.Has), len(l.ended), len(c.asks), a.To.UID)
	}
}

// What somebody else has, and another IPAM has recorded too, stays asked for once the pool is
// open: when it comes free it is the pod's.
func TestStaysAskedForWhileRecorded(t *testing.T) {
	c := newCluster()
	c.record = map[string]any{"range": "10.0.0.0/16", "allocations": map[string]any{"258": map[string]any{"podref": "ns/p"}}}
	pod := showing("p", "10.0.1.2")
	delete(pod.Annotations, npwg.AnnotationStatus)
	pool := lan()
	pool.Status.Fenced = []string{"10.0.0.0/16", "z"}
	c.pools, c.pods = []v1alpha1.IPPool{pool}, []*corev1.Pod{pod}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
	}
	c.gives = func(grants.Ask) grants.Answer {
		return grants.Answer{Problem: grants.Problem{Reason: grants.Taken, Message: "somebody has it"}}
	}
	c.look(t)
	c.now = c.now.Add(2 * fenceWithin)
	for range 3 {
		if v := c.look(t); !v.Clear() || len(v.Conflicts) != 1 || len(c.asks) != 1 {
			t.Errorf("stage %d, %q, conflicts %v, asks for %d; want it asked for, and said", v.Stage, v.Why, v.Conflicts, len(c.asks))
		}
		c.pools[0].Status.Withheld = nil
	}
}

// While nodes are asked, no verdict of before says that a pool is clear which is not.
func TestNoVerdictOfBefore(t *testing.T) {
	c := newCluster()
	pool := lan()
	pool.Status.Leasing, pool.Status.Withheld, pool.Status.FencedSince = "", nil, new(metav1.NewTime(c.now.Add(-time.Hour)))
	c.pools, c.pods = []v1alpha1.IPPool{pool}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p"}}
	}
	if v := c.look(t); !v.Clear() {
		t.Fatalf("stage %d, %q", v.Stage, v.Why)
	}
	c.theirs, c.answer = true, nil
	if _, err := c.Round(t.Context()); err != nil || c.current == nil {
		t.Fatal("nobody is asked", err)
	}
	if v := c.Of("lan"); v.Stage != foreign.StageOthers || len(v.Others) != 1 {
		t.Errorf("stage %d, others %v; want that another IPAM may give its addresses", v.Stage, v.Others)
	}
}

// Of a dead node's pods the addresses come free, after two looks; of a pool that takes no silence
// for an answer only once somebody vouches that the machine is off.
func TestFreesWhatTheDeadHad(t *testing.T) {
	addr := netip.MustParseAddr("10.0.1.2")
	for _, tt := range []struct {
		name    string
		confirm bool
		former  protocol.Former
		want    bool
	}{
		{"its term was ended", false, protocol.Former{Ended: true}, true},
		{"its term was ended, and nobody vouches", true, protocol.Former{Ended: true}, false},
		{"its term was ended, and somebody vouches", true, protocol.Former{Ended: true, Vouched: true}, true},
	} {
		c := newCluster()
		pool := lan()
		if tt.confirm {
			pool.Spec.TakeOver = v1alpha1.TakeOverConfirmed
		}
		c.pools, c.kept = []v1alpha1.IPPool{pool}, []grants.Held{keptFor("p", addr.String())}
		c.regs[0].Store, c.regs[0].Former = "", []protocol.Former{tt.former}
		c.look(t)
		if len(c.freed) > 0 {
			t.Errorf("%s: freed after one look", tt.name)
		}
		c.now = c.now.Add(endEvery)
		if c.look(t); slices.Contains(c.freed, addr) != tt.want {
			t.Errorf("%s: freed %v; want %v", tt.name, c.freed, tt.want)
		}
	}
}

// What is kept for a pod that is gone stays kept while its node cannot read all. The pool says
// which node that is, and what it cannot read.
func TestSaysWhatHoldsUpAnEnd(t *testing.T) {
	for _, several := range []bool{false, true} {
		c := newCluster()
		c.pools, c.kept = []v1alpha1.IPPool{lan()}, []grants.Held{keptFor("gone", "10.0.0.2")}
		if several {
			c.kept[0].Grant.To = c.kept[0].Grant.To.ToSeveral()
		}
		damaged := []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "net"}, Why: "/results/net-c-net1 is damaged"}}
		c.answer = func(look protocol.Query) protocol.Report { return protocol.Report{ID: look.ID, Unseen: damaged} }
		for range 3 {
			if v := c.look(t); !slices.Equal(v.Held, []string{"node n1: /results/net-c-net1 is damaged"}) || len(c.freed) > 0 {
				t.Errorf("several %v: it says that %q hold it up, and frees %v", several, v.Held, c.freed)
			}
			if _, err := c.Round(t.Context()); err != nil || len(c.Of("lan").Held) != 1 {
				t.Errorf("while n1 is asked again it says that %q hold it up, error %v", c.Of("lan").Held, err)
			}
			c.now = c.now.Add(endEvery)
		}
		damaged = nil
		for range 3 {
			c.look(t)
			c.now = c.now.Add(endEvery)
		}
		if v := c.Of("lan"); v.Held != nil || len(c.freed) == 0 {
			t.Errorf("several %v: once the file is gone it says that %q hold it up, and frees %v", several, v.Held, c.freed)
		}
	}
}

// A definition whose namespace may not use the pool holds up no end, be the pool stopped or not.
func TestStrangersDirectoryHoldsUpNoEnd(t *testing.T) {
	for _, allocation := range []v1alpha1.Allocation{v1alpha1.AllocationAutomatic, v1alpha1.AllocationStopped} {
		c := newCluster()
		c.pools, c.kept = []v1alpha1.IPPool{lan()}, []grants.Held{keptFor("gone", "10.0.0.2")}
		c.pools[0].Spec.Allocation = allocation
		c.more = []string{`{"cniVersion":"1.0.0","name":"x","type":"macvlan","ipam":{"type":"tenure","pool":"lan","dataDir":"/x"}}`}
		c.MayUse = func(context.Context, *v1alpha1.IPPool, string) bool { return false }
		c.answer = func(look protocol.Query) protocol.Report {
			return protocol.Report{ID: look.ID, Unseen: []protocol.Unseen{{HostLocal: protocol.HostLocal{Network: "x", DataDir: "/x"}, Why: "cannot read /x"}}}
		}
		for range 3 {
			c.look(t)
			c.now = c.now.Add(endEvery)
		}
		if v := c.Of("lan"); len(c.freed) == 0 || v.Held != nil {
			t.Errorf("allocation %s: frees %v, and says that %q hold it up", allocation, c.freed, v.Held)
		}
	}
}

// One address that cannot be freed hides no verdict.
func TestVerdictsAreToldThoughNothingCanBeFreed(t *testing.T) {
	c := newCluster()
	c.pools, c.kept = []v1alpha1.IPPool{lan()}, []grants.Held{keptFor("gone", "10.0.0.2")}
	c.stuck = errors.New("the lease is of a later protocol")
	c.answer = func(look protocol.Query) protocol.Report { return protocol.Report{ID: look.ID} }
	for range 2 {
		c.look(t)
		c.now = c.now.Add(endEvery)
	}
	if v := c.Of("lan"); !v.Clear() || len(c.freed) > 0 {
		t.Errorf("stage %d, %q, freed %v; want the verdict all the same", v.Stage, v.Why, c.freed)
	}
}

// Whoever reads a verdict does not meet the look at work, and what does not change is told once.
func TestVerdictsAreNotChangedOncePublished(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2"), showing("q", "10.0.1.2")}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Running: []protocol.UID{"p", "q"}}
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		for range 1000 {
			_ = fmt.Sprint(c.Of("lan").Conflicts)
		}
	})
	c.look(t)
	told := c.told
	for range 5 {
		c.look(t)
	}
	readers.Wait()
	if c.told != told {
		t.Errorf("told %d times of a verdict that did not change", c.told-told)
	}
}

// What the nodes alone tell of a pool that is open stays said, and asked for, while they are asked
// again.
func TestStaysSaidWhileNodesAreAsked(t *testing.T) {
	c := newCluster()
	addr := netip.MustParseAddr("10.0.1.2")
	pool := lan()
	pool.Status.Withheld = nil
	several := keptFor("s1", addr.String())
	several.Grant.To = several.Grant.To.ToSeveral()
	c.pools, c.kept = []v1alpha1.IPPool{pool}, []grants.Held{several}
	c.answer = func(look protocol.Query) protocol.Report {
		r := protocol.Report{ID: look.ID}
		for _, box := range []string{"s1", "s2"} {
			r.Has = append(r.Has, protocol.Sighting{Addr: addr, Sandbox: box, Network: "net", IPAM: "host-local"})
		}
		return r
	}
	c.look(t)
	told := c.told
	for range 3 {
		if _, err := c.Round(t.Context()); err != nil || c.current == nil || len(c.asks) != 1 || len(c.Of("lan").Conflicts) != 1 {
			t.Errorf("while n1 is asked (%v): asks for %d addresses, conflicts %v; want one of each", c.current != nil, len(c.asks), c.Of("lan").Conflicts)
		}
		c.look(t)
	}
	if c.told != told {
		t.Errorf("told %d times of a verdict that did not change", c.told-told)
	}
}

// What changes while a look waits for the nodes' agents, the look has not seen: the next
// one comes as soon as it ends, and not only after half a minute.
func TestChangeDuringLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.Now = time.Now
		c.kept = []grants.Held{keptFor("gone", "10.0.0.2")}
		c.answer = func(protocol.Query) protocol.Report {
			if c.looks == 1 {
				c.Wake()
			}
			return protocol.Report{}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(answerWithin + 2*time.Second)
		synctest.Wait()
		if c.looks != 2 {
			t.Errorf("it has looked %d times; want 2: when it began, and after the change", c.looks)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// However often a definition is written, looks do not follow each other without a pause.
func TestPauseBetweenLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.Now = time.Now
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		for range 1000 {
			c.Wake()
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if c.looks < 10 || c.looks > 12 {
			t.Errorf("it has looked %d times in ten seconds; want once a second", c.looks)
		}
	})
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
		if got := (&look{Looker: &Looker{}}).next(c.took); got != c.want {
			t.Errorf("%s: again after %v, want %v", c.name, got, c.want)
		}
	}
}

// Where no node is asked there is no wait for nodes, and what was read counts once.
func TestLooksAgainAfterALookThatAsksNobody(t *testing.T) {
	c := newCluster()
	pool := lan()
	pool.Status.Withheld = nil
	c.pools, c.theirs, c.reads = []v1alpha1.IPPool{pool}, true, 2*time.Second
	if again, err := c.Round(t.Context()); err != nil || c.current != nil || again != 20*c.reads {
		t.Errorf("again after %v, error %v; want %v", again, err, 20*c.reads)
	}
}

// Nor does a node that does not answer.
func TestLooksAgainSoonAfterANodeWasSilent(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	for {
		again, err := c.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.current == nil {
			if again != waitEvery {
				t.Errorf("again after %v, want %v", again, waitEvery)
			}
			return
		}
		c.now = c.now.Add(again)
	}
}

// What a node cannot read is not looked at again within a second: that would ask all nodes again
// and again, until somebody mends it.
func TestLooksAgainLaterAfterAReportThatIsNotWhole(t *testing.T) {
	c := newCluster()
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.answer = func(look protocol.Query) protocol.Report {
		return protocol.Report{ID: look.ID, Unread: "/results is damaged"}
	}
	for {
		again, err := c.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.current == nil {
			if again != endEvery || c.Of("lan").Clear() {
				t.Errorf("again after %v, stage %d; want %v, and that the pool waits", again, c.Of("lan").Stage, endEvery)
			}
			return
		}
		c.now = c.now.Add(again)
	}
}

// TestRangesOfAnOpenPool: a pool that was opened by a version that fenced IPPools alone fences the
// ranges as well, without an edit. What it fences already it goes on fencing.
func TestRangesOfAnOpenPool(t *testing.T) {
	for _, tt := range []struct {
		name        string
		had         []string
		never, gone bool // it has taken nothing over; it is being deleted
		want        []string
	}{
		{"IPPools alone", []string{"of-old", "z"}, false, false, []string{"10.0.0.0/16", "of-old", "z"}},
		{"ranges, too", []string{"10.0.0.0/24", "z"}, false, false, []string{"10.0.0.0/24", "z"}},
		{"nothing", nil, false, false, nil},
		{"IPPools, and it has taken nothing over", []string{"z"}, true, false, []string{"z"}},
		{"IPPools, and it is being deleted", []string{"z"}, false, true, nil},
	} {
		c := newCluster()
		pool := lan()
		pool.Status.Withheld, pool.Status.Fenced = nil, tt.had
		if !tt.never {
			pool.Status.FencedSince = new(metav1.NewTime(c.now.Add(-time.Hour)))
		}
		if tt.gone {
			pool.DeletionTimestamp = new(metav1.NewTime(c.now))
		}
		c.pools, c.record = []v1alpha1.IPPool{pool}, map[string]any{"range": "10.0.0.0/16"}
		if v := c.look(t); !slices.Equal(v.Fence, tt.want) || !tt.gone && !v.Clear() {
			t.Errorf("%s: it fences %q, at stage %d; want %q, and that it goes on", tt.name, v.Fence, v.Stage, tt.want)
		}
	}
}

// What a definition of whereabouts' may give still it reserves: the rest of the pool is fenced.
func TestFencedRanges(t *testing.T) {
	fenced := func(change func(c *cluster)) (ranges []string) {
		c := newCluster()
		c.pools, c.record = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}
		change(c)
		for _, f := range c.look(t).Fence {
			if strings.Contains(f, "/") {
				ranges = append(ranges, f)
			}
		}
		return ranges
	}
	of := func(ipam string) func(*cluster) {
		return func(c *cluster) {
			c.more = append(c.more, `{"cniVersion":"1.0.0","name":"b","type":"macvlan","ipam":`+ipam+`}`)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(c *cluster)
		want   []string
	}{
		{"all of it", func(*cluster) {}, []string{"10.0.0.0/16"}},
		{"of a network_name as well", of(`{"type":"tenure","network_name":"lan","range":"10.0.0.0/24"}`), []string{"10.0.0.0/16", "lan-10.0.0.0/16"}},
		{"without what whereabouts may give", of(`{"type":"whereabouts","range":"10.0.0.0/17"}`), []string{"10.0.128.0/17"}},
		{"all of it, of another network_name", of(`{"type":"whereabouts","network_name":"vlan20","range":"10.0.0.0/17"}`), []string{"10.0.0.0/16", "vlan20-10.0.128.0/17"}},
		{"of the pool's domain as well", func(c *cluster) { c.pools[0].Spec.Domain = "vlan20" }, []string{"10.0.0.0/16", "vlan20-10.0.0.0/16"}},
		{"of no network_name, though no definition is left", func(c *cluster) {
			other := lan()
			other.Name, other.Spec.Ranges[0].CIDR = "pool-1", "10.1.0.0/16" // which ns/net is of then
			c.pools = append(c.pools, other)
			c.pools[0].Spec.Domain = "vlan20"
		}, []string{"10.0.0.0/16", "vlan20-10.0.0.0/16"}},
		{"the rest, where whereabouts still uses the one object", func(c *cluster) {
			of(`{"type":"whereabouts","range":"10.0.0.0/16","range_start":"10.0.128.0"}`)(c)
			c.object, c.pools[0].Status.Leasing, c.pools[0].Status.Withheld = "10.0.0.0-16", "", nil
		}, []string{"10.0.0.0/17"}},
		{"nothing where whereabouts has no object of it", func(c *cluster) { c.record = map[string]any{"range": "10.9.0.0/16"} }, nil},
	} {
		if got := fenced(tt.change); !slices.Equal(got, tt.want) {
			t.Errorf("%s: it fences %q; want %q", tt.name, got, tt.want)
		}
	}
}

// What an open pool has fenced stays so when a definition of whereabouts' comes later, though
// an edit has the fence worked out anew: pods have these addresses. What may give them still
// by a person's word, or is of another segment, is let.
func TestFenceOfAnOpenPoolStays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *cluster)
		want   []string
	}{
		{"that never came", func(*cluster) {}, []string{"10.0.0.0/16", "z"}},
		{"of the same range", func(c *cluster) { c.theirs = true }, []string{"10.0.0.0-16", "10.0.0.0/16", "z"}},
		{"of the same range, without IPPools", func(c *cluster) { c.theirs, c.record = true, map[string]any{"range": "10.9.0.0/16"} }, []string{"10.0.0.0-16", "10.0.0.0/16"}},
		{"of what was not fenced", func(c *cluster) { c.theirs, c.pools[0].Status.Fenced = true, []string{"10.0.0.0-24", "10.0.0.0/24"} }, []string{"10.0.0.0/24", "z"}},
		{"that is shared with", func(c *cluster) { c.theirs, c.pools[0].Spec.ShareWith = true, []string{"ns/theirs"} }, []string{"z"}},
		{"of another domain", func(c *cluster) { c.theirs, c.theirDomain, c.pools[0].Spec.Domain = true, "vlan10", "vlan20" }, []string{"vlan20-10.0.0.0/16", "z"}},
		{"of a pool that never was open", func(c *cluster) { c.theirs, c.pools[0].Status.Leasing, c.pools[0].Status.Withheld = true, "", nil }, []string{"z"}},
	} {
		c := newCluster()
		c.pools, c.record = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}
		c.pools[0].Status.Fenced = []string{"10.0.0.0-16", "10.0.0.0/16"}
		tt.change(c)
		if got := c.look(t).Fence; !slices.Equal(got, tt.want) {
			t.Errorf("a definition %s: it fences %q; want %q", tt.name, got, tt.want)
		}
	}
}

// A range of a network_name so long that the status does not take it keeps the pool closed, and the
// reason names it.
func TestLongNetworkName(t *testing.T) {
	c := newCluster()
	long := strings.Repeat("x", 250)
	c.pools, c.record = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}
	c.more = []string{`{"cniVersion":"1.0.0","name":"b","type":"macvlan","ipam":{"type":"tenure","pool":"lan","network_name":"` + long + `","range":"10.0.0.0/16"}}`}
	v := c.look(t)
	if !slices.Equal(v.Fence, []string{"10.0.0.0/16", "z"}) || v.Stage != foreign.StageFence || !strings.Contains(v.Why, long[:60]+": ") || !strings.Contains(v.Why, "definition ns/more-0. Give the network a shorter network_name") {
		t.Errorf("it fences %q, and is at stage %d, since %q", v.Fence, v.Stage, v.Why)
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
