package ports

import (
	"context"
	"errors"
	"fmt"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// sweeps deletes subnets of Neutron that were made for definitions which were gone before their
// pool was made, until ctx ends.
func (r *Subnets) sweeps(ctx context.Context) error {
	var last map[string]bool
	ticker := time.NewTicker(r.SweepEvery)
	defer ticker.Stop()
	for {
		unused, err := r.sweep(ctx, last)
		if err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "Neutron's subnets are not compared with the definitions", "error", err)
		}
		last = unused
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// sweep returns the keys of subnets that neither a definition nor a pool needs. It has deleted
// those that last has as well, if neither is at the API server, either.
func (r *Subnets) sweep(ctx context.Context, last map[string]bool) (unused map[string]bool, err error) {
	nc, err := r.Connect(ctx)
	if err != nil {
		return map[string]bool{}, nil // pools and definitions say so
	}
	keys, err := nc.SubnetKeys(ctx)
	if err != nil || len(keys) == 0 {
		return nil, err //nolint:wrapcheck // says what it is about
	}
	keep, err := needed(ctx, r.Cache)
	if err != nil {
		return nil, err
	}
	unused = map[string]bool{}
	var twice []string
	for _, key := range keys {
		if keep[key] {
			continue
		}
		if unused[key] = true; last[key] {
			twice = append(twice, key)
		}
	}
	if len(twice) == 0 {
		return unused, nil
	}
	r.making.Lock()
	defer r.making.Unlock()
	if keep, err = needed(ctx, r.Live); err != nil {
		return unused, err
	}
	var errs []error
	for _, key := range twice {
		if keep[key] {
			continue
		}
		if err := nc.DeleteSubnet(ctx, key); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Log.InfoContext(ctx, "subnet deleted that neither a definition nor a pool needs", "key", key)
	}
	return unused, errors.Join(errs...)
}

// needed returns the keys of subnets that a definition describes, or a pool consists of. A
// definition that cannot be read may describe one.
func needed(ctx context.Context, from client.Reader) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.ListTimeout)
	defer cancel()
	var definitions nad.NetworkAttachmentDefinitionList
	if err := from.List(ctx, &definitions, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	var pools v1alpha1.IPPoolList
	if err := from.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	keys := map[string]bool{}
	for i := range definitions.Items {
		if s, known := described(&definitions.Items[i]); s != nil || !known {
			keys[vif.PoolName(definitions.Items[i].Namespace, definitions.Items[i].Name)] = true
		}
	}
	for i := range pools.Items {
		keys[pools.Items[i].Name] = true
	}
	return keys, nil
}
