package looker

import (
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/foreign"
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
			n.left(later.Add(time.Minute))
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
	n := newNames(begun)
	n.removed(made("a", begun), later)
	if gone := n.left(later.Add(foreign.AddWithin)); len(gone) != 1 || gone[0].String() != "ns/net" || !gone[0].Changed.Equal(later) {
		t.Errorf("gone are %+v; want the one that is gone since %v", gone, later)
	}
	if gone := n.left(later.Add(foreign.AddWithin + 1)); len(gone)+len(n.gone) > 0 {
		t.Errorf("it remembers %v; want what is long gone forgotten", n.gone)
	}
}
