package simulation

import (
	"maps"
	"slices"
)

// informer is what a controller knows of one table by watching it.
type informer interface {
	// hear tells it of up to n events.
	hear(n int)
	// behind returns how many events it has not heard of.
	behind() int
	// relist has it begin anew at another replica, which is behind: at a start by 20 events at$
	// else no further than it was itself.
	relist(w *world, start bool)
}

// simWatch is an informer of a table.
type simWatch[T any] struct {
	simObjects[T]
	t   *simTable[T]
	pos int // in the table's log
	see func(simEvent[T])
}

// watch returns a watch that knows of nothing yet, and tells see of what it hears.
func (t *simTable[T]) watch(see func(simEvent[T])) *simWatch[T] {
	return &simWatch[T]{simObjects: simObjects[T]{objects: map[string]T{}, meta: t.meta, clone: t.clone}, t: t, see: see}
}

func (v *simWatch[T]) behind() int { return len(v.t.log) - v.pos }

func (v *simWatch[T]) hear(n int) {
	for range min(n, v.behind()) {
		v.see(v.next())
	}
}

// next takes the next event over.
func (v *simWatch[T]) next() simEvent[T] {
	ev := v.t.log[v.pos]
	v.pos++
	if was, known := v.objects[ev.name]; known {
		ev.was = &was
	}
	if ev.gone {
		v.unset(ev.name)
	} else {
		v.set(ev.obj)
	}
	return ev
}

func (v *simWatch[T]) relist(w *world, start bool) {
	before, names := maps.Clone(v.objects), slices.Clone(v.names)
	most := v.behind()
	if start {
		most = min(most, 20)
	}
	last := len(v.t.log) - w.rng.IntN(most+1)
	clear(v.objects)
	v.names, v.pos = v.names[:0], 0
	for v.pos < last {
		v.next()
	}
	told := func(name string, obj T, gone bool) {
		ev := simEvent[T]{name: name, obj: obj, gone: gone}
		if was, ok := before[name]; ok {
			ev.was = &was
		}
		v.see(ev)
	}
	for _, name := range names { // nothing else tells of what has been deleted
		if _, ok := v.objects[name]; !ok {
			told(name, before[name], true)
		}
	}
	for _, name := range v.names {
		told(name, v.objects[name], false)
	}
}
