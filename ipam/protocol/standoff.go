package protocol

import "fmt"

// Standoff says what to do where p waits for addresses that another pod has, and both are of one
// Deployment: such a wait need not end by itself. It is empty for other pods. It reads on from a
// sentence that names the other pod.
func (p PodRef) Standoff(other PodRef) string {
	if p.Owner.Kind != "ReplicaSet" || p.Namespace != other.Namespace || p.Name == other.Name {
		return ""
	}
	// A pod is named by its ReplicaSet, and a ReplicaSet by its Deployment, each with a suffix that
	// has no dash.
	set, _, ok := cutLast(other.Name, "-")
	if !ok {
		return ""
	}
	if set == p.Owner.Name {
		return fmt.Sprintf(": both are replicas of %s, of which one at a time can have the addresses. Unless that one is ending, this does not end by itself: "+
			"have one replica alone, or a StatefulSet, each of whose pods has a claim of its own", set)
	}
	deployment, _, ok := cutLast(p.Owner.Name, "-")
	if of, _, _ := cutLast(set, "-"); !ok || of != deployment {
		return ""
	}
	return fmt.Sprintf(": both are pods of Deployment %s. A rolling update ends the old one when the new one is Ready, which waits for its addresses. Unless the old one is ending, "+
		"this does not end by itself: give the Deployment strategy: {type: Recreate}; or have a StatefulSet, whose pods keep their addresses by claims", deployment)
}
