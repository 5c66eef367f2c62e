package grants

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// crowd is asks that wait, by name.
type crowd struct {
	t    *testing.T
	r    rig
	asks []Ask
}

// join has somebody ask for one address of each pool.
func (c *crowd) join(name string, pools ...protocol.PoolName) {
	a := Ask{To: protocol.Grantee{Kind: protocol.GranteeSubLease, UID: protocol.UID("s-" + name), Name: name}}
	for _, p := range pools {
		a.From = append(a.From, Source{Pool: p})
	}
	c.asks = append(c.asks, a)
	c.r.Ask(a)
	time.Sleep(3 * time.Second)
}

// leave frees what somebody has been granted of these pools, all in one go. He counts
// for served no more.
func (c *crowd) leave(name string, pools ...protocol.PoolName) {
	c.t.Helper()
	c.asks = slices.DeleteFunc(c.asks, func(a Ask) bool { return a.To.Name == name })
	var held []Held
	for _, h := range c.r.Held(protocol.UID("s-" + name)) {
		for _, p := range pools {
			if h.Pool == p {
				held = append(held, h)
			}
		}
	}
	if len(held) != len(pools) {
		c.t.Fatalf("%s has %d grants of %v", name, len(held), pools)
	}
	c.r.Withdraw(protocol.UID("s-" + name))
	if err := c.r.Drop(c.t.Context(), held); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
}

// served returns who has all that it asked for, in the order of arrival.
func (c *crowd) served() string {
	var names []string
	for _, a := range c.asks {
		if held := c.r.Held(a.To.UID); len(held) == len(a.From) {
			names = append(names, a.To.Name)
		} else if len(held) > 0 {
			c.t.Errorf("%s has %d of %d addresses: all or none", a.To.Name, len(held), len(a.From))
		}
	}
	return strings.Join(names, " ")
}

// TestOrderOverPools: asks that span pools stand in one line with those that want one
// of them. Nobody gets part of what he wants, nothing is kept for who waits for more
// (0013), and of those whom a free address would do for the first has it.
func TestOrderOverPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		c := &crowd{t: t, r: newRig(t, s)}
		s.setPool(lan(t, "a", "10.1.0.0/30")) // two addresses each
		s.setPool(lan(t, "b", "10.2.0.0/30"))
		time.Sleep(time.Second)
		c.join("1", "a", "b")
		c.join("2", "b", "a")
		for _, name := range []string{"both", "a-only", "b-only", "both-later", "a-later"} {
			switch first := name[:2]; first {
			case "a-":
				c.join(name, "a")
			case "b-":
				c.join(name, "b")
			default:
				c.join(name, "a", "b")
			}
		}
		for _, step := range []struct {
			who   string
			frees []protocol.PoolName
			want  string
		}{
			{"", nil, "1 2"},
			{"1", []protocol.PoolName{"a"}, "2 a-only"}, // the first of all wants b, too
			{"1", []protocol.PoolName{"b"}, "2 a-only b-only"},
			{"2", []protocol.PoolName{"a", "b"}, "both a-only b-only"},
			{"a-only", []protocol.PoolName{"a"}, "both b-only a-later"},
			{"b-only", []protocol.PoolName{"b"}, "both a-later"}, // stays free: both-later lacks a
			{"a-later", []protocol.PoolName{"a"}, "both both-later"},
		} {
			if step.who != "" {
				c.leave(step.who, step.frees...)
			}
			if got := c.served(); got != step.want {
				t.Fatalf("after %s frees of %v: served are %q; want %q", step.who, step.frees, got, step.want)
			}
		}
	})
}

// TestOrderOverPoolsOfMany: of many that want both of two pools each is served in its
// turn, however the addresses come free.
func TestOrderOverPoolsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		c := &crowd{t: t, r: newRig(t, s)}
		s.setPool(lan(t, "a", "10.1.0.1/32"))
		s.setPool(lan(t, "b", "10.2.0.1/32"))
		time.Sleep(time.Second)
		for i := range 6 {
			c.join(fmt.Sprint(i), "a", "b")
		}
		for i := range 6 {
			if got := c.served(); got != fmt.Sprint(i) {
				t.Fatalf("served are %q; want %d alone", got, i)
			}
			pools := []protocol.PoolName{"a", "b"}
			c.leave(fmt.Sprint(i), pools[i%2])
			if got := c.served(); got != "" {
				t.Errorf("with an address of one pool free served are %q; want nobody", got)
			}
			c.leave(fmt.Sprint(i), pools[1-i%2])
		}
	})
}

// TestStarving: who finds nothing within a full view starves, however much is free
// elsewhere in the pool; others are served all the same, and the pool starves no more
// once nobody waits.
func TestStarving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calm()
		r := newRig(t, s)
		s.setPool(lan(t, "lan", "10.0.0.0/24"))
		time.Sleep(time.Second)
		view := func(name string) Ask { return requestOf(t, name, "lan", "10.0.0.1-10.0.0.2") }
		for _, name := range []string{"1", "2"} {
			if got := r.settle(view(name)); len(got.Granted) != 1 || r.Starving("lan", nil) {
				t.Fatalf("%s is granted %q, starving %v; want an address, and that nobody starves", name, addrs(got), r.Starving("lan", nil))
			}
		}
		got := r.settle(view("3"))
		if got.Problem.Reason != Exhausted || !strings.Contains(got.Problem.Message, "within 10.0.0.1-10.0.0.2") || !r.Starving("lan", nil) {
			t.Errorf("problem %+v, starving %v; want %v within the view, and that it starves", got.Problem, r.Starving("lan", nil), Exhausted)
		}
		if got := r.settle(requestOf(t, "elsewhere", "lan", "10.0.0.1-10.0.0.254")); len(got.Granted) != 1 || !r.Starving("lan", nil) {
			t.Errorf("elsewhere: granted %q, starving %v; want an address, and that the other still starves", addrs(got), r.Starving("lan", nil))
		}
		r.Withdraw("s-3")
		if r.Starving("lan", nil) {
			t.Error("the pool starves though nobody waits")
		}
	})
}

// TestAskOfAnEarlierClaim: a claim that waits is deleted and made again under its name, and
// the second one asks before it is known that the first has ended: both are known, so that the
// first can be withdrawn.
func TestAskOfAnEarlierClaim(t *testing.T) {
	b := newBook(time.Now)
	first, second := ask("c", "lan"), ask("c", "lan")
	second.To.UID = "u-c2"
	name := nameOf(first.To)
	b.ask(first, never)
	b.ask(second, never)
	if got := fmt.Sprint(b.known(name)); got != "[u-c u-c2]" {
		t.Errorf("known under the name is %s; want both", got)
	}
	b.withdraw(first.To.UID)
	if got := fmt.Sprint(b.known(name)); got != "[u-c2]" {
		t.Errorf("known without the first is %s; want the second", got)
	}
	b.withdraw(second.To.UID)
	if len(b.queue.byName) > 0 || len(b.queue.asks) > 0 {
		t.Errorf("%v and %v are left", b.queue.byName, b.queue.asks)
	}
}

// A pod may have the same address in two pools, by networks that are of two segments: neither is in
// the way of the other.
func TestOneAddressOfTwoPools(t *testing.T) {
	b := newBook(time.Now)
	bar := func(pool protocol.PoolName) Ask {
		return Ask{
			To:   protocol.Grantee{Kind: protocol.GranteePod, UID: "p", Namespace: "ns", Name: "p", Node: "n1"},
			From: []Source{{Pool: pool, Addr: netip.MustParseAddr("10.0.0.5"), Families: []allocator.Family{allocator.IPv4}}},
		}
	}
	for range 2 {
		b.ask(bar("a"), never)
		b.ask(bar("b"), never)
	}
	var tried []protocol.PoolName
	for _, w := range b.take(10, time.Now()) {
		tried = append(tried, w.ask.From[0].Pool)
		b.park(w)
	}
	if want := []protocol.PoolName{"a", "b"}; !slices.Equal(tried, want) {
		t.Errorf("tried are %v; want %v", tried, want)
	}
	b.withdraw(bar("b").key())
	if b.queue.asks[bar("a").key()] == nil || b.queue.asks[bar("b").key()] != nil {
		t.Error("of b is withdrawn what is asked of a")
	}
}

// However many asks wait in vain, and however often they are tried again, each has its turn.
func TestEachAskHasItsTurn(t *testing.T) {
	b := newBook(time.Now)
	for i := range 50 {
		b.ask(ask(strconv.Itoa(i), "lan"), never)
	}
	b.ask(ask("last", "lan"), never)
	for range 20 {
		for _, w := range b.take(10, time.Now()) {
			if w.ask.To.Name == "last" {
				return
			}
			b.park(w)
		}
		b.wake(b.pool("lan"))
	}
	t.Error("the last ask is never tried")
}
