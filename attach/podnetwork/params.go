package podnetwork

import (
	"fmt"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// A ParamsError says why what parametersRefs names is not ready. Reason is that of the condition
// ParamsReady: ReasonParamsMissing or ReasonParamsInvalid.
type ParamsError struct{ Reason, Message string }

func (e *ParamsError) Error() string { return e.Message }

// Missing returns an error for an object that is not there.
func Missing(format string, args ...any) error {
	return &ParamsError{v1alpha1.ReasonParamsMissing, fmt.Sprintf(format, args...)}
}

// Invalid returns an error for parameters that cannot be used.
func Invalid(format string, args ...any) error {
	return &ParamsError{v1alpha1.ReasonParamsInvalid, fmt.Sprintf(format, args...)}
}

// Refs are the objects that the parametersRefs of a PodNetwork name. Of Definition and Parameters
// one is zero.
type Refs struct {
	Definition, Parameters facts.Ref
	// Pool is the IPPool's name; empty for a network without addresses.
	Pool string
}

// howToRefer says what the parametersRefs of a PodNetwork may name.
const howToRefer = "name one NetworkAttachmentDefinition (group " + GroupDefinition + "), or one InterfaceParameters and at most one IPPool (group " + v1alpha1.GroupName + ")"

// ReadRefs reads the parametersRefs of a PodNetwork of Tenure's provider. Its error is a
// [*ParamsError].
func ReadRefs(refs []v1alpha1.ParametersRef) (Refs, error) {
	var r Refs
	for i, ref := range refs {
		var err error
		switch {
		case IsDefinition(ref):
			err = take(&r.Definition, i, ref)
		case IsParameters(ref):
			err = take(&r.Parameters, i, ref)
		case IsPool(ref) && r.Pool != "":
			err = Invalid("spec.parametersRefs[%d]: IPPool %s is the second one, after %s: %s", i, ref.Name, r.Pool, howToRefer)
		case IsPool(ref):
			r.Pool = ref.Name
		default:
			err = unknown(i, ref, howToRefer)
		}
		if err != nil {
			return Refs{}, err
		}
	}
	none := facts.Ref{}
	switch {
	case r.Definition != none && (r.Parameters != none || r.Pool != ""):
		return Refs{}, Invalid("spec.parametersRefs names a NetworkAttachmentDefinition, whose configuration has all that is needed, and further objects: %s", howToRefer)
	case r.Definition == none && r.Parameters == none:
		return Refs{}, Invalid("spec.parametersRefs does not say how interfaces are made: %s", howToRefer)
	}
	return r, nil
}

// take has to be ref, which is the i-th.
func take(to *facts.Ref, i int, ref v1alpha1.ParametersRef) error {
	switch {
	case *to != facts.Ref{}:
		return Invalid("spec.parametersRefs[%d]: %s %s/%s is the second one, after %s/%s: %s", i, ref.Kind, ref.Namespace, ref.Name, to.Namespace, to.Name, howToRefer)
	case ref.Namespace == "":
		return Invalid("spec.parametersRefs[%d]: %s %s has no namespace, and a PodNetwork has none to take for it: make another PodNetwork that gives it", i, ref.Kind, ref.Name)
	}
	*to = facts.Ref{Namespace: ref.Namespace, Name: ref.Name}
	return nil
}

func unknown(i int, ref v1alpha1.ParametersRef, how string) error {
	return Invalid("spec.parametersRefs[%d]: the provider %s serves no %s of group %q: %s", i, podnetwork.Provider, ref.Kind, ref.Group, how)
}

// ReadOwnRefs reads the parametersRefs of a PodNetworkAttachment of namespace: the
// InterfaceParameters that it names. network is the name of its PodNetwork, and of are the objects
// that this names. The error is a [*ParamsError].
func ReadOwnRefs(namespace string, refs []v1alpha1.ParametersRef, network string, of Refs) (facts.Ref, error) {
	if d := of.Definition; d != (facts.Ref{}) {
		return facts.Ref{}, Invalid("PodNetwork %s has its configuration of NetworkAttachmentDefinition %s/%s, which an attachment cannot vary: leave spec.parametersRefs out", network, d.Namespace, d.Name)
	}
	const how = "name one InterfaceParameters of the attachment's own namespace"
	var own facts.Ref
	for i, ref := range refs {
		switch {
		case !IsParameters(ref):
			return own, unknown(i, ref, how)
		case own != facts.Ref{}:
			return own, Invalid("spec.parametersRefs[%d]: InterfaceParameters %s is the second one, after %s: %s", i, ref.Name, own.Name, how)
		case ref.Namespace != "" && ref.Namespace != namespace:
			return own, Invalid("spec.parametersRefs[%d]: InterfaceParameters %s/%s is of another namespace: %s", i, ref.Namespace, ref.Name, how)
		}
		own = facts.Ref{Namespace: namespace, Name: ref.Name}
	}
	return own, nil
}
