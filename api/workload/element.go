package workload

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// An Element is one element of [AnnotationClaims].
type Element struct {
	// Namespace and Name are the NetworkAttachmentDefinition's.
	Namespace, Name string
	// Interface is the one that the element names; empty where it names none.
	Interface string
}

// String writes e as the annotation does, always with the namespace.
func (e Element) String() string {
	if e.Interface == "" {
		return e.Namespace + "/" + e.Name
	}
	return e.Namespace + "/" + e.Name + "@" + e.Interface
}

// selectedBy reports whether s is the selection that e is about.
func (e Element) selectedBy(s npwg.Selection) bool {
	return s.Namespace == e.Namespace && s.Name == e.Name && (e.Interface == "" || e.Interface == s.Interface)
}

// MaxElements is how many claims a pod may have: each is compared with the others, for each ordinal
// of a set.
const MaxElements = 64

// ParseElements reads [AnnotationClaims]. namespace is the pods'.
func ParseElements(text, namespace string) ([]Element, error) {
	if strings.ContainsAny(text, `[{"`) {
		return nil, errors.New("it is not in the short form: want name[@interface] or namespace/name[@interface], separated by commas")
	}
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it names no network")
	}
	selections, err := npwg.Parse(text, namespace, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // says which element it is about
	}
	if len(selections) > MaxElements {
		return nil, fmt.Errorf("it names %d networks; a pod may have claims of %d", len(selections), MaxElements)
	}
	elements := make([]Element, len(selections))
	names := map[string]Element{}
	for i, s := range selections {
		e := Element{Namespace: s.Namespace, Name: s.Name}
		if s.Named {
			e.Interface = s.Interface
		}
		name := ClaimName("set", 0, e, namespace)
		if other, ok := names[name]; ok {
			return nil, fmt.Errorf("elements %s and %s would have claims of the same names", other, e)
		}
		names[name], elements[i] = e, e
	}
	return elements, nil
}

// match checks that a pod's selections have each element: just once, so that it is clear
// which interface has the claim.
func match(elements []Element, selections []npwg.Selection) error {
	var errs []error
	for _, e := range elements {
		n := 0
		for _, s := range selections {
			if e.selectedBy(s) {
				n++
			}
		}
		switch {
		case n == 0:
			errs = append(errs, fmt.Errorf("it does not select %s, which %s names: there are claims of network attachment definitions alone, and not of PodNetworks", e, AnnotationClaims))
		case n > 1:
			errs = append(errs, fmt.Errorf("it selects %s %d times: name the interface in %s, as in %s@net1", e, n, AnnotationClaims, e.Name))
		}
	}
	return errors.Join(errs...)
}

// A Pod is what the claims of a pod are inferred from.
type Pod struct {
	Namespace, Name string
	// Set is the name of the StatefulSet that controls the pod; empty if none does, and then the
	// pod has the claims of its name.
	Set string
	// Claims is the pod's [AnnotationClaims].
	Claims string
	// Selections are what the pod selects.
	Selections []npwg.Selection
}

// Wanted returns the elements of which a pod has claims: those that it names, each of which it
// selects once.
func (p Pod) Wanted() ([]Element, error) {
	elements, err := ParseElements(p.Claims, p.Namespace)
	if err != nil {
		return nil, prefixed(AnnotationClaims, err)
	}
	return elements, prefixed(npwg.AnnotationNetworks, match(elements, p.Selections))
}

// Infer returns the name of the claim that a pod has for one of its selections; empty if it
// has none for that one.
func Infer(pod Pod, sel npwg.Selection) (claim string, err error) {
	ordinal, ok := OrdinalOfPod(pod.Set, pod.Name)
	if pod.Set != "" && !ok {
		return "", fmt.Errorf("pod %s/%s has no ordinal of StatefulSet %q", pod.Namespace, pod.Name, pod.Set)
	}
	elements, err := pod.Wanted()
	if err != nil {
		return "", err
	}
	for _, e := range elements {
		switch {
		case !e.selectedBy(sel):
		case pod.Set != "":
			return ClaimName(pod.Set, ordinal, e, pod.Namespace), nil
		default:
			return PodClaimName(pod.Name, e, pod.Namespace), nil
		}
	}
	return "", nil
}
