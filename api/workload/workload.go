// Package workload reads what a StatefulSet says of the addresses that its pods keep:
// the annotations of its pod template. It also computes the names of the claims that
// hold these addresses. The controller makes claims by these names, and the agents find
// them by the same names.
package workload

import (
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// Annotations of a StatefulSet's pod template.
const (
	// AnnotationClaims names the networks of which every pod has a claim, in the short
	// form of the selection annotation: "lan, storage@stor0".
	AnnotationClaims = "tenure.dev/claims"
	// AnnotationRetention says what becomes of the claims. It may stand on the
	// StatefulSet itself, which counts before its template.
	AnnotationRetention = "tenure.dev/claim-retention"
	// AnnotationTopology is, on a claim or a template, the labels of the nodes that its addresses
	// are for, as "key=value[,key=value]", where a pool has ranges for some nodes alone. Without
	// it a claim has addresses for the node of its first pod.
	AnnotationTopology = "tenure.dev/topology"
	// AnnotationRequested is, on a template, the ranges of the addresses that the pods are
	// to have; on a claim the addresses that it asks for.
	AnnotationRequested = "tenure.dev/requested-ips"
)

// LabelSet is the label of a claim that names its StatefulSet: only that set's pods may use
// the claim.
const LabelSet = "tenure.dev/statefulset"

// maxLabel is how long a label's value may be.
const maxLabel = 63

// Text is the annotations of a StatefulSet.
type Text struct {
	// Claims, Retention, Requested and Topology are the annotations above, Networks is the
	// template's selection.
	Claims, Retention, Requested, Topology, Networks string
}

// A Set is a StatefulSet whose pods have claims.
type Set struct {
	Namespace, Name string
	// First is the lowest ordinal, Count how many there are.
	First, Count int
	Elements     []Element
	Retention    Retention
	// Topology is what the claims' annotation of that name is to say.
	Topology string
	// ranges are the ranges of the addresses that an element's claims ask for, if any.
	ranges map[Element][]addrRange
}

// ParseSet reads the annotations of a StatefulSet. An error says all that is wrong with
// them; then no claim is to be made.
func ParseSet(namespace, name string, first, count int, text Text) (Set, error) {
	s := Set{Namespace: namespace, Name: name, First: first, Count: count, Topology: text.Topology}
	var errs [5]error
	s.Elements, errs[0] = ParseElements(text.Claims, namespace)
	if errs[0] == nil {
		selections, err := npwg.Parse(text.Networks, namespace, npwg.AnyVersion)
		if err == nil {
			err = match(s.Elements, selections)
		}
		errs[1] = prefixed(npwg.AnnotationNetworks, err)
		s.ranges, err = parseRequested(text.Requested, namespace, s.Elements)
		if err == nil {
			err = s.checkRanges()
		}
		errs[2] = prefixed(AnnotationRequested, err)
	}
	errs[0] = prefixed(AnnotationClaims, errs[0])
	var err error
	s.Retention, err = parseRetention(text.Retention)
	errs[3] = prefixed(AnnotationRetention, err)
	if len(name) > maxLabel {
		errs[4] = fmt.Errorf("the name of the StatefulSet has %d characters; the label of its claims can have %d", len(name), maxLabel)
	}
	return s, errors.Join(errs[:]...)
}

func prefixed(annotation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("annotation %s: %w", annotation, err)
}

// Has reports whether the set has a pod of that ordinal, or is to have one.
func (s Set) Has(ordinal int) bool { return ordinal >= s.First && ordinal-s.First < s.Count }

// ClaimName returns the name of an ordinal's claim.
func (s Set) ClaimName(ordinal int, e Element) string {
	return ClaimName(s.Name, ordinal, e, s.Namespace)
}

// Wants reports whether a claim of that name is one of the set's.
func (s Set) Wants(claim string) bool {
	ordinal, ok := OrdinalOfClaim(s.Name, claim)
	if !ok || !s.Has(ordinal) {
		return false
	}
	for _, e := range s.Elements {
		if s.ClaimName(ordinal, e) == claim {
			return true
		}
	}
	return false
}
