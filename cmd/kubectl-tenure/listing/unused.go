package listing

import (
	"context"
	"fmt"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// unusedOnly keeps of claims those that were kept for a StatefulSet and that no pod uses or is
// to use: the set is gone, or has neither their ordinal nor their network any more.
func unusedOnly(ctx context.Context, s *session.Session, namespace string, all []ipamclaims.IPAMClaim, facts claimFacts) ([]ipamclaims.IPAMClaim, error) {
	sets, err := session.ListAll(ctx, s.Client, &appsv1.StatefulSetList{}, func(l *appsv1.StatefulSetList) []appsv1.StatefulSet { return l.Items }, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	by := map[client.ObjectKey]*appsv1.StatefulSet{}
	for i := range sets {
		by[client.ObjectKeyFromObject(&sets[i])] = &sets[i]
	}
	return slices.DeleteFunc(all, func(c ipamclaims.IPAMClaim) bool {
		set, ok := c.Labels[workload.LabelSet]
		return !ok || len(facts.uses[c.UID]) > 0 || wants(by[client.ObjectKey{Namespace: c.Namespace, Name: set}], c.Name)
	}), nil
}

// wants reports whether a claim is for a pod of the StatefulSet, which is nil if it is gone. Of
// one whose annotations are wrong each ordinal counts: its claims are to be kept until they
// are right.
func wants(o *appsv1.StatefulSet, claim string) bool {
	if o == nil {
		return false
	}
	set, asks, err := kube.SetOf(o)
	if err != nil {
		ordinal, ok := workload.OrdinalOfClaim(o.Name, claim)
		return ok && set.Has(ordinal)
	}
	return asks && set.Wants(claim)
}

// sumUnused says how many claims there are, and how many addresses they hold.
func sumUnused(claims []ipamclaims.IPAMClaim) string {
	addresses := 0
	for i := range claims {
		addresses += len(claims[i].Status.IPs)
	}
	if len(claims) == 1 {
		return fmt.Sprintf("1 claim that was kept for a StatefulSet holds %s, and no pod uses it.", screen.Number(addresses, "address", "addresses"))
	}
	return fmt.Sprintf("%d claims that were kept for StatefulSets hold %s, and no pod uses them.", len(claims), screen.Number(addresses, "address", "addresses"))
}
