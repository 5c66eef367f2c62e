package podnetworks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// CondensePod drops of a pod what nobody in the controller reads. It reads the list of
// PodNetworks, and of pods that have it where they are, what holds them back, since when they run,
// and whether their node has said what they have.
func CondensePod(p *corev1.Pod) {
	text, lists := p.Annotations[podnetwork.AnnotationNetworks]
	_, attached := p.Annotations[podnetwork.AnnotationIPs]
	p.ObjectMeta = metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp,
	}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, SchedulingGates: p.Spec.SchedulingGates}
	status := corev1.PodStatus{Phase: p.Status.Phase}
	if lists {
		p.Annotations = map[string]string{podnetwork.AnnotationNetworks: text}
		if attached {
			p.Annotations[podnetwork.AnnotationIPs] = ""
		}
		status.Conditions, status.StartTime = p.Status.Conditions, p.Status.StartTime
	}
	p.Status = status
}

// references returns the names of the networks and attachments that a pod's annotation lists, as
// far as it can be read.
func references(o metav1.Object) (networks, attachments []string) {
	elements, _ := podnetwork.Parse(o.GetAnnotations()[podnetwork.AnnotationNetworks]) // the gate says what is wrong
	for _, e := range elements {
		if e.Network != "" {
			networks = append(networks, e.Network)
		}
		if e.Attachment != "" {
			attachments = append(attachments, e.Attachment)
		}
	}
	return networks, attachments
}

// pageSize is how many pods one call of a live look lists.
const pageSize = 500

// podRefers lists the pods that have not ended, of one namespace or of all, and reports whether
// one of them is as refers says. It asks the API server, and not the cache.
func (c *Cluster) podRefers(ctx context.Context, namespace string, refers func(networks, attachments []string) bool) (bool, error) {
	running := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	for next := ""; ; {
		var page metav1.PartialObjectMetadataList
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := call(ctx, func(ctx context.Context) error {
			return c.Live.List(ctx, &page, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: running}, client.Limit(pageSize), client.Continue(next))
		})
		if err != nil {
			return false, fmt.Errorf("list the pods that may refer to it: %w", err)
		}
		for i := range page.Items {
			if refers(references(&page.Items[i])) {
				return true, nil
			}
		}
		if next = page.Continue; next == "" {
			return false, nil
		}
	}
}
