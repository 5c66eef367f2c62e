package allocator

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
)

// model is a Space that is too simple to be wrong.
type model struct {
	u      universe
	pool   map[netip.Addr]bool // which are ordinary
	blocks map[netip.Prefix]bool
	taken  map[netip.Addr]bool
	barred map[netip.Addr]bool
	freed  []netip.Addr // longest freed first
	frees  uint64       // how often one was freed
	number map[netip.Addr]uint64
}

func (m *model) block(a netip.Addr) (netip.Prefix, bool) {
	for p := range m.blocks {
		if p.Contains(a) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func (m *model) open(p netip.Prefix) error {
	for o := range m.blocks {
		if o != p && o.Overlaps(p) {
			return ErrOverlap
		}
	}
	m.blocks[p] = true
	return nil
}

func (m *model) close(p netip.Prefix) error {
	if !m.blocks[p] {
		return ErrNoBlock
	}
	for a := range m.taken {
		if p.Contains(a) {
			return ErrInUse
		}
	}
	delete(m.blocks, p)
	maps.DeleteFunc(m.barred, func(a netip.Addr, _ bool) bool { return p.Contains(a) })
	m.freed = slices.DeleteFunc(m.freed, p.Contains)
	return nil
}

func (m *model) state(a netip.Addr) AddrState {
	switch _, open := m.block(a); {
	case !open:
		return NoBlock
	case m.taken[a]:
		return Taken
	case m.barred[a]:
		return Barred
	default:
		return Free
	}
}

func (m *model) take(a netip.Addr) error {
	switch m.state(a) {
	case NoBlock:
		return ErrNoBlock
	case Taken:
		return ErrTaken
	case Barred:
		return ErrBarred
	}
	m.taken[a] = true
	m.freed = slices.DeleteFunc(m.freed, func(f netip.Addr) bool { return f == a })
	return nil
}

func (m *model) free(a netip.Addr) error {
	switch m.state(a) {
	case NoBlock:
		return ErrNoBlock
	case Taken:
		delete(m.taken, a)
		m.freed = append(m.freed, a)
		m.frees++
		m.number[a] = m.frees
		return nil
	default:
		return ErrNotTaken
	}
}

func (m *model) bar(a netip.Addr, on bool) error {
	switch s := m.state(a); {
	case s == NoBlock:
		return ErrNoBlock
	case s == Taken && on:
		return ErrTaken
	case on:
		m.barred[a] = true
	default:
		delete(m.barred, a)
	}
	return nil
}

// mayGive reports whether a may be handed out unasked now.
func (m *model) mayGive(a netip.Addr) bool {
	return m.pool[a] && m.state(a) == Free
}

// find returns what is to be taken next, without what was freed after the first upTo.
func (m *model) find(view []netipx.IPRange, upTo uint64) (netip.Addr, bool) {
	for i := range universeSize {
		if a := m.u.at(i); m.mayGive(a) && within(view, a) && !slices.Contains(m.freed, a) {
			return a, true
		}
	}
	for _, a := range m.freed {
		if within(view, a) && m.mayGive(a) && m.number[a] <= upTo {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (m *model) info(p netip.Prefix) BlockInfo {
	n := BlockInfo{Prefix: p}
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		switch m.state(a) {
		case Taken:
			n.Taken++
		case Barred:
			n.Barred++
		}
		if m.mayGive(a) {
			n.Free++
		}
	}
	return n
}

// players are a Space and its model under the same random calls.
type players struct {
	t     *testing.T
	c     chooser
	table *strictTable
	space Space
	model model
	pools [][]Range // to reshape to
	log   []string
}

func newPlayers(t *testing.T, u universe, c chooser) *players {
	p := &players{t: t, c: c, table: newStrict()}
	for range 3 {
		p.pools = append(p.pools, c.pool(u))
	}
	p.pools = append(p.pools, []Range{{Prefix: netip.PrefixFrom(u.first, u.family.BitLen()-9)}})
	p.model = model{u: u, number: map[netip.Addr]uint64{}, blocks: map[netip.Prefix]bool{}, taken: map[netip.Addr]bool{}, barred: map[netip.Addr]bool{}}
	p.reshape(3)
	return p
}

// step does one random call on both and compares.
func (p *players) step() {
	switch x := p.c(16); x {
	case 0, 1:
		b := p.anyBlock()
		p.same(fmt.Sprintf("Open(%v)", b), p.space.Open(b), p.model.open(b))
	case 2:
		b := p.anyBlock()
		p.same(fmt.Sprintf("Close(%v)", b), p.space.Close(b), p.model.close(b))
	case 3, 4, 5, 6, 7:
		p.findAndTake(View{}, []netipx.IPRange{netipx.RangeOfPrefix(netip.PrefixFrom(p.model.u.family.lowest(), 0))})
	case 8, 9:
		p.findAndTake(p.c.view(p.model.u))
	case 10:
		a := p.anyAddr()
		p.same(fmt.Sprintf("Take(%v)", a), p.space.Take(a), p.model.take(a))
	case 11, 12, 13:
		a := p.takenAddr()
		p.same(fmt.Sprintf("Free(%v)", a), p.space.Free(a), p.model.free(a))
	case 14:
		a, on := p.anyAddr(), !p.c.one(2)
		p.same(fmt.Sprintf("Bar(%v, %v)", a, on), p.space.Bar(a, on), p.model.bar(a, on))
	case 15:
		p.reshape(p.c(len(p.pools)))
	}
	p.same("Check()", p.space.Check(), nil)
}

// reshape makes the pool that of number i.
func (p *players) reshape(i int) {
	p.model.pool = map[netip.Addr]bool{}
	_, ordinary := naiveSet(p.model.u, p.pools[i])
	for j, is := range ordinary {
		p.model.pool[p.model.u.at(j)] = is
	}
	p.space = NewSpace(p.table, mustShape(p.t, p.pools[i]...))
	p.same("Reshape()", p.space.Reshape(), nil)
}

// anyBlock returns an open block, or one of random size.
func (p *players) anyBlock() netip.Prefix {
	if open := slices.SortedFunc(maps.Keys(p.model.blocks), netip.Prefix.Compare); len(open) > 0 && p.c.one(3) {
		return open[p.c(len(open))]
	}
	log := 4
	if p.c.one(2) {
		log = p.c(maxLog + 1)
	}
	return netip.PrefixFrom(p.anyAddr(), p.model.u.family.BitLen()-log).Masked()
}

func (p *players) anyAddr() netip.Addr { return p.model.u.at(p.c(universeSize)) }

// takenAddr returns a taken address in four cases of five.
func (p *players) takenAddr() netip.Addr {
	taken := slices.SortedFunc(maps.Keys(p.model.taken), netip.Addr.Compare)
	if len(taken) == 0 || p.c.one(5) {
		return p.anyAddr()
	}
	return taken[p.c(len(taken))]
}

func (p *players) findAndTake(v View, rr []netipx.IPRange) {
	p.t.Helper()
	got, ok, err := p.space.Find(p.model.u.family, v)
	call, upTo := fmt.Sprintf("Find(%v)", v), p.model.frees
	if p.c.one(2) {
		upTo = uint64(p.c(int(p.model.frees) + 1))
		call = fmt.Sprintf("FindRested(%v, %d)", v, upTo)
		got, ok, err = p.space.FindRested(p.model.u.family, v, upTo)
	}
	want, wantOK := p.model.find(rr, upTo)
	p.same(call, err, nil)
	if got != want || ok != wantOK {
		p.t.Errorf("%s = %v, %v; want %v, %v", call, got, ok, want, wantOK)
	}
	if ok {
		p.same(fmt.Sprintf("Take(%v)", got), p.space.Take(got), p.model.take(got))
	}
}

// same compares the outcome of a call.
func (p *players) same(call string, got, want error) {
	p.t.Helper()
	p.log = append(p.log, fmt.Sprintf("%s = %v", call, got))
	if !errors.Is(got, want) {
		p.t.Errorf("%s = %v; want %v", call, got, want)
	}
}

// compare compares all that there is.
func (p *players) compare() {
	p.t.Helper()
	var sum Counts
	var blocks []netip.Prefix
	for n, err := range p.space.Blocks(p.model.u.family) {
		if want := p.model.info(n.Prefix); err != nil || n != want {
			p.t.Errorf("Blocks: %+v, %v; want %+v", n, err, want)
		}
		blocks = append(blocks, n.Prefix)
		sum.Blocks++
		sum.Taken += n.Taken
		sum.Free += n.Free
		upTo := p.model.frees / 2
		resting := 0
		for _, a := range p.model.freed {
			if n.Prefix.Contains(a) && p.model.mayGive(a) && p.model.number[a] > upTo {
				resting++
			}
		}
		if got, err := p.space.Resting(n.Prefix, upTo); got != resting || err != nil {
			p.t.Errorf("Resting(%v, %d) = %d, %v; want %d", n.Prefix, upTo, got, err, resting)
		}
		for a, err := range p.space.Addresses(n.Prefix) {
			if err != nil || !p.model.taken[a] {
				p.t.Errorf("Addresses(%v): %v, %v; want taken ones", n.Prefix, a, err)
			}
		}
	}
	if want := slices.SortedFunc(maps.Keys(p.model.blocks), netip.Prefix.Compare); !slices.Equal(blocks, want) {
		p.t.Errorf("Blocks = %v; want %v", blocks, want)
	}
	if got, err := p.space.Counts(p.model.u.family); got != sum || err != nil || sum.Taken != len(p.model.taken) {
		p.t.Errorf("Counts = %+v, %v; want %+v with %d taken", got, err, sum, len(p.model.taken))
	}
	if got, err := p.space.Freed(p.model.u.family); got != p.model.frees || err != nil {
		p.t.Errorf("Freed = %d, %v; want %d", got, err, p.model.frees)
	}
	for i := range universeSize {
		a := p.model.u.at(i)
		if got, err := p.space.State(a); got != p.model.state(a) || err != nil {
			p.t.Errorf("State(%v) = %v, %v; want %v", a, got, err, p.model.state(a))
		}
	}
}

func (p *players) play(steps int) {
	for i := range steps {
		p.step()
		if i%50 == 0 || i == steps-1 {
			p.compare()
		}
		if p.t.Failed() {
			p.t.Fatalf("after %d calls, the last of them:\n%s", len(p.log), bytes.Join(tail(p.log, 40), []byte("\n")))
		}
	}
}

func tail(log []string, n int) [][]byte {
	var last [][]byte
	for _, l := range log[max(0, len(log)-n):] {
		last = append(last, []byte(l))
	}
	return last
}

// TestSpaceAgainstModel drives a Space and its model with the same random calls.
func TestSpaceAgainstModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			newPlayers(t, universes()[seed%6], seeded(seed)).play(2000)
		})
	}
}

// FuzzSpace does the same with calls that the fuzzer makes.
func FuzzSpace(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(bytes.Repeat([]byte{0, 4, 3, 11, 0, 9}, 40))
	for seed := range uint64(4) {
		c, data := seeded(seed), make([]byte, 2000)
		for i := range data {
			data[i] = byte(c(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := chooserOf(data)
		newPlayers(t, universes()[c(6)], c).play(min(len(data)/2, 500))
	})
}
