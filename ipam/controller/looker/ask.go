package looker

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// question is what a node is asked. It is asked in parts if it has too many networks for one query,
// or if the answer has more than one part.
type question struct {
	protocol.Query
	rest    []protocol.HostLocal // networks that are yet to be asked for
	unasked []protocol.Unseen    // those that are not asked for
	heard   protocol.Report      // the answers to the parts so far, each thing once

	sightings map[protocol.Sighting]bool // of heard
	unseen    map[protocol.Unseen]bool
}

// mostAsked bounds in bytes what a node is asked of networks in all parts, and mostNetwork what of
// one of them: anybody may make many definitions of a pool, and name directories in them.
const (
	mostAsked   = 16 * protocol.MaxQuery
	mostNetwork = 1 << 10
)

// mostHeard bounds what is kept of a node's answer: no node has so many interfaces. A node decides
// itself how many parts its answer has.
const mostHeard = 1 << 16

// nextPart makes the next query: it has as many of the remaining networks as there is room for.
func (q *question) nextPart() {
	q.From, q.After, q.Parts, q.HostLocal = netip.Addr{}, "", true, nil
	room := protocol.MaxQuery - len(q.String())
	n := 0
	for n < len(q.rest) {
		if room -= queryLen(q.rest[n]); room < 0 && n > 0 {
			break
		}
		n++
	}
	q.HostLocal, q.rest = q.rest[:n], q.rest[n:]
}

// hear adds the answer to a part to those before it. Each may have what the CNI library keeps, so
// it drops repetitions. If the answer is too large, nothing more is asked.
func (q *question) hear(r protocol.Report) {
	var allSightings, allUnseen bool
	r.Has, allSightings = addNew(q.heard.Has, q.sightings, r.Has, mostHeard-len(q.heard.Unseen))
	r.Unseen, allUnseen = addNew(q.heard.Unseen, q.unseen, r.Unseen, mostHeard-len(r.Has))
	r.Unread = cmp.Or(q.heard.Unread, r.Unread)
	if goesOn := q.Query; r.Next.IsValid() && !goesOn.GoesOn(r) { // it says that there is more, and not where
		r.Unread = cmp.Or(r.Unread, fmt.Sprintf("it does not tell what pods have from %v on", r.Next))
	}
	asked := map[string][]protocol.UID{}
	maps.Copy(asked, q.heard.Asked)
	for _, n := range q.HostLocal { // a node may say anything of others
		if pods, told := r.Asked[n.Network]; told {
			asked[n.Network] = pods
		}
	}
	r.Asked = asked
	if !allSightings || !allUnseen {
		r.Unread, r.Next, q.rest = fmt.Sprintf("it reports more than can be: more than %d sightings, and files that cannot be read", mostHeard), netip.Addr{}, nil
	}
	q.heard = r
}

// addNew adds to all those of more that are not known yet, up to most elements. ok says that there
// was room for them.
func addNew[T comparable](all []T, known map[T]bool, more []T, most int) (_ []T, ok bool) {
	for _, one := range more {
		if known[one] {
			continue
		}
		if len(all) >= most {
			return all, false
		}
		known[one], all = true, append(all, one)
	}
	return all, true
}

// mostName and mostPath are how long the name and the path of a directory can be, in bytes.
const (
	mostName = 255
	mostPath = 4096
)

// networksOf returns the networks of some definitions of which there can be files of host-local,
// each once.
func networksOf(segment []foreign.Definition) (all []protocol.HostLocal) {
	known := map[protocol.HostLocal]bool{}
	for _, d := range segment {
		n := protocol.HostLocal{Network: d.Network, DataDir: d.DataDir}
		if len(d.Network) <= mostName && len(d.DataDir) < mostPath && !known[n] {
			known[n], all = true, append(all, n)
		}
	}
	return all
}

// queryLen returns how many bytes of a question a network takes, at most.
func queryLen(n protocol.HostLocal) int {
	return len(protocol.Query{HostLocal: []protocol.HostLocal{n}}.String())
}

// ask asks the nodes' agents what their pods have, where that tells something: those whose word the
// pools wait for, or went on without, and those on which something that is kept may have ended. It
// reports whether any is asked.
func (t *look) ask(ctx context.Context) bool {
	of := map[protocol.NodeName]map[protocol.PoolName]bool{}
	add := func(n protocol.NodeName, p protocol.PoolName) {
		if r := t.nodes[n]; r == nil || r.reg.Ended() {
			return
		}
		if of[n] == nil {
			of[n] = map[protocol.PoolName]bool{}
		}
		of[n][p] = true
	}
	for _, p := range t.pools {
		for n := range p.finding.Asks {
			add(n, p.Name)
		}
		for word, s := range t.silent {
			if s.passed && word.Pool == p.Name { // what it has may be free yet
				add(word.Node, p.Name)
			}
		}
	}
	for _, b := range t.evidence.Unclaimed(t.kept()) {
		add(b.To.Node, b.Pool)
		for n := range t.facts.Agents {
			if b.To.UID.Several() {
				add(n, b.Pool)
			}
		}
	}
	maps.DeleteFunc(t.silent, func(word foreign.Word, _ silence) bool { return !of[word.Node][word.Pool] })
	nodes := slices.Sorted(maps.Keys(of))
	for _, n := range nodes {
		t.asked[n] = t.question(n, of[n])
	}
	next := len(t.pools)
	for _, d := range t.drafts {
		if d.cut {
			next = min(next, len(d.pools))
		}
	}
	t.turn += max(next, 1) // no node's next pool is passed over
	for word, s := range t.silent {
		t.facts.PassedOver[word] = s.passed && !t.facts.Asked[word] // of what is asked it may answer yet
	}
	t.send(ctx, nodes)
	t.askedAt = t.Now()
	t.partAt = t.askedAt
	return len(nodes) > 0
}

// send puts the questions to nodes.
func (t *look) send(ctx context.Context, nodes []protocol.NodeName) {
	for _, n := range nodes {
		t.asked[n].ID = rand.Text()
	}
	grants.Each(t.Calls, nodes, func(n protocol.NodeName) {
		out, err := t.Live.AskNode(ctx, t.nodes[n].reg.Meta, t.asked[n].String())
		if out != protocol.Done { // it is asked by the next look, and counts as silent in this one
			t.Log.DebugContext(ctx, "node cannot be asked what its pods have", "node", n, "error", err)
		}
	})
}

// draft is a question of some pools before it is put to a node. Many nodes are asked the same, and
// anybody may make many networks of a pool.
type draft struct {
	question
	pools []*pool
	cut   bool // there was no room for others
}

// question returns what a node is asked of pools, or of those for which it has room. The next looks
// ask for the others: each begins with another pool.
func (t *look) question(node protocol.NodeName, of map[protocol.PoolName]bool) *question {
	key := fmt.Sprint(of) // in order of the names
	d := t.drafts[key]
	if d == nil {
		d = t.draft(of)
		t.drafts[key] = d
	}
	for _, p := range d.pools {
		p.asked, t.facts.Asked[foreign.Word{Node: node, Pool: p.Name}] = true, true
	}
	q := d.question
	q.sightings, q.unseen = map[protocol.Sighting]bool{}, map[protocol.Unseen]bool{}
	return &q
}

// draft makes the question of pools, as far as it has room for them.
func (t *look) draft(of map[protocol.PoolName]bool) *draft {
	d := &draft{}
	var set netipx.IPSetBuilder
	networks := map[protocol.HostLocal]bool{}
	room := protocol.MaxQuery
	for i := range t.pools {
		p := t.pools[(i+t.turn)%len(t.pools)]
		if !of[p.Name] {
			continue
		}
		files := networksOf(p.SegmentLately(t.facts.Definitions, t.facts.Former))
		for _, r := range p.Whole.Ranges() {
			room -= len(fmt.Sprintf(`"%v-%v",`, r.Start, r.End))
		}
		for _, n := range files {
			if !networks[n] {
				room -= queryLen(n)
			}
		}
		if d.cut = room < 0 && len(d.pools) > 0; d.cut {
			break
		}
		d.pools = append(d.pools, p)
		for _, r := range p.Whole.Ranges() {
			set.AddRange(netipx.IPRangeFrom(r.Start, r.End))
		}
		for _, n := range files {
			networks[n] = true
		}
	}
	ranges, _ := set.IPSet() // only valid ranges were added
	for _, r := range ranges.Ranges() {
		d.Ranges = append(d.Ranges, r.String())
	}
	// Those that are needed first, and of these the short ones: others may write many long ones.
	place := func(n protocol.HostLocal) int {
		if slices.ContainsFunc(d.pools, func(p *pool) bool { return t.evidence.Needs(p.Name, n) }) {
			return queryLen(n)
		}
		return mostAsked + queryLen(n)
	}
	places := map[protocol.HostLocal]int{}
	for n := range networks {
		places[n] = place(n)
	}
	d.bound(slices.SortedFunc(maps.Keys(networks), func(a, b protocol.HostLocal) int {
		return cmp.Or(places[a]-places[b], strings.Compare(a.Network, b.Network), strings.Compare(a.DataDir, b.DataDir))
	}))
	d.nextPart()
	return d
}

// bound notes which of some networks a node is asked for: the others count as those that it cannot
// read.
func (q *question) bound(all []protocol.HostLocal) {
	room := mostAsked
	for _, n := range all {
		var why string
		switch length := queryLen(n); {
		case length > mostNetwork:
			why = fmt.Sprintf("the directory of network %s is not asked for, since its name is too long", n.Network)
		case length > room:
			why = fmt.Sprintf("network %s is not asked for: there are too many definitions of the pool's addresses", n.Network)
		default:
			room -= length
			q.rest = append(q.rest, n)
			continue
		}
		q.unasked = append(q.unasked, protocol.Unseen{HostLocal: n, Why: why})
	}
}

// collect takes up the answers of the nodes that were asked. It reports whether all have
// answered, or those that have not are not to be waited for any more.
func (t *look) collect(ctx context.Context) (done bool, err error) {
	regs, err := t.Registrations(ctx)
	if err != nil {
		return false, err
	}
	now := map[protocol.NodeName]protocol.Registration{}
	for _, reg := range regs {
		now[reg.Node] = reg
	}
	var goOn []protocol.NodeName
	waits, late := false, t.Now().Sub(t.partAt) >= t.within()
	for _, n := range slices.Sorted(maps.Keys(t.asked)) {
		if _, answered := t.facts.Reports[n]; answered {
			continue
		}
		answered, more := t.hear(ctx, n, now[n].Report)
		beats := false
		if !answered && !now[n].Ended() {
			if beats, err = t.beats(ctx, now[n]); err != nil {
				return false, err
			}
		}
		switch {
		case answered:
			maps.DeleteFunc(t.silent, func(word foreign.Word, _ silence) bool { return word.Node == n && t.facts.Asked[word] })
		case more && !late:
			goOn = append(goOn, n)
		case !beats || !t.node(ctx, n).there:
			t.facts.Agents[n] = false // its agent does not live
		case late: // not before: it may have come back
			t.passOver(ctx, n)
		default:
			waits = true
		}
	}
	t.send(ctx, goOn)
	return !waits && len(goOn) == 0 || late, nil
}

// within returns how long the nodes may take to answer. One that may just be slow gets more time,
// before it is passed over.
func (t *look) within() time.Duration {
	for word, s := range t.silent {
		if t.facts.Asked[word] && !s.passed && t.begun-s.since >= slowAfter {
			return slowWithin
		}
	}
	return answerWithin
}

// hear takes up what a node's registration says in answer to its question; more says that it goes
// on.
func (t *look) hear(ctx context.Context, n protocol.NodeName, text string) (answered, more bool) {
	q := t.asked[n]
	r, ok, err := protocol.ParseReport(text)
	if err != nil {
		t.Log.WarnContext(ctx, "node's report is garbled", "node", n, "error", err)
	}
	if !ok || r.ID != q.ID {
		return false, false
	}
	q.hear(r)
	switch {
	case q.GoesOn(q.heard):
		return false, true
	case len(q.rest) > 0:
		q.nextPart()
		t.partAt = t.Now() // each part has its time: how many there are is not the node's to say
		return false, true
	}
	q.heard.Unseen = slices.Concat(q.heard.Unseen, q.unasked)
	t.facts.Reports[n] = q.heard
	return true, false
}

// passOver notes that a node has not answered. A pool of which it has not for so long, while its
// agent beats, goes on without its word. What this controller slept is no silence of the node's: it
// may have answered meanwhile, and the cache may not have that yet.
func (t *look) passOver(ctx context.Context, n protocol.NodeName) {
	for word := range t.facts.Asked {
		if word.Node != n {
			continue
		}
		s, silent := t.silent[word]
		if !silent {
			s.since = t.begun
		}
		if !s.passed && t.awake-s.since >= passAfter {
			s.passed = true
			t.Log.WarnContext(ctx, "node is passed over: its agent beats, and does not say what its pods have by other IPAMs", "node", n, "pool", word.Pool, "for", passAfter)
		}
		t.silent[word], t.facts.PassedOver[word] = s, s.passed
	}
}
