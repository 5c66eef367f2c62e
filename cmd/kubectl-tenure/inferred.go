package main

import (
	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// inferred returns the claim that the agent finds for an interface of a StatefulSet's pod by
// the pod alone; empty if it finds none. An error is what the agent refuses.
func (l podLook) inferred(ifName string) (string, error) {
	pod := workload.Pod{
		Namespace: l.pod.Namespace, Name: l.pod.Name, Set: kube.SetOfPod(l.pod), Claims: l.pod.Annotations[workload.AnnotationClaims],
	}
	if _, ok := workload.OrdinalOfPod(pod.Set, pod.Name); !ok || pod.Claims == "" {
		return "", nil
	}
	selections, err := npwg.Parse(l.pod.Annotations[npwg.AnnotationNetworks], pod.Namespace, npwg.AnyVersion)
	sel, ok := npwg.ByInterface(selections, ifName)
	if err != nil || !ok || len(sel.IPs) > 0 { // the plan says what is wrong with it
		return "", nil //nolint:nilerr // likewise
	}
	pod.Selections = selections
	return workload.Infer(pod, sel) //nolint:wrapcheck // says what it is about
}
