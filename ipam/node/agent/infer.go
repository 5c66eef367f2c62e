package agent

import (
	"context"
	"fmt"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
)

// ReasonClaimNotInferred is of the event about a pod whose annotation asks for claims, and
// that is no StatefulSet's.
const ReasonClaimNotInferred = "ClaimNotInferred"

// inferClaim finds the claim of a StatefulSet's pod that asks for claims: by the pod alone,
// and by the same names as the controller makes claims. A claim or addresses that the
// element names count before it.
func (a *Agent) inferClaim(ctx context.Context, add *addCall, selections []npwg.Selection) error {
	pod, sel := add.pod, add.sel
	if pod.Claims == "" || sel.Name == "" || sel.Claim != "" || len(sel.IPs) > 0 || len(add.conf.Requested) > 0 {
		return nil
	}
	if _, ok := workload.OrdinalOfPod(pod.Set, pod.Name); !ok {
		return a.inferKnown(ctx, add)
	}
	claim, err := workload.Infer(workload.Pod{
		Namespace: pod.Namespace, Name: pod.Name, Set: pod.Set, Claims: pod.Claims, Selections: selections,
	}, sel)
	if err != nil {
		return &selectionError{Why: fmt.Sprintf("pod %s: %v", pod.PodRef, err)}
	}
	add.sel.Claim = claim
	return nil
}

// inferKnown is inferClaim for a pod that is no StatefulSet's: it gets no claim, unless its
// interface has one already. Its StatefulSet may have been deleted without it.
func (a *Agent) inferKnown(ctx context.Context, add *addCall) error {
	last, _, err := a.lastOf(ctx, add, add.demand.Pod.UID)
	if err != nil {
		return err
	}
	if last.Claim != nil {
		add.sel.Claim = last.Claim.Name
		return nil
	}
	why := fmt.Sprintf("annotation %s has no effect: only a pod that a StatefulSet of apps/v1 controls, and that is named by its ordinal, has claims by it", workload.AnnotationClaims)
	a.log.WarnContext(ctx, "claim not inferred", "pod", add.pod.PodRef, "interface", add.key.IfName, "error", why)
	a.cl.Events.WarnPod(add.demand.Pod, ReasonClaimNotInferred, why)
	return nil
}
