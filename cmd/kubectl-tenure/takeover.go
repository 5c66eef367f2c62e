package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// outOfService is the word that the machine is off.
func outOfService() corev1.Taint {
	return corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
}

// carryOut does what was decided, and waits until the controller has done the rest.
func (r *release) carryOut(ctx context.Context, to screen, l *lost, do deed) error {
	var made *corev1.Node
	switch do {
	case deedTaint:
		if err := r.taint(ctx, l.node); err != nil {
			return err
		}
		to.line("\nNode %s has the taint %s now.", l.name, corev1.TaintNodeOutOfService)
	case deedMake:
		made = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: string(l.name), Annotations: map[string]string{"tenure.dev/released": "made by kubectl tenure release-node, to carry the taint"}},
			Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{outOfService()}},
		}
		if err := r.client.Create(ctx, made); err != nil {
			return fmt.Errorf("make a Node %s that has the taint: %w", l.name, err)
		}
		to.line("\nThere is a Node %s again, which has the taint %s.", l.name, corev1.TaintNodeOutOfService)
	case deedNone, deedWait:
	}
	if r.wait == 0 {
		to.line("The controller takes over what it holds.")
		return nil
	}
	if err := r.await(ctx, l); err != nil {
		return err
	}
	to.line("It holds nothing any more.")
	if made != nil {
		return r.unmake(ctx, to, made)
	}
	if do == deedTaint {
		to.line("If the machine is gone for good: kubectl delete node %s", l.name)
		to.line("If it is ever started again:     kubectl taint node %s %s-", l.name, corev1.TaintNodeOutOfService)
	}
	return nil
}

// taint puts the taint on the Node as it was read: if it has changed since, somebody
// may live there.
func (r *release) taint(ctx context.Context, node *corev1.Node) error {
	was := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, outOfService())
	err := r.client.Patch(ctx, node, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return fmt.Errorf("node %s has changed while it was looked at: look again", node.Name)
	}
	if err != nil {
		return fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	return nil
}

// await waits until the node holds nothing.
func (r *release) await(ctx context.Context, l *lost) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errors.New("the time is over"))
	defer cancel()
	for {
		leases, err := r.api.LeasesOfNode(ctx, l.name)
		if err != nil {
			return err
		}
		subs, err := r.api.SubLeasesOfNode(ctx, l.name)
		if err != nil {
			return err
		}
		if len(leases)+len(subs) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s still holds leases %d, sub-leases %d after %v: does tenure-controller run, and what does it log? Call release-node again to go on",
				l.name, len(leases), len(subs), r.wait)
		case <-time.After(time.Second):
		}
	}
}

// unmake removes a Node that was made to have the taint, unless a kubelet has taken it
// for its own meanwhile.
func (r *release) unmake(ctx context.Context, to screen, made *corev1.Node) error {
	for range 10 { // others write Nodes, too
		var now corev1.Node
		err := r.client.Get(ctx, client.ObjectKeyFromObject(made), &now)
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != made.UID:
			return nil
		case err != nil:
			return fmt.Errorf("read node %s: %w", made.Name, err)
		case now.Status.NodeInfo.KubeletVersion != "":
			to.line("A kubelet runs as node %s again. It gets no addresses before: kubectl taint node %s %s-", made.Name, made.Name, corev1.TaintNodeOutOfService)
			return nil
		}
		err = r.client.Delete(ctx, &now, client.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion})
		if err == nil {
			to.line("The Node %s that was made for this is removed.", made.Name)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove node %s, which was made for the taint: %w", made.Name, err)
		}
	}
	return fmt.Errorf("node %s, which was made for the taint, changes all the time: remove it by kubectl delete node %s", made.Name, made.Name)
}
