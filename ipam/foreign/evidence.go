package foreign

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A proof is what says that a pod has an address by another IPAM.
type proof uint8

// The proofs. What the pod's node or the other IPAM says beats what a pod shows, which is a text
// that others may have written.
const (
	byStatus proof = iota // the pod's status annotation
	byRecord              // the other IPAM's own record of a pod that is there
	byNode                // the agent of the pod's node, which has seen it in a sandbox
)

// A claim is an address that a pod is said to have by another IPAM.
type claim struct {
	addr netip.Addr
	pod  *Pod
	by   proof
	// of is the definition, by status, the network's name, by node, or the other IPAM's object, by
	// record.
	of     string
	source string // for people
}

// Evidence is what one look has found, in the order in which pools are judged by it.
type Evidence struct {
	Facts
	pods   map[protocol.UID]*Pod     // by the runtime's UID, and by the object's
	byName map[string]*Pod           // by namespace/name
	serves map[protocol.UID][]podUse // whom a grant to a UID serves
	known  map[string]*Definition    // by namespace/name
	// byNetwork are the definitions that have a network's name.
	byNetwork map[string][]*Definition
	// sorted are the leases of pools as they are now, by address, as far as that was asked for.
	sorted map[protocol.PoolName][]protocol.Lease
	// weighed are the pools that were weighed.
	weighed   map[protocol.PoolName]*weighing
	selecting map[string][]*Pod // by the definition that they select
	selected  map[selection]shownOf
	claims    []claim // by address, the best proof first
	// strays are the addresses of which the other IPAM has records of pods that nobody knows.
	strays []netip.Addr
	// given is by what the nodes say that Tenure has given an address to a pod, and runs,
	// without an address, which pods they say run.
	given map[sighted][]given
	runs  map[sighted]bool
	// gave is of which pools the nodes say that Tenure has given an address there, to whatever pod,
	// and not taken it back.
	gave map[sighted][]protocol.PoolName
	// has are the addresses that are kept for a pod, or that it is said to have.
	has map[named]map[netip.Addr]bool
	// refused are the sightings of nodes that do not count, by address. The source of each says
	// why.
	refused []claim
}

// podOn is a pod by the runtime's UID and its node: another node may name it, too.
type podOn struct {
	uid  protocol.UID
	node protocol.NodeName
}

// named is a pod by what it shows, or without a name by what its node says: two pods may pass for
// the mirror of one.
type named struct {
	podOn
	name string
}

// podUse is a pod that a sub-lease is for, and the node that says so.
type podUse struct {
	pod  protocol.UID
	node protocol.NodeName
}

// selection is a definition that a pod selects.
type selection struct {
	pod        *Pod
	definition string
}

// shownOf is what a pod's status shows of a selection, and how often the pod selects it.
type shownOf struct {
	selected, shown int
	addrs           []netip.Addr
}

// given is the network for which Tenure has given an address, and the pool; "" if its node does not
// tell.
type given struct {
	network string
	pool    protocol.PoolName
}

// sighted is an address of a pod on a node. Where the runtime does not tell the UID, the name does.
type sighted struct {
	node protocol.NodeName
	addr netip.Addr
	pod  protocol.UID
	name string // empty where the UID is known
}

const (
	// mostShown is how many addresses of a pod's status count: any user can write an annotation.
	// Those that are kept for the pod already are among them.
	mostShown = 16
	// mostSeen is how many addresses a node may have seen of a pod, with those that are kept: one
	// of each family on each network that the pod may select.
	mostSeen = 2 * npwg.MaxSelections
	// mostStrays is how many sandboxes a node may have whose pods nobody knows, with those that
	// something is kept for.
	mostStrays = 256
)

// Gather puts what a look has found in order. It takes time in proportion to that.
func Gather(f Facts) *Evidence {
	e := &Evidence{
		Facts: f, pods: map[protocol.UID]*Pod{}, byName: map[string]*Pod{}, serves: map[protocol.UID][]podUse{},
		known: map[string]*Definition{}, byNetwork: map[string][]*Definition{}, selecting: map[string][]*Pod{}, selected: map[selection]shownOf{}, given: map[sighted][]given{}, runs: map[sighted]bool{}, gave: map[sighted][]protocol.PoolName{}, weighed: map[protocol.PoolName]*weighing{},
		has: map[named]map[netip.Addr]bool{}, sorted: map[protocol.PoolName][]protocol.Lease{},
	}
	for _, b := range f.Kept {
		for _, name := range []string{"", b.To.Namespace + "/" + b.To.Name} {
			e.mayHave(named{podOn{b.To.UID.OfPod(), b.To.Node}, name}, b.Addr, math.MaxInt)
		}
	}
	for i := range f.Definitions {
		d := &f.Definitions[i]
		e.known[d.String()], e.byNetwork[d.Network] = d, append(e.byNetwork[d.Network], d)
	}
	for i := range f.Pods {
		e.pods[f.Pods[i].UID] = &f.Pods[i]
	}
	for i := range f.Pods {
		p := &f.Pods[i]
		if other := e.pods[p.Runtime]; f.Others[p.Runtime] || other != nil && other.UID == p.Runtime && other != p {
			p.Runtime = "" // it passes for the mirror of another pod
		}
		e.pods[p.uid()], e.byName[p.String()] = p, p
		for _, d := range p.Selected {
			of := e.selected[selection{p, d}]
			if of.selected++; of.selected == 1 {
				e.selecting[d] = append(e.selecting[d], p)
			}
			e.selected[selection{p, d}] = of
		}
		for _, s := range p.Shows {
			of := e.selected[selection{p, s.Definition}]
			of.shown, of.addrs = of.shown+1, append(of.addrs, s.Addrs...)
			e.selected[selection{p, s.Definition}] = of
			for _, a := range s.Addrs {
				if !e.mayHave(named{p.on(), p.String()}, a, mostShown) {
					continue
				}
				e.add(claim{a, p, byStatus, s.Definition, fmt.Sprintf("the status of pod %s shows it on %s", p, s.Interface)})
			}
		}
	}
	for _, r := range f.Records {
		if pod := e.byName[r.PodNamespace+"/"+r.PodName]; pod != nil {
			e.add(claim{r.Addr, pod, byRecord, r.Object, r.Source})
		} else {
			e.strays = append(e.strays, r.Addr)
		}
	}
	keptOn := map[protocol.NodeName][]Kept{}
	for _, b := range f.Kept {
		keptOn[b.To.Node] = append(keptOn[b.To.Node], b)
	}
	for node, r := range f.Reports {
		e.report(node, r, keptOn[node])
	}
	for _, s := range f.SubLeases {
		switch {
		case s.Use != nil:
			e.serves[s.Use.Claim.UID] = append(e.serves[s.Use.Claim.UID], podUse{s.Use.Pod.UID, s.Node})
		case s.Request != nil:
			e.serves[s.UID] = append(e.serves[s.UID], podUse{s.Request.Pod.UID, s.Node})
		}
	}
	slices.SortFunc(e.claims, func(x, y claim) int {
		return cmp.Or(x.addr.Compare(y.addr), int(y.by)-int(x.by), strings.Compare(string(x.pod.uid()), string(y.pod.uid())), strings.Compare(string(x.pod.Node), string(y.pod.Node)), strings.Compare(x.of, y.of))
	})
	slices.SortFunc(e.strays, netip.Addr.Compare)
	slices.SortFunc(e.refused, func(x, y claim) int { return cmp.Or(x.addr.Compare(y.addr), strings.Compare(x.source, y.source)) })
	return e
}

func (e *Evidence) add(c claim) { e.claims = append(e.claims, c) }

// mayHave notes that a pod is said to have an address, unless it has as many others as can be.
func (e *Evidence) mayHave(pod named, a netip.Addr, most int) bool {
	all := e.has[pod]
	if all == nil {
		all = map[netip.Addr]bool{}
		e.has[pod] = all
	}
	if !all[a] && len(all) >= most {
		return false
	}
	all[a] = true
	return true
}

// report adds what a node says to e, as far as it can be so: sightings are of pods that are bound
// to the node, or of sandboxes whose pods nobody knows. What is more than can be is refused: the
// rest counts, and the report is not whole.
func (e *Evidence) report(node protocol.NodeName, r protocol.Report, kept []Kept) {
	strays := map[protocol.UID]bool{}
	for _, b := range kept { // also those of earlier reports
		if uid := b.To.UID.OfPod(); e.pods[uid] == nil {
			strays[uid] = true
		}
	}
	for _, uid := range r.Running {
		e.runs[sighted{node: node, pod: uid}] = true
	}
	for _, s := range r.Has {
		if s.Pod.UID == "" {
			e.runs[sighted{node: node, name: s.Pod.String()}] = true
		}
		if s.IPAM == Type {
			at := sighted{node: node, addr: s.Addr, pod: s.Pod.UID}
			if s.Pod.UID == "" {
				at.name = s.Pod.String()
			}
			e.given[at] = append(e.given[at], given{s.Network, s.Pool})
			if gave := (sighted{node: node, addr: s.Addr}); !s.Freed {
				e.gave[gave] = append(e.gave[gave], s.Pool)
			}
			continue
		}
		pod, ok := e.podOf(node, s)
		if !ok {
			continue
		}
		known := e.pods[pod.uid()] == pod
		why := ""
		switch {
		case !known && !pod.nameable():
			why = fmt.Sprintf("it reports that %v is of a sandbox that it does not name", s.Addr)
		case !known && !strays[pod.uid()] && len(strays) >= mostStrays:
			why = fmt.Sprintf("it reports more than can be: more than %d sandboxes of pods that nobody knows", mostStrays)
		case !e.mayHave(named{podOn: pod.on()}, s.Addr, mostSeen):
			why = fmt.Sprintf("it reports more than can be: more than %d addresses of pod %s. Delete that pod", mostSeen, pod)
		}
		if why != "" {
			e.refused = append(e.refused, claim{s.Addr, pod, byNode, s.Network, why})
			continue
		}
		if !known {
			strays[pod.uid()] = true
		}
		e.add(claim{s.Addr, pod, byNode, s.Network, fmt.Sprintf("node %s has it in sandbox %s, by %s", node, s.Sandbox, s.IPAM)})
	}
}

// podOf returns the pod of a sandbox that a node has seen; ok is false if it is another node's.
// Where nobody knows the pod it is gone, or the runtime does not tell: its sandbox is there.
func (e *Evidence) podOf(node protocol.NodeName, s protocol.Sighting) (pod *Pod, ok bool) {
	pod = e.pods[s.Pod.UID]
	switch {
	case s.Pod.UID == "":
		if pod = e.byName[s.Pod.String()]; pod != nil && pod.Node != node {
			pod = nil // another of that name
		}
	case pod != nil && pod.Node != node && pod.UID != s.Pod.UID:
		pod = nil // it passes for the mirror of a pod that is not there
	}
	if pod == nil {
		return stray(node, s), true
	}
	return pod, pod.Node == node
}

// stray returns the pod of a sandbox that nobody knows the pod of.
func stray(node protocol.NodeName, s protocol.Sighting) *Pod {
	p := &Pod{PodRef: s.Pod, Node: node}
	p.UID = cmp.Or(p.UID, protocol.UID(s.Sandbox))
	p.Name = cmp.Or(p.Name, s.Sandbox)
	return p
}

// at returns the claims of the addresses from first to last.
func (e *Evidence) at(first, last netip.Addr) []claim { return between(e.claims, first, last) }

// between returns those of claims, which are in the order of their addresses, that are of the
// addresses from first to last.
func between(claims []claim, first, last netip.Addr) []claim {
	i, _ := slices.BinarySearchFunc(claims, first, func(c claim, a netip.Addr) int { return c.addr.Compare(a) })
	n, _ := slices.BinarySearchFunc(claims[i:], last, func(c claim, a netip.Addr) int {
		return cmp.Or(c.addr.Compare(a), -1) // those of last as well
	})
	return claims[i : i+n]
}

// says returns what a node's agent has answered of a pool, and why that is not whole.
func (w *weighing) says(node protocol.NodeName) (r protocol.Report, partly string, answered bool) {
	r = w.Reports[node]
	if !w.asked(node, w.Name) {
		return r, "", false
	}
	return r, cmp.Or(r.Unread, w.partly[node], w.unseen(node)), true
}

// unseen returns what a node could not read of a network of the pool. A report may have much that
// could not be read, and is gone through once.
func (w *weighing) unseen(node protocol.NodeName) string {
	why, known := w.unseenOn[node]
	if known {
		return why
	}
	of := w.Reports[node].Unseen
	if i := slices.IndexFunc(of, func(u protocol.Unseen) bool { return w.files[u.HostLocal] }); i >= 0 {
		why = cmp.Or(of[i].Why, "files of network "+of[i].Network)
	}
	w.unseenOn[node] = why
	return why
}

// Needs reports whether a pool waits for what can be read of a network, as far as it was weighed.
func (e *Evidence) Needs(pool protocol.PoolName, n protocol.HostLocal) bool {
	w := e.weighed[pool]
	return w != nil && w.files[n]
}

// asked reports whether a node's agent has answered a question of a pool.
func (e *Evidence) asked(node protocol.NodeName, pool protocol.PoolName) bool {
	_, answered := e.Reports[node]
	return answered && (e.Asked == nil || e.Asked[Word{node, pool}])
}

// unread returns what a node that was asked of a pool could not read, which may tell of what is
// kept. What was refused of its report is of no pod that something is kept for.
func (e *Evidence) unread(node protocol.NodeName, pool protocol.PoolName) string {
	r, w := e.Reports[node], e.weighed[pool]
	if r.Unread != "" || w.TrustStatus {
		return r.Unread
	}
	return w.unseen(node)
}
