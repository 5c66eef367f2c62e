package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// ResourceClaims finds the ResourceClaims of one node's pods. It watches which names the pods have
// of them, and reads each by its name.
type ResourceClaims struct {
	api   *API
	store cache.Store
	run   cache.Controller

	// reading is held while ResourceClaims are read: who waits for it finds what was read.
	reading chan struct{}

	mu      sync.Mutex
	known   map[types.NamespacedName]readClaim // guarded by mu
	changed chan struct{}                      // guarded by mu; closed when a pod changes
}

// A readClaim is a ResourceClaim as it was read when these pods had its name. Other pods may mean
// another one of that name. Without pods it is to be read again.
type readClaim struct {
	*resource.ResourceClaim
	pods string
}

// NewResourceClaims returns what finds the ResourceClaims of node. It starts nothing.
func NewResourceClaims(c client.WithWatch, api *API, node protocol.NodeName) *ResourceClaims {
	r := &ResourceClaims{
		api: api, reading: make(chan struct{}, 1),
		known: map[types.NamespacedName]readClaim{}, changed: make(chan struct{}),
	}
	r.store, r.run = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch(c, metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", string(node)), func() client.ObjectList { return &corev1.PodList{} }),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { r.wake() },
			UpdateFunc: func(any, any) { r.wake() },
			DeleteFunc: func(any) { r.wake() },
		},
		Transform: claimsOnly,
	})
	return r
}

// claimsOnly leaves of a pod what tells whose it is, and its ResourceClaims.
func claimsOnly(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	few := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, OwnerReferences: p.OwnerReferences,
	}}
	few.Spec.ResourceClaims = p.Spec.ResourceClaims
	few.Status.ResourceClaimStatuses = p.Status.ResourceClaimStatuses
	few.Status.ExtendedResourceClaimStatus = p.Status.ExtendedResourceClaimStatus
	return few, nil
}

// Run watches until ctx ends.
func (r *ResourceClaims) Run(ctx context.Context) { r.run.RunWithContext(ctx) }

func (r *ResourceClaims) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// Find returns the ResourceClaim with that UID which a pod of the node has, and that pod. Where the
// watch of the pods does not have it yet, it waits until ctx ends. After a quarter of that time it
// reads all ResourceClaims again: one may have been deleted, and made anew under its name.
func (r *ResourceClaims) Find(ctx context.Context, uid types.UID) (*resource.ResourceClaim, *corev1.Pod, error) {
	r.mu.Lock()
	before := maps.Clone(r.known)
	r.mu.Unlock()
	var late <-chan time.Time
	if end, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(end) / 4)
		defer timer.Stop()
		late = timer.C
	}
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		claim, found, err := r.find(ctx, uid)
		var pod *corev1.Pod
		if found {
			pod, found, err = r.podOf(ctx, claim)
		}
		if found || err != nil {
			return claim, pod, err
		}
		select {
		case <-changed:
		case <-late:
			r.doubt(before)
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("no pod of this node has a ResourceClaim with the UID %s, as far as the API server has told until now", uid)
		}
	}
}

// doubt has those ResourceClaims read again that are known as they were before.
func (r *ResourceClaims) doubt(before map[types.NamespacedName]readClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.known {
		if c.ResourceClaim == before[name].ResourceClaim {
			r.known[name] = readClaim{ResourceClaim: c.ResourceClaim}
		}
	}
}

// find returns the ResourceClaim with that UID, if there is one. It reads those that it does not
// know as those of the pods of now.
func (r *ResourceClaims) find(ctx context.Context, uid types.UID) (claim *resource.ResourceClaim, found bool, err error) {
	if claim, found = r.knownAs(uid); found {
		return claim, true, nil
	}
	select {
	case r.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, false, fmt.Errorf("the node's ResourceClaims are still being read: %w", context.Cause(ctx))
	}
	defer func() { <-r.reading }()
	if claim, found = r.knownAs(uid); found { // it was read meanwhile
		return claim, true, nil
	}
	names := r.names()
	r.mu.Lock()
	maps.DeleteFunc(r.known, func(name types.NamespacedName, _ readClaim) bool { return len(names[name]) == 0 })
	maps.DeleteFunc(names, func(name types.NamespacedName, pods []*corev1.Pod) bool { return r.known[name].pods == uidsOf(pods) })
	r.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(8)
	for name, pods := range names {
		g.Go(func() error { return r.read(ctx, name, uidsOf(pods)) })
	}
	err = g.Wait()
	if claim, found = r.knownAs(uid); found { // whatever has become of the others
		return claim, true, nil
	}
	return nil, false, err
}

// uidsOf returns the UIDs of pods as one text.
func uidsOf(pods []*corev1.Pod) string {
	uids := make([]string, len(pods))
	for i, p := range pods {
		uids[i] = string(p.UID)
	}
	slices.Sort(uids)
	return strings.Join(uids, " ")
}

// read reads a ResourceClaim, and notes it as that of these pods.
func (r *ResourceClaims) read(ctx context.Context, name types.NamespacedName, pods string) error {
	claim, out, err := r.api.ReadResourceClaim(ctx, name.Namespace, name.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch out {
	case protocol.Done:
		r.known[name] = readClaim{claim, pods}
	case protocol.NotFound:
		delete(r.known, name)
	default:
		return fmt.Errorf("ResourceClaim %s cannot be read: %w", name, err)
	}
	return nil
}

// knownAs returns the ResourceClaim with that UID as it was read.
func (r *ResourceClaims) knownAs(uid types.UID) (claim *resource.ResourceClaim, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.known {
		if c.UID == uid {
			return c.ResourceClaim, true
		}
	}
	return nil, false
}

// names returns the names of the ResourceClaims of the node's pods, and the pods that have each.
func (r *ResourceClaims) names() map[types.NamespacedName][]*corev1.Pod {
	names := map[types.NamespacedName][]*corev1.Pod{}
	for _, o := range r.store.List() {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		for _, name := range ResourceClaimsOf(p) {
			key := types.NamespacedName{Namespace: p.Namespace, Name: name}
			names[key] = append(names[key], p)
		}
	}
	return names
}

// ResourceClaimsOf returns the names of a pod's ResourceClaims: those that it names, and those that
// were made for it.
func ResourceClaimsOf(p *corev1.Pod) (names []string) {
	add := func(name *string) {
		if name != nil && *name != "" && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	for _, c := range p.Spec.ResourceClaims {
		add(c.ResourceClaimName)
	}
	for _, c := range p.Status.ResourceClaimStatuses {
		add(c.ResourceClaimName)
	}
	if ext := p.Status.ExtendedResourceClaimStatus; ext != nil {
		add(&ext.ResourceClaimName)
	}
	return names
}

// podOf returns the pod of the node that has a ResourceClaim, if one has. Of several it is the one
// for which the ResourceClaim is reserved.
func (r *ResourceClaims) podOf(ctx context.Context, claim *resource.ResourceClaim) (pod *corev1.Pod, found bool, err error) {
	pods := r.names()[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}]
	if len(pods) == 0 {
		return nil, false, nil
	}
	if len(pods) == 1 {
		return pods[0], true, nil
	}
	now, out, err := r.api.ReadResourceClaim(ctx, claim.Namespace, claim.Name)
	if out != protocol.Done {
		return nil, false, fmt.Errorf("ResourceClaim %s/%s, which several pods have, cannot be read: %w", claim.Namespace, claim.Name, cmp.Or(err, fmt.Errorf("the API server answers %v", out)))
	}
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool {
		return slices.ContainsFunc(now.Status.ReservedFor, func(c resource.ResourceClaimConsumerReference) bool { return c.UID == p.UID })
	})
	if i < 0 {
		return nil, false, nil
	}
	return pods[i], true, nil
}

// ReadResourceClaim reads a ResourceClaim live.
func (a *API) ReadResourceClaim(ctx context.Context, namespace, name string) (*resource.ResourceClaim, protocol.Outcome, error) {
	var claim resource.ResourceClaim
	out, err := a.get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &claim)
	return &claim, out, err
}

// ReadDevices implements [agent.ResourceClaims].
func (a *API) ReadDevices(ctx context.Context, node protocol.NodeName, namespace, name string) (protocol.ClaimedDevices, protocol.Outcome, error) {
	claim, out, err := a.ReadResourceClaim(ctx, namespace, name)
	d := DevicesOf(claim)
	if allocated := claim.Status.Allocation; allocated != nil && elsewhere(allocated.NodeSelector, string(node)) {
		d.Devices = nil
	}
	return d, out, err
}

// DevicesOf returns the devices of a ResourceClaim, and what drivers say of them.
func DevicesOf(claim *resource.ResourceClaim) protocol.ClaimedDevices {
	d := protocol.ClaimedDevices{UID: protocol.UID(claim.UID), Addrs: map[string][]netip.Prefix{}}
	if allocated := claim.Status.Allocation; allocated != nil {
		for _, r := range allocated.Devices.Results {
			d.Devices = append(d.Devices, r.Device)
		}
		d.Profile = slices.ContainsFunc(allocated.Devices.Config, func(c resource.DeviceAllocationConfiguration) bool {
			var asks struct{ Profile string }
			return c.Opaque != nil && json.Unmarshal(c.Opaque.Parameters.Raw, &asks) == nil && asks.Profile != ""
		})
	}
	for _, s := range claim.Status.Devices {
		if s.NetworkData == nil {
			continue
		}
		for _, text := range s.NetworkData.IPs {
			if p, err := netip.ParsePrefix(text); err == nil {
				d.Addrs[s.Device] = append(d.Addrs[s.Device], p)
			}
		}
	}
	return d
}

// elsewhere reports whether what is allocated is there on other nodes than node alone, by their
// names: so the scheduler writes it of devices that are in a node. Devices of several nodes may
// have one name.
func elsewhere(where *corev1.NodeSelector, node string) bool {
	if where == nil || len(where.NodeSelectorTerms) == 0 {
		return false
	}
	for _, term := range where.NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchFields, func(f corev1.NodeSelectorRequirement) bool {
			return f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && !slices.Contains(f.Values, node)
		}) {
			return false
		}
	}
	return true
}
