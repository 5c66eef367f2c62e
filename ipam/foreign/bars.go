package foreign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Bar is an address of a pool that is to be kept for a pod, which has it by another
// IPAM.
type Bar struct {
	Pool protocol.PoolName
	Addr netip.Addr
	To   protocol.Grantee
	// Source says, for people, where that was seen.
	Source string
}

// A Conflict is an address that a pod of another IPAM has, and somebody else of the pool
// too, or a second such pod.
type Conflict struct {
	Pool   protocol.PoolName
	Addr   netip.Addr
	Owners []string // sentences' subjects, such as "pod a/b on node n1"
}

// String says what is the matter.
func (c Conflict) String() string {
	return fmt.Sprintf("%v belongs to %s", c.Addr, strings.Join(c.Owners, " and to "))
}

const (
	// sandboxWithin is how long a runtime takes at most for a pod's sandbox, and so an
	// ADD of another IPAM that was under way: the kubelet gives it two minutes.
	sandboxWithin = 150 * time.Second
	// skew is by how much the clocks of the API server and the controller may differ.
	skew = 5 * time.Second
	// WatchAfter is how long after a pool has taken addresses over pods that were bound
	// before may come to have some all the same, as where a meta-plugin keeps
	// definitions in a cache.
	WatchAfter = 10 * time.Minute
)

// Find returns what is to be kept of each pool, ordered, and what has two owners.
func Find(f Facts) (bars []Bar, conflicts []Conflict) {
	l := newFinder(f)
	for i := range f.Pools {
		l.pool(&f.Pools[i])
	}
	for _, b := range l.found {
		bars = append(bars, b...)
	}
	slices.SortFunc(bars, func(a, b Bar) int {
		if c := strings.Compare(string(a.Pool), string(b.Pool)); c != 0 {
			return c
		}
		if c := a.Addr.Compare(b.Addr); c != 0 {
			return c
		}
		return strings.Compare(string(a.To.UID), string(b.To.UID))
	})
	for at, all := range l.found {
		owners := l.owners[at]
		for _, b := range all {
			owners = append(owners, Who(b.To))
		}
		slices.Sort(owners)
		if owners = slices.Compact(owners); len(owners) > 1 {
			conflicts = append(conflicts, Conflict{at.pool, at.addr, owners})
		}
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int { return strings.Compare(a.String(), b.String()) })
	return bars, conflicts
}

// Who names a pod as an owner of an address.
func Who(g protocol.Grantee) string {
	text := "pod " + g.Namespace + "/" + g.Name
	if g.Name == "" {
		text = "sandbox " + string(g.UID)
	}
	return text + " on node " + string(g.Node) + ", which another IPAM has given it to"
}

// place is an address of a pool.
type place struct {
	pool protocol.PoolName
	addr netip.Addr
}

// finder is one search.
type finder struct {
	Facts
	pods   map[protocol.UID]*Pod     // by the runtime's UID
	byName map[string]*Pod           // by namespace/name
	serves map[protocol.UID][]podUse // whom a grant to a UID serves
	found  map[place][]Bar           // at most one for each pod
	owners map[place][]string        // those of Tenure's
	// unknown are the nodes whose agents have yet to say, of each pool, whether what a pod shows
	// was given by Tenure.
	unknown map[protocol.PoolName]map[protocol.NodeName]bool
}

// podUse is a pod that a sub-lease is for.
type podUse struct {
	pod protocol.UID
	ref string
}

func newFinder(f Facts) *finder {
	l := &finder{
		Facts: f, pods: map[protocol.UID]*Pod{}, byName: map[string]*Pod{}, serves: map[protocol.UID][]podUse{},
		found: map[place][]Bar{}, owners: map[place][]string{}, unknown: map[protocol.PoolName]map[protocol.NodeName]bool{},
	}
	for i := range f.Pods {
		p := &f.Pods[i]
		l.pods[p.uid()], l.byName[p.String()] = p, p
	}
	for _, s := range f.SubLeases {
		switch {
		case s.Use != nil:
			l.serves[s.Use.Claim.UID] = append(l.serves[s.Use.Claim.UID], podUse{s.Use.Pod.UID, s.Use.Pod.String()})
		case s.Request != nil:
			l.serves[s.UID] = append(l.serves[s.UID], podUse{s.Request.Pod.UID, s.Request.Pod.String()})
		}
	}
	return l
}

// pool finds what is to be kept of one pool.
func (l *finder) pool(p *Pool) {
	segment := p.Segment(l.Definitions)
	known := map[string]Definition{} // by name, also those of other segments
	for _, d := range l.Definitions {
		known[d.String()] = d
	}
	mine := map[string]bool{}
	for _, d := range segment {
		mine[d.String()] = true
	}
	for i := range l.Pods {
		pod := &l.Pods[i]
		for _, s := range pod.Shows {
			// A definition that is gone, or says nothing of its ranges, may be of this
			// segment; one that can be read says whether it is.
			d, there := known[s.Definition]
			if there && !mine[s.Definition] && (d.OtherSegment(p.Domain) || len(d.Pools) > 0 || d.Fault == "" && len(d.CIDRs) > 0) {
				continue
			}
			for _, a := range s.Addrs {
				if l.counts(p, pod, a, there && d.IPAM == Type) && l.believed(p, pod, a) {
					l.bar(p, pod, a, fmt.Sprintf("the status of pod %s shows it on %s", pod, s.Interface))
				}
			}
		}
	}
	for _, r := range l.Records {
		pod := l.byName[r.PodNamespace+"/"+r.PodName]
		if pod == nil || !pod.Selects(mine) {
			continue
		}
		if l.counts(p, pod, r.Addr, false) {
			l.bar(p, pod, r.Addr, r.Source)
		}
	}
	for node, report := range l.Reports {
		for _, s := range report.Has {
			l.addSighting(p, node, s, segment)
		}
	}
}

// Selects reports whether p selects one of some definitions.
func (p Pod) Selects(of map[string]bool) bool {
	return slices.ContainsFunc(p.Selected, func(d string) bool { return of[d] })
}

// counts reports whether an address that a pod shows is to be looked at: it is p's to
// give, and either nobody has been given it yet, or it can have come from another IPAM.
// Of a network that is Tenure's by now it can in pods that were bound before, and not
// long ago, if other pods have some.
func (l *finder) counts(p *Pool, pod *Pod, a netip.Addr, ours bool) bool {
	switch {
	case !p.Gives(a):
		return false
	case p.New != nil && p.New.Contains(a), !ours:
		return true
	case !p.Kept || p.Since.IsZero() || l.Now.Sub(p.Since) > WatchAfter:
		return false
	}
	return pod.Bound.IsZero() || !pod.Bound.After(p.Since.Add(skew))
}

// believed reports whether a pod has what its status shows. Of a pod whose node has an agent that
// lives, that agent has to say so: the status is older than what was read of the API server, or
// newer, and by itself does not tell who gave the address, nor whether the pod still has it.
func (l *finder) believed(p *Pool, pod *Pod, a netip.Addr) bool {
	if ours, _ := l.givenByTenure(p.Name, pod, a); ours {
		return false
	}
	if !l.Lives[pod.Node] || l.keptFor(p.Name, pod, a) {
		return true
	}
	r, answered := l.Reports[pod.Node]
	switch {
	case !answered, !p.TrustStatus && slices.ContainsFunc(r.Unseen, func(u protocol.Unseen) bool { return u.Network == "" }):
		l.ask(p.Name, pod.Node)
		return false
	case len(r.Running) == 0: // of no pod at all: its runtime tells nothing
		return true
	}
	return slices.Contains(r.Running, pod.uid()) || slices.ContainsFunc(r.Has, pod.sighted)
}

// ask notes that a node's agent has to say what its pods have of a pool.
func (l *finder) ask(pool protocol.PoolName, node protocol.NodeName) {
	if l.unknown[pool] == nil {
		l.unknown[pool] = map[protocol.NodeName]bool{}
	}
	l.unknown[pool][node] = true
}

// keptFor reports whether an address is kept for the pod already.
func (l *finder) keptFor(pool protocol.PoolName, pod *Pod, a netip.Addr) bool {
	return slices.ContainsFunc(l.Leases[pool], func(lease protocol.Lease) bool {
		g, ok := lease.GrantOf(a)
		return ok && g.To.Kind == protocol.GranteePod && g.To.UID == pod.uid()
	})
}

// addSighting looks at an address that a node's agent has seen in a sandbox, and has it kept if
// another IPAM gave it.
func (l *finder) addSighting(p *Pool, node protocol.NodeName, s protocol.Sighting, segment []Definition) {
	if s.IPAM == Type || !p.Gives(s.Addr) || !slices.ContainsFunc(segment, func(d Definition) bool { return d.Network == s.Network }) {
		return
	}
	pod := l.pods[s.Pod.UID]
	if pod == nil { // the pod is gone, or the runtime does not tell: its sandbox is there
		uid := s.Pod.UID
		if uid == "" {
			uid = protocol.UID(s.Sandbox)
		}
		pod = &Pod{PodRef: protocol.PodRef{Namespace: s.Pod.Namespace, Name: s.Pod.Name, UID: uid}, Node: node}
		if pod.Name == "" {
			pod.Name = s.Sandbox
		}
	}
	l.bar(p, pod, s.Addr, fmt.Sprintf("node %s has it in sandbox %s, by %s", node, s.Sandbox, s.IPAM))
}

// bar has an address kept for a pod, unless it is Tenure that has given it to the pod.
func (l *finder) bar(p *Pool, pod *Pod, a netip.Addr, source string) {
	ours, owner := l.givenByTenure(p.Name, pod, a)
	if ours {
		return
	}
	at := place{p.Name, a}
	if slices.ContainsFunc(l.found[at], func(b Bar) bool { return b.To.UID == pod.uid() }) {
		return
	}
	l.found[at] = append(l.found[at], Bar{Pool: p.Name, Addr: a, To: pod.grantee(), Source: source})
	if owner != "" && !slices.Contains(l.owners[at], owner) {
		l.owners[at] = append(l.owners[at], owner)
	}
}

// givenByTenure reports whether Tenure has given an address to a pod. If Tenure has given it to
// somebody else, owner says to whom.
func (l *finder) givenByTenure(pool protocol.PoolName, pod *Pod, a netip.Addr) (ours bool, owner string) {
	if slices.ContainsFunc(l.Reports[pod.Node].Has, func(s protocol.Sighting) bool { return s.Addr == a && s.IPAM == Type && pod.sighted(s) }) {
		return true, ""
	}
	for _, lease := range l.Leases[pool] {
		if !lease.Block.Contains(a) {
			continue
		}
		if g, ok := lease.GrantOf(a); ok {
			return l.grantedByTenure(g, pod)
		}
		if lease.Holder.Node == "" || slices.Contains(lease.Ceded, a) {
			return false, ""
		}
		return published(lease, pod, a)
	}
	return false, ""
}

// grantedByTenure answers as givenByTenure does, for an address that is granted by g.
func (l *finder) grantedByTenure(g protocol.Grant, pod *Pod) (ours bool, owner string) {
	if g.To.Kind == protocol.GranteePod {
		if g.To.UID == pod.uid() {
			return false, ""
		}
		return false, Who(g.To)
	}
	for _, u := range l.serves[g.To.UID] {
		if u.pod == pod.uid() || u.pod == pod.UID {
			return true, ""
		}
	}
	return false, g.To.String()
}

// published reports whether the node that holds the lease has published that the pod has an
// address of it. If it has published another owner, owner says which. What a node has not
// published, it is asked for.
func published(lease protocol.Lease, pod *Pod, a netip.Addr) (ours bool, owner string) {
	for _, text := range lease.Published.Allocations {
		rest, ok := strings.CutPrefix(text, a.String()+" ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		if name == pod.String() && lease.Holder.Node == pod.Node {
			return true, ""
		}
		return false, fmt.Sprintf("pod %s on %v", name, lease.Holder)
	}
	return false, ""
}

// Ended returns those of kept that nobody has any more, as far as this look tells. No pod that
// has not ended shows the address. The other IPAM has no record of it for the pod. And the pod's
// node says that nothing of the pod runs there, or counts as dead.
func Ended(f Facts, kept []Bar, dead func(protocol.NodeName) bool) (ended []Bar) {
	running := map[protocol.NodeName]map[protocol.UID]bool{}
	for node, r := range f.Reports {
		running[node] = map[protocol.UID]bool{}
		for _, uid := range r.Running {
			running[node][uid] = true
		}
		for _, s := range r.Has { // a sandbox whose pod the runtime has not told
			running[node][protocol.UID(s.Sandbox)] = true
		}
	}
	l := newFinder(f)
	for _, b := range kept {
		pod := l.pods[b.To.UID]
		if pod != nil && slices.ContainsFunc(pod.Shows, func(s Shown) bool { return slices.Contains(s.Addrs, b.Addr) }) {
			continue
		}
		if slices.ContainsFunc(f.Records, func(r Record) bool {
			return r.Addr == b.Addr && r.PodNamespace == b.To.Namespace && r.PodName == b.To.Name
		}) {
			continue
		}
		r, answered := f.Reports[b.To.Node]
		if !dead(b.To.Node) && (!answered || r.Unread != "" || running[b.To.Node][b.To.UID]) {
			continue
		}
		ended = append(ended, b)
	}
	return ended
}
