package simulation

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// everybody lets every namespace use every pool: it is [claims.Admission] and [access.Facts].
type everybody struct{}

func (everybody) Admit(context.Context, string, protocol.PoolName) error { return nil }
func (everybody) MayUse(context.Context, string, string) (bool, error)   { return true, nil }
func (everybody) Labels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

// noPorts is a [claims.Porter] where no pool has a source.
type noPorts struct{ claims.Porter }

func (noPorts) Serves(context.Context, protocol.PoolName) (bool, error) { return false, nil }
func (noPorts) Known(grants.ClaimKey) []protocol.UID                    { return nil }
func (noPorts) Lost(protocol.UID) bool                                  { return false }
func (noPorts) Withdraw(protocol.UID)                                   {}

// noEvents keeps nothing of what is said to people: it is [agent.Events], too.
type noEvents struct{}

func (noEvents) WarnNode(protocol.NodeName, protocol.UID, string, string) {}
func (noEvents) WarnPod(protocol.PodRef, string, string)                  {}

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {} //nolint:revive // the interface has that many

// simNetworks is a [claims.Resolver] of networkNames. No network describes a pool, or has routers
// that the pools' specs do not name.
type simNetworks struct{}

func (simNetworks) Resolve(_ context.Context, network, _ string) (networks.Resolution, error) {
	return resolutions()[network], nil
}

func (simNetworks) OfPool(context.Context, string) ([]networks.Network, error) { return nil, nil }
func (simNetworks) Using(context.Context, string) ([]networks.Network, error)  { return nil, nil }
