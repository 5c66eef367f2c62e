package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestNewerObjects: of a lease that a newer Tenure has written nothing is
// granted and it is not given back, a request of one is not answered, and what fits
// elsewhere is served all the same.
func TestNewerObjects(t *testing.T) {
	start(t)
	p := poolOf(t, 4, "10.0.0.0/29") // two blocks
	block := netip.MustParsePrefix("10.0.0.0/30")
	newer, _, err := api.CreateLease(t.Context(), protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName(protocol.PoolName(p.Name), block)}, Protocol: protocol.Version + 1,
		Pool: protocol.PoolName(p.Name), PoolUID: uidOf(p), Block: block, Holder: protocol.Holder{Cluster: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	of, _, err := api.CreateSubLease(t.Context(), protocol.SubLease{
		Meta: protocol.Meta{Name: protocol.RequestName("newer", 1)}, Protocol: protocol.Version + 1, Node: "newer", Store: "store-of-newer", Term: 1,
		Request: &protocol.Request{
			Pod: protocol.PodRef{Namespace: "default", Name: "p", UID: "u"}, Interface: "net1",
			Wants: []protocol.Wanted{want(p, "10.0.0.5-10.0.0.6")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := served(t, request(t, want(p, "10.0.0.1-10.0.0.6")))
		if block.Contains(s.Granted[0].Addr) {
			t.Errorf("granted %v, which is on the lease that a newer Tenure has written", s.Granted[0].Addr)
		}
	}
	byName := request(t, want(p, "10.0.0.2-10.0.0.2"))
	waits(t, of, quick().Idle+time.Second) // long enough for an idle lease to be given back
	if got, _, err := api.ReadSubLease(t.Context(), byName.Name); err != nil || len(got.Granted) > 0 {
		t.Errorf("the request for an address of that lease has %v, %v; want nothing", got.Granted, err)
	}
	if now, _, err := api.ReadLease(t.Context(), newer.Name); err != nil || now.UID != newer.UID || now.Revision != newer.Revision {
		t.Errorf("the lease is %+v, %v; want it untouched: %+v", now, err, newer)
	}
}

// TestUnknownFields: what a newer Tenure has added to a lease, a request and
// a registration, under the protocol that is known, survives the controller's writes.
func TestUnknownFields(t *testing.T) {
	for _, kind := range []string{"iplease", "ipsublease"} {
		addField(t, kind)
	}
	start(t)
	p := poolOf(t, 4, "10.0.0.0/30")
	node := fleet.Unique("newer")
	reg := registered(t, node)
	mark(t, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: reg.Name}},
		`{"metadata":{"annotations":{"tenure.dev/later":"registration"}}}`)
	lease := nodeLease(t, p, uidOf(p), "10.0.0.0/30", node)
	mark(t, later("IPLease", lease.Name), `{"spec":{"later":"lease"}}`)
	s := request(t, want(p, "10.0.0.1-10.0.0.2"))
	mark(t, later("IPSubLease", s.Name), `{"spec":{"later":"request"}}`)

	eventually(t, 20*time.Second, func() error { // the controller writes the registration
		now, _, err := api.ReadRegistration(t.Context(), reg.Node)
		if err == nil && len(now.Recalls) == 0 {
			err = fmt.Errorf("nothing is recalled from %s", reg.Node)
		}
		return err
	})
	var l coordination.Lease
	if err := kc.Get(t.Context(), api.RegistrationKey(reg.Node), &l); err != nil || l.Annotations["tenure.dev/later"] != "registration" {
		t.Errorf("the registration has the annotations %v, %v; want the later one still", l.Annotations, err)
	}
	now, _, err := api.ReadLease(t.Context(), lease.Name)
	if err != nil {
		t.Fatal(err)
	}
	next := now.Clone()
	next.Ceded, next.Writes = []netip.Addr{netip.MustParseAddr("10.0.0.1")}, now.Writes+1
	if _, out, err := api.UpdateLease(t.Context(), now, next); out != protocol.Done { // as its holder does
		t.Fatal(out, err)
	}
	served(t, s) // the controller writes the lease, and the request's status
	for _, o := range []*unstructured.Unstructured{later("IPLease", lease.Name), later("IPSubLease", s.Name)} {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if text, _, _ := unstructured.NestedString(o.Object, "spec", "later"); text == "" {
			t.Errorf("%s %s has lost the later field: %v", o.GetKind(), o.GetName(), o.Object["spec"])
		}
	}
}

// later names an object of ours as a newer Tenure would read it.
func later(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "tenure.dev", Version: "v1alpha1", Kind: kind})
	o.SetName(name)
	return o
}

// mark writes what a newer Tenure has added, by a merge patch. It is tried again while
// the API server does not know the field yet.
func mark(t *testing.T, o client.Object, patch string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if err := kc.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			return err
		}
		if u, ok := o.(*unstructured.Unstructured); ok {
			if text, _, _ := unstructured.NestedString(u.Object, "spec", "later"); text == "" {
				return fmt.Errorf("%s: the field is not kept yet", o.GetName())
			}
		}
		return nil
	})
}

// addField has the definition of a kind know spec.later, until the test ends.
func addField(t *testing.T, kind string) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	crd.SetName(kind + "s.tenure.dev")
	const path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later"
	patch := func(ctx context.Context, text string) {
		t.Helper()
		if err := kc.Patch(ctx, crd, client.RawPatch("application/json-patch+json", []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	patch(t.Context(), fmt.Sprintf(`[{"op":"add","path":%q,"value":{"type":"string"}}]`, path))
	// t's context has ended.
	t.Cleanup(func() { patch(context.Background(), fmt.Sprintf(`[{"op":"remove","path":%q}]`, path)) })
}
