package simulation

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/looker"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// looks is what a controller process knows of the looker that it runs.
type looks struct {
	*looker.Looker
	at       time.Duration // when it goes on
	underWay bool
	asks     bool // it waits for the nodes' answers
	switched bool // as the informer of definitions has it
}

// newLooker has the controller look for what the other IPAM has given.
func (c *simController) newLooker() {
	c.look.Looker = &looker.Looker{
		Cache: cacheReader{c: c}, Live: liveLooks{liveCalls{c}}, Broker: granter{c.broker, c}, Registrations: c.cachedRegistrations, Beats: c.ofPools.Beats,
		MayUse: func(context.Context, *v1alpha1.IPPool, string) bool { return true },
		Notify: func(pool protocol.PoolName) { c.soon(task{lookAtPool, string(pool)}, 0) }, Calls: 1,
		Metrics: lookMetrics, Log: c.ofPools.Log, Now: c.now,
	}
	c.ofPools.Foreign = c.look.Looker
}

// cachedRegistrations are the registrations as the controller's informer has them.
func (c *simController) cachedRegistrations(context.Context) ([]protocol.Registration, error) {
	all := c.regs.list(nil)
	for i := range all {
		if c.w.fault == "M61" {
			all[i].Report = c.withoutObject(all[i].Report)
		}
	}
	return all, nil
}

// withoutObject is M61: a report says nothing of what runs for a pod whose object is
// gone.
func (c *simController) withoutObject(text string) string {
	r, ok, err := protocol.ParseReport(text)
	must(err)
	if !ok {
		return text
	}
	gone := func(uid protocol.UID) bool {
		return !slices.ContainsFunc(c.w.all, func(p *simPod) bool { return p.there && p.ref.UID == uid })
	}
	r.Running = slices.DeleteFunc(r.Running, gone)
	r.Has = slices.DeleteFunc(r.Has, func(s protocol.Sighting) bool { return gone(s.Pod.UID) })
	return r.String()
}

// lookOn has the looker go on, if it is time to.
func (c *simController) lookOn() {
	l := &c.look
	if c.w.other == nil || l.underWay {
		return
	}
	if now := c.w.other.switched; now != l.switched && (c.w.calm || c.w.one(4)) {
		l.switched, l.at = now, c.w.now
	}
	if c.w.now < l.at {
		return
	}
	if c.w.calm || c.w.one(2) { // nothing lags for long that is waited for
		c.regs.hear(c.regs.behind())
	}
	l.underWay = true
	c.start("look", func() {
		after, err := l.Round(context.Background())
		if err != nil {
			c.w.logf("%s: look: %v", c.who, err)
			after = time.Second
		}
		l.at, l.asks = c.w.now+after, after < time.Second
		if c.w.tracing {
			v := l.Of(poolName)
			c.w.logf("%s: looked: %s stage %d, others %d, fence %v, why %q, conflicts %v", c.who, poolName, v.Stage, len(v.Others), v.Fence, v.Why, v.Conflicts)
		}
	}, func() { l.underWay = false })
}

// answerLooks has the nodes answer what they are asked by looks, and the looks go on, while nothing
// befalls anybody: a node that answers late only since nobody had it answer is not silent.
func (w *world) answerLooks(nodes []*simNode) {
	if w.other == nil {
		return
	}
	for i := 0; i < 4 || i < 12 && w.looking(); i++ {
		w.now += 250 * time.Millisecond
		for _, n := range nodes {
			n.outlive(func() {
				if n.agent != nil {
					n.recoverAgent()
				}
			})
		}
		w.allWork(nodes)
		for _, c := range w.ctls {
			c.lookOn()
		}
		w.allWork(nodes)
	}
}

// looking reports whether somebody looks at what the other IPAM has given.
func (w *world) looking() bool {
	return slices.ContainsFunc(w.ctls, func(c *simController) bool { return c.look.underWay || c.look.asks })
}

// wakeLooker has the looker look soon.
func (c *simController) wakeLooker() { c.look.at = min(c.look.at, c.w.now) }

// definitions are the definitions as the controller's informer has them.
func (c *simController) definitions(into *nad.NetworkAttachmentDefinitionList) {
	for _, name := range []string{oldNetwork, ownNetwork, claimNetwork} {
		into.Items = append(into.Items, nad.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       nad.NetworkAttachmentDefinitionSpec{Config: c.w.definition(name, c.look.switched)},
		})
	}
}

// liveLooks are the calls of a look: [looker.Live].
type liveLooks struct{ liveCalls }

func (c liveLooks) BoundPods(_ context.Context, see func(*corev1.Pod)) error {
	all, _, err := call(c.simController, "list of pods", false, func() (all []*corev1.Pod, _ protocol.Outcome) {
		for _, p := range c.w.all {
			if p.there {
				all = append(all, c.w.podOf(p))
			}
		}
		return all, protocol.Done
	})
	for _, p := range all {
		see(p)
	}
	return err
}

// podOf returns a pod's object.
func (w *world) podOf(p *simPod) *corev1.Pod {
	network := ownNetwork
	switch {
	case p.old:
		network = oldNetwork
	case p.claim != "":
		network = claimNetwork
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.ref.Namespace, Name: p.ref.Name, UID: types.UID(p.objectUID()), Annotations: map[string]string{npwg.AnnotationNetworks: p.selects(network)},
	}}
	if p.mirror != "" {
		o.Annotations[corev1.MirrorPodAnnotationKey] = string(p.ref.UID)
	}
	shows := p.shows
	if p.forged.IsValid() && !w.calm {
		shows = append(slices.Clone(shows), p.forged)
	}
	if len(shows) > 0 {
		status := npwg.Status{Name: "ns/" + network, Interface: "net1"}
		for _, a := range shows {
			status.IPs = append(status.IPs, a.String())
		}
		text, err := json.Marshal([]npwg.Status{status})
		must(err)
		o.Annotations[npwg.AnnotationStatus] = string(text)
	}
	o.Spec.NodeName = string(p.node.name)
	o.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(p.at).Truncate(time.Second)),
	}}
	return o
}

// selects is the annotation by which p selects a network, and its claim.
func (p *simPod) selects(network string) string {
	element := map[string]string{"name": network, "namespace": "ns", "interface": "net1"}
	if p.claim != "" {
		element["ipam-claim-reference"] = p.claim
	}
	text, err := json.Marshal([]any{element})
	must(err)
	return string(text)
}

func (c liveLooks) WhereaboutsPools(_ context.Context, see func(*unstructured.Unstructured)) (served bool, err error) {
	o, _, err := call(c.simController, "read of the other IPAM's objects", false, func() (*unstructured.Unstructured, protocol.Outcome) {
		allocations := map[string]any{}
		for a, r := range c.w.other.records {
			offset, _ := foreign.Offset(netip.MustParsePrefix(oldRange), a)
			allocations[offset] = map[string]any{"id": r.cid, "podref": "ns/" + r.pod, "ifname": "net1"}
		}
		o := kube.NewWhereaboutsPool("kube-system", oldObject)
		o.Object["spec"] = map[string]any{"range": oldRange, "allocations": allocations}
		return o, protocol.Done
	})
	if err == nil {
		see(o)
	}
	return true, err
}

// WhereaboutsReservations implements [looker.Live]: there are none.
func (c liveLooks) WhereaboutsReservations(context.Context, func(*unstructured.Unstructured)) (served bool, err error) {
	return true, nil
}

func (c liveLooks) FencePolicy(context.Context) (there bool, err error) { return true, nil }

func (c liveLooks) SubLeases(context.Context) ([]protocol.SubLease, error) {
	return listOf(c.liveCalls, "list of sub-leases", c.w.api.subs, nil)
}

func (c liveLooks) AskNode(_ context.Context, m protocol.Meta, look string) (protocol.Outcome, error) {
	return c.write("question to "+m.Name, func() protocol.Outcome {
		_, out := c.w.api.regs.update(protocol.Meta{Name: m.Name, UID: m.UID}, func(s *protocol.Registration) { s.Query = look })
		return out
	})
}

// ReadNode implements [looker.Live]. Where no agent is registered for a Node that is gone, somebody
// answers for it.
func (c liveLooks) ReadNode(_ context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error) {
	return call(c.simController, "read of Node "+string(name), false, func() (protocol.Node, protocol.Outcome) {
		node, out := c.w.nodeObject(name)
		if s, there := c.w.api.regs.read(string(name)); out == protocol.NotFound && (there != protocol.Done || s.Ended()) {
			c.w.voidGuests(name)
		}
		return node, out
	})
}

// lieIn has somebody who has stolen the agent's token report in n's name what is not so: a sandbox
// that there is not, with an address that another has, or nobody, and of a pod of any node.
func (n *simNode) lieIn(s *protocol.Registration) {
	w := n.w
	if w.other == nil || w.other.liar != n || w.calm || s.Report == "" {
		return
	}
	report, _, err := protocol.ParseReport(s.Report)
	must(err)
	p := &simPod{}
	if w.one(2) {
		if picked, ok := pickOf(w, w.all); ok {
			p = picked
		}
	}
	a, _ := pickOf(w, w.other.gives)
	w.logf("%s: somebody reports %v of pod %q in its name", n.machine, a, p.ref.UID)
	report.Has = append(report.Has, protocol.Sighting{Addr: a, Pod: p.ref, Sandbox: "made-up", Network: oldNetwork, IPAM: foreign.TypeHostLocal})
	s.Report = report.String()
}
