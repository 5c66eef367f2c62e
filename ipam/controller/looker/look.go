package looker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// look is one look at all pools.
type look struct {
	*Looker
	facts    foreign.Facts
	evidence *foreign.Evidence
	pools    []*pool
	faulty   []*foreign.Pool // those whose specs cannot be read
	over     bool            // no answer is waited for any more
	begun    time.Duration   // when it began, in time awake

	nodes   map[protocol.NodeName]*node
	asked   map[protocol.NodeName]*question
	drafts  map[string]*draft // by the pools
	askedAt time.Time
	partAt  time.Time // when a node was last asked for other networks, or askedAt

	// Set when the look is over: the kept addresses that no pod has any more, and what keeps
	// others from being ended.
	ended map[place]foreign.Kept
	held  map[foreign.Word]string

	unread  error    // why whereabouts' records cannot be read
	served  bool     // the cluster has whereabouts' objects
	objects []object // whereabouts' IPPools
}

// pool is a pool as a look sees it.
type pool struct {
	foreign.Pool
	object    *v1alpha1.IPPool
	verdict   foreign.Verdict // without a stage if waits is true
	waits     bool            // the look decides its stage
	stopped   bool            // it gives no address, and no pods are checked for it
	asked     bool            // some nodes were asked about it
	confirmed bool            // a dead node's leases are taken only when somebody vouches
	finding   foreign.Finding
	conflicts []foreign.Conflict // beside those of the finding
	unkept    int                // how many addresses are to be kept and are not yet
	whyUnkept string
}

// object is one of whereabouts' IPPools.
type object struct {
	name   string
	covers netip.Prefix
}

// begin reads all that a look needs, without the nodes' reports. It reads the pools first, and the
// leases before the sub-leases.
func (l *Looker) begin(ctx context.Context) (*look, error) {
	objects, err := l.Live.IPPools(ctx)
	if err != nil {
		return nil, err
	}
	t := l.newLook()
	if t.facts.Definitions, t.facts.Former, err = l.definitions(ctx); err != nil {
		return nil, err
	}
	l.seeFences(objects)
	l.seeSpecs(objects)
	kept := l.keptByPool()
	t.facts.Kept = t.kept()
	t.see(ctx, objects, kept)
	for _, p := range t.pools {
		t.findOthers(p)
	}
	needs := func(p *pool) bool { return waits(*p.object) || lacksRanges(p.object) || p.Watched }
	if slices.ContainsFunc(t.pools, needs) || len(kept) > 0 || len(l.asking) > 0 {
		t.unread = t.readRecords(ctx)
	}
	for _, p := range t.pools {
		t.consider(p)
	}
	if t.unread == nil && t.cause() {
		t.unread = t.read(ctx)
		for _, p := range t.pools {
			if t.unread != nil && p.waits {
				p.decide(foreign.StageReports, "what pods have cannot be read: "+t.unread.Error())
			}
		}
	}
	if t.unread != nil {
		l.publish(t.published())
		return nil, t.unread
	}
	t.weigh()
	return t, nil
}

// newLook returns a look that has read nothing.
func (l *Looker) newLook() *look {
	if l.silent == nil {
		l.silent = map[foreign.Word]silence{}
	}
	return &look{
		Looker: l, begun: l.awake, nodes: map[protocol.NodeName]*node{}, asked: map[protocol.NodeName]*question{}, drafts: map[string]*draft{},
		facts: foreign.Facts{
			Now: l.Now(), Others: map[protocol.UID]bool{}, Leases: map[protocol.PoolName][]protocol.Lease{}, Agents: map[protocol.NodeName]bool{},
			Reports: map[protocol.NodeName]protocol.Report{}, Asked: map[foreign.Word]bool{}, PassedOver: map[foreign.Word]bool{},
		},
	}
}

// cause reports whether there is anything to look for.
func (t *look) cause() bool {
	return len(t.Broker.Kept()) > 0 || len(t.asking) > 0 || len(t.silent) > 0 || slices.ContainsFunc(t.pools, func(p *pool) bool { return p.waits || p.Watched })
}

// keptByPool returns what is kept for pods.
func (l *Looker) keptByPool() map[protocol.PoolName]map[netip.Addr]protocol.Grantee {
	kept := map[protocol.PoolName]map[netip.Addr]protocol.Grantee{}
	for _, h := range l.Broker.Kept() {
		if kept[h.Pool] == nil {
			kept[h.Pool] = map[netip.Addr]protocol.Grantee{}
		}
		kept[h.Pool][h.Grant.Addr] = h.Grant.To
	}
	return kept
}

// waits reports whether some of a pool waits for a look.
func waits(o v1alpha1.IPPool) bool {
	return o.DeletionTimestamp == nil && (o.Status.Leasing != v1alpha1.LeasingOpen || len(o.Status.Withheld) > 0)
}

// decide sets the pool's stage, and why it waits there.
func (p *pool) decide(s foreign.Stage, why string) {
	p.verdict.Stage, p.verdict.Why, p.waits = s, why, false
}

// findOthers finds out who else may give addresses of a pool.
func (t *look) findOthers(p *pool) {
	o, v := p.object, &p.verdict
	v.Beside = p.Besides()
	// It gives none of its addresses, which another IPAM may be about to give.
	if o.DeletionTimestamp != nil || o.Spec.Allocation == v1alpha1.AllocationStopped {
		p.stopped = true
		return
	}
	if o.Status.FencedSince != nil {
		p.Since = o.Status.FencedSince.Time
	}
	v.Others, v.Blocked = p.Others(t.facts.Definitions)
	p.New = newOf(o, p.Whole, v.Blocked)
	if o.Status.Leasing == v1alpha1.LeasingOpen {
		opened := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolReady)
		switched := opened != nil && p.Since.After(opened.LastTransitionTime.Time) && t.facts.Now.Sub(p.Since) <= foreign.AddWithin
		p.Watched = len(v.Others) > 0 || switched
	}
}

// consider works out what the look must find out about a pool.
func (t *look) consider(p *pool) {
	if p.stopped {
		return
	}
	o, v := p.object, &p.verdict
	open := o.Status.Leasing == v1alpha1.LeasingOpen
	v.Fence = o.Status.Fenced
	if open {
		v.Fence = t.let(p, v.Fence)
	}
	var unfenced []string
	switch {
	case t.unread != nil:
	case waits(*o):
		v.Fence, unfenced = t.fence(p, o.Status.Fenced)
	case lacksRanges(o), p.Watched:
		v.Fence = t.addFence(p, v.Fence)
	}
	p.Fenced, v.FenceIsNew = len(v.Fence) > 0, t.isNew(p, v.Fence)
	switch {
	case t.unread != nil && waits(*o):
		p.decide(foreign.StageReports, "what whereabouts has recorded cannot be read: "+t.unread.Error())
	case open && len(p.New.Ranges()) == 0: // no address waits for the look
		p.decide(foreign.StageClear, "")
	case !open && o.Status.Opening == "" && len(v.Others) > 0:
		p.decide(foreign.StageOthers, "another IPAM may still give its addresses")
	case p.Begins && len(v.Yields()) > 0:
		p.decide(foreign.StageOthers, "another pool gives its addresses")
	case len(unfenced) > 0:
		p.decide(foreign.StageFence, t.whyUnfenced(p, unfenced))
	case !open && o.Status.FencedSince == nil, !slices.Equal(v.Fence, o.Status.Fenced), undecided(o.Status.BlockPrefixLengths):
		// The reconciler writes that first.
		p.decide(foreign.StageFence, "it has yet to be taken over from other IPAMs"+newly(o.Status.Fenced, v.Fence))
	case p.Fenced && t.facts.Now.Sub(t.fences[o.Name].since) < fenceWithin:
		p.decide(foreign.StageFence, "the API servers have yet to hear that whereabouts gives none of its addresses any more")
	default:
		p.waits = true
	}
}

// undecided reports whether a pool has no block size: it is new, or gets another.
func undecided(b *v1alpha1.BlockPrefixLengths) bool {
	return b == nil || b.IPv4 == nil && b.IPv6 == nil
}

// errNoFence says that nothing holds whereabouts to a fence.
var errNoFence = errors.New("the cluster has whereabouts, and not the policy foreign-fence.tenure.dev, without which whereabouts goes on giving addresses: install it with the rest of Tenure's policies")

// readRecords reads what whereabouts has recorded.
func (t *look) readRecords(ctx context.Context) (err error) {
	text := func(o *unstructured.Unstructured) (namespace, name string, spec map[string]any) {
		spec, _, _ = unstructured.NestedMap(o.Object, "spec") // none where it is something else
		return o.GetNamespace(), o.GetName(), spec
	}
	t.served, err = t.Live.WhereaboutsPools(ctx, func(o *unstructured.Unstructured) {
		records, _ := foreign.WhereaboutsPool(text(o)) // the import reports what is damaged
		t.facts.Records = append(t.facts.Records, records...)
		cidr, _, _ := unstructured.NestedString(o.Object, "spec", "range")
		if p, err := netip.ParsePrefix(cidr); err == nil {
			t.objects = append(t.objects, object{o.GetName(), p.Masked()})
		}
	})
	if err != nil || !t.served {
		return err
	}
	switch there, err := t.Live.FencePolicy(ctx); {
	case err != nil:
		return err
	case !there:
		return errNoFence
	}
	_, err = t.Live.WhereaboutsReservations(ctx, func(o *unstructured.Unstructured) {
		if r, fault := foreign.WhereaboutsReservation(text(o)); fault == "" {
			t.facts.Records = append(t.facts.Records, r)
		}
	})
	return err
}

// read reads leases, sub-leases, pods, and which nodes have an agent.
func (t *look) read(ctx context.Context) error {
	names := make([]protocol.PoolName, 0, len(t.pools)+len(t.faulty))
	for _, p := range t.pools {
		names = append(names, p.Name)
	}
	for _, p := range t.faulty {
		names = append(names, p.Name)
	}
	for _, name := range names {
		leases, err := t.Live.LeasesOfPool(ctx, name)
		// The pool's condition names the leases that cannot be read.
		if _, garbled := kube.LeaseErrors(err); err != nil && !garbled {
			return err
		}
		t.facts.Leases[name] = leases
	}
	var err error
	if t.facts.SubLeases, err = t.Live.SubLeases(ctx); err != nil {
		return err
	}
	waits := slices.ContainsFunc(t.pools, func(p *pool) bool { return p.waits })
	err = t.Live.BoundPods(ctx, func(o *corev1.Pod) {
		if waits {
			t.facts.Shown = append(t.facts.Shown, foreign.ReadShown(o)...)
		}
		if p := foreign.ReadPod(o); len(p.Selected) > 0 {
			t.facts.Pods = append(t.facts.Pods, p)
		} else {
			t.facts.Others[p.UID] = true
		}
	})
	if err != nil {
		return err
	}
	return t.readNodes(ctx)
}

// weigh decides which addresses of each pool are to be kept, by what is known so far.
func (t *look) weigh() {
	t.evidence = foreign.Gather(t.facts)
	for _, p := range t.pools {
		if f := t.evidence.Weigh(&p.Pool); !p.stopped { // what is kept of it may end
			p.finding = f
		}
	}
}

// published returns the verdicts as they are now. While answers of nodes are missing, a verdict
// keeps what the last look learnt from such answers, unless the pool has changed.
func (t *look) published() map[protocol.PoolName]foreign.Verdict {
	all := map[protocol.PoolName]foreign.Verdict{}
	for _, p := range t.pools {
		v, last := p.verdict, t.Of(p.Name)
		v.Conflicts = slices.Concat(p.finding.Conflicts, p.conflicts)
		lingering := p.finding.Lingering
		for word, s := range t.silent {
			if s.passed && word.Pool == p.Name {
				v.PassedOver = append(v.PassedOver, word.Node)
			}
		}
		slices.Sort(v.PassedOver)
		for word, why := range t.held {
			switch {
			case word.Pool != p.Name:
			case why == "":
				v.NoAgent = append(v.NoAgent, word.Node)
			default:
				v.Held = append(v.Held, fmt.Sprintf("node %s: %s", word.Node, why))
			}
		}
		slices.Sort(v.Held)
		slices.Sort(v.NoAgent)
		if p.waits {
			v.Stage, v.Why = p.finding.Stage, p.finding.Why
		}
		if p.unkept > 0 && v.Stage > foreign.StageGrants {
			v.Stage, v.Why = foreign.StageGrants, p.whyUnkept
		}
		if t.awaits(p) && last.Of == v.Of {
			v.Conflicts, v.Held, v.NoAgent = last.Conflicts, last.Held, last.NoAgent
			if len(p.finding.Silent) > 0 {
				lingering = last.Lingering()
			}
			if p.waits && len(p.finding.Silent) > 0 && last.Why != "" {
				v.Stage, v.Why = last.Stage, last.Why
			}
		}
		v.Beside = slices.Concat(v.Beside, lingering)
		all[p.Name] = v
	}
	return all
}

// awaits reports whether answers about a pool are still awaited.
func (t *look) awaits(p *pool) bool { return !t.over && (p.asked || len(p.finding.Silent) > 0) }

// next returns how long to wait before the next look. A long look takes time that others need, so
// the next one comes later. A look that took very long was held up by something else: it counts as
// tookMost.
func (t *look) next(took time.Duration) time.Duration {
	took = min(took, tookMost)
	waits := func(p *pool) bool { return p.waits && !t.Of(p.Name).Clear() }
	slow := func(p *pool) bool { // somebody has to do something
		v := t.Of(p.Name)
		return v.Stage == foreign.StageOthers || v.Stage == foreign.StageReports && len(p.finding.Silent) == 0
	}
	switch {
	case slices.ContainsFunc(t.pools, func(p *pool) bool {
		return p.verdict.Stage == foreign.StageFence || waits(p) && !slow(p)
	}):
		return max(waitEvery, 2*took)
	case len(t.endings) > 0, slices.ContainsFunc(t.pools, waits):
		return max(endEvery, 10*took)
	default:
		return max(idleEvery, 20*took)
	}
}
