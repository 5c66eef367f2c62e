package daemon

import (
	"context"
	"log/slog"
	"net/netip"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// pools is the cluster's pools as the agent wants them.
type pools struct {
	*kube.API
	c client.WithWatch
}

// Follow implements agent.Pools.
func (p pools) Follow(ctx context.Context, name protocol.PoolName, changed func(agent.Pool, bool)) error {
	return kube.FollowPool(ctx, p.c, name, func(o *v1alpha1.IPPool) {
		if o == nil {
			changed(agent.Pool{}, false)
			return
		}
		changed(PoolOf(o), true)
	})
}

// PoolOf returns what an agent has to know of a pool.
func PoolOf(o *v1alpha1.IPPool) agent.Pool {
	p := agent.Pool{
		Pool: kube.PoolOf(o), Text: kube.PoolText(o), Domain: o.Spec.Domain, Access: kube.AccessOf(o), Stopped: o.Spec.Allocation == v1alpha1.AllocationStopped, GivenAway: kube.GivenAway(o), Sourced: o.Spec.Source != nil,
		ReuseAfter:      kube.ReuseAfterOf(o),
		DetectConflicts: o.Spec.DetectConflicts && !strangersAreTooMany(o),
		Foreign:         meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.PoolForeignAddresses),
	}
	for _, s := range o.Status.Selectors {
		pressure, err := allocator.ParsePressure(string(s.Pressure))
		if err == nil {
			p.Parts = append(p.Parts, agent.PoolPart{Selector: s.Selector, Pressure: pressure, Exhausted: s.Exhausted})
		}
	}
	for _, r := range o.Spec.Routes {
		// Admission and the controller have refused what does not parse.
		dst, err := netip.ParsePrefix(r.Dst)
		if err != nil {
			continue
		}
		gw, _ := netip.ParseAddr(r.GW)
		p.Routes = append(p.Routes, poolspec.Route{Dst: dst, GW: gw})
	}
	if per := o.Spec.PerNode; per != nil && per.Routes != v1alpha1.PerNodeRoutesNone {
		for _, r := range o.Spec.Ranges {
			if dst, err := netip.ParsePrefix(r.CIDR); err == nil {
				p.Routes = append(p.Routes, poolspec.Route{Dst: dst}) // through the gateway of the subnet
			}
		}
	}
	if d := o.Spec.DNS; d != nil {
		p.DNS = poolspec.DNS{Nameservers: d.Nameservers, Domain: d.Domain, Search: d.Search, Options: d.Options}
	}
	if o.Status.Pressure != "" {
		if pressure, err := allocator.ParsePressure(string(o.Status.Pressure)); err == nil {
			p.Pressure = pressure
		}
	}
	if cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolExhausted); cond != nil && cond.Status == metav1.ConditionTrue {
		p.Exhausted = cond.Message
	}
	if cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolReady); cond != nil && cond.Status == metav1.ConditionFalse && !p.Open {
		p.Waits = cond.Message
	}
	return p
}

// strangersAreTooMany reports whether so many strangers have addresses of a pool that no more are
// kept away from pods.
func strangersAreTooMany(o *v1alpha1.IPPool) bool {
	cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.PoolStrangers)
	return cond != nil && cond.Reason == v1alpha1.ReasonTooManyStrangers
}

// watches is the cluster's objects that an agent follows by name.
type watches struct {
	*kube.API
	c   client.WithWatch
	log *slog.Logger
}

// FollowSubLease implements agent.SubLeases.
func (w watches) FollowSubLease(ctx context.Context, name string, since protocol.Revision, changed func(protocol.SubLease, bool)) error {
	return kube.FollowSubLease(ctx, w.c, name, since, func(o *v1alpha1.IPSubLease) {
		if o == nil {
			changed(protocol.SubLease{}, false)
			return
		}
		s, err := kube.SubLeaseOf(o)
		if err != nil {
			w.log.WarnContext(ctx, "sub-lease not understood", "name", name, "error", err)
			return
		}
		changed(s, true)
	})
}

// FollowRegistration implements agent.Registrations.
func (w watches) FollowRegistration(ctx context.Context, node protocol.NodeName, changed func(protocol.Registration)) error {
	return kube.FollowRegistration(ctx, w.c, w.RegistrationKey(node), func(o *coordination.Lease) {
		if o == nil {
			return
		}
		reg, err := kube.RegistrationOf(o)
		if err != nil {
			w.log.WarnContext(ctx, "registration not understood", "node", node, "error", err)
			return
		}
		changed(reg)
	})
}

// pods is the node's pods as the agent wants them.
type pods struct {
	api   *kube.API
	cache *kube.PodCache
}

// Pod implements agent.Pods.
func (p pods) Pod(ctx context.Context, namespace, name string, uid protocol.UID) (agent.Pod, protocol.Outcome, error) {
	// Without a UID the watch may have the previous pod of that name.
	if o, ok := p.cache.Get(namespace, name); ok && uid != "" {
		if pod := podOf(o); pod.Is(uid) {
			return pod, protocol.Done, nil
		}
	}
	return p.ReadPod(ctx, namespace, name)
}

// ReadPod implements agent.Pods.
func (p pods) ReadPod(ctx context.Context, namespace, name string) (agent.Pod, protocol.Outcome, error) {
	o, out, err := p.api.ReadPodMetadata(ctx, namespace, name)
	if out != protocol.Done {
		return agent.Pod{}, out, err
	}
	return podOf(o), out, nil
}

// PodsOfNode implements agent.Pods.
func (p pods) PodsOfNode(ctx context.Context, node protocol.NodeName) ([]agent.Pod, error) {
	list, err := p.api.PodsOfNode(ctx, node)
	if err != nil {
		return nil, err
	}
	found := make([]agent.Pod, 0, len(list))
	for i := range list {
		if !list[i].Spec.HostNetwork {
			pod := podOf(&list[i])
			pod.ResourceClaims = kube.ResourceClaimsOf(&list[i])
			found = append(found, pod)
		}
	}
	return found, nil
}

func podOf(o metav1.Object) agent.Pod {
	return agent.Pod{
		Claims: o.GetAnnotations()[workload.AnnotationClaims], Set: kube.SetOfPod(o),
		ClaimsBy: o.GetAnnotations()[workload.ClaimsBy], Nameless: kube.WhyNameless(o),
		PodRef: kube.PodRefOf(o), Networks: o.GetAnnotations()[kube.AnnotationNetworks], Status: o.GetAnnotations()[kube.AnnotationStatus],
		MirrorOf: kube.MirrorOf(o),
	}
}
