package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// placeByNamespace finds the pools of add's network that labels of the pod's namespace name. An
// interface that has addresses keeps their pools, also for another sandbox and whatever the labels
// are by now.
func (a *Agent) placeByNamespace(ctx context.Context, add *addCall) error {
	if !poolspec.ByNamespace(add.conf.Sources) {
		return nil
	}
	sources, ok, err := a.recordedPools(ctx, add)
	if err == nil && !ok {
		sources, err = a.labelledPools(ctx, add)
	}
	if err != nil {
		return err
	}
	placed := *add.conf
	placed.Sources = sources
	add.conf = &placed
	return nil
}

// recordedPools returns the sources of add's network with the pools that the interface has
// addresses of; ok is false where it has none, or of other pools.
func (a *Agent) recordedPools(ctx context.Context, add *addCall) (sources []poolspec.Source, ok bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		held, known, err := a.previous(tx, add)
		if err != nil || !known {
			return err
		}
		var pools []string
		for _, x := range held.Addresses {
			if !slices.Contains(pools, string(x.Pool)) {
				pools = append(pools, string(x.Pool))
			}
		}
		sources, ok = poolspec.InPools(add.conf.Sources, pools)
		return nil
	})
	return sources, ok, err
}

// labelledPools returns the sources of add's network with the pools that the labels of the pod's
// namespace name.
func (a *Agent) labelledPools(ctx context.Context, add *addCall) ([]poolspec.Source, error) {
	var labels map[string]string
	namespace := add.conf.Pod.Namespace
	if namespace != "" {
		var err error
		if labels, err = a.cl.Access.Labels(ctx, namespace); err != nil {
			return nil, &unplacedError{fmt.Sprintf("the pool of namespace %s is not known, since its labels cannot be read: %v", namespace, err)}
		}
	}
	sources, err := poolspec.OfNamespace(add.conf.Sources, namespace, labels)
	if err != nil {
		return nil, err
	}
	for _, src := range sources {
		if src.ByNamespace == "" {
			continue
		}
		ready, name := a.pools.ready, protocol.PoolName(src.Pool)
		if keeps, err := a.keepsAddresses(ctx, add, name); err != nil {
			return nil, err
		} else if keeps {
			ready = a.pools.answerable
		}
		known, err := ready(ctx, name)
		if e, ok := errors.AsType[*notReadyError](err); ok {
			return nil, &notReadyError{Pool: e.Pool, Why: fmt.Sprintf("%s (label %s of namespace %s names it)", e.Why, src.ByNamespace, namespace), News: e.News}
		}
		if err != nil {
			return nil, err
		}
		// The controller keeps it free in the pools of definitions that name them.
		for _, router := range src.RoutersIn(known.shape.Ranges()) {
			if known.shape.Assignable(router) == nil {
				return nil, fmt.Errorf("%w: the bridge of network %s takes %v for itself, and pool %s gives that to others: give the pool's range a gateway, or exclude the address",
					poolspec.ErrConfig, add.conf.Name, router, src.Pool)
			}
		}
	}
	return sources, nil
}

// whichLabels says which pools the labels of the pod's namespace name, to read on from a sentence
// about the network's pools; empty: it does not go by labels.
func whichLabels(conf *poolspec.Config) (text string) {
	for _, src := range conf.Sources {
		if src.ByNamespace != "" {
			text += fmt.Sprintf("; label %s of the namespace names pool %s: have it name the claim's, or delete the claim", src.ByNamespace, src.Pool)
		}
	}
	return text
}
