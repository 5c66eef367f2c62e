package release

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	const fence = 15 * time.Minute
	node := func(uid string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(uid)}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	made := node("made", outOfService())
	made.Annotations = map[string]string{annotationMade: "yes"}
	registered := &protocol.Registration{Node: "n", NodeUID: "old", Store: "s", Term: 1, Fence: fence}
	noFence := &protocol.Registration{Node: "n", NodeUID: "old", Store: "s", Term: 1}
	confirmed := []string{"p"}
	for _, tt := range []struct {
		name      string
		node      *corev1.Node
		reg       *protocol.Registration
		quiet     time.Duration
		confirmed []string
		empty     bool
		want      deed
		refused   bool
	}{
		{name: "down", node: node("old"), reg: registered, quiet: 10 * time.Minute, want: deedTaint},
		{name: "beats", node: node("old"), reg: registered, quiet: time.Minute, refused: true},
		{name: "has the taint", node: node("old", outOfService()), reg: registered, quiet: 10 * time.Minute, want: deedWait},
		{name: "gone, before its fence", reg: registered, quiet: 10 * time.Minute, refused: true},
		{name: "gone, after its fence", reg: registered, quiet: time.Hour, want: deedWait},
		{name: "gone, and its pool asks", reg: registered, quiet: time.Hour, confirmed: confirmed, want: deedMake},
		{name: "gone, without a fence", reg: noFence, quiet: time.Hour, want: deedMake},
		{name: "made again, before its fence", node: node("new"), reg: registered, quiet: 10 * time.Minute, refused: true},
		{name: "made again, after its fence", node: node("new"), reg: registered, quiet: time.Hour, want: deedWait},
		{name: "made again, and its pool asks", node: node("new"), reg: registered, quiet: time.Hour, confirmed: confirmed, want: deedTaint},
		{name: "made by release-node", node: made, reg: registered, quiet: time.Hour, confirmed: confirmed, want: deedWait},
		{name: "made by release-node, without a fence", node: made, reg: noFence, quiet: time.Hour, want: deedWait},
		{name: "holds nothing", node: made, reg: registered, quiet: time.Hour, empty: true, want: deedNone},
		{name: "never heard of", quiet: time.Hour, empty: true, refused: true},
		{name: "without a registration", node: node("old"), quiet: time.Hour, refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := lost{name: "n", node: tt.node, reg: tt.reg, beat: now.Add(-tt.quiet), confirmed: tt.confirmed, leases: make([]protocol.Lease, 1)}
			if tt.empty {
				l.leases = nil
			}
			if do, refusal := l.decide(now); do != tt.want || (refusal != "") != tt.refused {
				t.Errorf("got %d, %q; want %d, refused %v", do, refusal, tt.want, tt.refused)
			}
		})
	}
}
