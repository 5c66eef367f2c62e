package resolve

import (
	"context"
	"time"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// podNetworks are the PodNetworks and PodNetworkAttachments that this node's pods list.
type podNetworks struct {
	PodNetworks

	networks    *mirror[string, judge.Network]
	attachments *mirror[facts.Ref, judge.Attachment]
}

func newPodNetworks(of PodNetworks, linger time.Duration) *podNetworks {
	return &podNetworks{
		of,
		newMirror(maxDefinitions, linger, of.FollowPodNetwork),
		newMirror(maxDefinitions, linger, of.FollowAttachment),
	}
}

// followAhead follows what a pod lists, before it is asked for.
func (n *podNetworks) followAhead(p Pod) {
	elements, err := api.Parse(p.Annotations[api.AnnotationNetworks])
	if err != nil {
		return
	}
	for _, e := range elements[:min(len(elements), maxDefinitionsPod)] {
		if e.Attachment != "" {
			n.attachments.get(facts.Ref{Namespace: p.Namespace, Name: e.Attachment})
		} else {
			n.networks.get(e.Network)
		}
	}
}

// PodNetworks implements [Source].
func (r *Resolver) PodNetworks(ctx context.Context, namespace string, elements []api.Element) ([]facts.PodNetwork, bool, error) {
	if r.networks == nil {
		return nil, false, nil
	}
	all, err := judge.List(ctx, knownNetworks{r}, namespace, elements)
	if err != nil {
		err = &laterError{"it cannot be told now whether the pod may be attached", err}
	}
	return all, true, err
}

// knownNetworks is what the resolver knows of PodNetworks. What the watch does not show to be
// ready is read live: it may have become so just now.
type knownNetworks struct{ *Resolver }

// PodNetwork implements [judge.Known].
func (k knownNetworks) PodNetwork(ctx context.Context, name string) (judge.Network, bool, error) {
	if n, seen := k.networks.networks.get(name); seen == present && n.Ready {
		return n, true, nil
	}
	k.metrics.liveRead("podnetwork")
	n, out, err := k.networks.ReadPodNetwork(ctx, name)
	return n, out == protocol.Done, unlessMissing(out, err)
}

// Attachment implements [judge.Known].
func (k knownNetworks) Attachment(ctx context.Context, namespace, name string) (judge.Attachment, bool, error) {
	ref := facts.Ref{Namespace: namespace, Name: name}
	if a, seen := k.networks.attachments.get(ref); seen == present && a.Ready {
		return a, true, nil
	}
	k.metrics.liveRead("attachment")
	a, out, err := k.networks.ReadAttachment(ctx, ref)
	return a, out == protocol.Done, unlessMissing(out, err)
}

// MayUse implements [judge.Known].
func (k knownNetworks) MayUse(ctx context.Context, namespace, network string) (bool, error) {
	return k.networks.MayUse(ctx, namespace, network)
}

// unlessMissing returns the error of a read, but for one that has shown that there is no such
// object.
func unlessMissing(out protocol.Outcome, err error) error {
	if out == protocol.Done || out == protocol.NotFound {
		return nil
	}
	if err == nil {
		return &laterError{What: "the API server does not say it"}
	}
	return err
}
