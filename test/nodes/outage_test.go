package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// spoken is one request of an agent to the API server.
type spoken struct {
	at       time.Time
	what     string
	answered bool // by the API server, whatever it said
}

// calls has what the agents of many nodes ask of the API server.
type calls struct {
	mu sync.Mutex
	of map[string][]spoken // guarded by mu; by node
}

// between returns a copy of rc whose requests are noted as a node's.
func (c *calls) between(node string, rc *rest.Config) *rest.Config {
	return fleet.Through(rc, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		s := spoken{at: time.Now(), what: r.Method + " " + r.URL.Path}
		if r.URL.Query().Get("watch") != "" {
			s.what = "WATCH " + r.URL.Path + "?" + r.URL.Query().Get("fieldSelector")
		}
		resp, err := next.RoundTrip(r)
		s.answered = err == nil
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of[node] = append(c.of[node], s)
		return resp, err
	})
}

// since returns what a node's agent has asked since a time.
func (c *calls) since(node string, from time.Time) (since []spoken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.of[node] {
		if s.at.After(from) {
			since = append(since, s)
		}
	}
	slices.SortFunc(since, func(x, y spoken) int { return x.at.Compare(y.at) })
	return since
}

// lines lists what a node's agent has asked since a time.
func (c *calls) lines(node string, from time.Time) string {
	var b strings.Builder
	for _, s := range c.since(node, from) {
		fmt.Fprintf(&b, "%8.3f %s, answered %v\n", s.at.Sub(from).Seconds(), s.what, s.answered)
	}
	return b.String()
}

// outage is a cluster of many agents whose API server goes away, and what was done on
// their nodes meanwhile.
type outage struct {
	*network
	said    *calls
	single  *network // of blocks of one address: what nobody uses there goes back
	held    []fleet.Interface
	waiting []*pod // ADDs that only the cluster can serve
	report  []*pod // whose status is to be written
}

// newOutage starts the nodes, and what runs on them before.
func newOutage(t *testing.T, nodes int) *outage {
	said := &calls{of: map[string][]spoken{}}
	o := &outage{said: said}
	o.single = newNetwork(t, "outage-single", 0, cidr("10.59.0.0/24"))
	// Blocks of 16.
	o.network = newNetwork(t, "outage", 0, v1alpha1.Range{CIDR: "10.58.0.0/20", StaticOnly: []string{"10.58.15.0/24"}})
	o.fleet.Between = said.between
	o.fleet.Change = func(c *daemon.Config) {
		a := &c.Agent
		a.Fence, a.Idle, a.PublishEvery, a.Wait = time.Minute, 2*time.Second, 5*time.Second, 2*time.Second
	}
	o.start(nodes)
	for _, n := range o.nodes {
		for range 5 {
			i := o.sandbox()
			added(t, n, i)
			o.held = append(o.held, i)
		}
		o.waiting = append(o.waiting, o.run(n, "waiting-on-"+n.Name))
		o.report = append(o.report, o.run(n, "reported-on-"+n.Name))
	}
	return o
}

// meanwhile does on every node what a node does without the API server: pods start, and
// end, one starts that the node has no address for, and a status is to be written.
func (o *outage) meanwhile(t *testing.T, single []fleet.Interface) (served *sync.WaitGroup) {
	var kept []fleet.Interface
	for k, n := range o.nodes {
		for j := range 3 {
			i := o.sandbox()
			added(t, n, i)
			kept = append(kept, i)
			if err := n.Del(o.held[5*k+j]); err != nil {
				t.Error(err)
			}
		}
		kept = append(kept, o.held[5*k+3], o.held[5*k+4])
		if err := n.Del(single[k]); err != nil {
			t.Error(err)
		}
		status, err := json.Marshal(facts.Report{Pod: facts.PodRef{
			Namespace: o.report[k].Namespace, Name: o.report[k].Pod, UID: o.report[k].PodUID,
		}, Status: fmt.Appendf(nil, `[%d]`, k)})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := agentapi.Once(t.Context(), time.Minute, n.Socket(), agentapi.Request{Verb: agentapi.Report, Ask: status})
		if err != nil || resp.Error != nil {
			t.Fatal(err, resp.Error)
		}
	}
	o.held, served = kept, &sync.WaitGroup{}
	for k, p := range o.waiting {
		p.Interface = naming(p.Interface, fmt.Sprintf("10.58.15.%d", 10+k))
		served.Go(func() {
			for began := time.Now(); ; time.Sleep(time.Second) { // as a kubelet waits
				res, err := p.node.Add(p.Interface)
				if err == nil {
					p.addrs = addresses(res)
					return
				}
				if time.Since(began) > patience {
					t.Errorf("ADD of %s: %v", p.Pod, err)
					return
				}
			}
		})
	}
	return served
}

// What an agent may say when the API server is back, until all is said. It has five
// watches, each of which may be refused while the API server starts, be taken up and be
// listed anew; a heartbeat of three calls, said twice where the answer to the first is
// lost; three leases to give back (its own and a reserve of two), each read, deleted and
// read, again after a refusal; two leases to publish, again when the ADD that waited has
// its address; a status to write; and the ADD that waits, which tries three blocks, then
// asks. That is some 70; one in a storm says as much each second.
const (
	mostSaid   = 100
	mostAtOnce = 1. / 3           // of all, in a quarter of a second
	catchUp    = 30 * time.Second // from the first answer
)

// Many agents have much to say when the API server comes back after an outage. They say
// no more than they must, not all at once, and nothing is lost or given twice.
func TestManyAgentsCatchUpWithoutAStorm(t *testing.T) {
	proof.Only(t)
	const nodes = 30
	o := newOutage(t, nodes)
	var single []fleet.Interface
	for _, n := range o.nodes {
		i := o.single.sandbox()
		added(t, n, i)
		single = append(single, i)
	}
	eventually(t, time.Minute, o.silent)
	must(t, cp.StopAPIServer())
	gone := time.Now()
	served := o.meanwhile(t, single)
	eventually(t, time.Minute, func() error { // every agent has a heartbeat to catch up with
		for _, n := range o.nodes {
			if !slices.ContainsFunc(o.said.since(n.Name, gone), func(s spoken) bool { return strings.HasSuffix(s.what, "/leases/"+n.Name) }) {
				return fmt.Errorf("%s has not tried a heartbeat", n.Name)
			}
		}
		return nil
	})
	back := time.Now()
	must(t, cp.StartAPIServer(t.Context()))
	eventually(t, catchUp, func() error { return o.settled(back) })
	took := time.Since(back)
	served.Wait()

	first, counts, most := o.tally(back)
	total := 0
	for node, n := range counts {
		total += n
		if n > mostSaid {
			t.Errorf("%s has made %d calls; want %d at most:\n%s", node, n, mostSaid, o.said.lines(node, first))
		}
	}
	t.Logf("an outage of %v; settled %v after the first answer; %d calls of %d agents, %d of them in one quarter of a second",
		first.Sub(gone).Round(time.Millisecond), (took - first.Sub(back)).Round(time.Millisecond), total, nodes, most)
	if float64(most) > mostAtOnce*float64(total) {
		t.Errorf("%d of %d calls come within a quarter of a second", most, total)
	}
	o.apart(t, back, "heartbeats", "PATCH /apis/coordination.k8s.io/")
	o.apart(t, back, "watches of their pods", "WATCH /api/v1/pods")
	o.answersAgree(t, gone, total)
}

// apart wants the middle half of the agents to say what they say again and again at
// different moments: these all noticed the outage at once, and without jitter would go
// on so.
func (o *outage) apart(t *testing.T, back time.Time, what, prefix string) {
	t.Helper()
	var at []time.Time
	for _, n := range o.nodes {
		said := o.said.since(n.Name, back)
		if i := slices.IndexFunc(said, func(s spoken) bool { return s.answered && strings.HasPrefix(s.what, prefix) }); i >= 0 {
			at = append(at, said[i].at)
		}
	}
	if len(at) != len(o.nodes) {
		t.Fatalf("%d of %d agents had an answer to %s", len(at), len(o.nodes), what)
	}
	slices.SortFunc(at, time.Time.Compare)
	half := at[len(at)*3/4].Sub(at[len(at)/4])
	t.Logf("%s: all within %v, half of them within %v", what, at[len(at)-1].Sub(at[0]).Round(time.Millisecond), half.Round(time.Millisecond))
	if half < 300*time.Millisecond {
		t.Errorf("half of the agents send their %s within %v", what, half)
	}
}

// silent returns an error unless the agents have said nothing for a while.
func (o *outage) silent() error {
	for _, n := range o.nodes {
		if s := o.said.since(n.Name, time.Now().Add(-3*time.Second)); len(s) > 0 {
			return fmt.Errorf("%s says %v", n.Name, s)
		}
	}
	return nil
}

// tally returns when the API server first answered after a time, how many calls of each
// node it has answered since, and how many of all within one quarter of a second.
func (o *outage) tally(back time.Time) (first time.Time, counts map[string]int, most int) {
	var all []time.Time
	counts = map[string]int{}
	for _, n := range o.nodes {
		for _, s := range o.said.since(n.Name, back) {
			if s.answered {
				all = append(all, s.at)
				counts[n.Name]++
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	from := 0
	for to := range all {
		for all[to].Sub(all[from]) > 250*time.Millisecond {
			from++
		}
		most = max(most, to-from+1)
	}
	return all[0], counts, most
}

// answersAgree compares what the clients have counted with what the API server has,
// whose metrics began anew: it has answered others, too, and watches that go on it has
// not counted yet.
func (o *outage) answersAgree(t *testing.T, gone time.Time, total int) {
	t.Helper()
	answered, err := cp.Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watches, counted := 0, 0
	for _, n := range o.nodes {
		for _, s := range o.said.since(n.Name, gone) {
			if s.answered && strings.HasPrefix(s.what, "WATCH ") {
				watches++
			}
		}
	}
	for r, n := range answered {
		if r.Verb != "WATCH" {
			counted += int(n)
		}
	}
	if counted < total-watches {
		t.Errorf("the API server has counted %d requests that are no watch, and the agents %d", counted, total-watches)
	}
}

// settled returns an error while something that was to be said has not been.
func (o *outage) settled(back time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for k, n := range o.nodes {
		reg, _, err := api.ReadRegistration(ctx, protocol.NodeName(n.Name))
		if err != nil || reg.Beat.Before(back) {
			return fmt.Errorf("the last heartbeat of %s is of %v: %w", n.Name, reg.Beat, err)
		}
		var p corev1.Pod
		if err := kc.Get(ctx, client.ObjectKey{Namespace: "default", Name: o.report[k].Pod}, &p); err != nil {
			return err
		}
		if got := p.Annotations[kube.AnnotationStatus]; got != fmt.Sprintf(`[%d]`, k) {
			return fmt.Errorf("the status of %s is %q", p.Name, got)
		}
	}
	left, err := api.LeasesOfPool(ctx, protocol.PoolName(o.single.name))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d leases of %s are left", len(left), o.single.name)
	}
	if err != nil {
		return err
	}
	records, err := o.records()
	if want := len(o.held) + len(o.waiting); err == nil && (len(records) != want || o.fleet.Observer.Held() != want) {
		err = fmt.Errorf("%d addresses are recorded, and %d held; want %d", len(records), o.fleet.Observer.Held(), want)
	}
	return err
}
