package simulation

import (
	"encoding/json"
	"net/netip"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// simPool is an IPPool at the server: what the protocol reads of it, and the object
// that this is read from. The object is never changed, but replaced; its metadata
// has no UID and no revision.
type simPool struct {
	protocol.Pool
	obj *v1alpha1.IPPool
}

// simClaim is an IPAMClaim at the server, likewise.
type simClaim struct {
	protocol.Claim
	obj *ipamclaims.IPAMClaim
}

func poolOf(obj *v1alpha1.IPPool) simPool { return simPool{Pool: kube.PoolOf(obj), obj: obj} }

// why says why the pool is not open.
func (p simPool) why() string {
	if p.obj == nil {
		return "it is not there"
	}
	c := meta.FindStatusCondition(p.obj.Status.Conditions, v1alpha1.PoolReady)
	if c == nil {
		return "it says nothing"
	}
	return c.Reason + ", " + c.Message
}

func claimOf(obj *ipamclaims.IPAMClaim) simClaim { return simClaim{Claim: kube.ClaimOf(obj), obj: obj} }

// object returns the IPPool as the API server shows it.
func (p simPool) object() *v1alpha1.IPPool {
	obj := p.obj.DeepCopy()
	stamp(&obj.ObjectMeta, p.Meta)
	return obj
}

// object returns the IPAMClaim as the API server shows it.
func (c simClaim) object() *ipamclaims.IPAMClaim {
	obj := c.obj.DeepCopy()
	stamp(&obj.ObjectMeta, c.Meta)
	return obj
}

// leaseObject returns l as the API server shows it.
func leaseObject(l protocol.Lease) *v1alpha1.IPLease {
	obj := kube.ToLease(l)
	stamp(&obj.ObjectMeta, l.Meta)
	return obj
}

// subObject returns s as the API server shows it.
func subObject(s protocol.SubLease) *v1alpha1.IPSubLease {
	obj := kube.ToSubLease(s)
	stamp(&obj.ObjectMeta, s.Meta)
	for _, g := range s.Granted {
		obj.Status.Granted = append(obj.Status.Granted, v1alpha1.Granted{Address: g.Addr.String(), Lease: g.Lease})
	}
	if r := s.Refused; r != nil {
		obj.Status.Refused = &v1alpha1.Refusal{Reason: r.Reason, Message: r.Message}
	}
	return obj
}

// registrationObject returns s as the API server shows it.
func registrationObject(s protocol.Registration) *coordination.Lease {
	o := kube.ToRegistration("registrations", s)
	o.Annotations["tenure.dev/labels"] = s.Labels
	stamp(&o.ObjectMeta, s.Meta)
	return o
}

func stamp(to *metav1.ObjectMeta, m protocol.Meta) {
	to.UID, to.ResourceVersion = types.UID(m.UID), string(m.Revision)
	if m.Deleting {
		to.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
}

// makePool creates a pool that is open with blocks of this many addresses: what the
// controller has made of it by the time that a run begins.
func (w *world) makePool(name protocol.PoolName, blockSize int32) {
	obj := w.newPool(name, blockSize)
	obj.Finalizers = []string{v1alpha1.LeasesFinalizer}
	obj.Status.Leasing, obj.Status.ObservedGeneration = v1alpha1.LeasingOpen, obj.Generation
	obj.Status.BlockPrefixLengths = &v1alpha1.BlockPrefixLengths{}
	obj.Status.Opening = protocol.EpochAfter(obj.CreationTimestamp.Time)
	for _, r := range obj.Spec.Ranges {
		cidr := netip.MustParsePrefix(r.CIDR)
		bits := int32(cidr.Addr().BitLen())
		for n := blockSize; n > 1; n /= 2 {
			bits--
		}
		if cidr.Addr().Is4() {
			obj.Status.BlockPrefixLengths.IPv4 = &bits
		} else {
			obj.Status.BlockPrefixLengths.IPv6 = &bits
		}
	}
	w.api.pools.finalizers[string(name)] = true
	w.createPool(obj)
}

// createPool creates a pool.
func (w *world) createPool(obj *v1alpha1.IPPool) {
	p, out := w.api.pools.create(poolOf(obj))
	if out == protocol.Done {
		w.noteRacks(p)
	}
}

// newPool returns a pool as a person writes it.
func (w *world) newPool(name protocol.PoolName, blockSize int32) *v1alpha1.IPPool {
	takeOver := v1alpha1.TakeOverAutomatic
	if w.kind.confirmed {
		takeOver = v1alpha1.TakeOverConfirmed
	}
	rest := ""
	if w.kind.rests {
		rest = reuseAfter.String()
	}
	obj := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: string(name), Generation: 1, CreationTimestamp: metav1.NewTime(w.wall(0).Truncate(time.Second))},
		Spec:       v1alpha1.IPPoolSpec{Ranges: w.ranges(name), BlockSize: &blockSize, Domain: w.domain(name), TakeOver: takeOver, ReuseAfter: rest},
	}
	if w.kind.stops && !w.calm && w.one(4) {
		obj.Spec.Allocation = v1alpha1.AllocationStopped
	}
	if w.perNode(name) {
		obj.Spec.BlockSize, obj.Spec.PerNode = nil, &v1alpha1.PerNode{PrefixLength: subnetBits, Gateway: v1alpha1.PerNodeGatewayNone}
	}
	return obj
}

// patch is a merge patch as the program sends one.
type patch struct {
	Metadata struct {
		UID             protocol.UID      `json:"uid"`
		ResourceVersion protocol.Revision `json:"resourceVersion"`
		Finalizers      *[]string         `json:"finalizers"`
	} `json:"metadata"`
	Status json.RawMessage `json:"status"`
}

// meta is what must still be true of the object.
func (p patch) meta(name string) protocol.Meta {
	return protocol.Meta{Name: name, UID: p.Metadata.UID, Revision: p.Metadata.ResourceVersion}
}

// mergeInto merges the patch's status into status, as the API server does: lists are replaced, what
// is absent stays. clear empties the list in that field, if it is one of objects.
func (p patch) mergeInto(status any, clear func(field string)) {
	var fields map[string]json.RawMessage
	must(json.Unmarshal(p.Status, &fields))
	for field := range fields {
		clear(field)
	}
	must(json.Unmarshal(p.Status, status))
}

// updateClaim changes a claim.
func (api *simAPI) updateClaim(pre protocol.Meta, change func(*ipamclaims.IPAMClaim)) protocol.Outcome {
	_, out := api.claims.update(pre, func(c *simClaim) {
		obj := c.obj.DeepCopy()
		change(obj)
		*c = claimOf(obj)
	})
	return out
}

// updatePool changes a pool.
func (api *simAPI) updatePool(pre protocol.Meta, change func(*v1alpha1.IPPool)) (simPool, protocol.Outcome) {
	return api.pools.update(pre, func(p *simPool) {
		obj := p.obj.DeepCopy()
		change(obj)
		*p = poolOf(obj)
	})
}

// patchClaim makes a patch of a claim's status.
func (api *simAPI) patchClaim(name string, p patch) protocol.Outcome {
	return api.updateClaim(p.meta(name), func(o *ipamclaims.IPAMClaim) {
		p.mergeInto(&o.Status, func(field string) {
			if field == "conditions" {
				o.Status.Conditions = nil
			}
		})
	})
}

// patchPool makes a patch of a pool's status, or of its finalizers.
func (w *world) patchPool(name string, p patch) protocol.Outcome {
	was, _ := w.api.pools.read(name)
	pool, out := w.api.updatePool(p.meta(name), func(o *v1alpha1.IPPool) {
		if p.Metadata.Finalizers != nil {
			o.Finalizers = *p.Metadata.Finalizers
		}
		if p.Status == nil {
			return
		}
		p.mergeInto(&o.Status, func(field string) {
			switch field {
			case "conditions":
				o.Status.Conditions = nil
			case "selectors":
				o.Status.Selectors = nil
			}
		})
	})
	if out == protocol.Done {
		if len(pool.obj.Finalizers) > 0 {
			w.api.pools.finalizers[name] = true
		} else {
			w.api.pools.finalize(name)
		}
		if w.other != nil && p.Status != nil {
			w.heedFence()
			w.countOpening(was, pool)
		}
		w.exhausted = w.exhausted || pool.obj.Status.Pressure == v1alpha1.PressureExhausted
	}
	return out
}

// editPool changes a pool's spec, as a person does.
func (w *world) editPool(name protocol.PoolName, edit func(*v1alpha1.IPPoolSpec)) {
	p, out := w.api.updatePool(protocol.Meta{Name: string(name)}, func(o *v1alpha1.IPPool) {
		edit(&o.Spec)
		o.Generation++
	})
	if out == protocol.Done {
		w.noteRacks(p)
	}
}

// readPool returns what the protocol reads of a pool.
func (api *simAPI) readPool(name protocol.PoolName) (protocol.Pool, protocol.Outcome) {
	p, out := api.pools.read(string(name))
	return p.Pool, out
}

// readClaim returns what the protocol reads of a claim.
func (api *simAPI) readClaim(name string) (protocol.Claim, protocol.Outcome) {
	c, out := api.claims.read(name)
	return c.Claim, out
}

// wall is the time by a clock that is off by so much.
func (w *world) wall(off time.Duration) time.Time { return epoch.Add(w.now + off) }
