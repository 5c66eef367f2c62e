package foreign

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Kept is an address of a pool that is to be kept for a pod, which has it by another IPAM.
type Kept struct {
	Pool protocol.PoolName
	Addr netip.Addr
	// To is the pod, or what [protocol.Grantee.ToSeveral] makes of one: then nobody gets it.
	To protocol.Grantee
	// Source says, for people, where that was seen.
	Source string
}

// A Conflict is an address that a pod of another IPAM has, and somebody else of the pool
// too, or a second such pod.
type Conflict struct {
	Addr   netip.Addr
	Owners []string // sentences' subjects, such as "pod a/b on node n1"
}

// String says what is the matter.
func (c Conflict) String() string {
	return fmt.Sprintf("%v belongs to %s", c.Addr, strings.Join(c.Owners, " and to "))
}

// skew is by how much the clocks of the API server and the controller may differ.
const skew = 5 * time.Second

// A Finding is what a look has found of one pool.
type Finding struct {
	// Keep is what is to be kept, by address, and Conflicts what has two owners.
	Keep      []Kept
	Conflicts []Conflict
	// Asks are the nodes whose agents have to say what their pods have, and Silent those of them
	// that have not said so.
	Asks   map[protocol.NodeName]bool
	Silent []protocol.NodeName
	// Lingering are pools that still keep addresses which their ranges do not have any more.
	Lingering []Beside
	// Stage is what the pool waits for, as far as the look tells, and Why says it for people.
	Stage Stage
	Why   string
}

// weighing is the search of one pool.
type weighing struct {
	*Evidence
	*Pool
	segment  segment
	former   []Definition                // of it until a while ago, as they were
	mine     map[string]bool             // the definitions of the segment, with those of these that are gone
	left     map[string]bool             // those of former that are of another segment now: see hasLeft
	networks map[string]bool             // the networks of the segment
	own      map[string]bool             // those of networks that have a definition of no other pool
	were     map[string][]string         // of which definitions of former a network was
	files    map[protocol.HostLocal]bool // what has to be read: any namespace may name the pool
	objects  map[string]bool             // whereabouts' IPPools that have a network_name of the segment
	asks     map[protocol.NodeName]bool
	// partly says of which nodes something is refused that may be of the pool, and why.
	partly map[protocol.NodeName]string
	// unseenOn is what nodes could not read of the pool's networks, as far as that was asked.
	unseenOn map[protocol.NodeName]string
	// counted are the addresses that are kept for pods, or that count for one whose namespace may
	// not use the pool; nil until they are needed.
	counted map[podOn]map[netip.Addr]bool
}

// Weigh finds what is to be kept of a pool, and whose word is missing for that. Which nodes have to
// say something does not depend on what any has said.
func (e *Evidence) Weigh(p *Pool) Finding {
	w := &weighing{Evidence: e, Pool: p, segment: p.segment(e.Definitions), mine: map[string]bool{}, left: map[string]bool{}, networks: map[string]bool{}, own: map[string]bool{}, were: map[string][]string{}, files: map[protocol.HostLocal]bool{}, objects: map[string]bool{}, asks: map[protocol.NodeName]bool{}, partly: map[protocol.NodeName]string{}, unseenOn: map[protocol.NodeName]string{}}
	for _, d := range w.segment.definitions {
		w.mine[d.String()], w.networks[d.Network] = true, true
		w.own[d.Network] = w.own[d.Network] || w.ownOf(d)
		w.needFiles(d)
		w.noteObjects(d)
	}
	w.remember()
	e.weighed[p.Name] = w
	for _, r := range p.Whole.Ranges() {
		for _, c := range between(e.refused, r.Start, r.End) {
			if w.ofPool(c) && w.accepts(c) {
				w.partly[c.pod.Node] = c.source
			}
		}
	}
	var f Finding
	for _, r := range p.Whole.Ranges() {
		all := e.at(r.Start, r.End)
		for len(all) > 0 {
			n := slices.IndexFunc(all, func(c claim) bool { return c.addr != all[0].addr })
			if n < 0 {
				n = len(all)
			}
			w.address(&f, all[:n])
			all = all[n:]
		}
	}
	pending := w.pending()
	w.askForWaiting(pending)
	f.Asks, f.Lingering = w.asks, w.lingering()
	w.judge(&f, pending)
	return f
}

// needFiles notes that the files of a definition's network have to be read, if its namespace, or a
// pod that selects it, may use the pool. By one that a person lets, the pool's addresses are not
// given, whichever IPAM it names by now.
func (w *weighing) needFiles(d Definition) {
	mayUse := func(p *Pod) bool { return w.MayUse(p.Namespace) }
	if !slices.Contains(w.ShareWith, d.String()) && (w.MayUse == nil || w.MayUse(d.Namespace) || slices.ContainsFunc(w.selecting[d.String()], mayUse)) {
		w.files[protocol.HostLocal{Network: d.Network, DataDir: d.DataDir}] = true
	}
}

// address finds whom one address is to be kept for: the one pod of which the best proof says that
// it has it, or nobody where that is said of several.
func (w *weighing) address(f *Finding, claims []claim) {
	a := claims[0].addr
	kept, isKept := w.Kept[a]
	var found []claim
	var owners []string
	for _, c := range claims {
		if !w.accepts(c) || slices.ContainsFunc(found, func(o claim) bool {
			return o.pod.on() == c.pod.on() || o.mayBe(c) && !(isKept && c.pod.on() == keptOn(kept))
		}) {
			continue
		}
		if w.yields(c, claims) {
			owners = append(owners, Who(c.pod.grantee()))
			continue
		}
		found = append(found, c)
		if _, owner := w.ofTenure(c); owner != "" {
			owners = append(owners, owner)
		}
	}
	if len(found) == 0 {
		return
	}
	keep := Kept{w.Name, a, found[0].pod.grantee(), found[0].source}
	keptFound := kept.UID.Several() // until nobody has it
	for _, c := range found {
		owners = append(owners, Who(c.pod.grantee()))
		keptFound = keptFound || isKept && c.pod.on() == keptOn(kept)
	}
	// What is kept for a pod that is not found any more ends, and then it is this pod's.
	// A node's word alone does not beat the status of a pod where no agent can say the same.
	recorded := slices.ContainsFunc(claims, func(c claim) bool {
		return c.by == byRecord && c.pod.on() == found[0].pod.on() && w.accepts(c)
	})
	second := len(found) > 1 && (found[1].by > byStatus) == (found[0].by > byStatus) ||
		found[0].by == byNode && !recorded && slices.ContainsFunc(found[1:], func(c claim) bool { return !w.tells(c.pod.Node) })
	if other := w.unheard(claims, found[0]); other != nil && !recorded && !keptFound {
		if w.New != nil && w.New.Contains(a) {
			return // the pool waits for that node, and nobody gets the address until then
		}
		owners, second = append(owners, Who(other.grantee())), true
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	if second || keptFound && keptOn(kept) != found[0].pod.on() {
		keep.To, keep.Source = keep.To.ToSeveral(), strings.Join(owners, "; ")
		if isKept {
			keep.To = kept.ToSeveral()
		}
	}
	f.Keep = append(f.Keep, keep)
	if len(owners) > 1 {
		f.Conflicts = append(f.Conflicts, Conflict{a, owners})
	}
}

// keptOn returns for which pod something is kept.
func keptOn(g protocol.Grantee) podOn { return podOn{g.UID, g.Node} }

// keepsOn returns the node of the pod that an address is kept for, empty if it is not kept for one.
func (w *weighing) keepsOn(a netip.Addr) protocol.NodeName {
	if kept := w.Kept[a]; !kept.UID.Several() {
		return kept.Node
	}
	return ""
}

// mayBe reports whether c is what a node has seen of a sandbox of which the runtime does not tell
// the pod, and o what a pod of that node shows: it may be that pod's sandbox.
func (c claim) mayBe(o claim) bool {
	return c.by == byNode && c.pod.Namespace == "" && o.by == byStatus && o.pod.Node == c.pod.Node
}

// unheard returns another pod than that of the best claim, which shows the address as well, and
// whose node has yet to say whether it has it.
func (w *weighing) unheard(claims []claim, best claim) *Pod {
	for _, c := range claims {
		if c.by != byStatus || c.pod.on() == best.pod.on() || !w.lives(c.pod.Node) || !w.ofStatus(c) {
			continue
		}
		ours, _ := w.ofTenure(c)
		if _, _, answered := w.says(c.pod.Node); !ours && !answered {
			return c.pod
		}
	}
	return nil
}

// lives reports whether a node has an agent that lives, and that the pool waits for.
func (w *weighing) lives(node protocol.NodeName) bool { return w.Lives(node, w.Name) }

// ask notes that a node's agent has to say something, if it lives.
func (w *weighing) ask(node protocol.NodeName) {
	if w.lives(node) {
		w.asks[node] = true
	}
}

// tells reports whether a node's agent can say what the pods there have.
func (w *weighing) tells(node protocol.NodeName) bool {
	r, partly, answered := w.says(node)
	return w.lives(node) && answered && partly == "" && len(r.Running) > 0
}

// Who names a pod as an owner of an address.
func Who(g protocol.Grantee) string {
	text := "pod " + g.Namespace + "/" + g.Name
	if g.Namespace == "" {
		text = "sandbox " + string(g.UID)
	}
	return text + " on node " + string(g.Node) + ", which another IPAM has given it to"
}

// accepts reports whether what a claim says of a pod counts for the pool. What Tenure has given to
// the pod does not.
func (w *weighing) accepts(c claim) bool {
	if !w.gives(c.addr) || c.by == byStatus && !w.ofStatus(c) {
		return false
	}
	if ours, _ := w.ofTenure(c); ours {
		return false
	}
	isKept := keptOn(w.Kept[c.addr]) == c.pod.on()
	if c.by == byStatus && !isKept {
		w.ask(c.pod.Node)
		w.ask(w.keepsOn(c.addr))
	}
	switch {
	case w.reportedAsTenures(c):
		return false
	case c.by == byStatus:
		return isKept || w.believed(c)
	default:
		return w.explained(c) || w.unexplained(c) && w.mayCount(c)
	}
}

// ofStatus reports whether what a pod's status shows is to be looked at. Its definition is of this
// segment, or does not explain the address, or is gone. And either nobody has been given the
// address yet, or it can have come from another IPAM. Of a network that is Tenure's by now it can
// in pods that were bound before, and not long ago, if other pods have some, or the pool was open
// then.
func (w *weighing) ofStatus(c claim) bool {
	d := w.known[c.of]
	switch {
	case w.elsewhere(c):
		return false
	case w.New != nil && w.New.Contains(c.addr), d == nil, d.IPAM != Type:
		return true
	case len(w.Kept) == 0 && !w.Watched || w.Since.IsZero() || w.Now.Sub(w.Since) > AddWithin:
		return false
	}
	return c.pod.Bound.IsZero() || !c.pod.Bound.After(w.Since.Add(skew))
}

// elsewhere reports whether what a status shows is certainly of another segment.
func (w *weighing) elsewhere(c claim) bool {
	d := w.known[c.of]
	return d != nil && !w.mine[c.of] && w.ofOthers(d, c.addr)
}

// ofOthers reports whether an address that a pod has by d, which is not of the segment, is
// certainly of another one.
func (w *weighing) ofOthers(d *Definition, a netip.Addr) bool {
	return w.explains(d, a) || w.saysOther(d, a)
}

// saysOther reports whether d says that an address which a pod has by it is of another segment. A
// network_name says so of what d can give: pods have other addresses by what d was before.
func (w *weighing) saysOther(d *Definition, a netip.Addr) bool {
	return w.segment.isOther(*d) && (d.Domain != "" || d.Takes != nil && d.Takes.Contains(a) || w.explains(d, a))
}

// believed reports whether a pod has what its status alone says. Of a pod whose node has an agent
// that lives, that agent has to say that the pod runs: the status is older than what was read of
// the API server, or newer, and by itself does not tell whether the pod still has the address. Nor
// does it count alone of a definition that is not there, unless that was made again a while ago
// and no agent can say more; or of a pool that the namespace may not use. Nor does it before the
// node of a pod that the address is kept for has said what that pod has.
func (w *weighing) believed(c claim) bool {
	if node := w.keepsOn(c.addr); w.lives(node) && !w.asked(node, w.Name) {
		return false
	}
	if w.lives(c.pod.Node) {
		r, partly, answered := w.says(c.pod.Node)
		switch {
		case !answered, partly != "" && !w.TrustStatus:
			return false
		case partly != "", len(r.Running) == 0: // of no pod at all: its runtime tells nothing
		case !w.runs[sighted{node: c.pod.Node, pod: c.pod.uid()}] && !w.runs[sighted{node: c.pod.Node, name: c.pod.String()}]:
			return false
		}
	}
	there := w.known[c.of] != nil || !w.lives(c.pod.Node) && w.madeAnew(c.of, "")
	return there && (w.MayUse == nil || w.MayUse(c.pod.Namespace))
}

// askForWaiting notes the nodes that have to say something because of what waits of the pool: those
// of pods that may be about to get an address of it. The object of a pod that was deleted by force
// is gone while it runs, and so may its record be: of such a pod only its node can tell. So these
// are all nodes that live where a record is of a pod that nobody knows, where another IPAM may have
// given what waits, where pods show some of it, also of a network that they do not select, and
// where pods use a pool that is about to be opened. So it is for a while where a definition was
// switched beside an open pool, for which nothing waits.
func (w *weighing) askForWaiting(pending []pendingPod) {
	switched := w.Watched && w.Now.Sub(w.Since) <= retriedWithin
	if !switched && (w.New == nil || len(w.New.Ranges()) == 0) {
		return
	}
	for _, pod := range pending {
		w.ask(pod.Node)
	}
	hostLocal := func(d Definition) bool { return d.HostLocal } // also if it was written anew without its keys
	others := switched || w.Fenced || slices.ContainsFunc(w.segment.definitions, hostLocal) || slices.ContainsFunc(w.former, hostLocal)
	if others || slices.ContainsFunc(w.strays, w.New.Contains) || slices.ContainsFunc(w.Shown, w.New.Contains) || w.CheckAll && w.used() {
		for node := range w.Agents {
			w.ask(node)
		}
	}
}

// used reports whether pods use networks of the segment, or show something of the pool.
func (w *weighing) used() bool {
	for d, pods := range w.selecting {
		if len(pods) > 0 && w.awaits(d) {
			return true
		}
	}
	for _, r := range w.Whole.Ranges() {
		if slices.ContainsFunc(w.at(r.Start, r.End), func(c claim) bool { return c.by == byStatus && w.gives(c.addr) }) {
			return true
		}
	}
	return false
}

// judge says what the pool waits for, as far as the look tells.
func (w *weighing) judge(f *Finding, pending []pendingPod) {
	var unread []string
	for _, node := range slices.Sorted(maps.Keys(w.asks)) {
		_, partly, answered := w.says(node)
		switch {
		case !answered:
			f.Silent = append(f.Silent, node)
		case partly != "" && !w.TrustStatus:
			unread = append(unread, fmt.Sprintf("node %s: %s", node, partly))
		}
	}
	var pods []string
	for _, p := range pending {
		if !w.hasAll(p.Pod) && !w.hasAsked(p.Pod) {
			pods = append(pods, fmt.Sprintf("%s (definition %s)", p, p.by))
		}
	}
	switch {
	case len(f.Lingering) > 0:
		f.Stage, f.Why = StageOthers, "leases of another pool still keep addresses of it"
	case len(f.Silent) > 0:
		f.Stage, f.Why = StageReports, "the agents of nodes "+Few(f.Silent)+" have yet to say what their pods have"
	case len(unread) > 0:
		f.Stage, f.Why = StageReports, "what pods have may be where an agent cannot read it: "+Unread(w.Name, unread)
	case len(pods) > 0:
		f.Stage, f.Why = StagePods, fmt.Sprintf("pods that were bound to their nodes before may still get an address of another IPAM: %s. "+
			"Each is waited for until it shows one, asks Tenure for it or is deleted, and for %v at most after the pool or its definition was last changed; "+
			"not if spec.shareWith names the definition, which says that it is of another network", Few(pods), AddWithin)
	default:
		f.Stage = StageClear
	}
}
