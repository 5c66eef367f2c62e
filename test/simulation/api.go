package simulation

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simAPI is an API server in memory, as far as the protocol relies on one: each
// object has a UID and a revision, a name exists once, updates and deletes have
// preconditions, an update that changes nothing is dropped, and a deleted object
// with a finalizer stays, marked, until the finalizer goes. It knows nothing of
// nodes or tests and makes no decision of its own, so that a run is determined
// by who calls it when.
type simAPI struct {
	leases *simTable[protocol.Lease]
	subs   *simTable[protocol.SubLease]
	regs   *simTable[protocol.Registration]
	pools  *simTable[simPool]
	claims *simTable[simClaim]
	nodes  *simTable[rackNode]

	revision, uid int
}

func newSimAPI() *simAPI {
	api := &simAPI{}
	api.leases = newSimTable(api, func(l *protocol.Lease) *protocol.Meta { return &l.Meta }, protocol.Lease.Clone)
	api.subs = newSimTable(api, func(s *protocol.SubLease) *protocol.Meta { return &s.Meta }, cloneSub)
	api.regs = newSimTable(api, func(s *protocol.Registration) *protocol.Meta { return &s.Meta }, shallow[protocol.Registration])
	api.pools = newSimTable(api, func(p *simPool) *protocol.Meta { return &p.Meta }, shallow[simPool])
	api.claims = newSimTable(api, func(c *simClaim) *protocol.Meta { return &c.Meta }, shallow[simClaim])
	api.nodes = newSimTable(api, func(n *rackNode) *protocol.Meta { return &n.Meta }, shallow[rackNode])
	return api
}

// shallow copies what has no memory that anybody writes to.
func shallow[T any](v T) T { return v }

func cloneSub(s protocol.SubLease) protocol.SubLease {
	if s.Use != nil {
		use := *s.Use
		s.Use = &use
	}
	return s
}

// simObjects are objects of one kind, as somebody has them.
type simObjects[T any] struct {
	objects map[string]T
	names   []string // of objects, in order
	meta    func(*T) *protocol.Meta
	clone   func(T) T
}

// set puts obj in the place of the one of its name, if there is one.
func (s *simObjects[T]) set(obj T) {
	name := s.meta(&obj).Name
	if _, ok := s.objects[name]; !ok {
		i, _ := slices.BinarySearch(s.names, name)
		s.names = slices.Insert(s.names, i, name)
	}
	s.objects[name] = obj
}

// unset takes the object of that name away.
func (s *simObjects[T]) unset(name string) {
	if i, ok := slices.BinarySearch(s.names, name); ok {
		s.names = slices.Delete(s.names, i, i+1)
	}
	delete(s.objects, name)
}

// read returns the object of that name.
func (s *simObjects[T]) read(name string) (T, protocol.Outcome) {
	obj, ok := s.objects[name]
	if !ok {
		return obj, protocol.NotFound
	}
	return s.clone(obj), protocol.Done
}

// list returns the objects that keep accepts, by name; nil accepts all.
func (s *simObjects[T]) list(keep func(T) bool) []T {
	var all []T
	for _, name := range s.names {
		if obj := s.objects[name]; keep == nil || keep(obj) {
			all = append(all, s.clone(obj))
		}
	}
	return all
}

// simTable holds the objects of one kind at the server.
type simTable[T any] struct {
	simObjects[T]
	api *simAPI
	// finalizers are the names whose objects somebody keeps from going.
	finalizers map[string]bool
	// log is all that has happened to the objects, for watches.
	log []simEvent[T]
}

// simEvent is one change of an object: the object as it is now, or as it was when
// it went.
type simEvent[T any] struct {
	name string
	obj  T
	gone bool
	was  *T // as whoever hears of it knew it; nil: he did not
}

func newSimTable[T any](api *simAPI, meta func(*T) *protocol.Meta, clone func(T) T) *simTable[T] {
	return &simTable[T]{simObjects: simObjects[T]{objects: map[string]T{}, meta: meta, clone: clone}, api: api, finalizers: map[string]bool{}}
}

// create stores obj under its name, with a new UID.
func (t *simTable[T]) create(obj T) (T, protocol.Outcome) {
	obj = t.clone(obj)
	m := t.meta(&obj)
	if _, ok := t.objects[m.Name]; ok {
		var zero T
		return zero, protocol.Exists
	}
	t.api.uid++
	m.UID, m.Deleting = protocol.UID(fmt.Sprintf("u%d", t.api.uid)), false
	return t.put(obj), protocol.Done
}

// put stores obj at a new revision.
func (t *simTable[T]) put(obj T) T {
	t.api.revision++
	m := t.meta(&obj)
	m.Revision = revisionOf(t.api.revision)
	t.set(obj)
	t.log = append(t.log, simEvent[T]{name: m.Name, obj: obj})
	return t.clone(obj)
}

// revisionOf returns a revision as the API server says it, and revisionNumber is its
// inverse.
func revisionOf(n int) protocol.Revision { return protocol.Revision(strconv.Itoa(n)) }

func revisionNumber(rev protocol.Revision) int {
	n, err := strconv.Atoi(string(rev))
	must(err)
	return n
}

// drop removes the object of that name.
func (t *simTable[T]) drop(name string) {
	obj, ok := t.objects[name]
	if !ok {
		return
	}
	t.api.revision++
	t.unset(name)
	t.log = append(t.log, simEvent[T]{name: name, obj: obj, gone: true})
}

// update changes the object that pre names. What change does to the metadata is
// ignored.
func (t *simTable[T]) update(pre protocol.Meta, change func(*T)) (T, protocol.Outcome) {
	var zero T
	old, ok := t.objects[pre.Name]
	if !ok {
		return zero, protocol.NotFound
	}
	if !matches(pre, *t.meta(&old)) {
		return zero, protocol.Conflict
	}
	obj := t.clone(old)
	change(&obj)
	*t.meta(&obj) = *t.meta(&old)
	if reflect.DeepEqual(obj, old) { // dropped: the revision stays
		return obj, protocol.Done
	}
	return t.put(obj), protocol.Done
}

// remove deletes the object that pre names; one with a finalizer is marked.
func (t *simTable[T]) remove(pre protocol.Meta) protocol.Outcome {
	obj, ok := t.objects[pre.Name]
	if !ok {
		return protocol.NotFound
	}
	m := t.meta(&obj)
	switch {
	case !matches(pre, *m):
		return protocol.Conflict
	case !t.finalizers[pre.Name]:
		t.drop(pre.Name)
	case !m.Deleting:
		m.Deleting = true
		t.put(obj)
	}
	return protocol.Done
}

// finalize takes the finalizer off name: what was only marked goes.
func (t *simTable[T]) finalize(name string) {
	delete(t.finalizers, name)
	if obj, ok := t.objects[name]; ok && t.meta(&obj).Deleting {
		t.drop(name)
	}
}

// matches reports whether m meets the precondition pre. What pre leaves empty is
// not asked for: so does the API server read a patch.
func matches(pre, m protocol.Meta) bool {
	return (pre.UID == "" || pre.UID == m.UID) && (pre.Revision == "" || pre.Revision == m.Revision)
}

// A simCall is one request on its way. It commits at the server at one moment,
// or never; what it answers then arrives at another, or never: a caller that
// gives up has learnt nothing, and the request may commit all the same.
type simCall struct {
	what      string
	write     bool
	commit    func() // runs at the server, once
	committed bool
	left      time.Duration // when its caller gave up
}

// arrive commits c, if it has not been.
func (c *simCall) arrive() {
	if !c.committed {
		c.committed = true
		c.commit()
	}
}
