package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// inferred returns the claim that the agent finds for an interface of a pod by the pod alone; empty
// if it finds none. An error is what the agent refuses.
func (l podLook) inferred(ctx context.Context, ifName string) (string, error) {
	pod := workload.Pod{
		Namespace: l.pod.Namespace, Name: l.pod.Name, Set: kube.SetOfPod(l.pod), Claims: l.pod.Annotations[workload.AnnotationClaims],
	}
	if pod.Claims == "" {
		return "", nil
	}
	selections, err := npwg.Parse(l.pod.Annotations[npwg.AnnotationNetworks], pod.Namespace, npwg.AnyVersion)
	sel, ok := npwg.ByInterface(selections, ifName)
	if err != nil || !ok || len(sel.IPs) > 0 { // the plan says what is wrong with it
		return "", nil //nolint:nilerr // likewise
	}
	if _, ok := workload.OrdinalOfPod(pod.Set, pod.Name); !ok {
		if asks, err := l.asksByName(ctx); !asks {
			return "", err
		}
		if why := kube.WhyNameless(l.pod); why != "" {
			return "", fmt.Errorf("%s is %s, and the pod can have no claims by its name: %s", workload.ClaimsBy, workload.ByPodName, why)
		}
		pod.Set = ""
	}
	pod.Selections = selections
	return workload.Infer(pod, sel) //nolint:wrapcheck // says what it is about
}

// asksByName reports whether the pod, or its namespace, asks for claims by the pod's name.
func (l podLook) asksByName(ctx context.Context) (bool, error) {
	if by := l.pod.Annotations[workload.ClaimsBy]; by != "" {
		return by == workload.ByPodName, nil
	}
	var of metav1.PartialObjectMetadata
	of.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := l.Client.Get(ctx, client.ObjectKey{Name: l.pod.Namespace}, &of); err != nil && !session.Forbidden(err) {
		return false, fmt.Errorf("read namespace %s: %w", l.pod.Namespace, err)
	}
	return of.Labels[workload.ClaimsBy] == workload.ByPodName, nil
}
