package daemon

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// podNetworks is the cluster's PodNetworks as the resolver wants them.
type podNetworks struct {
	api *kube.API
	c   client.WithWatch
	*access.Reviews
}

func networkOf(o *v1alpha1.PodNetwork) judge.Network {
	return podnetwork.Of(o, kube.RuleOf(access.PodNetwork, o.Spec.Access, o.Spec.NamespaceSelector))
}

// ReadPodNetwork implements resolve.PodNetworks.
func (n podNetworks) ReadPodNetwork(ctx context.Context, name string) (judge.Network, protocol.Outcome, error) {
	o, out, err := n.api.ReadPodNetwork(ctx, name)
	if out != protocol.Done {
		return judge.Network{}, out, err
	}
	return networkOf(o), out, nil
}

// FollowPodNetwork implements resolve.PodNetworks.
func (n podNetworks) FollowPodNetwork(ctx context.Context, name string, changed func(judge.Network, bool)) error {
	return kube.FollowPodNetwork(ctx, n.c, name, func(o *v1alpha1.PodNetwork) {
		if o == nil {
			changed(judge.Network{}, false)
			return
		}
		changed(networkOf(o), true)
	})
}

// ReadAttachment implements resolve.PodNetworks.
func (n podNetworks) ReadAttachment(ctx context.Context, ref facts.Ref) (judge.Attachment, protocol.Outcome, error) {
	o, out, err := n.api.ReadPodNetworkAttachment(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	if out != protocol.Done {
		return judge.Attachment{}, out, err
	}
	return podnetwork.AttachmentOf(o), out, nil
}

// FollowAttachment implements resolve.PodNetworks.
func (n podNetworks) FollowAttachment(ctx context.Context, ref facts.Ref, changed func(judge.Attachment, bool)) error {
	return kube.FollowPodNetworkAttachment(ctx, n.c, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, func(o *v1alpha1.PodNetworkAttachment) {
		if o == nil {
			changed(judge.Attachment{}, false)
			return
		}
		changed(podnetwork.AttachmentOf(o), true)
	})
}
