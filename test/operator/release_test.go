package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// controller runs the real controller until the test ends. It is started after the test's
// objects are made, and so has stopped when these are deleted: what pods show would be kept
// for them once the leases are gone.
func controller(t *testing.T) {
	t.Helper()
	stop, err := fleet.StartController(context.Background(), accounts.Controller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// holds fails the test unless the node has so many leases and sub-leases.
func (w *world) holds(leases, subs int) {
	w.t.Helper()
	ls, err := api.LeasesOfNode(w.t.Context(), protocol.NodeName(w.node))
	if err != nil {
		w.t.Fatal(err)
	}
	ss, err := api.SubLeasesOfNode(w.t.Context(), protocol.NodeName(w.node))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(ls) != leases || len(ss) != subs {
		w.t.Errorf("node %s has leases %d, sub-leases %d; want %d, %d", w.node, len(ls), len(ss), leases, subs)
	}
}

// off returns whether the Node says that it is off.
func (w *world) off() bool {
	w.t.Helper()
	var n corev1.Node
	err := kc.Get(w.t.Context(), client.ObjectKey{Name: w.node}, &n)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return kube.NodeOf(&n).Off
}

// isReady writes what the kubelet writes.
func (w *world) isReady(status corev1.ConditionStatus) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
	if err := kc.Get(w.t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		w.t.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	setStatus(w.t, n)
}

// Nothing is released, and nothing written, while the node may be alive, nor without
// somebody who vouches (I1).
func TestReleaseNodeRefuses(t *testing.T) {
	w := inOrder(t)
	controller(t)
	w.isReady(corev1.ConditionTrue)
	w.quiet(time.Hour, 15*time.Minute)
	says(t, tenure(t, 3, "release-node", w.node, "--yes"), w.namespace+"/plain net1 10.40.0.5", "claim "+w.namespace+"/vm", "is not released", "is Ready")

	w.isReady(corev1.ConditionUnknown)
	w.quiet(3*time.Minute, 15*time.Minute)
	says(t, tenure(t, 3, "release-node", w.node, "--yes"), "is not released", "its agent beats")

	// The node's clock is an hour behind, and its heartbeat has just come.
	w.deregister()
	w.register(w.reg.NodeUID, time.Now().Add(-time.Hour), 15*time.Minute)
	says(t, tenure(t, 3, "release-node", w.node, "--yes"), "is not released", "its agent beats")

	w.quiet(10*time.Minute, 15*time.Minute)
	says(t, tenure(t, 0, "release-node", w.node, "--dry-run"), "Dry run", "would get the taint")
	says(t, tenure(t, 2, "release-node", w.node), "--yes")
	w.holds(1, 2)
	if w.off() {
		t.Error("the Node has the taint after refusals")
	}

	w.nodeGone()
	says(t, tenure(t, 3, "release-node", w.node, "--yes"), "the Node is gone", "has not passed")
	w.deregister()
	says(t, tenure(t, 3, "release-node", w.node, "--yes"), "has no registration", "by hand")
	says(t, tenure(t, 3, "release-node", "never-heard-of", "--yes"), "no Node, registration, lease or sub-lease")
	w.holds(1, 2)
}

// A Node that is down is released by its taint, and the controller takes what it held:
// what was served from there can be served elsewhere (I4, I5).
func TestReleaseNodeThatIsDown(t *testing.T) {
	w := inOrder(t)
	controller(t)
	w.isReady(corev1.ConditionUnknown)
	w.quiet(10*time.Minute, 15*time.Minute)
	says(t, tenure(t, 0, "release-node", w.node, "--yes"), "has the taint", "It holds nothing any more.", "kubectl delete node "+w.node)
	w.holds(0, 0)
	if !w.off() {
		t.Error("the Node does not have the taint")
	}
	reg, _, err := api.ReadRegistration(t.Context(), protocol.NodeName(w.node))
	if err != nil || !reg.Ended() || reg.Term != 2 {
		t.Errorf("the registration is %+v, %v; want its term ended", reg, err)
	}
	says(t, tenure(t, 0, "release-node", w.node, "--yes"), "There is nothing to release.")
}

// Of a Node that is gone what pools keep that ask for somebody's word is released by a
// Node that carries it, which is removed again.
func TestReleaseNodeThatIsGoneConfirmed(t *testing.T) {
	for _, fence := range []time.Duration{15 * time.Minute, 0} {
		t.Run(fmt.Sprint("fence ", fence), func(t *testing.T) {
			w := newWorld(t)
			if fence > 0 {
				w.pool.Spec.TakeOver = v1alpha1.TakeOverConfirmed
				if err := kc.Update(t.Context(), w.pool); err != nil {
					t.Fatal(err)
				}
			}
			w.lease("10.40.0.0/28", w.node)
			w.quiet(time.Hour, fence)
			w.nodeGone()
			if fence > 0 { // the controller counts its fence from when it begins: its term was ended before
				fleet.Amend(t, api, w.node, func(reg *protocol.Registration) {
					*reg = protocol.EndTerm(*reg, protocol.EvidenceSilence)
				})
			}
			controller(t)
			says(t, tenure(t, 0, "release-node", w.node, "--dry-run"), "would be made")
			w.holds(1, 0)
			says(t, tenure(t, 0, "release-node", w.node, "--yes"), "It holds nothing any more.", "is removed")
			w.holds(0, 0)
			if err := kc.Get(t.Context(), client.ObjectKey{Name: w.node}, &corev1.Node{}); !apierrors.IsNotFound(err) {
				t.Errorf("the Node is still there: %v", err)
			}
		})
	}
}
