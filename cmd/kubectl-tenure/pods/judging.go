package pods

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/attach/node/resolve"
	"github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// PodNetworks implements [resolve.Source]. Whether agents serve PodNetworks is not asked: where
// they do not, no controller has looked at the PodNetworks either, and that is said.
func (s *source) PodNetworks(ctx context.Context, namespace string, elements []api.Element) ([]facts.PodNetwork, bool, error) {
	if err := s.Connect(); err != nil {
		return nil, false, err
	}
	all, err := judge.List(ctx, liveNetworks{users{s, access.PodNetwork}}, namespace, elements)
	return all, true, err
}

// liveNetworks is what the cluster says of PodNetworks.
type liveNetworks struct{ users }

// PodNetwork implements [judge.Known].
func (l liveNetworks) PodNetwork(ctx context.Context, name string) (judge.Network, bool, error) {
	o, out, err := l.API.ReadPodNetwork(ctx, name)
	switch out {
	case protocol.NotFound:
		return judge.Network{}, false, nil
	case protocol.Done:
		return podnetwork.Of(o, kube.RuleOf(access.PodNetwork, o.Spec.Access, o.Spec.NamespaceSelector)), true, nil
	case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
	}
	return judge.Network{}, false, fmt.Errorf("read it: %w", err)
}

// Attachment implements [judge.Known].
func (l liveNetworks) Attachment(ctx context.Context, namespace, name string) (judge.Attachment, bool, error) {
	o, out, err := l.API.ReadPodNetworkAttachment(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	switch out {
	case protocol.NotFound:
		return judge.Attachment{}, false, nil
	case protocol.Done:
		return podnetwork.AttachmentOf(o), true, nil
	case protocol.Unknown, protocol.Exists, protocol.Conflict, protocol.Refused:
	}
	return judge.Attachment{}, false, fmt.Errorf("read it: %w", err)
}

// users is what the cluster says of who may use objects of a kind.
type users struct {
	*source
	of access.Kind
}

// MayUse implements [access.Facts]. Who may not ask the authorizer is told of the other rules
// alone.
func (u users) MayUse(ctx context.Context, namespace, name string) (bool, error) {
	ok, err := u.API.MayUse(u.of)(ctx, namespace, name)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return ok, err
}

// ServesVIFs implements [resolve.Source]. Whether agents serve VIFs is not asked: where they do
// not, no controller has written a pod's map either, and that is said.
func (s *source) ServesVIFs() bool { return true }

// VIFs implements [resolve.Source]. It does not wait.
func (s *source) VIFs(_ context.Context, pod resolve.Pod, _ func(vif.Map) bool) (vif.Map, error) {
	return resolve.MapOf(pod) //nolint:wrapcheck // says what it is about
}
