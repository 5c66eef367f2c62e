package ports

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// maker is a Neutron that makes subnets: it notes what it is asked.
type maker struct {
	keys []string // the subnets that are there
	fail error
	did  []string
}

func (m *maker) EnsureSubnet(_ context.Context, s neutron.NewSubnet) (string, error) {
	m.did = append(m.did, "make "+s.Prefix.String())
	return "subnet", m.fail
}

func (m *maker) DeleteSubnet(_ context.Context, key string) error {
	m.did = append(m.did, "delete "+key)
	return m.fail
}

func (m *maker) SubnetKeys(context.Context) ([]string, error) { return m.keys, m.fail }

var (
	lab     = types.NamespacedName{Namespace: "team", Name: "lab"}
	labPool = vif.PoolName(lab.Namespace, lab.Name)
)

// describing is the definition lab, which describes a subnet.
func describing(namespace, cidr string) *nad.NetworkAttachmentDefinition {
	return &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: lab.Name,
		Annotations: map[string]string{vif.AnnotationNetwork: `{"subnet": {"cidr": "` + cidr + `"}, "interfaceParameters": {"macvlan": {"master": "eth1"}}}`},
	}}
}

// madePool is the pool that was made for lab, with these finalizers. It is being deleted if it
// should be.
func madePool(deleted bool, finalizers ...string) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: labPool, UID: "pool", Finalizers: finalizers, Annotations: map[string]string{vif.AnnotationSubnetOf: lab.String()}},
		Status:     v1alpha1.IPPoolStatus{Neutron: &v1alpha1.NeutronStatus{Subnets: []v1alpha1.NeutronSubnet{{ID: "subnet", CIDR: "10.1.0.0/24"}}}},
	}
	if deleted {
		p.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}
	}
	return p
}

// newSubnets returns Subnets of a cluster that has these objects.
func newSubnets(t *testing.T, m *maker, objects ...client.Object) (*Subnets, client.Client, *events.FakeRecorder) {
	t.Helper()
	scheme, err := kube.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	kc := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	said := events.NewFakeRecorder(10)
	return &Subnets{
		Cache: kc, Live: kc, Write: kc, Connect: func(context.Context) (SubnetMaker, error) { return m, nil },
		Namespaces: []string{"team"}, Events: said, Log: slog.New(slog.DiscardHandler),
	}, kc, said
}

// TestSubnets: a definition that describes a subnet gets it, with a pool, and what was made for it
// goes when the definition has gone and nobody has an address.
func TestSubnets(t *testing.T) {
	foreign := madePool(false)
	foreign.Annotations = nil
	for name, tt := range map[string]struct {
		objects []client.Object
		fail    error
		did     string
		pool    string // its finalizers; none: it is not there
		says    string
		again   bool
	}{
		"described":           {objects: []client.Object{describing("team", "10.1.0.0/24")}, did: "make 10.1.0.0/24", pool: vif.FinalizerSubnet},
		"Neutron refuses":     {objects: []client.Object{describing("team", "10.1.0.0/24")}, fail: &neutron.Error{Reason: "QuotaExceeded", Message: "too many"}, did: "make 10.1.0.0/24", pool: "none", says: "QuotaExceeded", again: true},
		"made already":        {objects: []client.Object{describing("team", "10.1.0.0/24"), madePool(false, "f")}, pool: "f"},
		"describes another":   {objects: []client.Object{describing("team", "10.2.0.0/24"), madePool(false, "f")}, pool: "f", says: ReasonSubnetStays},
		"what cannot be read": {objects: []client.Object{describing("team", "10.2.0.0/99"), madePool(false, "f")}, pool: "f"},
		"not described":       {objects: []client.Object{&nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "lab"}}}, pool: "none"},
		"the definition goes": {objects: []client.Object{madePool(false)}, pool: "none"},
		"a pool of another's": {objects: []client.Object{foreign}},
		"while it has leases": {objects: []client.Object{madePool(true, vif.FinalizerSubnet, v1alpha1.LeasesFinalizer)}, pool: vif.FinalizerSubnet + " " + v1alpha1.LeasesFinalizer},
		"without leases":      {objects: []client.Object{madePool(true, vif.FinalizerSubnet, "other")}, did: "delete " + labPool, pool: "other"},
		"Neutron keeps it":    {objects: []client.Object{madePool(true, vif.FinalizerSubnet)}, fail: errors.New("in use"), did: "delete " + labPool, pool: vif.FinalizerSubnet, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &maker{fail: tt.fail}
			r, kc, said := newSubnets(t, m, tt.objects...)
			for range 2 { // the second time nobody is told again
				res, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: lab})
				if err != nil || (res.RequeueAfter > 0) != tt.again {
					t.Errorf("looks again after %v, %v; want that: %v", res.RequeueAfter, err, tt.again)
				}
			}
			if got := slices.Compact(m.did); strings.Join(got, ", ") != tt.did {
				t.Errorf("it does %q; want %q", got, tt.did)
			}
			var pool v1alpha1.IPPool
			have := "none"
			if err := kc.Get(t.Context(), client.ObjectKey{Name: labPool}, &pool); err == nil {
				have = strings.Join(pool.Finalizers, " ")
			}
			if have != tt.pool {
				t.Errorf("the pool has the finalizers %q; want %q", have, tt.pool)
			}
			told := ""
			for len(said.Events) > 0 {
				told += <-said.Events
			}
			if strings.Count(told, "Warning") != map[bool]int{true: 1, false: 0}[tt.says != ""] || !strings.Contains(told, tt.says) {
				t.Errorf("people are told %q; want %q, once", told, tt.says)
			}
		})
	}
}

// TestSubnetsOfNamespaces: definitions of other namespaces get none, and are told so.
func TestSubnetsOfNamespaces(t *testing.T) {
	m := &maker{}
	r, _, said := newSubnets(t, m, describing("elsewhere", "10.1.0.0/24"))
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "elsewhere", Name: "lab"}}); err != nil {
		t.Fatal(err)
	}
	if len(m.did) > 0 || len(said.Events) != 1 || !strings.Contains(<-said.Events, ReasonSubnetNotAllowed) {
		t.Errorf("it does %q; want an Event alone", m.did)
	}
}

// TestSweepOfSubnets: a subnet that neither a definition nor a pool needs goes when two looks have
// found that, and the API server says so, too.
func TestSweepOfSubnets(t *testing.T) {
	m := &maker{keys: []string{"vif-gone", labPool, vif.PoolName("team", "other")}}
	broken := describing("team", "10.1.0.0/99") // it may describe one
	broken.Name = "other"
	r, _, _ := newSubnets(t, m, madePool(false), broken)
	unused, err := r.sweep(t.Context(), nil)
	if err != nil || len(m.did) > 0 || len(unused) != 1 || !unused["vif-gone"] {
		t.Errorf("at first it does %q, and finds %v unused, %v", m.did, unused, err)
	}
	late, _, _ := newSubnets(t, m, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "vif-gone"}})
	cached := r.Live
	r.Live = late.Live // the cache is behind
	if _, err := r.sweep(t.Context(), unused); err != nil || len(m.did) > 0 {
		t.Errorf("of a subnet that has a pool by now it does %q, %v", m.did, err)
	}
	r.Live = cached
	if _, err := r.sweep(t.Context(), unused); err != nil || !slices.Equal(m.did, []string{"delete vif-gone"}) {
		t.Errorf("the second time it does %q, %v; want the subnet deleted", m.did, err)
	}
}
