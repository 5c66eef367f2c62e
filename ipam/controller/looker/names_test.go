package looker

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// From when on a definition's name can have been no other's: since the watch is heard, or since the
// last one of that name was seen to go. Of what was there before, or comes late, or was written
// again, nobody knows.
func TestSinceWhenANameIsADefinitions(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := begun.Add(time.Hour)
	made := func(uid string, at time.Time) *nad.NetworkAttachmentDefinition {
		return &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: types.UID(uid), Generation: 1, CreationTimestamp: metav1.NewTime(at)}}
	}
	for _, tt := range []struct {
		name string
		see  func(n *names) *nad.NetworkAttachmentDefinition
		want time.Time
	}{
		{"the first of its name", func(n *names) *nad.NetworkAttachmentDefinition {
			o := made("a", later)
			n.added(o, false, later)
			return o
		}, begun},
		{"there when the watch began", func(n *names) *nad.NetworkAttachmentDefinition {
			o := made("a", begun)
			n.added(o, true, begun)
			return o
		}, time.Time{}},
		{"heard of late", func(n *names) *nad.NetworkAttachmentDefinition {
			o := made("a", later)
			n.added(o, false, later.Add(2*heardWithin))
			return o
		}, time.Time{}},
		{"in another's place", func(n *names) *nad.NetworkAttachmentDefinition {
			n.added(made("a", begun), true, begun)
			n.removed(made("a", begun), later)
			o := made("b", later)
			n.added(o, false, later)
			n.lately(later.Add(time.Minute))
			return o
		}, later},
		{"written again", func(n *names) *nad.NetworkAttachmentDefinition {
			o := made("a", later)
			n.added(o, false, later)
			o.Generation = 2
			return o
		}, time.Time{}},
	} {
		n := newNames(begun)
		if o := tt.see(&n); !n.of(o).Equal(tt.want) {
			t.Errorf("%s: its name is its own since %v; want %v", tt.name, n.of(o), tt.want)
		}
	}
}

// What a definition was, until it went or was written again, is remembered for as long as an ADD
// can go by it: each content once, and of a name that has had many, that they may have given any
// address.
func TestFormer(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	with := func(n int) *nad.NetworkAttachmentDefinition {
		o := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net"}}
		o.Spec.Config = fmt.Sprintf(`{"ipam":{"type":"host-local","subnet":"10.0.%d.0/24"}}`, n)
		return o
	}
	n := newNames(begun)
	n.edited(with(1), with(1), begun)
	if all := n.lately(begun); len(all) > 0 {
		t.Errorf("it was %v; want nothing of one whose configuration is the same", all)
	}
	n.edited(with(1), with(2), begun)
	n.edited(with(2), with(1), begun.Add(time.Second))
	n.removed(with(1), begun.Add(2*time.Second))
	later := begun.Add(time.Second + foreign.AddWithin)
	for after, want := range map[time.Duration]string{0: "[10.0.2.0/24 10.0.1.0/24]", 1: "[10.0.1.0/24]", time.Second + 1: "[]"} {
		m := newNames(begun)
		m.former["ns/net"] = slices.Clone(n.former["ns/net"])
		got := []netip.Prefix{}
		for _, d := range m.lately(later.Add(after)) {
			got = append(got, d.CIDRs...)
		}
		if fmt.Sprint(got) != want || len(got) == 0 && len(m.former) > 0 {
			t.Errorf("%v later: it was %v, of %d names; want %s", after, got, len(m.former), want)
		}
	}
	for i := range 100 {
		n.edited(with(i), with(i+1), later)
	}
	all := n.lately(later)
	if any := slices.ContainsFunc(all, func(d foreign.Definition) bool { return d.Unread != "" }); !any || len(all) > mostFormer {
		t.Errorf("of 100 contents it knows %d, and that they may have given any address: %v", len(all), any)
	}
	ours := with(0)
	ours.Name = "ours"
	for i := range 100 {
		ours.Spec.Config = fmt.Sprintf(`{"ipam":{"type":"tenure","range":"10.0.%d.0/24"}}`, i)
		n.edited(ours, with(0), later)
	}
	if len(n.former["ns/ours"]) != 1 || n.former["ns/ours"][0].IPAM != foreign.Type {
		t.Errorf("of Tenure's own it knows %+v; want the last one", n.former["ns/ours"])
	}
}

// TestHearsWhatDefinitionsWere: the watch tells a look what a definition was until it was written
// again, or until another had its name.
func TestHearsWhatDefinitionsWere(t *testing.T) {
	c := newCluster()
	c.names = newNames(c.now)
	with := func(uid, subnet string) *nad.NetworkAttachmentDefinition {
		o := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: types.UID(uid), CreationTimestamp: metav1.NewTime(c.now)}}
		o.Spec.Config = fmt.Sprintf(`{"ipam":{"type":"host-local","subnet":%q}}`, subnet)
		return o
	}
	h := c.handler()
	h.OnAdd(with("a", "10.0.0.0/24"), true)
	h.OnUpdate(with("a", "10.0.0.0/24"), with("a", "10.0.1.0/24"))
	h.OnUpdate(with("a", "10.0.1.0/24"), with("b", "10.0.1.0/24")) // it was deleted, and made anew
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: with("b", "10.0.2.0/24")})
	_, former, err := c.definitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range former {
		got = append(got, fmt.Sprint(d.CIDRs))
	}
	if slices.Sort(got); fmt.Sprint(got) != "[[10.0.0.0/24] [10.0.1.0/24] [10.0.2.0/24]]" {
		t.Errorf("it has heard that the definition was %v; want all three", got)
	}
}

// TestAsksForFilesOfAFormerNetwork (I1): the nodes are asked for host-local's files of what a
// definition's network was called until it was written anew, or deleted.
func TestAsksForFilesOfAFormerNetwork(t *testing.T) {
	c := newCluster()
	c.names, c.pools = newNames(c.now), []v1alpha1.IPPool{lan()}
	was := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net"}}
	was.Spec.Config = `{"name":"depot","ipam":{"type":"host-local","subnet":"10.0.0.0/16","dataDir":"/var/lib/cni/depot"}}`
	gone := was.DeepCopy()
	gone.Name, gone.Spec.Config = "gone", `{"name":"gone","ipam":{"type":"host-local","subnet":"10.0.0.0/16"}}`
	c.handler().OnDelete(gone)
	c.handler().OnUpdate(was, &nad.NetworkAttachmentDefinition{ObjectMeta: was.ObjectMeta})
	c.answer = func(q protocol.Query) protocol.Report { return protocol.Report{ID: q.ID} }
	c.look(t)
	for _, want := range []protocol.HostLocal{{Network: "depot", DataDir: "/var/lib/cni/depot"}, {Network: "gone"}} {
		if !slices.ContainsFunc(c.asked, func(q protocol.Query) bool { return slices.Contains(q.HostLocal, want) }) {
			t.Errorf("the nodes are asked %+v; want files of %+v among that", c.asked, want)
		}
	}
}
