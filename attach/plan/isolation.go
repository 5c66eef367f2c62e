package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// Reasons of warnings.
const (
	ReasonInvalid    = "InvalidNetworkAnnotation"
	ReasonUnknownKey = "UnknownNetworkKey"
	ReasonArgs       = "CapabilityMissing"
	// ReasonClaim: the element of the pod's default network refers to an IPAMClaim.
	ReasonClaim = "ClaimOnDefaultNetwork"
	// ReasonNoPodNetworks: the pod lists PodNetworks, which this cluster does not serve.
	ReasonNoPodNetworks = "PodNetworksOff"
	// ReasonNoVIFs: the pod selects a network whose interfaces the control plane decides, and this
	// cluster serves none.
	ReasonNoVIFs = "VIFsOff"
	// ReasonUnlisted: the pod's list of PodNetworks leaves out the default one.
	ReasonUnlisted = "DefaultNetworkUnlisted"
)

// howToAllow says what to do about a definition that a pod may not use.
const howToAllow = "use a definition of the pod's own namespace, or have the definition's owner name the pod's in its annotation " + npwg.AnnotationNamespaces

// whyForbidden says why the pod may not use a definition, nothing if it may. What a definition
// itself says of who may use it counts, whatever the configuration says. Definitions of the
// namespaces in global that say nothing are for everybody.
func (m *maker) whyForbidden(d facts.Definition, global ...string) string {
	pod := m.plan.Pod.Namespace
	if d.Namespace == pod {
		return ""
	}
	why, says := npwg.WhyForbidden(d.Annotations, pod, m.answer.Pod.NamespaceLabels)
	switch {
	case says:
		return why
	case m.config.Isolated && !slices.Contains(global, d.Namespace):
		return fmt.Sprintf("namespaces are isolated: a pod of %s may use the definitions of %s", pod, strings.Join(append([]string{"its own namespace"}, global...), ", "))
	}
	return ""
}

// annotationKuryr is vif.AnnotationKuryr, which is not linked into a plugin for a word.
const annotationKuryr = "openstack.org/kuryr-config"

// ReadsAnnotation reports whether an annotation of a pod or of a definition, by its key,
// decides about networks: the others need not be known to make a plan.
func ReadsAnnotation(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return key == npwg.AnnotationNetworks || key == annotationKuryr || key == npwg.AnnotationDefaultNetwork || key == npwg.AnnotationResource || prefix == "tenure.dev"
}

// maxWanted is how many definitions are looked up for a pod: each of them is asked of the API
// server.
const maxWanted = 256

// Wanted returns the definitions that a plan for pod needs: those that the question
// names, and those that the pod's annotations do, up to a number that no pod needs.
func Wanted(q facts.Question, pod facts.Pod) []facts.Ref {
	all := slices.Clone(q.Networks)
	for _, a := range []struct{ text, namespace string }{
		{pod.Annotations[npwg.AnnotationDefaultNetwork], q.DefaultNamespace},
		{pod.Annotations[npwg.AnnotationNetworks], pod.Namespace},
	} {
		// An invalid one is ignored, or refused, by who makes the plan.
		selections, _ := npwg.Parse(a.text, a.namespace, npwg.AnyVersion)
		for _, sel := range selections {
			if len(all) >= maxWanted {
				break
			}
			// What cannot be an object's name is not looked up: it makes the annotation
			// invalid, and nothing of it is needed.
			named := npwg.CheckNamespace(sel.Namespace) == nil && npwg.CheckName(sel.Name) == nil
			if ref := (facts.Ref{Namespace: sel.Namespace, Name: sel.Name}); named && !slices.Contains(all, ref) {
				all = append(all, ref)
			}
		}
	}
	return all
}

// Selected returns what a pod's annotations select beside the default network, for people. A list
// that is not valid selects nothing.
func Selected(pod facts.Pod) (names []string) {
	selections, err := npwg.Parse(pod.Annotations[npwg.AnnotationNetworks], pod.Namespace, npwg.AnyVersion)
	if err == nil {
		for _, sel := range selections {
			names = append(names, facts.Ref{Namespace: sel.Namespace, Name: sel.Name}.String())
		}
	}
	elements, err := podnetwork.Parse(pod.Annotations[podnetwork.AnnotationNetworks])
	if err == nil {
		for _, e := range elements {
			if !e.IsDefault() {
				names = append(names, e.String())
			}
		}
	}
	return names
}
