package advertise

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// requestsOf returns what a pod asks of pools, by their names, as the scheduler counts it.
func requestsOf(p *corev1.Pod) map[string]int64 {
	var all map[string]int64
	asks := func(c *corev1.Container) {
		for name := range c.Resources.Requests {
			pool, ok := strings.CutPrefix(string(name), npwg.AddressResources)
			if !ok || all[pool] > 0 {
				continue
			}
			if n := requestOf(p, name); n > 0 {
				if all == nil {
					all = map[string]int64{}
				}
				all[pool] = n
			}
		}
	}
	for i := range p.Spec.Containers {
		asks(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		asks(&p.Spec.InitContainers[i])
	}
	return all
}

// requestOf returns what a pod asks of one resource: what its containers ask for together, and
// its sidecars, or what the init container asks for that asks for most, with the sidecars that were
// started before.
func requestOf(p *corev1.Pod, name corev1.ResourceName) int64 {
	of := func(c *corev1.Container) int64 {
		q := c.Resources.Requests[name]
		return q.Value()
	}
	var running, sidecars, starting int64
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += of(c)
			starting = max(starting, sidecars)
			continue
		}
		starting = max(starting, sidecars+of(c))
	}
	for i := range p.Spec.Containers {
		running += of(&p.Spec.Containers[i])
	}
	return max(running+sidecars, starting)
}

// claimsOf returns the names of the claims that a pod's selection of networks refers to.
func claimsOf(p *corev1.Pod) (names []string) {
	// What is wrong with the annotation, the pod's ADD says.
	selections, _ := npwg.Parse(p.Annotations[npwg.AnnotationNetworks], p.Namespace, npwg.AnyVersion)
	for _, s := range selections {
		if s.Claim != "" {
			names = append(names, s.Claim)
		}
	}
	return names
}

// tolerationsOf returns those of a pod, without for how long it tolerates: where it is scheduled
// does not depend on that, and the API server writes it into every pod.
func tolerationsOf(p *corev1.Pod) []corev1.Toleration {
	all := slices.Clone(p.Spec.Tolerations)
	for i := range all {
		all[i].TolerationSeconds = nil
	}
	return all
}

// tolerates reports whether a pod with these tolerations may be scheduled in spite of taints.
func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(logr.Discard(), &taint, true)
		})
	})
}
