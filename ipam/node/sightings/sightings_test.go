package sightings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// cachingHost is a Host with what the CNI library has kept, whose sandboxes are there, and with a
// directory of host-local's that it cannot read.
type cachingHost struct {
	Host
	cached  []cniresults.Entry
	damaged []*cniresults.FileError
}

func (h cachingHost) Cached() ([]cniresults.Entry, []*cniresults.FileError, error) {
	return h.cached, h.damaged, nil
}
func (cachingHost) There(string) bool { return true }
func (cachingHost) HostLocal(network, dataDir string) ([]HostLocalFile, error) {
	if network == "torn" {
		return []HostLocalFile{{Addr: netip.MustParseAddr("10.0.0.7")}}, nil
	}
	if dataDir == "/srv/nfs" {
		return nil, errors.New("/srv/nfs: permission denied")
	}
	return nil, nil
}

// clock is a synctest bubble's.
type clock struct{ began time.Time }

func (c clock) Now() protocol.Instant {
	return protocol.Instant{Boot: time.Since(c.began), Wall: time.Now()}
}

func (clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// newReporter returns a Reporter on an empty store, and how often it had something new to say.
func newReporter(t *testing.T, host Host) (r *Reporter, ready *atomic.Int32) {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	ready = new(atomic.Int32)
	return New(st, host, sched.Goroutines(clock{time.Now()}), slog.New(slog.DiscardHandler), func(task func(context.Context)) {
		running.Go(func() { task(t.Context()) })
	}, func() { ready.Add(1) }), ready
}

// TestReportsWhatTenureHasGiven: a pod has its address before the CNI library has kept the result,
// and shows it after its DEL. At each moment the report says that Tenure gave it, also after a
// restart.
func TestReportsWhatTenureHasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := cachingHost{cached: []cniresults.Entry{{
			Network: "cbr0", ContainerID: "c", IfName: "eth0", Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=uid",
			IPAM: []json.RawMessage{json.RawMessage(`{"ipam":{"type":"host-local"}}`)}, IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.244.0.9/24")}},
		}}}
		r, _ := newReporter(t, host)
		addr := netip.MustParseAddr("10.0.0.5")
		att := store.Attachment{
			Key: store.Key{Network: "net", ContainerID: "c", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "uid"},
			Addresses: []store.Address{{Addr: addr, Bits: 27, Pool: "lan"}},
		}
		if err := r.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutAttachment(att) }); err != nil {
			t.Fatal(err)
		}
		look := protocol.Query{ID: "1", Ranges: []string{"10.0.0.0-10.0.0.31"}, HostLocal: []protocol.HostLocal{{Network: "net"}}}
		says := func(when string, want ...protocol.Sighting) {
			t.Helper()
			got := r.report(t.Context(), look)
			if !slices.Equal(got.Has, want) || !slices.Equal(got.Running, []protocol.UID{"uid"}) || got.Unread != "" {
				t.Errorf("%s it reports %+v; want %v, and pod uid running", when, got, want)
			}
		}
		ours := protocol.Sighting{Addr: addr, Pod: att.Pod, Sandbox: "c", Network: "net", IPAM: "tenure", Pool: "lan"}
		says("before the library has the result", ours)
		r.Arrived("late", "net")
		r.Arrived("other", "cbr0")
		if asked := r.report(t.Context(), look).Asked; len(asked) != 1 || !slices.Equal(asked["net"], []protocol.UID{"late", "uid"}) {
			t.Errorf("pods that have asked Tenure: %v; want, for this network alone, the one that the store knows from before the start, and one whose ADD has come", asked)
		}
		r.host = cachingHost{cached: append(host.cached, cniresults.Entry{
			Network: "net", ContainerID: "c", IfName: "net1", Args: host.cached[0].Args,
			IPAM: []json.RawMessage{json.RawMessage(`{"ipam":{"type":"tenure"}}`)}, IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.0.0.5/27")}},
		})}
		says("when both have it", ours)
		r.host = host
		r.Freed(att)
		if err := r.st.Update(t.Context(), func(tx *store.Tx) error { return tx.DeleteAttachment(att.Key) }); err != nil {
			t.Fatal(err)
		}
		freed := ours
		freed.Freed = true
		says("after the DEL, while the pod still shows it", freed)
		time.Sleep(latelyKept)
		says("a while after the DEL")
	})
}

// TestNotingManyIsCheap: what a pod costs that comes or goes does not grow with those before it.
func TestNotingManyIsCheap(t *testing.T) {
	var l lately[int]
	n := 0
	if each := testing.AllocsPerRun(4*latelyFew, func() { l.note(n, protocol.Instant{}); n++ }); each > 10 {
		t.Errorf("%v allocations for each of %d", each, n)
	}
}

// TestMuchThatHappensHasRoom: pods that come and go in quick succession, on one address, keep no
// report from being whole: it tells the last of them.
func TestMuchThatHappensHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newReporter(t, cachingHost{})
		long := func(n int) string { return fmt.Sprintf("%0200d", n) }
		for n := range 3000 {
			att := store.Attachment{
				Key: store.Key{Network: "net", ContainerID: fmt.Sprintf("%064d", n), IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: long(n), UID: protocol.UID(fmt.Sprintf("%036d", n))},
				Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 27, Pool: "lan"}},
			}
			r.Arrived(att.Pod.UID, "net")
			if n%10 == 9 {
				r.Freed(att)
			}
			time.Sleep(50 * time.Millisecond)
		}
		got, _, err := protocol.ParseReport(r.report(t.Context(), protocol.Query{ID: "1", Ranges: []string{"10.0.0.0-10.0.0.31"}, HostLocal: []protocol.HostLocal{{Network: "net"}}}).String())
		last := func(s protocol.Sighting) bool { return s.Pod.Name == long(2999) }
		if err != nil || got.Unread != "" || !slices.ContainsFunc(got.Has, last) || !slices.Contains(got.Asked["net"], protocol.UID(fmt.Sprintf("%036d", 2999))) {
			t.Errorf("unread %q, %d sightings, %d have asked, error %v; want a whole report with the last", got.Unread, len(got.Has), len(got.Asked["net"]), err)
		}
	})
}

// staticHost is a Host on which static has given one address to many sandboxes of a network, and to
// one of another.
type staticHost struct{ cachingHost }

func (staticHost) Cached() (all []cniresults.Entry, unread []*cniresults.FileError, err error) {
	entry := func(network string, n int) cniresults.Entry {
		return cniresults.Entry{
			Network: network, ContainerID: fmt.Sprintf("%064d", n), IfName: "net1", Netns: "/run/netns/x", IPAM: []json.RawMessage{json.RawMessage(`{"ipam":{"type":"static"}}`)},
			Args: fmt.Sprintf("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=%0250d;K8S_POD_UID=%036d", n, n), IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.0.0.5/24")}},
		}
	}
	for n := range 250 {
		all = append(all, entry("any", n))
	}
	return append(all, entry("net", 250)), nil, nil
}

// inParts asks a reporter for all of an answer.
func inParts(t *testing.T, r *Reporter, q protocol.Query) (all []protocol.Sighting, parts int) {
	t.Helper()
	for q.Parts = true; ; {
		text := r.report(t.Context(), q).String()
		got, _, err := protocol.ParseReport(text)
		if parts++; err != nil || got.Unread != "" || len(text) > protocol.MaxReport {
			t.Fatalf("part %d of %d bytes: unread %q, error %v; want a whole report", parts, len(text), got.Unread, err)
		}
		if all = append(all, got.Has...); !q.GoesOn(got) {
			return all, parts
		}
	}
}

// TestManyOfOneAddressHaveRoom (I1): pods that have one address by another IPAM, as anybody may
// have many by static, keep no report from being whole, and hide nobody who has it.
func TestManyOfOneAddressHaveRoom(t *testing.T) {
	r, _ := newReporter(t, staticHost{})
	got, _ := inParts(t, r, protocol.Query{ID: "1", Ranges: []string{"10.0.0.0-10.0.0.31"}})
	on := map[string]int{}
	for _, s := range got {
		on[s.Network]++
	}
	if on["any"] != 250 || on["net"] != 1 {
		t.Errorf("sightings %v; want all of both networks", on)
	}
}

// TestOneAddressOnManyNetworks (I1): as above, with as many networks of one pod's, all names as
// long as can be, by another IPAM and by Tenure.
func TestOneAddressOnManyNetworks(t *testing.T) {
	const networks = 300
	var host cachingHost
	of := func(n int) string { return fmt.Sprintf("%0253d", n) }
	box := func(container, network string) {
		host.cached = append(host.cached, cniresults.Entry{
			Network: network, ContainerID: fmt.Sprintf("%064s", container), IfName: "net1",
			Args: fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", strings.Repeat("n", 63), of(0), container),
			IPAM: []json.RawMessage{json.RawMessage(`{"ipam":{"type":"static"}}`)}, IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.0.0.5/24")}},
		})
	}
	for n := range networks {
		box("0", of(n))
	}
	box("f", "lan")
	r, _ := newReporter(t, host)
	err := r.st.Update(t.Context(), func(tx *store.Tx) error {
		for n := range networks {
			if err := tx.PutAttachment(store.Attachment{
				Key: store.Key{Network: of(n), ContainerID: "c", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: of(n), UID: "u"},
				Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 24, Pool: "p"}},
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, parts := inParts(t, r, protocol.Query{ID: "1", Ranges: []string{"10.0.0.1-10.0.0.254"}})
	if !slices.ContainsFunc(got, func(s protocol.Sighting) bool { return s.Network == "lan" }) || len(once(slices.Clone(got))) != len(got) || len(got) != 2*networks+1 || parts < 3 {
		t.Errorf("%d sightings in %d parts; want each of %d once", len(got), parts, 2*networks+1)
	}
	old, _, err := protocol.ParseReport(r.report(t.Context(), protocol.Query{ID: "1", Ranges: []string{"10.0.0.1-10.0.0.254"}}).String())
	if err != nil || old.Unread == "" {
		t.Errorf("a controller that knows of no parts is told %d sightings, error %v; want that there are too many", len(old.Has), err)
	}
}

// TestLongTypeHidesNobody (I1): a plugin that has no IPAM does not look at the type of one that its
// section names. However long it is, all are told that have the address.
func TestLongTypeHidesNobody(t *testing.T) {
	for _, length := range []int{10, 40 << 10, 100 << 10} {
		var host cachingHost
		box := func(container, network string, types ...string) {
			e := cniresults.Entry{
				Network: network, ContainerID: container, IfName: "net1", IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.0.0.5/24")}},
				Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + container + ";K8S_POD_UID=" + container,
			}
			for _, x := range types {
				e.IPAM = append(e.IPAM, json.RawMessage(fmt.Sprintf(`{"ipam":{"type":%q}}`, x)))
			}
			host.cached = append(host.cached, e)
		}
		for _, network := range []string{"lan", "lan2", "lan3", "lan4"} {
			box("a", network, "static", strings.Repeat("x", length))
		}
		box("f", "lan", "host-local")
		r, _ := newReporter(t, host)
		if got, _ := inParts(t, r, protocol.Query{ID: "1", Ranges: []string{"10.0.0.1-10.0.0.254"}}); len(got) != 5 {
			t.Errorf("a type of %d bytes: it tells %d of five", length, len(got))
		}
	}
}

// slowHost is a Host that takes long to read what the CNI library has kept.
type slowHost struct {
	cachingHost
	reading, most, reads atomic.Int32
}

func (h *slowHost) Cached() ([]cniresults.Entry, []*cniresults.FileError, error) {
	h.most.Store(max(h.most.Load(), h.reading.Add(1)))
	time.Sleep(time.Minute)
	h.reading.Add(-1)
	h.reads.Add(1)
	return nil, nil, nil
}

// TestAnswersOneQuestionAtATime: a node that is slow to read what is asked for does not read it
// for each question anew, and answers the last.
func TestAnswersOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &slowHost{}
		r, ready := newReporter(t, host)
		ask := func(id string) {
			r.Ask(protocol.Query{ID: id}.String())
			time.Sleep(time.Second)
		}
		answer := func() string {
			time.Sleep(time.Hour)
			return r.Answer()
		}
		for _, id := range []string{"1", "2", "3"} {
			ask(id)
		}
		if r, _, err := protocol.ParseReport(answer()); err != nil || r.ID != "3" || host.most.Load() > 1 || host.reads.Load() != 2 || ready.Load() != 1 {
			t.Errorf("it answers %+v, and has read %d times, %d at once; want the answer to 3, two and one", r, host.reads.Load(), host.most.Load())
		}
		ask("4")
		if r, _, err := protocol.ParseReport(answer()); err != nil || r.ID != "4" {
			t.Errorf("it answers %+v; want the answer to 4", r)
		}
	})
}

// TestReportsWhatItCannotSee: what cannot be read is not empty. The report says which directory or
// file of which network that is. A damaged file of a network that nobody asks for is nobody's.
func TestReportsWhatItCannotSee(t *testing.T) {
	torn := errors.New("unexpected EOF")
	reporter, _ := newReporter(t, cachingHost{damaged: []*cniresults.FileError{
		{Path: "/results/cbr0-c1-eth0", Err: torn}, {Path: "/results/net-c1-net1", Err: torn}, {Path: "/attached/c1", Err: torn},
	}})
	r := reporter.report(t.Context(), protocol.Query{ID: "1", HostLocal: []protocol.HostLocal{{Network: "net"}, {Network: "shelf", DataDir: "/srv/nfs"}}})
	var got []string
	for _, u := range r.Unseen {
		got = append(got, u.Network+": "+u.Why)
	}
	want := []string{
		"net: /results/net-c1-net1: unexpected EOF", "net: /attached/c1: unexpected EOF",
		"shelf: /attached/c1: unexpected EOF", "shelf: host-local's files of network shelf: /srv/nfs: permission denied",
	}
	if !slices.Equal(got, want) || r.Unread != "" {
		t.Errorf("it reports %q; want %q", got, want)
	}
	r = reporter.report(t.Context(), protocol.Query{ID: "1", Ranges: []string{"10.0.0.0-10.0.0.31"}, HostLocal: []protocol.HostLocal{{Network: "torn"}}})
	if last := len(r.Unseen) - 1; len(r.Has) > 0 || last < 0 || r.Unseen[last].Why != "host-local's files of network torn: that of 10.0.0.7 names no container" {
		t.Errorf("of a file that names no container it reports %+v", r)
	}
	if r := reporter.report(t.Context(), protocol.Query{ID: "1", Ranges: []string{"nonsense"}}); r.Unread == "" {
		t.Errorf("of a question that does not read it reports %+v", r)
	}
}

// TestIPAMOf: of several IPAMs it is Tenure that counts, but not where it is in local mode, of
// which the cluster knows nothing.
func TestIPAMOf(t *testing.T) {
	for _, tt := range []struct {
		configs []string
		want    string
	}{
		{[]string{`{"ipam":{"type":"host-local"}}`}, "host-local"},
		{[]string{`{"ipam":{"type":"tenure"}}`, `{"ipam":{"type":"host-local"}}`}, "tenure"},
		{[]string{`{"ipam":{"type":"tenure","mode":"cluster"}}`}, "tenure"},
		{[]string{`{"ipam":{"type":"tenure","mode":"local"}}`}, "tenure in local mode"},
		{[]string{`{}`, `nonsense`}, ""},
	} {
		var e cniresults.Entry
		for _, c := range tt.configs {
			e.IPAM = append(e.IPAM, json.RawMessage(c))
		}
		if got := ipamOf(e); got != tt.want {
			t.Errorf("%v: %q; want %q", tt.configs, got, tt.want)
		}
	}
}
