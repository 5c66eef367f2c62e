package ports

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// shows is a Neutron that has one subnet.
type shows struct {
	Neutron
	subnet neutron.Subnet
}

func (n shows) Subnets(context.Context, []string) ([]neutron.Subnet, error) {
	return []neutron.Subnet{n.subnet}, nil
}

// TestFirstLook: a pool is open as soon as its status names subnets. By then it has their ranges,
// and not what somebody has written, whichever write is the last that succeeds.
func TestFirstLook(t *testing.T) {
	for writes := range 3 {
		scheme, err := kube.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pool"}}
		pool.Spec.Ranges = []v1alpha1.Range{{CIDR: "192.0.2.0/24"}}
		pool.Spec.Source = &v1alpha1.PoolSource{Neutron: &v1alpha1.NeutronSource{SubnetIDs: []string{"a"}}}
		left := writes
		one := func(write func() error) error {
			if left--; left < 0 {
				return errors.New("the API server is gone")
			}
			return write()
		}
		kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).WithStatusSubresource(pool).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return one(func() error { return c.Patch(ctx, o, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, of string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				return one(func() error { return c.SubResource(of).Patch(ctx, o, p, opts...) })
			},
		}).Build()
		f := &Follower{
			Cache: kc, Write: kc, Events: events.NewFakeRecorder(10), Log: slog.New(slog.DiscardHandler), Now: time.Now, Every: time.Minute,
			Connect: func(context.Context) (Neutron, error) {
				return shows{subnet: subnetOf("a", "10.9.0.0/24", "10.9.0.5-10.9.0.9")}, nil
			},
			Trouble: func(protocol.PoolName) Problem { return Problem{} },
		}
		key := client.ObjectKeyFromObject(pool)
		if _, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); (err == nil) != (writes == 2) {
			t.Errorf("after %d writes: %v", writes, err)
		}
		if err := kc.Get(t.Context(), key, pool); err != nil {
			t.Fatal(err)
		}
		if read, has := pool.Status.Neutron != nil, pool.Spec.Ranges[0].CIDR; read && has != "10.9.0.0/24" || read != (writes == 2) {
			t.Errorf("after %d writes the status names subnets: %v, and the ranges are %s", writes, read, has)
		}
	}
}
