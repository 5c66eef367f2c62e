package agent

import (
	"context"
	"fmt"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
)

// ReasonClaimNotInferred is of the event about a pod whose annotation asks for claims, and
// that is no StatefulSet's, nor is to have claims by its name.
const ReasonClaimNotInferred = "ClaimNotInferred"

// inferClaim finds the claim of a pod that asks for claims and names none: by the pod alone,
// and by the same names as the controller makes claims. A claim or addresses that the
// element names count before it. Where the annotation names what the pod does not select, no
// interface of the pod gets an address: it may be that one which is to have the claim.
func (a *Agent) inferClaim(ctx context.Context, add *addCall, selections []npwg.Selection) error {
	pod, sel := add.pod, add.sel
	// The interface is of a PodNetwork, which has no claims.
	listed := add.conf.Pod.Unselected && add.req.IfName != defaultInterface
	if sel.Name == "" && !listed || sel.Claim != "" || len(sel.IPs) > 0 || len(add.conf.Requested) > 0 {
		return nil
	}
	set := pod.Set
	if _, ok := workload.OrdinalOfPod(pod.Set, pod.Name); !ok {
		byName, err := a.inferByName(ctx, add)
		if err != nil || !byName {
			return err
		}
		set = ""
	}
	claim, err := workload.Infer(workload.Pod{
		Namespace: pod.Namespace, Name: pod.Name, Set: set, Claims: pod.Claims, Selections: selections,
	}, sel)
	if err != nil {
		return &selectionError{Why: fmt.Sprintf("pod %s: %v", pod.PodRef, err)}
	}
	add.sel.Claim = claim
	return nil
}

// inferByName reports whether a pod that is no StatefulSet's is to have the claims of its name. If
// not, its interface keeps the claim that it has, or has none, as an Event says.
func (a *Agent) inferByName(ctx context.Context, add *addCall) (bool, error) {
	if known, err := a.inferKnown(ctx, add); known || err != nil {
		return false, err
	}
	asks, err := a.claimsByName(ctx, add.pod)
	switch {
	case err != nil:
		return false, err
	case !asks:
		a.warnNotInferred(ctx, add)
		return false, nil
	case add.pod.Nameless != "":
		return false, &selectionError{Why: fmt.Sprintf("pod %s: %s is %s, and it can have no claims by its name: %s",
			add.pod.PodRef, workload.ClaimsBy, workload.ByPodName, add.pod.Nameless)}
	}
	add.byName = true
	return true, nil
}

// claimsByName reports whether a pod, or its namespace, asks for claims by the pod's name.
func (a *Agent) claimsByName(ctx context.Context, pod Pod) (bool, error) {
	if pod.ClaimsBy != "" {
		return pod.ClaimsBy == workload.ByPodName, nil
	}
	labels, err := a.cl.Access.Labels(ctx, pod.Namespace)
	if err != nil {
		return false, &podError{Why: fmt.Sprintf("pod %s asks for claims, and its namespace, which may say how, cannot be read: %v", pod.PodRef, err)}
	}
	return labels[workload.ClaimsBy] == workload.ByPodName, nil
}

// inferKnown has a pod keep the claim that its interface has already, if it has one: its
// StatefulSet may have been deleted without it.
func (a *Agent) inferKnown(ctx context.Context, add *addCall) (known bool, err error) {
	last, _, err := a.lastOf(ctx, add, add.demand.Pod.UID)
	if err != nil || last.Claim == nil {
		return false, err
	}
	add.sel.Claim = last.Claim.Name
	return true, nil
}

// warnNotInferred says of a pod that it gets no claim.
func (a *Agent) warnNotInferred(ctx context.Context, add *addCall) {
	why := fmt.Sprintf("annotation %s has no effect: claims by it have the pods that a StatefulSet of apps/v1 controls, and that are named by their ordinal, and with %s=%s on the pod or on its namespace those of other controllers",
		workload.AnnotationClaims, workload.ClaimsBy, workload.ByPodName)
	a.log.WarnContext(ctx, "claim not inferred", "pod", add.pod.PodRef, "interface", add.key.IfName, "error", why)
	a.cl.Events.WarnPod(add.demand.Pod, ReasonClaimNotInferred, why)
}
