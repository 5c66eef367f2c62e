package simulation

import "github.com/tenure-ipam/tenure/ipam/protocol"

// simWatch is what an informer knows of a table by watching it. It is behind by as much as nobody
// has told it yet.
type simWatch[T any] struct {
	t       *simTable[T]
	pos     int // in the table's log
	objects map[string]T
	names   []string // of objects, in order
}

// watch returns a watch that knows of nothing yet.
func (t *simTable[T]) watch() *simWatch[T] { return &simWatch[T]{t: t, objects: map[string]T{}} }

// behind returns how many events the watch has not seen.
func (v *simWatch[T]) behind() int { return len(v.t.log) - v.pos }

// next tells the watch of the next event, if there is one.
func (v *simWatch[T]) next() (ev simEvent[T], ok bool) {
	if v.behind() == 0 {
		return ev, false
	}
	ev = v.t.log[v.pos]
	v.pos++
	was, known := v.objects[ev.name]
	if known {
		ev.was = &was
	}
	switch {
	case ev.gone:
		delete(v.objects, ev.name)
		v.names = withoutName(v.names, ev.name)
	case !known:
		v.names = withName(v.names, ev.name)
		fallthrough
	default:
		v.objects[ev.name] = ev.obj
	}
	return ev, true
}

// relist has the watch begin anew at another replica, which is behind by so many
// events: maybe more than the watch was. Nothing tells it what has been deleted.
func (v *simWatch[T]) relist(behind int) {
	clear(v.objects)
	v.names = v.names[:0]
	v.pos = 0
	for range max(0, len(v.t.log)-behind) {
		v.next()
	}
}

// read returns the object of that name as the watch has it.
func (v *simWatch[T]) read(name string) (T, protocol.Outcome) {
	obj, ok := v.objects[name]
	if !ok {
		return obj, protocol.NotFound
	}
	return v.t.clone(obj), protocol.Done
}

// list is that of the table, as the watch has the objects.
func (v *simWatch[T]) list(keep func(T) bool) []T {
	var all []T
	for _, name := range v.names {
		if obj := v.objects[name]; keep == nil || keep(obj) {
			all = append(all, v.t.clone(obj))
		}
	}
	return all
}
