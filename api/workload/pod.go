package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
)

const (
	// ClaimsBy asks, as an annotation of a pod or as a label of its namespace, for claims by the
	// pod's name, with [AnnotationClaims]. Its value is [ByPodName].
	ClaimsBy = "tenure.dev/claims-by"
	// ByPodName has a pod use the claims of its name that its controlling owner has.
	ByPodName = "pod-name"
	// LabelOwner is the label of a claim that was made by a pod's name: the UID of the pod's
	// controlling owner, which owns the claim as well. Only pods of that owner may use it.
	LabelOwner = "tenure.dev/claim-owner"
)

// PodClaimName returns the name of the claim that a pod has for e by its own name:
//
//	<pod>.[<namespace>.]<definition>[.<interface>]
//
// as [ClaimName] has it for a StatefulSet's.
func PodClaimName(pod string, e Element, podNamespace string) string {
	return claimName(pod, e, podNamespace, fmt.Sprintf("%q %q %q %q", pod, e.Namespace, e.Name, e.Interface))
}

// MachineClaimName returns the name of the claim that a virtual machine has for an interface on
// another network than that of the claim which its pods name.
func MachineClaimName(claim, network string) string {
	return hashed(claim, fmt.Sprintf("%q %q", claim, network))
}

// claimName returns the name of a claim; parts is what its hash is of, where it needs one.
func claimName(pod string, e Element, podNamespace, parts string) string {
	stem := pod + "."
	if e.Namespace != podNamespace {
		stem += e.Namespace + "."
	}
	stem += e.Name
	name := stem
	if e.Interface != "" {
		name += "." + e.Interface
	}
	if npwg.CheckName(name) == nil {
		return name
	}
	return hashed(stem, parts)
}

// hashed returns a name of an object: what can be read of stem, and a hash of parts.
func hashed(stem, parts string) string {
	sum := sha256.Sum256([]byte(parts))
	readable := strings.TrimRight(stem[:min(len(stem), maxName-digits-1)], "-.")
	return readable + "." + hex.EncodeToString(sum[:])[:digits]
}

// A PodName is what is known of how a pod got its name.
type PodName struct {
	Name, Generate string // of the metadata
	// OwnerKind is the kind of the pod's controlling owner; empty if none controls it.
	OwnerKind string
}

// WhyPasses says why no later pod of the same owner is going to have the name, so that nothing may
// be kept under it; empty: one may.
func (p PodName) WhyPasses() string {
	switch p.OwnerKind {
	case "":
		return "no controller owns the pod: have it name a claim by ipam-claim-reference"
	case "ReplicaSet", "ReplicationController", "DaemonSet", "Job", "VirtualMachineInstance":
		return fmt.Sprintf("a %s gives each of its pods another name: only controllers that make a pod again under its name, as a StatefulSet does, can have claims by it", p.OwnerKind)
	case "Node":
		return "it is a static pod, whose node has no claims"
	}
	if suffix, ok := strings.CutPrefix(p.Name, p.Generate); ok && p.Generate != "" && random(suffix) {
		return fmt.Sprintf("its name was made by chance out of %q, and no later pod of %s is going to have it", p.Generate, p.OwnerKind)
	}
	return ""
}

// random reports whether Kubernetes has made the suffix of a generated name, and no ordinal is it.
func random(suffix string) bool {
	const length, letters = 5, "bcdfghjklmnpqrstvwxz"
	return len(suffix) == length && strings.Trim(suffix, letters+"2456789") == "" && strings.ContainsAny(suffix, letters)
}
