package ui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// unlisted is a cache whose leases the API server has never listed: who reads them waits.
type unlisted struct {
	cache.Cache
	rest client.Reader
}

func (u unlisted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return u.rest.Get(ctx, key, o, opts...) //nolint:wrapcheck // as a cache answers
}

func (u unlisted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.IPLeaseList); ok {
		<-ctx.Done()
		return ctx.Err() //nolint:wrapcheck // as a cache answers
	}
	return u.rest.List(ctx, list, opts...) //nolint:wrapcheck // as a cache answers
}

// TestUnlisted: who asks for what the API server does not list is told so in time, and so is the
// next who asks meanwhile.
func TestUnlisted(t *testing.T) {
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(somebody().pool).Build()
		page := newPage(&cluster{cache: unlisted{rest: kc}})
		began := time.Now()
		var all sync.WaitGroup
		for _, path := range []string{"/api/map?pool=lan", "/api/map?pool=lan", "/api/addresses?pool=lan&first=10.1.0.0"} {
			all.Go(func() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
				if took := time.Since(began); took != watched || w.Code != http.StatusBadGateway {
					t.Errorf("%s: %d %s after %v; want %d after %v", path, w.Code, w.Body, took, http.StatusBadGateway, watched)
				}
			})
		}
		all.Wait()
	})
}
