package release

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/pause"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// outOfService is the word that the machine is off.
func outOfService() corev1.Taint {
	return corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
}

// annotationMade marks a Node that was made to carry the taint, and is nobody's.
const annotationMade = "tenure.dev/released"

// carryOut does what was decided, and waits until the controller has done the rest.
func (r *release) carryOut(ctx context.Context, to screen.Screen, l *lost, do deed) error {
	made := l.made()
	switch do {
	case deedTaint:
		if err := r.taint(ctx, l); err != nil {
			return err
		}
		to.Line("\nNode %s has the taint %s now.", l.name, corev1.TaintNodeOutOfService)
	case deedMake:
		var err error
		if made, err = r.makeNode(ctx, l); err != nil {
			return err
		}
		to.Line("\nThere is a Node %s again, which has the taint %s.", l.name, corev1.TaintNodeOutOfService)
	case deedNone:
		to.Line("\nThere is nothing to release.")
		return r.unmake(ctx, to, made)
	case deedWait:
	}
	if r.wait == 0 {
		to.Line("The controller takes over what it holds.%s", stillThere(made))
		return nil
	}
	if err := r.await(ctx, l); err != nil {
		return fmt.Errorf("%w%s", err, stillThere(made))
	}
	to.Line("It holds nothing any more.")
	if do == deedTaint {
		to.Line("If the machine is gone for good: kubectl delete node %s", l.name)
		to.Line("If it is ever started again:     kubectl taint node %s %s-", l.name, corev1.TaintNodeOutOfService)
	}
	return r.unmake(ctx, to, made)
}

// stillThere says that a Node is left, if one was made.
func stillThere(made *corev1.Node) string {
	if made == nil {
		return ""
	}
	return fmt.Sprintf("\nThe Node %s that was made for this is still there: release-node removes it when it is called again", made.Name)
}

// sitsStill reads the registration directly before a write that puts on record that the node is
// dead: its heartbeats change no other object that the write could be bound to.
func (r *release) sitsStill(ctx context.Context, l *lost) error {
	reg, _, err := state.Registration(ctx, r.Session, l.name)
	if err == nil && !sameBeat(reg, l.reg) {
		err = fmt.Errorf("the registration of node %s has changed while it was looked at: nothing was done. Look again", l.name)
	}
	return err
}

// makeNode makes a Node that has the taint.
func (r *release) makeNode(ctx context.Context, l *lost) (*corev1.Node, error) {
	if err := r.sitsStill(ctx, l); err != nil {
		return nil, err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: string(l.name), Annotations: map[string]string{annotationMade: "made by kubectl tenure release-node, to carry the taint"}},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{outOfService()}},
	}
	if err := r.Client.Create(ctx, node); err != nil {
		return nil, fmt.Errorf("make a Node %s that has the taint: %w. Call release-node again: it may have been made, and is removed then", l.name, err)
	}
	return node, nil
}

// taint puts the taint on the Node as it was read: if it has changed since, somebody
// may live there.
func (r *release) taint(ctx context.Context, l *lost) error {
	if err := r.sitsStill(ctx, l); err != nil {
		return err
	}
	node := l.node
	was := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, outOfService())
	err := r.Client.Patch(ctx, node, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return fmt.Errorf("node %s has changed while it was looked at: look again", node.Name)
	}
	if err != nil {
		return fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	return nil
}

// errTimeOver is why a wait ends when --timeout has passed.
var errTimeOver = errors.New("the time is over")

// await waits until the node holds nothing.
func (r *release) await(ctx context.Context, l *lost) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errTimeOver)
	defer cancel()
	held := len(l.leases) + len(l.subs)
	for {
		leases, err := r.API.LeasesOfNode(ctx, l.name)
		var subs []protocol.SubLease
		if err == nil {
			subs, err = r.API.SubLeasesOfNode(ctx, l.name)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return err
		default:
			held = len(leases) + len(subs)
		}
		if held == 0 {
			return nil
		}
		if !pause.For(ctx, time.Second) {
			return r.whyStopped(ctx, l.name, held)
		}
	}
}

// whyStopped returns why a wait has ended although the node still holds something.
func (r *release) whyStopped(ctx context.Context, name protocol.NodeName, held int) error {
	if errors.Is(context.Cause(ctx), errTimeOver) {
		return fmt.Errorf("node %s still holds leases and sub-leases, %d in all, after %v: does tenure-controller run, and what does it log? Call release-node again to go on", name, held, r.wait)
	}
	return fmt.Errorf("interrupted: node %s held leases and sub-leases, %d in all, of which the controller goes on to take over what it can", name, held)
}

// unmake removes a Node that was made to have the taint, if there is one, unless a kubelet
// has taken it for its own meanwhile.
func (r *release) unmake(ctx context.Context, to screen.Screen, made *corev1.Node) error {
	if made == nil {
		return nil
	}
	for range 10 { // others write Nodes, too
		var now corev1.Node
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(made), &now)
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != made.UID:
			return nil
		case err != nil:
			return fmt.Errorf("read node %s: %w%s", made.Name, err, stillThere(made))
		case now.Status.NodeInfo.KubeletVersion != "":
			to.Line("A kubelet runs as node %s again. It gets no addresses before: kubectl taint node %s %s-", made.Name, made.Name, corev1.TaintNodeOutOfService)
			return nil
		}
		err = r.Client.Delete(ctx, &now, client.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion})
		if err == nil {
			to.Line("The Node %s that was made for this is removed.", made.Name)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove node %s: %w%s", made.Name, err, stillThere(made))
		}
	}
	return fmt.Errorf("node %s, which was made for the taint, changes all the time: remove it by kubectl delete node %s", made.Name, made.Name)
}
