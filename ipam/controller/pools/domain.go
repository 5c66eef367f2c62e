package pools

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// domain looks at all pools of the default domain, and at the definitions that describe ranges
// without a name: those that overlap get one pool. That two such pools have no address in common
// does not depend on this: pools of a named domain that share addresses are not open at a time.
func (r *Implicit) domain(ctx context.Context) (reconcile.Result, error) {
	if waits, err := r.nameFirst(ctx); waits || err != nil {
		return reconcile.Result{}, err
	}
	pools, err := r.Networks.DomainPools(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	a, err := r.assign(ctx, pools)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, n := range a.Refused {
		r.tell(ctx, n.String(), notice{reasonBridges, n.Fault})
	}
	names := []string{poolspec.DefaultDomain}
	for _, p := range pools {
		names = append(names, p.Name)
	}
	for name := range a.Of {
		names = append(names, name)
	}
	slices.Sort(names)
	var again reconcile.Result
	var errs, faults []error
	for _, name := range slices.Compact(names) { // one that cannot be written does not hold up the others
		res, err := r.ofDomain(ctx, name, a.Of[name])
		if errors.Is(err, reconcile.TerminalError(nil)) {
			faults = append(faults, err)
		} else {
			errs = append(errs, err)
		}
		again.RequeueAfter = max(again.RequeueAfter, res.RequeueAfter)
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	return again, errors.Join(faults...)
}

// ofDomain looks at one pool of the default domain: of definitions that it is assigned to, and of
// those that name it.
func (r *Implicit) ofDomain(ctx context.Context, name string, assigned []networks.Network) (reconcile.Result, error) {
	by, err := r.Networks.Naming(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	by = append(by, assigned...)
	slices.SortFunc(by, networks.Network.Older)
	return r.pool(ctx, described{name: name, domain: poolspec.DefaultDomain, by: by})
}

// assign gives the definitions without a name their pools.
func (r *Implicit) assign(ctx context.Context, pools []poolspec.DomainPool) (networks.Assignment, error) {
	all, err := r.Networks.Unnamed(ctx)
	if err != nil {
		return networks.Assignment{}, err
	}
	draining := make([]poolspec.DomainPool, len(pools))
	for i, p := range pools {
		leases, err := leasesOf(ctx, r.Cache, p.Name)
		if err != nil {
			return networks.Assignment{}, err
		}
		draining[i].Name = p.Name
		for _, l := range leases {
			if block, err := netip.ParsePrefix(l.Spec.Block); err == nil {
				draining[i].CIDRs = append(draining[i].CIDRs, block.Masked())
			}
		}
	}
	taken := func(name string) bool {
		var pool v1alpha1.IPPool
		getErr := r.Cache.Get(ctx, client.ObjectKey{Name: name}, &pool)
		named, findErr := r.Networks.Naming(ctx, name)
		return !apierrors.IsNotFound(getErr) || findErr != nil || len(named) > 0
	}
	return networks.Assign(all, pools, draining, taken), nil
}

// nameFirst has the pool that earlier versions have made of all definitions without a name be of
// the default domain, before there is another of it: pools of a domain keep apart. It reports
// whether that is to be waited for.
func (r *Implicit) nameFirst(ctx context.Context) (waits bool, err error) {
	var pool v1alpha1.IPPool
	err = r.Cache.Get(ctx, client.ObjectKey{Name: poolspec.DefaultDomain}, &pool)
	if err != nil || !implicit(&pool) || pool.Spec.Domain != "" {
		return false, client.IgnoreNotFound(err)
	}
	into := &v1alpha1.IPPool{}
	into.Name = pool.Name
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"domain":%q}}`, pool.UID, pool.ResourceVersion, poolspec.DefaultDomain)
	err = r.Write.Patch(ctx, into, client.RawPatch(types.MergePatchType, []byte(patch)))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the cache is behind, and will tell
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("name the domain of pool %s: %w", pool.Name, err)
	}
	return true, err
}
