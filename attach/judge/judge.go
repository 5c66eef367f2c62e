package judge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// Known is what is known of a cluster. An error means that it is not known now.
type Known interface {
	// PodNetwork returns a PodNetwork; exists is false where there is none.
	PodNetwork(ctx context.Context, name string) (n Network, exists bool, err error)
	// Attachment returns a PodNetworkAttachment; exists is false where there is none.
	Attachment(ctx context.Context, namespace, name string) (a Attachment, exists bool, err error)
	// Facts says who may use a network: of MayUse, pool is the PodNetwork's name.
	access.Facts
}

// maxRefused is after how many elements that are refused the others are not looked at: the pod is
// not attached in any case, and its runtime tries again and again.
const maxRefused = 16

// List decides of each element of a list which network it is, and whether a pod of namespace may
// be attached to it now. An error means that something is not known now.
func List(ctx context.Context, known Known, namespace string, elements []podnetwork.Element) ([]facts.PodNetwork, error) {
	verdicts := make([]facts.PodNetwork, len(elements))
	first, refused := map[string]int{}, 0
	for i, e := range elements {
		if refused == maxRefused {
			verdicts[i] = facts.PodNetwork{Name: e.Network, Refused: fmt.Sprintf("it is not looked at, since %d before it are refused", maxRefused), Later: true}
			continue
		}
		v, err := judge(ctx, known, namespace, e)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", e, err)
		}
		if at, twice := first[v.Name]; twice && v.Name != "" && v.Refused == "" {
			v.Refused = fmt.Sprintf("it is of PodNetwork %s, and so is element %d; a pod is attached to a PodNetwork once", v.Name, at+1)
			v.Later = false
		}
		first[v.Name] = i
		if verdicts[i] = v; v.Refused != "" {
			refused++
		}
	}
	return verdicts, nil
}

// judge decides of one element.
func judge(ctx context.Context, known Known, namespace string, e podnetwork.Element) (facts.PodNetwork, error) {
	v := facts.PodNetwork{Name: e.Network}
	later := func(format string, args ...any) (facts.PodNetwork, error) {
		v.Refused, v.Later = fmt.Sprintf(format, args...), true
		return v, nil
	}
	var own Attachment
	if e.Attachment != "" {
		a, exists, err := known.Attachment(ctx, namespace, e.Attachment)
		switch {
		case err != nil:
			return v, err
		case !exists:
			return later("there is no PodNetworkAttachment %s in namespace %s", e.Attachment, namespace)
		case a.Deleting:
			return later("PodNetworkAttachment %s/%s is being deleted", namespace, e.Attachment)
		case a.Network == podnetwork.Default:
			v.Name, v.Refused = a.Network, fmt.Sprintf("PodNetworkAttachment %s/%s is of PodNetwork %s, whose interface is the cluster's own: list the PodNetwork", namespace, e.Attachment, a.Network)
			return v, nil
		case !a.Ready:
			return later("PodNetworkAttachment %s/%s is not Ready: %s", namespace, e.Attachment, a.NotReady)
		}
		v.Name, own = a.Network, a
	}
	n, exists, err := known.PodNetwork(ctx, v.Name)
	switch {
	case err != nil:
		return v, err
	case !exists:
		return later("PodNetwork %s does not exist", v.Name)
	}
	// First: how a network is is not the business of who may not use it.
	err = n.Access.Check(ctx, known, namespace, v.Name)
	if denied, ok := errors.AsType[*access.DeniedError](err); ok {
		v.Refused = denied.Error()
		return v, nil
	}
	switch {
	case err != nil:
		return v, err
	case n.Deleting:
		return later("PodNetwork %s is being deleted", v.Name)
	case !n.Enabled:
		return later("PodNetwork %s is disabled (spec.enabled is false)", v.Name)
	case !n.Ready:
		return later("PodNetwork %s is not Ready: %s", v.Name, n.NotReady)
	}
	switch {
	case v.Name == podnetwork.Default:
	case n.Provider == "":
		return later("PodNetwork %s has no provider, so that nobody attaches pods to it; Tenure's is %s", v.Name, podnetwork.Provider)
	case n.Provider != podnetwork.Provider:
		v.Provider = n.Provider
	case own.Definition != facts.Ref{}:
		v.Definition, v.MadeFor = own.Definition, MadeFor(n.UID, own.UID)
	case n.Definition == facts.Ref{}:
		return later("PodNetwork %s has no parametersRefs, and so no configuration: give it a NetworkAttachmentDefinition, or InterfaceParameters", v.Name)
	default:
		v.Definition = n.Definition
		if n.Made {
			v.MadeFor = MadeFor(n.UID)
		}
	}
	return v, nil
}

// MadeFor returns what the annotation [podnetwork.AnnotationMadeFor] of a definition says that is
// made for objects with these UIDs: a PodNetwork, and maybe an attachment of it.
func MadeFor(uids ...string) string { return strings.Join(uids, "/") }
