package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/looker"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// admission says who may use pools: labels and rules come from the cache, the
// authorizer's answers are kept for a time.
type admission struct {
	cache client.Reader
	*access.Reviews
}

// Admit implements claims.Admission.
func (a admission) Admit(ctx context.Context, namespace string, pool protocol.PoolName) error {
	var obj v1alpha1.IPPool
	err := a.cache.Get(ctx, client.ObjectKey{Name: string(pool)}, &obj)
	switch {
	case apierrors.IsNotFound(err):
		return &access.MissingError{Pool: string(pool)}
	case err != nil:
		return &access.UnknownError{Namespace: namespace, Pool: string(pool), Rule: "rule", Cause: err}
	}
	return kube.AccessOf(&obj).Check(ctx, a, namespace, string(pool))
}

// Labels implements access.Facts.
func (a admission) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	var obj metav1.PartialObjectMetadata
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := a.cache.Get(ctx, client.ObjectKey{Name: namespace}, &obj); err != nil {
		return nil, fmt.Errorf("read labels of namespace %s: %w", namespace, err)
	}
	return obj.Labels, nil
}

// looker returns what looks at the addresses that other IPAMs have given.
func (c *Controller) looker(from cache.Cache, live *kube.API, b *grants.Broker, ofPools *pools.Reconciler, namespaces access.Facts) *looker.Looker {
	return &looker.Looker{
		Cache: from, Live: live, Broker: b, Beats: ofPools.Beats,
		MayUse: func(ctx context.Context, pool *v1alpha1.IPPool, namespace string) bool {
			denied := new(access.DeniedError)
			return !errors.As(kube.AccessOf(pool).Check(ctx, namespaces, namespace, pool.Name), &denied)
		},
		Registrations: func(ctx context.Context) ([]protocol.Registration, error) {
			return cachedRegistrations(ctx, from, c.cfg.RegistrationNamespace)
		},
		Calls: 16, Metrics: looker.NewMetrics(), Log: c.log.With("part", "foreign"), Now: c.cfg.Now,
	}
}
