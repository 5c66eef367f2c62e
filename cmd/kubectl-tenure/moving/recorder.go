package moving

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// recorder writes whereabouts' objects.
type recorder struct {
	client    client.Client
	namespace string
	running   map[string]bool // pods, by namespace/name
}

// writeWithin is how long a write is tried while others write the same object, or the API
// servers have yet to hear that a fence is gone.
const writeWithin = 15 * time.Second

// pool adds to one of whereabouts' IPPools who has which address. Records of pods that are
// gone give way, those of others do not.
func (r recorder) pool(ctx context.Context, of foreign.Object, has []registrant) error {
	return r.retry(ctx, func() error {
		o := kube.NewWhereaboutsPool(r.namespace, of.Name)
		err := r.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		there := err == nil
		if err = client.IgnoreNotFound(err); err != nil {
			return err
		}
		cidr := of.Range
		if !there {
			o = kube.NewWhereaboutsPool(r.namespace, of.Name)
			if err := unstructured.SetNestedField(o.Object, cidr.String(), "spec", "range"); err != nil {
				return err
			}
		} else if cidr, err = foreign.RangeOf(o.Object); err != nil {
			return err
		}
		all, _, err := unstructured.NestedMap(o.Object, "spec", "allocations")
		if err != nil {
			return err
		}
		if all == nil {
			all = map[string]any{}
		}
		changed := !there
		for _, h := range has {
			offset, ok := foreign.Offset(cidr, h.addr)
			if !ok {
				return fmt.Errorf("its range %v does not have %v, or has it 2^63 or more addresses after its first one, where whereabouts does not read the record: delete pod %s", cidr, h.addr, h.ref())
			}
			was, _ := all[offset].(map[string]any)
			ref, _ := was["podref"].(string)
			switch {
			case ref == h.ref() && was["id"] != "": // an earlier version wrote none
				continue
			case ref != h.ref() && ref != "" && r.running[ref]:
				return fmt.Errorf("it records %v for pod %s, which runs, and Tenure has given it to pod %s: delete one of the two pods", h.addr, ref, h.ref())
			}
			// When the pod ends, whereabouts removes the first record with this id and interface.
			all[offset] = map[string]any{"id": "tenure-" + h.addr.String(), "podref": h.ref(), "ifname": h.ifName}
			changed = true
		}
		if !changed {
			return nil
		}
		if err := unstructured.SetNestedMap(o.Object, all, "spec", "allocations"); err != nil {
			return err
		}
		if there {
			return r.client.Update(ctx, o)
		}
		return r.client.Create(ctx, o)
	}, "whereabouts ippool "+r.namespace+"/"+of.Name)
}

// reservation writes that a pod has an address, over all of whereabouts' ranges.
func (r recorder) reservation(ctx context.Context, name string, h registrant) error {
	return r.retry(ctx, func() error {
		o := kube.NewWhereaboutsReservation(r.namespace, name)
		err := r.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		there := err == nil
		if err = client.IgnoreNotFound(err); err != nil {
			return err
		}
		ref, _, _ := unstructured.NestedString(o.Object, "spec", "podref")
		switch {
		case ref == h.ref():
			return nil
		case ref != "" && r.running[ref]:
			return fmt.Errorf("it is of pod %s, which runs, and Tenure has given the address to pod %s: delete one of the two pods", ref, h.ref())
		case there:
			if err := r.client.Delete(ctx, o, client.Preconditions{ResourceVersion: new(o.GetResourceVersion())}); err != nil {
				return err
			}
		}
		o = kube.NewWhereaboutsReservation(r.namespace, name)
		if err := unstructured.SetNestedStringMap(o.Object, map[string]string{"podref": h.ref(), "ifname": h.ifName}, "spec"); err != nil {
			return err
		}
		return r.client.Create(ctx, o)
	}, "whereabouts reservation "+r.namespace+"/"+name)
}

// retry has write try again where somebody else has written, or a fence is not gone yet.
func (r recorder) retry(ctx context.Context, write func() error, what string) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	for {
		err := write()
		if err == nil {
			return nil
		}
		passing := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || strings.Contains(err.Error(), kube.FencePolicyName)
		if !passing || !pause.For(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%s: %w; the pools are stopped, and nothing is lost: call again when it is mended", what, err)
		}
	}
}
