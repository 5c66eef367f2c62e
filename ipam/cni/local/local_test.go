package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// network is a network in local mode.
type network struct {
	t   *testing.T
	dir string
	ipm string // what "ipam" says beside type, mode and dataDir
	on  host   // where the calls are made
}

// newNetwork returns a network whose store must be consistent when the test ends.
func newNetwork(t *testing.T, ipam string) *network {
	n := &network{t: t, dir: t.TempDir(), ipm: ipam}
	t.Cleanup(n.checkStore)
	return n
}

func (n *network) checkStore() {
	// A call that gave up waiting may still be given the lock, for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, err := store.OpenLocal(ctx, filepath.Join(n.dir, "net.db"), store.Options{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		n.t.Errorf("store after the test: %v", err)
		return
	}
	defer st.Close()
	if err := st.Check(); err != nil {
		n.t.Errorf("store inconsistent after the test: %v", err)
	}
}

// config returns the configuration; extra are further keys of its top level.
func (n *network) config(extra string) []byte {
	return fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"net","type":"bridge",%s"ipam":{"type":"tenure","mode":"local","dataDir":%q,%s}}`,
		extra, n.dir, n.ipm)
}

func (n *network) serve(req agentapi.Request) agentapi.Response {
	return n.on.serve(context.Background(), req, now)
}

// add returns the addresses of an ADD, or its error's text.
func (n *network) add(container string) string {
	n.t.Helper()
	return n.ask(agentapi.Request{Verb: agentapi.Add, ContainerID: container, IfName: "eth0", Config: n.config("")})
}

func (n *network) ask(req agentapi.Request) string {
	resp := n.serve(req)
	if resp.Error != nil {
		return fmt.Sprintf("code %d: %v", resp.Error.Code, resp.Error)
	}
	if resp.Result == nil {
		return ""
	}
	var s []string
	for _, ip := range resp.Result.IPs {
		s = append(s, ip.Address.String())
	}
	return strings.Join(s, " ")
}

func (n *network) del(container string) {
	n.t.Helper()
	if got := n.ask(agentapi.Request{Verb: agentapi.Del, ContainerID: container, IfName: "eth0", Config: n.config("")}); got != "" {
		n.t.Fatalf("DEL of %s: %s", container, got)
	}
}

func (n *network) want(container, want string) {
	n.t.Helper()
	if got := n.add(container); got != want {
		n.t.Errorf("ADD of %s: %s; want %s", container, got, want)
	}
}

func TestFreshAddressesComeBeforeFreedOnes(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/29"`) // .2 to .6
	n.want("a", "10.0.0.2/29")
	n.want("b", "10.0.0.3/29")
	n.del("b")
	n.del("a")
	n.want("c", "10.0.0.4/29")
	n.want("d", "10.0.0.5/29")
	n.want("e", "10.0.0.6/29")
	n.want("f", "10.0.0.3/29") // the longest freed
	n.want("g", "10.0.0.2/29")
	if got := n.add("h"); !strings.HasPrefix(got, "code 11: pool net has no free IPv4 address") {
		t.Errorf("full: %s; want code 11 with the reason", got)
	}
	n.del("d")
	n.want("h", "10.0.0.5/29")
}

// TestFreshAddressesOfOtherBlocks: the freed addresses of the first block rest
// while others have fresh ones.
func TestFreshAddressesOfOtherBlocks(t *testing.T) {
	n := newNetwork(t, `"ranges":[[{"subnet":"10.0.0.0/30"},{"subnet":"10.5.0.0/30"}]]`)
	n.want("a", "10.0.0.2/30")
	n.del("a")
	n.want("b", "10.5.0.2/30")
	n.want("c", "10.0.0.2/30")
}

// open opens the network's store until the test ends, and returns what an ADD would take
// addresses from.
func (n *network) open() (map[string]assign.Pool, []assign.Slot, *store.Store) {
	n.t.Helper()
	c, err := poolspec.ParseConfig(n.config(""), "")
	if err != nil {
		n.t.Fatal(err)
	}
	ps, slots, err := plan(c)
	if err != nil {
		n.t.Fatal(err)
	}
	st, err := open(context.Background(), c)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { st.Close() })
	return ps, slots, st
}

// TestWholeRangeIsUsed takes every address of a range with more blocks than are
// opened ahead, frees some, and takes them again.
func TestWholeRangeIsUsed(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/19"`) // 32 blocks
	ps, slots, st := n.open()
	seen := map[netip.Addr]bool{}
	one := func(tx *store.Tx, i int) error {
		x, _, err := host{}.hold(tx, ps, assign.Demand{Key: store.Key{Network: "net", ContainerID: fmt.Sprint(i), IfName: "eth0"}, Now: now, Slots: slots})
		if err == nil && seen[x.Addresses[0].Addr] {
			t.Fatalf("%v is given twice", x.Addresses[0].Addr)
		}
		if err == nil {
			seen[x.Addresses[0].Addr] = true
		}
		return err
	}
	const all = 1<<13 - 3 // without network address, broadcast address and gateway
	err := st.Update(context.Background(), func(tx *store.Tx) error {
		for i := range all {
			if err := one(tx, i); err != nil {
				return fmt.Errorf("address %d of %d: %w", i, all, err)
			}
		}
		if err := one(tx, all); !errors.As(err, new(*assign.NoRoomError)) {
			t.Errorf("one more than there are: %v; want NoRoomError", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestIPv6DoesNotGrowForEver: an address is taken and freed many times over, in
// a range that has fresh ones without end.
func TestIPv6DoesNotGrowForEver(t *testing.T) {
	n := newNetwork(t, `"subnet":"fd00::/64"`)
	ps, slots, st := n.open()
	k := store.Key{Network: "net", ContainerID: "c", IfName: "eth0"}
	err := st.Update(context.Background(), func(tx *store.Tx) error {
		for range (aheadBlocks + 1) << blockLog {
			if _, _, err := (host{}).hold(tx, ps, assign.Demand{Key: k, Now: now, Slots: slots}); err != nil {
				return err
			}
			if _, _, err := assign.Release(tx, k); err != nil {
				return err
			}
		}
		counts, err := space(tx, slots[0].Pool, slots[0].Shape).Counts(slots[0].Family)
		if counts.Blocks > aheadBlocks {
			t.Errorf("%d blocks are open for one address at a time; want at most %d", counts.Blocks, aheadBlocks)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSeveralSets(t *testing.T) {
	n := newNetwork(t, `"ranges":[[{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/125"}],[{"subnet":"10.0.0.8/29"}]]`)
	n.want("a", "10.0.0.2/29 fd00::2/125 10.0.0.10/29")
	n.want("b", "10.0.0.3/29 fd00::3/125 10.0.0.11/29")
}

// TestEditedConfiguration: between ADD and DEL the range is moved, and the
// rest of the configuration becomes invalid.
func TestEditedConfiguration(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/30"`)
	n.want("a", "10.0.0.2/30")
	n.ipm = `"subnet":"10.0.0.0/29"`
	n.want("b", "10.0.0.3/29")
	n.ipm = `"subnet":"10.9.0.0/30"`
	n.want("c", "10.9.0.2/30")
	n.want("b", "10.0.0.3/29") // C10: as it was answered
	n.ipm = `"subnet":"rubbish"`
	n.del("a")
	n.del("b")
	n.ipm = `"subnet":"10.0.0.0/29","rangeStart":"10.0.0.2","rangeEnd":"10.0.0.3"`
	n.want("d", "10.0.0.2/29")
	n.want("e", "10.0.0.3/29")
}

// TestFormOfRangesChanges: an edit of what a network's ranges are called, or of how they
// relate, loses sight of no address that a container has.
func TestFormOfRangesChanges(t *testing.T) {
	for _, tt := range []struct{ before, after string }{
		{`"subnet":"10.0.0.0/29"`, `"range":"10.0.0.0/29","gateway":"10.0.0.1"`},
		{`"range":"10.0.0.0/29","gateway":"10.0.0.1"`, `"subnet":"10.0.0.0/29"`},
		{`"range":"10.0.0.0/29"`, `"range":"10.0.0.0/29","network_name":"lan"`},
		{`"range":"10.0.0.0/29","enable_overlapping_ranges":false`, `"range":"10.0.0.0/28","enable_overlapping_ranges":false`},
	} {
		n := newNetwork(t, tt.before)
		a, _, _ := strings.Cut(n.add("a"), "/")
		n.ipm = tt.after
		if b, _, _ := strings.Cut(n.add("b"), "/"); b == a || !strings.HasPrefix(b, "10.0.0.") {
			t.Errorf("%s: a has %s; then %s: b has %s", tt.before, a, tt.after, b)
		}
	}
}

func TestNestedRangesOfOneNetwork(t *testing.T) {
	n := newNetwork(t, `"ipRanges":[{"range":"10.0.0.0/24"},{"range":"10.0.0.0/25"}],"enable_overlapping_ranges":false`)
	n.want("a", "10.0.0.1/24 10.0.0.2/25")
	n.want("b", "10.0.0.3/24 10.0.0.4/25")
}

// TestStoreWithOtherPools: what an earlier version gave out of pools by other names stays
// with who has it, and comes back when all who have it have freed it.
func TestStoreWithOtherPools(t *testing.T) {
	n := newNetwork(t, `"range":"10.0.0.0/29"`)
	c, err := poolspec.ParseConfig(n.config(""), "")
	if err != nil {
		t.Fatal(err)
	}
	st, err := open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	shape, err := poolspec.ParsePool(*c.Sources[0].Implicit)
	if err != nil {
		t.Fatal(err)
	}
	err = st.Update(t.Context(), func(tx *store.Tx) error {
		var errs []error
		for _, x := range []struct{ container, pool, addr string }{
			{"a", "default-domain", "10.0.0.1"}, {"b", "default-domain", "10.0.0.2"},
			{"c", "net", "10.0.0.1"}, // twice, by an edit
			{"d", "gone", "10.9.0.1"},
		} {
			sp, block := space(tx, protocol.PoolName(x.pool), shape), prefix(addr(x.addr).String()+"/24").Masked()
			errs = append(errs, sp.Open(block), sp.Take(addr(x.addr)), tx.PutAttachment(store.Attachment{
				Key: store.Key{Network: "net", ContainerID: x.container, IfName: "eth0"}, Created: now,
				Addresses: []store.Address{{Addr: addr(x.addr), Bits: 29, Pool: protocol.PoolName(x.pool)}},
			}))
		}
		return errors.Join(errs...)
	})
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	n.want("e", "10.0.0.3/29")
	for container, has := range map[string]string{"a": "10.0.0.1/29", "b": "10.0.0.2/29", "c": "10.0.0.1/29", "d": "10.9.0.1/29"} {
		n.want(container, has) // C10
		prev := `"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"` + has + `"}]},`
		if got := n.ask(agentapi.Request{Verb: agentapi.Check, ContainerID: container, IfName: "eth0", Config: n.config(prev)}); got != "" {
			t.Errorf("CHECK of %s: %s", container, got)
		}
	}
	n.del("c")
	n.del("b")
	n.want("f", "10.0.0.4/29")
	n.want("g", "10.0.0.5/29")
	n.want("h", "10.0.0.6/29")
	n.want("i", "10.0.0.2/29") // not .1, which a has
	n.del("a")
	n.del("d")
	n.want("j", "10.0.0.1/29")
	if got := n.add("k"); !strings.HasPrefix(got, "code 11: pool net has no free IPv4 address") {
		t.Errorf("full: %s; want code 11 with the reason", got)
	}
}

func TestGatewayOutsideTheRange(t *testing.T) {
	n := newNetwork(t, `"range":"10.0.0.0/29","gateway":"10.0.0.6"`)
	resp := n.serve(agentapi.Request{Verb: agentapi.Add, ContainerID: "a", IfName: "eth0", Config: n.config("")})
	if resp.Error != nil || resp.Result.IPs[0].Gateway != netip.MustParseAddr("10.0.0.6") {
		t.Errorf("got %+v, %v; want gateway 10.0.0.6", resp.Result, resp.Error)
	}
}

func TestIgnoredKeysAreTold(t *testing.T) {
	n := newNetwork(t, `"range":"10.0.0.0/24","log_level":"debug"`)
	resp := n.serve(agentapi.Request{Verb: agentapi.Add, ContainerID: "a", IfName: "eth0", Config: n.config("")})
	if resp.Error != nil || len(resp.Warnings) != 1 || !strings.HasPrefix(resp.Warnings[0], "ipam.log_level: ") {
		t.Errorf("error %v, warnings %q; want success, and one warning about ipam.log_level", resp.Error, resp.Warnings)
	}
}

// TestGC (C14) lists what is garbage by the runtime's list, and what is kept
// although the list has it not.
func TestGC(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	if err := os.WriteFile(alive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, keys string
		want       string // the containers that still have an address, or the error
	}{
		{"absent", ``, "code 7"},
		{"null", `"cni.dev/valid-attachments":null,`, "alive"},
		{"empty", `"cni.dev/valid-attachments":[],`, "alive"},
		{"one", `"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],`, "a alive"},
		{"another interface of it", `"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth1"}],`, "alive"},
		{"all interfaces of it", `"cni.dev/valid-attachments":[{"containerID":"a"}],`, "a alive"},
		{"the old key", `"cni.dev/attachments":[{"containerID":"b","ifname":"eth0"}],`, "alive b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, `"subnet":"10.0.0.0/24"`)
			for _, c := range []string{"a", "b"} {
				n.add(c)
			}
			n.ask(agentapi.Request{Verb: agentapi.Add, ContainerID: "alive", IfName: "eth0", Netns: alive, NetnsID: netns.ID(alive), Config: n.config("")})
			got := n.ask(agentapi.Request{Verb: agentapi.GC, Config: n.config(tt.keys)})
			if got == "" {
				got = n.holders()
			}
			if !strings.HasPrefix(got, tt.want) || len(got) != len(tt.want) && !strings.HasPrefix(tt.want, "code") {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
	n := newNetwork(t, `"subnet":"10.0.0.0/24"`)
	if got := n.ask(agentapi.Request{Verb: agentapi.GC, Config: n.config(`"cni.dev/valid-attachments":[],`)}); got != "" {
		t.Errorf("GC before any ADD: %s; want success", got)
	}
}

// holders returns the containers that have an address.
func (n *network) holders() string {
	n.t.Helper()
	st, err := store.Open(filepath.Join(n.dir, "net.db"), store.Options{ReadOnly: true})
	if err != nil {
		n.t.Fatal(err)
	}
	defer st.Close()
	var names []string
	if err := st.View(func(tx *store.Tx) error {
		for x, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			names = append(names, x.ContainerID)
		}
		return nil
	}); err != nil {
		n.t.Fatal(err)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestStatus (C13).
func TestStatus(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/30"`)
	status := func() string { return n.ask(agentapi.Request{Verb: agentapi.Status, Config: n.config("")}) }
	if got := status(); got != "" {
		t.Errorf("before any ADD: %s; want success", got)
	}
	n.want("a", "10.0.0.2/30") // STATUS took nothing
	if got := status(); got != "" {
		t.Errorf("full: %s; want success, unless it is asked for", got)
	}
	n.ipm += `,"statusWhenFull":true`
	if got := status(); !strings.HasPrefix(got, "code 50: pool net has no free IPv4 address") {
		t.Errorf("full, asked for: %s; want code 50 with the reason", got)
	}
	n.del("a")
	if got := status(); got != "" {
		t.Errorf("with room again: %s; want success", got)
	}
	blocked := &network{t, filepath.Join(n.dir, "net.db"), n.ipm, host{}} // a file where a directory should be
	if got := blocked.ask(agentapi.Request{Verb: agentapi.Status, Config: blocked.config("")}); !strings.HasPrefix(got, "code 50") {
		t.Errorf("without a place for its store: %s; want code 50", got)
	}
}

// TestDamagedStore: nothing is answered from a damaged store, and a DEL does
// not hang on it. When it is moved away, all goes on.
func TestDamagedStore(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/24"`)
	n.want("a", "10.0.0.2/24")
	file := filepath.Join(n.dir, "net.db")
	if err := os.WriteFile(file, []byte(strings.Repeat("rubbish", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []agentapi.Verb{agentapi.Add, agentapi.Check, agentapi.GC, agentapi.Status} {
		keys := `"prevResult":{"cniVersion":"1.1.0","ips":[]},"cni.dev/valid-attachments":[],`
		got := n.ask(agentapi.Request{Verb: verb, ContainerID: "a", IfName: "eth0", Config: n.config(keys)})
		if !strings.HasPrefix(got, "code ") || !strings.Contains(got, file) || !strings.Contains(got, "move the file away") {
			t.Errorf("%s: %s; want an error that names the file and the remedy", verb, got)
		}
	}
	resp := n.serve(agentapi.Request{Verb: agentapi.Del, ContainerID: "a", IfName: "eth0", Config: n.config("")})
	if resp.Error != nil || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], file) {
		t.Errorf("DEL: %v, warnings %q; want success and one warning that names the file", resp.Error, resp.Warnings)
	}
	if err := os.Rename(file, file+".damaged"); err != nil {
		t.Fatal(err)
	}
	n.want("b", "10.0.0.2/24")
}

func TestLockIsWaitedForUntilTheDeadline(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/24"`)
	n.want("a", "10.0.0.2/24")
	st, err := store.Open(filepath.Join(n.dir, "net.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	resp := Serve(ctx, agentapi.Request{Verb: agentapi.Add, ContainerID: "b", IfName: "eth0", Config: n.config("")}, now)
	if resp.Error == nil || resp.Error.Code != agentapi.CodeTryAgainLater || !strings.HasPrefix(resp.Error.Msg, "wait for other calls of network net: ") {
		t.Errorf("got %+v; want code 11 with the reason", resp.Error)
	}
}

func TestUnknownVerb(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/24"`)
	if got := n.ask(agentapi.Request{Verb: "EAT", Config: n.config("")}); !strings.HasPrefix(got, "code 6") {
		t.Errorf("got %s; want code 6", got)
	}
	if got := n.ask(agentapi.Request{Verb: agentapi.Ping}); got != "" {
		t.Errorf("PING: %s; want success", got)
	}
}

// TestVanishedContainers: on a full range an ADD gets what a container has whose network namespace
// is provably gone, and nothing of one of which that cannot be told. No DEL and no GC has come.
func TestVanishedContainers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ns") // nothing is there
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := host{machine: "m1", boot: "b1", seesHost: true, inUse: func() (map[string]bool, error) { return map[string]bool{"4:1": true}, nil }}
	with := func(change func(*host)) host {
		h := first
		change(&h)
		return h
	}
	for _, tt := range []struct {
		name      string
		netns, id string
		then      host // where the next ADD comes
		old       bool // the record is of an earlier version
		want      bool // the container's address is taken back
	}{
		{name: "nothing at its path", netns: path, id: "4:2", then: first, want: true},
		{name: "a process that is gone", netns: "/proc/0/ns/net", id: "4:2", then: first, want: true},
		{name: "another one at its path", netns: "/proc/self/ns/net", id: "4:2", then: first, want: true},
		{name: "the machine was booted", netns: path, id: "4:2", then: with(func(h *host) { h.boot = "b2" }), want: true},
		{name: "the machine was booted, and its identity is not known", netns: "", id: "", then: with(func(h *host) { h.boot = "b2" }), want: true},
		{name: "a process in it, of a container that shares it", netns: path, id: "4:1", then: first},
		{name: "of some processes it cannot be told", netns: path, id: "4:2", then: with(func(h *host) {
			h.inUse = func() (map[string]bool, error) { return nil, errors.New("permission denied") }
		})},
		{name: "a process namespace of its own", netns: path, id: "4:2", then: with(func(h *host) { h.seesHost = false })},
		{name: "its directory is not there", netns: filepath.Join(dir, "none", "ns"), id: "4:2", then: first},
		{name: "a file in its place", netns: file, id: "4:2", then: first},
		{name: "no identity", netns: path, id: "", then: first},
		{name: "no path", netns: "", id: "", then: first},
		{name: "it is there", netns: "/proc/self/ns/net", id: netns.ID("/proc/self/ns/net"), then: first},
		{name: "another machine", netns: path, id: "4:2", then: with(func(h *host) { h.machine, h.boot = "m2", "b2" })},
		{name: "machines that cannot be told apart", netns: path, id: "4:2", then: with(func(h *host) { h.machine, h.boot = "", "b2" })},
		{name: "of an earlier version", netns: path, id: "4:2", then: first, old: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, `"subnet":"10.0.0.0/30"`) // one address
			if n.on = first; tt.old {
				n.on = host{}
			}
			ask := agentapi.Request{Verb: agentapi.Add, ContainerID: "old", IfName: "eth0", Netns: tt.netns, NetnsID: tt.id, Config: n.config("")}
			if got := n.ask(ask); got != "10.0.0.2/30" {
				t.Fatal(got)
			}
			n.on = tt.then
			full := n.ask(agentapi.Request{Verb: agentapi.Status, Config: []byte(strings.Replace(string(n.config("")), `"mode"`, `"statusWhenFull":true,"mode"`, 1))})
			if strings.HasPrefix(full, "code 50") == tt.want {
				t.Errorf("STATUS: %q; want it full: %v", full, !tt.want)
			}
			ask = agentapi.Request{Verb: agentapi.Add, ContainerID: "new", IfName: "eth0", Config: n.config("")}
			want := "code 11: pool net has no free IPv4 address"
			if tt.want {
				want = "10.0.0.2/30"
			}
			if got := n.ask(ask); !strings.HasPrefix(got, want) {
				t.Errorf("ADD: %s; want %s", got, want)
			}
			if !tt.want {
				return
			}
			if n.del("old"); n.holders() != "new" { // it comes late
				t.Errorf("after the late DEL %q have addresses", n.holders())
			}
		})
	}
}

// TestVanishedContainersInTurn: the oldest loses its address first, and none more than is needed;
// an address that is asked for by name is taken back from who has it. What was done is said.
func TestVanishedContainersInTurn(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/29"`) // .2 to .6
	n.on = host{machine: "m1", boot: "b1"}
	for _, c := range []string{"e", "d", "c", "b", "a"} {
		n.add(c)
	}
	n.on.boot = "b2"
	resp := n.serve(agentapi.Request{Verb: agentapi.Add, ContainerID: "new", IfName: "eth0", Config: n.config("")})
	if resp.Error != nil || resp.Result.IPs[0].Address.String() != "10.0.0.2/29" || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "those of container e, interface eth0, are taken back") {
		t.Errorf("%+v, %v, %q; want the address of e, and that it is taken back", resp.Result, resp.Error, resp.Warnings)
	}
	n.want("b", "10.0.0.5/29") // it was started again
	named := agentapi.Request{Verb: agentapi.Add, ContainerID: "named", IfName: "eth0", Args: "IP=10.0.0.6", Config: n.config("")}
	if got := n.ask(named); got != "10.0.0.6/29" {
		t.Errorf("by name: %s; want that of a", got)
	}
	if got := n.holders(); got != "b c d named new" {
		t.Errorf("%s have addresses", got)
	}
	named.ContainerID, named.Args = "other", "IP=10.0.0.5"
	if got := n.ask(named); !strings.HasPrefix(got, "code 11: address 10.0.0.5 of pool net is held by container b") {
		t.Errorf("by name of one that lives: %s; want that b has it", got)
	}
	n.ipm = `"subnet":"10.0.0.0/24","rangeStart":"10.0.0.4","rangeEnd":"10.0.0.4"`
	if got := n.add("narrow"); got != "10.0.0.4/24" || n.holders() != "b d named narrow new" {
		t.Errorf("where only the address of c will do: %s, and %s have addresses; want that of c", got, n.holders())
	}
}

// TestSharedDataDir: two machines with one directory hear of it, and neither takes back what the
// other's containers have, by GC or on a full range.
func TestSharedDataDir(t *testing.T) {
	n := newNetwork(t, `"subnet":"10.0.0.0/29"`)
	one, two := host{machine: "m1", boot: "b1"}, host{machine: "m2", boot: "b2"}
	for i, h := range []host{one, one, two, two, one} {
		n.on = h
		resp := n.serve(agentapi.Request{Verb: agentapi.Add, ContainerID: fmt.Sprint(i), IfName: "eth0", Netns: "/run/netns/none", NetnsID: "4:2", Config: n.config("")})
		if resp.Error != nil {
			t.Fatal(resp.Error)
		}
		if told := len(resp.Warnings) == 1 && strings.HasPrefix(resp.Warnings[0], "ipam.dataDir: machine m"); told != (i == 2 || i == 4) {
			t.Errorf("ADD %d: warnings %q", i, resp.Warnings)
		}
	}
	n.on = two
	if got := n.ask(agentapi.Request{Verb: agentapi.GC, Config: n.config(`"cni.dev/valid-attachments":[],`)}); got != "" || n.holders() != "0 1 4" {
		t.Errorf("GC %q: %s have addresses; want those of the other machine", got, n.holders())
	}
}
