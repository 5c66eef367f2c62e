package listing

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// save writes claims as kubectl apply takes them: without owners, UIDs, ports and status, and
// asking for the addresses that they have.
func save(o session.Output, s *session.Session, claims []ipamclaims.IPAMClaim) error {
	kept := []savedClaim{}
	for i := range claims {
		if claims[i].DeletionTimestamp == nil {
			kept = append(kept, savedOf(&claims[i]))
		}
	}
	format := session.Output{Format: cmp.Or(o.Format, "yaml")}
	return format.Encode(s, map[string]any{"apiVersion": "v1", "kind": "List", "items": kept})
}

// savedClaim is an IPAMClaim without status.
type savedClaim struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        savedMeta                `json:"metadata"`
	Spec            ipamclaims.IPAMClaimSpec `json:"spec"`
}

// savedMeta is what is kept of a claim's metadata.
type savedMeta struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func savedOf(c *ipamclaims.IPAMClaim) savedClaim {
	annotations := maps.Clone(c.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, vif.AnnotationPort) // the controller alone writes it
	if len(c.Status.IPs) > 0 {
		if annotations == nil {
			annotations = map[string]string{}
		}
		ips := slices.Clone(c.Status.IPs)
		slices.Sort(ips) // a diff of two backups shows what has changed, not the order
		annotations[workload.AnnotationRequested] = strings.Join(ips, ",")
	}
	return savedClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: ipamclaims.SchemeGroupVersion.String(), Kind: "IPAMClaim"},
		Metadata: savedMeta{Namespace: c.Namespace, Name: c.Name, Labels: c.Labels, Annotations: annotations},
		Spec:     c.Spec,
	}
}
