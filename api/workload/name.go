package workload

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	maxName = 253 // characters of an object's name
	digits  = 10  // of the hash that stands in for what a name cannot have
)

// ClaimName returns the name of the claim that the pod of that ordinal has for e:
//
//	<set>-<ordinal>.[<namespace>.]<definition>[.<interface>]
//
// The namespace is there where it is not the pods'. Where this would be no name of an
// object, a hash of all parts follows what can be read of it.
func ClaimName(set string, ordinal int, e Element, podNamespace string) string {
	parts := fmt.Sprintf("%q %d %q %q %q", set, ordinal, e.Namespace, e.Name, e.Interface)
	return claimName(set+"-"+strconv.Itoa(ordinal), e, podNamespace, parts)
}

// OrdinalOfClaim returns the ordinal of a set's claim by the claim's name; ok is false of a
// name that no claim of the set has.
func OrdinalOfClaim(set, claim string) (ordinal int, ok bool) {
	rest, ok := strings.CutPrefix(claim, set+"-")
	number, _, dot := strings.Cut(rest, ".")
	if !ok || !dot {
		return 0, false
	}
	return readOrdinal(number)
}

// OrdinalOfPod returns the ordinal of a set's pod by the pod's name; ok is false of a name
// that no pod of the set has.
func OrdinalOfPod(set, pod string) (ordinal int, ok bool) {
	number, ok := strings.CutPrefix(pod, set+"-")
	if !ok || set == "" {
		return 0, false
	}
	return readOrdinal(number)
}

func readOrdinal(number string) (ordinal int, ok bool) {
	n, err := strconv.Atoi(number)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == number
}
