package main

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Of a node whose clock is wrong the API server's word counts, where there is one.
func TestLastBeat(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name              string
		said, noted, want time.Duration // before now; noted 0: not at all
	}{
		{"both clocks are right", time.Second, 2 * time.Second, time.Second},
		{"the node's is behind", time.Hour, time.Minute, time.Minute},
		{"the node's is ahead", -time.Hour, time.Minute, time.Minute},
		{"the node's is ahead by a little", -30 * time.Second, time.Minute, -30 * time.Second},
		{"only the node has said", time.Minute, 0, time.Minute},
		{"only the node has said, and is ahead", -time.Hour, 0, -time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said := metav1.NewMicroTime(now.Add(-tt.said))
			o := &coordination.Lease{Spec: coordination.LeaseSpec{RenewTime: &said}}
			if tt.noted != 0 {
				noted, later := metav1.NewTime(now.Add(-tt.noted)), metav1.NewTime(now)
				o.ManagedFields = []metav1.ManagedFieldsEntry{
					{Time: &noted, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)},
					{Time: &later, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)}, // a recall
				}
			}
			if got := now.Sub(lastBeat(o, now)); got != tt.want {
				t.Errorf("got %v before now; want %v", got, tt.want)
			}
		})
	}
}

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
