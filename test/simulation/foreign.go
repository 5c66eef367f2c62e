package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// otherIPAM is another IPAM of the cluster, as whereabouts is one: what it has given
// stands in an object of the API server.
type otherIPAM struct {
	gives    []netip.Addr // by its definition
	switched bool         // the definition is Tenure's
	joined   bool         // the pool's ranges have what it gives
	// records are who has what, as of a revision of the object.
	records  map[netip.Addr]record
	revision int
	// fencedAt is when the API servers have heard, or will, that it gives nothing new; 0
	// while nobody says so. shut says that they once had: what it gives after that is a
	// way back, which is not played.
	fencedAt time.Duration
	shut     bool
	// liar is a node in whose name somebody reports what is not; nil is none.
	liar *simNode
}

// record is one allocation.
type record struct{ pod, cid string }

const (
	// oldObject is the object that the other IPAM records in, and oldRange its range.
	oldObject, oldRange = "10.0.0.0-24", "10.0.0.0/24"
	// oldNetwork is the definition that is the other IPAM's first, ownNetwork one that is
	// Tenure's, and claimNetwork that of pods with claims.
	oldNetwork, ownNetwork, claimNetwork = "old", "own", "claimed"
	// fenceWithin is how long the API servers take at most to hear of a fence.
	fenceWithin = 5 * time.Second
)

// moveIn has the run begin with another IPAM, whose addresses are the pool's, which is
// not open yet, or are left out of the pool, which is.
func (w *world) moveIn() {
	o := &otherIPAM{records: map[netip.Addr]record{}, joined: w.one(2)}
	all := w.addressesOf(poolName)
	o.gives = slices.Clone(all)
	kinds := 2
	if o.joined {
		kinds = 3
	}
	switch w.rng.IntN(kinds) {
	case 0: // in blocks of which nodes have the other addresses
		o.gives = slices.DeleteFunc(o.gives, func(a netip.Addr) bool { return a.As4()[3]%2 == 0 })
	case 1:
		o.gives = o.gives[len(all)/2:]
	case 2: // all of them
	}
	w.other = o
	w.patience, w.haste, w.trouble = w.patience+60, max(w.haste, 30), w.trouble+150
}

// otherRanges leaves out of ranges of the nodes' pool what the other IPAM gives.
func (w *world) otherRanges(all []v1alpha1.Range) []v1alpha1.Range {
	if w.other == nil || w.other.joined {
		return all
	}
	for _, a := range w.other.gives {
		all[0].Exclude = append(all[0].Exclude, a.String())
	}
	return all
}

// definition returns the configuration of a definition, as somebody sees it for whom
// the old one is switched or is not.
func (w *world) definition(name string, switched bool) string {
	if name != oldNetwork || switched {
		return configOf(name, "")
	}
	all := w.addressesOf(poolName)
	var exclude []string
	for _, a := range all {
		if !slices.Contains(w.other.gives, a) {
			exclude = append(exclude, fmt.Sprintf(`"%v/32"`, a))
		}
	}
	ipam := fmt.Sprintf(`{"type": "whereabouts", "range": "%v-%v/24", "exclude": [%s]}`, all[0], all[len(all)-1], strings.Join(exclude, ", "))
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "macvlan", "ipam": %s}`, name, ipam)
}

// heedFence notes whether pools say that the other IPAM gives nothing new. An API
// server hears of that some time later.
func (w *world) heedFence() {
	o := w.other
	said := slices.ContainsFunc(w.api.pools.list(nil), func(p simPool) bool { return slices.Contains(p.obj.Status.Fenced, oldObject) })
	switch {
	case !said:
		o.fencedAt = 0
	case o.fencedAt == 0:
		within := fenceWithin
		if w.fault == "M60" {
			within *= 240
		}
		o.fencedAt = w.now + w.upTo(within)
		w.logf("server: from %v on the other IPAM gives nothing new", o.fencedAt-24*time.Hour)
	}
}

// refuses reports whether the API server lets the other IPAM record nothing new.
func (w *world) refuses() bool {
	o := w.other
	if w.fault != "M59" && o.fencedAt > 0 && w.now >= o.fencedAt {
		o.shut = true
	}
	return o.shut
}

// otherPerson is what people do where there is another IPAM.
func (w *world) otherPerson() {
	o := w.other
	what := w.rng.IntN(5)
	if !o.switched && w.one(2) {
		what = 0
	}
	switch what {
	case 0:
		if !o.switched {
			w.logf("person: switches the definition to Tenure")
			o.switched = true
		}
	case 1:
		switch {
		case !o.joined:
			w.logf("person: adds to the pool what the other IPAM gives")
			o.joined = true
			w.growBack(poolName)
		case o.switched && len(o.gives) < len(w.addressesOf(poolName)):
			w.logf("person: excludes what the other IPAM gave from the pool")
			o.joined = false
			w.growBack(poolName)
		}
	case 2:
		if g, ok := pickOf(w, w.guests(func(g *guest) bool { return g.pod.there && g.cached })); ok {
			w.logf("person: deletes pod %s by force", g.pod.ref.UID)
			g.pod.there = false
		}
	case 3:
		w.reap(func(r record) bool {
			return !slices.ContainsFunc(w.all, func(p *simPod) bool { return p.there && p.ref.Name == r.pod })
		})
	case 4:
		if w.one(8) {
			o.liar, _ = pickOf(w, w.nodes)
		}
		w.forge()
	}
}

// forge has somebody write an address that a pod has by the other IPAM to the status of another
// pod, whose next sandbox asks for it.
func (w *world) forge() {
	g, ok := pickOf(w, w.guests((*guest).uses))
	if !ok {
		return
	}
	p, ok := pickOf(w, slices.DeleteFunc(slices.Clone(w.all), func(p *simPod) bool { return !p.there || p == g.pod || p.claim != "" }))
	if !ok {
		return
	}
	w.logf("person: writes %v, which %v has, to the status of pod %s", g.addr, g, p.ref.UID)
	p.forged, p.exact = g.addr, g.addr
}

// hurry has everybody do some more of what they are at: a look is a dozen calls, and it
// takes a few looks to open a pool.
func (w *world) hurry() {
	for _, c := range w.ctls {
		if c.down || c.away {
			continue
		}
		for range 4 {
			c.work()
		}
		c.hear(4)
		c.lookOn()
		c.reconcile()
	}
	for _, n := range w.nodes {
		if n.agent == nil || n.paused || n.cut {
			continue
		}
		n.outlive(func() {
			n.recoverAgent()
			for range 2 {
				n.work()
			}
		})
		n.host.work()
	}
}

// reap removes records that nobody has, as the other IPAM's own reconciler does for pods
// that are gone.
func (w *world) reap(gone func(record) bool) {
	for _, a := range w.other.gives {
		if r, ok := w.other.records[a]; ok && gone(r) {
			w.logf("other IPAM: forgets %v of %s, which is gone", a, r.cid)
			delete(w.other.records, a)
			w.other.revision++
		}
	}
}

// guests returns the sandboxes that have addresses by the other IPAM and that keep
// accepts.
func (w *world) guests(keep func(*guest) bool) (all []*guest) {
	for _, n := range w.nodes {
		for _, g := range n.guests {
			if keep(g) {
				all = append(all, g)
			}
		}
	}
	return all
}

// checkGuests holds that nobody has an address which a sandbox has by the other IPAM
// (I1).
func (w *world) checkGuests() {
	if w.other == nil {
		return
	}
	for _, g := range w.guests((*guest).uses) {
		if !g.pod.there && !g.void && w.unreachable(g.node) && !w.granted(g.addr, g.pod.ref.UID) {
			w.logf("%v: deleted by force where nobody can tell that it runs", g)
			g.void = true
		}
		if g.void {
			continue
		}
		for _, n := range w.nodes {
			for _, s := range n.sandboxes {
				if s.uses() && !s.void && s.pod != g.pod && slices.Contains(s.addrs, g.addr) {
					w.fail(I1, "%v has %v, which %v has by another IPAM", s, g.addr, g)
				}
			}
		}
	}
}

// unreachable reports whether a node may not be asked what its pods have: whoever
// deletes a pod by force answers for it then.
func (w *world) unreachable(n *simNode) bool {
	reg, out := w.api.regs.read(string(n.name))
	b := w.beats[n.disk.store]
	return n.gone || out != protocol.Done || reg.Ended() || b.fence > 0 && w.now-b.at >= b.fence/2
}

// voidGuests notes that somebody vouches that a node runs nothing.
func (w *world) voidGuests(name protocol.NodeName) {
	for _, g := range w.guests(func(g *guest) bool { return g.node.name == name }) {
		g.void = true
	}
}

// keptForPod reports whether a grant keeps what another IPAM has given.
func keptForPod(g protocol.Grant) bool { return g.To.Kind == protocol.GranteePod }

// countOpening counts what a look has led to.
func (w *world) countOpening(was, is simPool) {
	if w.calm || is.Name != string(poolName) {
		return
	}
	if !was.Open && is.Open {
		w.count("opened after a look")
	}
	if was.Open && len(is.obj.Status.Withheld) < len(was.obj.Status.Withheld) {
		w.count("given after a look")
	}
}
