package pools

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// liveOf is an API server with these pools and leases. It is away where away is set.
type liveOf struct {
	pools  []v1alpha1.IPPool
	leases []*v1alpha1.IPLease
	regs   []protocol.Registration
	away   error
}

func (l liveOf) ReadIPPool(_ context.Context, name protocol.PoolName) (*v1alpha1.IPPool, protocol.Outcome, error) {
	i := slices.IndexFunc(l.pools, func(p v1alpha1.IPPool) bool { return p.Name == string(name) })
	return &l.pools[i], protocol.Done, nil
}

func (l liveOf) IPPools(context.Context) ([]v1alpha1.IPPool, error) { return l.pools, nil }

func (l liveOf) Registrations(context.Context) ([]protocol.Registration, error) {
	return l.regs, l.away
}

func (l liveOf) Leases(ctx context.Context) ([]protocol.Lease, error) { return l.LeasesOfPool(ctx, "") }

func (l liveOf) LeasesOfPool(_ context.Context, pool protocol.PoolName) (all []protocol.Lease, err error) {
	if l.away != nil {
		return nil, l.away
	}
	var errs []error
	for _, o := range l.leases {
		if one, err := kube.LeaseOf(o); pool != "" && o.Spec.Pool != string(pool) {
		} else if err != nil {
			errs = append(errs, err)
		} else {
			all = append(all, one)
		}
	}
	return all, errors.Join(errs...)
}

// TestGarbledLease: a lease that cannot be read keeps closed the pools whose addresses it may
// stand for, and these alone. They say which one it is, and how to get rid of it.
func TestGarbledLease(t *testing.T) {
	named := func(name, domain string, changes ...change) v1alpha1.IPPool {
		p := pool("10.0.0.0/24")
		p.Name, p.UID, p.Spec.Domain = name, types.UID("of "+name), domain
		return *with(p, changes...)
	}
	garbled := func(pool, uid string) *v1alpha1.IPLease {
		o := kube.ToLease(lease("10.0.0.7/32", protocol.UID(uid)))
		o.Name, o.Spec.Pool, o.Spec.Block = pool+".0a000007.32", pool, "10.0.0.7 or so"
		return o
	}
	others := []v1alpha1.IPPool{named("rival", "d"), named("apart", "e")}
	for _, tt := range []struct {
		name string
		pool v1alpha1.IPPool
		bad  *v1alpha1.IPLease
		away error
		want string
		says string
	}{
		{name: "its own", pool: named("lan", ""), bad: garbled("lan", "of lan"), want: "Closed LeaseGarbled", says: "lease lan.0a000007.32 cannot be read"},
		{name: "another pool's, without a domain", pool: named("lan", ""), bad: garbled("rival", "of rival"), want: "Open Open, /32"},
		{name: "of its domain", pool: named("lan", "d"), bad: garbled("rival", "of rival"), want: "Closed LeaseGarbled",
			says: "kubectl annotate ipleases rival.0a000007.32 tenure.dev/deletion=confirmed && kubectl delete ipleases rival.0a000007.32"},
		{name: "of a pool that is gone", pool: named("lan", "d"), bad: garbled("gone", "of gone"), want: "Closed LeaseGarbled", says: "no pod of pool gone"},
		{name: "of another domain", pool: named("lan", "d"), bad: garbled("apart", "of apart"), want: "Open Open, /32"},
		{name: "deleted", pool: named("lan", "d", closed(32), deleted, saidDeleting), bad: garbled("lan", "of lan"), want: "nothing"},
		{name: "deleted, and it is not its own", pool: named("lan", "d", closed(32), deleted, saidDeleting), bad: garbled("gone", "of gone"), want: "remove finalizer"},
		{name: "nobody answers", pool: named("lan", "d"), bad: garbled("lan", "of lan"), away: context.DeadlineExceeded, want: "pool lan: context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Reconciler{Live: liveOf{pools: append(slices.Clone(others), tt.pool), leases: []*v1alpha1.IPLease{tt.bad}, away: tt.away}}
			l, err := r.readLive(t.Context(), &tt.pool)
			if err != nil {
				if err.Error() != tt.want {
					t.Errorf("%v; want %s", err, tt.want)
				}
				return
			}
			s := seen{pool: &tt.pool, now: noon, live: l, shapeOf: func(*v1alpha1.IPPool) *allocator.Shape { return nil }}
			s.shape, _ = shapeOf(&tt.pool)
			got := decide(s)
			if got.in() != tt.want {
				t.Errorf("got %s; want %s", got.in(), tt.want)
			}
			if got.status != nil && !strings.Contains(ready(*got.status).Message, tt.says) {
				t.Errorf("says %q; want %q in it", ready(*got.status).Message, tt.says)
			}
		})
	}
}
