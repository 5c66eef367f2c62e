package foreign

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Pending returns the pods that may still get an address of p by another IPAM. They were bound to
// their nodes before p took its addresses over, or before the definition was last written that
// they select, and that may have been another IPAM's until then. Neither their status nor an ADD
// of Tenure's tells that the other IPAM is done with them. After sandboxWithin no pod counts.
func Pending(f Facts, p Pool) (waiting []Pod) {
	since := map[string]time.Time{}
	for _, d := range p.Segment(f.Definitions) {
		at := p.Since
		if d.Changed.After(at) {
			at = d.Changed
		}
		if !at.IsZero() && f.Now.Sub(at) <= sandboxWithin {
			since[d.String()] = at.Add(skew)
		}
	}
	for _, pod := range f.Pods {
		if slices.Contains(f.Reports[pod.Node].Asking, pod.uid()) {
			continue
		}
		if slices.ContainsFunc(pod.Selected, func(d string) bool {
			at, mine := since[d]
			return mine && !pod.Bound.After(at) && !pod.shows(d)
		}) {
			waiting = append(waiting, pod)
		}
	}
	return waiting
}

// Candidates returns the nodes whose agents have to say what their pods have of each pool, as far
// as can be told without a report: those of pods that may have an address of it by another IPAM,
// or may be about to get one. The object of a pod that was deleted by force is gone while it runs,
// and so may its record be. So these are all nodes that live where a record is of a pod that nobody
// knows, and where pods use a pool that is about to be opened, or of which another IPAM may have
// given what waits.
func Candidates(f Facts) map[protocol.PoolName]map[protocol.NodeName]bool {
	f.Reports = nil
	l := newFinder(f)
	for i := range f.Pools {
		p := &f.Pools[i]
		l.pool(p)
		if p.New == nil || len(p.New.Ranges()) == 0 { // nothing of it waits
			continue
		}
		for _, pod := range Pending(f, *p) {
			if f.Lives[pod.Node] {
				l.ask(p.Name, pod.Node)
			}
		}
		if l.strays(p) || l.used(p) && (p.Opening || p.wasOfOthers(f.Definitions)) {
			for node := range f.Lives {
				l.ask(p.Name, node)
			}
		}
	}
	return l.unknown
}

// strays reports whether the other IPAM has recorded what waits of p for a pod that nobody knows.
func (l *finder) strays(p *Pool) bool {
	return slices.ContainsFunc(l.Records, func(r Record) bool {
		return p.New.Contains(r.Addr) && l.byName[r.PodNamespace+"/"+r.PodName] == nil
	})
}

// used reports whether pods use networks of p's segment, or have something of p.
func (l *finder) used(p *Pool) bool {
	mine := map[string]bool{}
	for _, d := range p.Segment(l.Definitions) {
		mine[d.String()] = true
	}
	return slices.ContainsFunc(l.Pods, func(pod Pod) bool {
		return pod.Selects(mine) || slices.ContainsFunc(pod.Shows, func(s Shown) bool { return slices.ContainsFunc(s.Addrs, p.Gives) })
	})
}

// wasOfOthers reports whether another IPAM may have given addresses of p by a definition that is
// Tenure's by now: whereabouts has objects for them, or the definition is written for host-local.
func (p *Pool) wasOfOthers(all []Definition) bool {
	return p.Fenced || slices.ContainsFunc(p.Segment(all), func(d Definition) bool { return d.HostLocal })
}

// Unseen returns, for people, what of what pods may have of p a node's agent cannot read.
func Unseen(f Facts, p Pool) (texts []string) {
	if p.TrustStatus {
		return nil
	}
	files := map[protocol.HostLocal]bool{{}: true}
	for _, d := range p.Segment(f.Definitions) {
		if d.HostLocal {
			files[protocol.HostLocal{Network: d.Network, DataDir: d.DataDir}] = true
		}
	}
	for node, r := range f.Reports {
		for _, u := range r.Unseen {
			if files[u.HostLocal] {
				texts = append(texts, fmt.Sprintf("node %s: %s", node, u.Why))
			}
		}
	}
	slices.Sort(texts)
	return texts
}
