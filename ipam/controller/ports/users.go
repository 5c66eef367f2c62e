package ports

import (
	"context"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// users finds whether the pods are there for which nodes use claims. An agent may write a use of
// any claim in its node's name: that alone must not have Neutron let the node through with the
// claim's address.
//
// Agents may write any number of uses: what these name is read live once, and claims only if the
// cache has them.
type users struct {
	cache, live client.Reader
	on          map[string][]corev1.Pod                           // the pods of nodes
	claims      map[v1alpha1.ClaimReference]*ipamclaims.IPAMClaim // nil: there is none
}

// there reports whether the pod that a use names is on the node, and may have the claim.
func (u users) there(ctx context.Context, node string, use v1alpha1.Use) (bool, error) {
	pods, err := u.podsOn(ctx, node)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(pods, func(o corev1.Pod) bool {
		return o.Namespace == use.Claim.Namespace && o.Namespace == use.Pod.Namespace && o.Name == use.Pod.Name &&
			(string(o.UID) == use.Pod.UID || string(kube.MirrorOf(&o)) == use.Pod.UID)
	})
	if i < 0 {
		return false, nil
	}
	claim, err := u.claim(ctx, use.Claim)
	if claim == nil || err != nil {
		return false, err
	}
	may, _ := protocol.BelongsTo(kube.PodRefOf(&pods[i]), kube.ClaimOf(claim))
	return may, nil
}

// claim returns a claim with its owners, which the cache does not keep of those with addresses. Nil
// says that there is none.
func (u users) claim(ctx context.Context, ref v1alpha1.ClaimReference) (*ipamclaims.IPAMClaim, error) {
	if claim, known := u.claims[ref]; known {
		return claim, nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	var cached ipamclaims.IPAMClaim
	if err := u.cache.Get(ctx, key, &cached); err != nil || string(cached.UID) != ref.UID {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	claim := &ipamclaims.IPAMClaim{}
	err := kube.Call(ctx, func(ctx context.Context) error { return u.live.Get(ctx, key, claim) })
	if client.IgnoreNotFound(err) != nil {
		return nil, err //nolint:wrapcheck // says what it is about
	}
	if err != nil || string(claim.UID) != ref.UID {
		claim = nil
	}
	u.claims[ref] = claim
	return claim, nil
}

// podsOn returns the pods of a node.
func (u users) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, known := u.on[node]
	if !known {
		var err error
		if pods, err = kube.PodsOfNode(ctx, u.live, protocol.NodeName(node)); err != nil {
			return nil, err //nolint:wrapcheck // says what it is about
		}
		u.on[node] = pods
	}
	return pods, nil
}
