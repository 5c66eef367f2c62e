package daemon

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/attach/node/ready"
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

// unserved returns what says why this node's pods are not attached to PodNetworks. Where nobody
// keeps the runtime's configuration here, k is nil, and that there is another is not known.
func (d *Daemon) unserved(k *ready.Keeper) func() string {
	return func() string {
		if !d.cfg.MultiNetwork {
			return "its agent lacks the flag --multi-network"
		}
		if k != nil && k.Before() != "" {
			return fmt.Sprintf("its runtime takes %s, which comes before %s in alphabetical order", k.Before(), d.cfg.Ready.Name)
		}
		return ""
	}
}

// noDefault is what STATUS says, in the words of the proposal, and what to do.
const noDefault = "Default PodNetwork not found: make PodNetwork " + api.Default + ", or start this node's agent without --require-default-pod-network"

// watchDefault has STATUS fail while there is no default PodNetwork, if that is asked for, until
// ctx ends. What cannot be told changes nothing: neither that the API server is away, nor that this
// process ends.
func (d *Daemon) watchDefault(ctx context.Context, c client.WithWatch) error {
	if d.cfg.AttachState == "" {
		return nil
	}
	if !d.cfg.NeedDefault {
		d.setUnready(ctx, "")
		return nil
	}
	return kube.FollowPodNetwork(ctx, c, api.Default, func(o *v1alpha1.PodNetwork) {
		if o == nil {
			d.setUnready(ctx, noDefault)
			return
		}
		d.setUnready(ctx, "")
	})
}

// setUnready has STATUS fail for a reason, or no more. It tries until it has, or ctx ends.
func (d *Daemon) setUnready(ctx context.Context, why string) {
	dir := journal.Dir{Path: d.cfg.AttachState}
	before, _ := dir.Unready()
	// It ends with ctx alone.
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := dir.SetUnready(why)
		if err != nil {
			d.log.WarnContext(ctx, "what STATUS has to say is not written: it is tried again", "directory", dir.Path, "error", err)
		}
		return err == nil, nil
	})
	if before != why {
		d.log.WarnContext(ctx, "what STATUS says has changed", "before", before, "now", why)
	}
}
