package agent

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
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

// TestReportsWhatTenureHasGiven: a pod has its address before the CNI library has kept the result,
// and shows it after its DEL. At each moment the report says that Tenure gave it, also after a
// restart.
func TestReportsWhatTenureHasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p := newBubbleAgent(t)
		a.metrics = newMetrics(state{a})
		host := cachingHost{cached: []cniresults.Entry{{
			Network: "cbr0", ContainerID: "c", IfName: "eth0", Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=uid",
			IPAM: []json.RawMessage{json.RawMessage(`{"ipam":{"type":"host-local"}}`)}, IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.244.0.9/24")}},
		}}}
		a.host = host
		right := leaseRight(p.known.Pool, netip.MustParsePrefix("10.0.0.4/30"))
		right.Phase, right.UID = protocol.Held, "u"
		addr := netip.MustParseAddr("10.0.0.5")
		att := store.Attachment{
			Key: store.Key{Network: "net", ContainerID: "c", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "uid"}, Boot: a.cfg.Boot,
			Addresses: []store.Address{{Addr: addr, Bits: 27, Pool: "lan", Lease: right.Name}},
		}
		err := a.st.Update(t.Context(), func(tx *store.Tx) error {
			space := allocator.NewSpace(tx.Table("lan"), p.known.shape)
			return errors.Join(tx.PutRight(right), space.Open(right.Block), space.Take(addr), tx.PutAttachment(att))
		})
		if err != nil {
			t.Fatal(err)
		}
		look := protocol.Look{ID: "1", Ranges: []string{"10.0.0.0-10.0.0.31"}}
		says := func(when string, want ...protocol.Sighting) {
			t.Helper()
			r := a.report(t.Context(), look)
			if !slices.Equal(r.Has, want) || !slices.Equal(r.Running, []protocol.UID{"uid"}) || r.Unread != "" {
				t.Errorf("%s it reports %+v; want %v, and pod uid running", when, r, want)
			}
		}
		ours := protocol.Sighting{Addr: addr, Pod: att.Pod, Sandbox: "c", Network: "net", IPAM: "tenure"}
		says("before the library has the result", ours)
		if asking := a.report(t.Context(), look).Asking; !slices.Contains(asking, "uid") {
			t.Errorf("pods that have asked Tenure: %v; want the one that the store knows from before the start", asking)
		}
		a.host = cachingHost{cached: append(host.cached, cniresults.Entry{
			Network: "net", ContainerID: "c", IfName: "net1", Args: host.cached[0].Args,
			IPAM: []json.RawMessage{json.RawMessage(`{"ipam":{"type":"tenure"}}`)}, IPs: []cniresults.IP{{Address: netip.MustParsePrefix("10.0.0.5/27")}},
		})}
		says("when both have it", ours)
		a.host = host
		if err := a.release(t.Context(), att.Key, 0); err != nil {
			t.Fatal(err)
		}
		says("after the DEL, while the pod still shows it", ours)
		time.Sleep(latelyKept)
		says("a while after the DEL")
	})
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
		a, _ := newBubbleAgent(t)
		host := &slowHost{}
		a.host, a.beatNow = host, make(chan struct{}, 1)
		ask := func(id string) {
			a.hearLook(protocol.Registration{Store: a.st.ID(), Machine: a.cfg.Machine, Boot: a.cfg.Boot, Look: protocol.Look{ID: id}.String()})
			time.Sleep(time.Second)
		}
		answer := func() string {
			time.Sleep(time.Hour)
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.answer
		}
		for _, id := range []string{"1", "2", "3"} {
			ask(id)
		}
		if r, _, err := protocol.ParseReport(answer()); err != nil || r.ID != "3" || host.most.Load() > 1 || host.reads.Load() != 2 {
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
	a, _ := newBubbleAgent(t)
	torn := errors.New("unexpected EOF")
	a.host = cachingHost{damaged: []*cniresults.FileError{
		{Path: "/results/cbr0-c1-eth0", Err: torn}, {Path: "/results/net-c1-net1", Err: torn}, {Path: "/attached/c1", Err: torn},
	}}
	r := a.report(t.Context(), protocol.Look{ID: "1", HostLocal: []protocol.HostLocal{{Network: "net"}, {Network: "shelf", DataDir: "/srv/nfs"}}})
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
	r = a.report(t.Context(), protocol.Look{ID: "1", Ranges: []string{"10.0.0.0-10.0.0.31"}, HostLocal: []protocol.HostLocal{{Network: "torn"}}})
	if last := len(r.Unseen) - 1; len(r.Has) > 0 || last < 0 || r.Unseen[last].Why != "host-local's files of network torn: that of 10.0.0.7 names no container" {
		t.Errorf("of a file that names no container it reports %+v", r)
	}
	if r := a.report(t.Context(), protocol.Look{ID: "1", Ranges: []string{"nonsense"}}); r.Unread == "" {
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
