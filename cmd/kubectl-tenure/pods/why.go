package pods

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/who"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// why adds what stands in the way of the networks that wait.
func (l podLook) why(ctx context.Context, v *podView, waiting []networkView) error {
	var errs []error
	for _, n := range waiting {
		errs = append(errs, l.definition(ctx, v, n))
	}
	if v.Node == "" {
		v.Pending = append(v.Pending, l.unscheduled())
	}
	tenures := false
	node, err := l.nodeLabels(ctx, v)
	errs = append(errs, err)
	for _, n := range waiting {
		var has []string
		if n.Claim != "" {
			has, err = l.claim(ctx, v, n)
			errs = append(errs, err)
		}
		pools := map[string]*v1alpha1.IPPool{}
		for _, name := range n.Pools {
			tenures = true
			p, err := l.pool(ctx, v, n, name)
			if p != nil {
				pools[name] = p
				v.addresses(n, p, node)
				v.claimElsewhere(n, has, p, node)
			}
			errs = append(errs, err)
		}
		errs = append(errs, l.asked(ctx, v, n, pools, node))
	}
	if tenures && v.Node != "" {
		errs = append(errs, l.requests(ctx, v), l.reg(ctx, v))
	}
	return errors.Join(errs...)
}

func (v *podView) because(format string, args ...any) {
	v.Pending = append(v.Pending, fmt.Sprintf(format, args...))
}

// unscheduled says why the pod has no node.
func (l podLook) unscheduled() string {
	for _, c := range l.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("it is not scheduled to a node yet: %s: %s", c.Reason, c.Message)
		}
	}
	return "it is not scheduled to a node yet, and no scheduler has said why"
}

// definition adds the latest warning about the definition of a network.
func (l podLook) definition(ctx context.Context, v *podView, n networkView) error {
	namespace, name, ok := strings.Cut(n.Network, "/")
	if !ok || n.step.PodNetwork != "" {
		return nil
	}
	all, err := warnings(ctx, l.Session, namespace, client.MatchingFields{"involvedObject.kind": "NetworkAttachmentDefinition", "involvedObject.name": name})
	if len(all) > 0 {
		v.because("network %s: %s ago its definition was warned of: %s: %s", n.Network, l.Age(all[0].Last), all[0].Reason, all[0].Message)
	}
	return err
}

// claim adds why a claim cannot be used, and returns its addresses.
func (l podLook) claim(ctx context.Context, v *podView, n networkView) (has []string, err error) {
	var c ipamclaims.IPAMClaim
	err = l.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: n.Claim}, &c)
	network := networks.Read("", n.step.Name, time.Time{}, string(n.step.List)).Name
	if moved := c.Labels[kube.VMLabel] != "" && len(n.step.List) > 0 && c.Spec.Network != network; err == nil && moved {
		n.Claim, c = workload.MachineClaimName(n.Claim, network), ipamclaims.IPAMClaim{}
		err = l.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: n.Claim}, &c)
	}
	cond := meta.FindStatusCondition(c.Status.Conditions, kube.ConditionIPsAllocated)
	switch {
	case apierrors.IsNotFound(err):
		v.because("network %s: claim %s does not exist: whoever makes the pod's claims has to make it", n.Network, n.Claim)
	case err != nil:
		return nil, fmt.Errorf("read claim %s/%s: %w", v.Namespace, n.Claim, err)
	case c.DeletionTimestamp != nil:
		v.because("network %s: claim %s is being deleted", n.Network, n.Claim)
	case len(c.Status.IPs) > 0:
		return c.Status.IPs, l.usedBy(ctx, v, n, &c)
	case cond != nil:
		v.because("network %s: claim %s has no addresses: %s: %s", n.Network, n.Claim, cond.Reason, cond.Message)
	default:
		v.because("network %s: claim %s has no addresses yet: is the controller running, and is %q the name in a network's configuration?", n.Network, n.Claim, c.Spec.Network)
	}
	return nil, nil
}

// usedBy adds which other pods use a claim.
func (l podLook) usedBy(ctx context.Context, v *podView, n networkView, c *ipamclaims.IPAMClaim) error {
	for i := range 2 {
		var sub v1alpha1.IPSubLease
		name := protocol.UseName(protocol.UID(c.UID), i)
		if err := l.Client.Get(ctx, client.ObjectKey{Name: name}, &sub); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read sub-lease %s: %w", name, err)
		}
		if u := sub.Spec.Use; u != nil && u.Pod.UID != v.UID {
			by := state.Use{Node: sub.Spec.Node, Namespace: u.Pod.Namespace, Pod: u.Pod.Name, Interface: u.Interface}
			v.because("network %s: claim %s is used by %s", n.Network, n.Claim, l.standoff(by))
		}
	}
	return nil
}

// standoff names a pod that has what this pod waits for, and says what to do if the two wait for
// each other.
func (l podLook) standoff(u state.Use) string {
	return fmt.Sprintf("pod %s/%s on node %s", u.Namespace, u.Pod, u.Node) +
		kube.PodRefOf(l.pod).Standoff(protocol.PodRef{Namespace: u.Namespace, Name: u.Pod})
}

// pool adds why a pool cannot serve. It returns nil if there is no such pool.
func (l podLook) pool(ctx context.Context, v *podView, n networkView, name string) (*v1alpha1.IPPool, error) {
	p, out, err := l.API.ReadIPPool(ctx, protocol.PoolName(name))
	switch {
	case out == protocol.NotFound:
		v.because("network %s: pool %s does not exist", n.Network, name)
		return nil, nil //nolint:nilnil // that is said
	case err != nil:
		return nil, fmt.Errorf("read pool %s: %w", name, err)
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolReady)
	switch {
	case ready == nil:
		v.because("network %s: pool %s has not been opened: is the controller running?", n.Network, name)
	case ready.Status != metav1.ConditionTrue:
		v.because("network %s: pool %s is not ready: %s: %s%s", n.Network, name, ready.Reason, ready.Message, furtherOf(p, ready))
	case p.Spec.Allocation == v1alpha1.AllocationStopped:
		v.because("network %s: pool %s gives no addresses: its spec.allocation is Stopped", n.Network, name)
	case p.Status.Leasing != v1alpha1.LeasingOpen:
		v.because("network %s: pool %s is closed for a moment, until the controller has looked at what holds its blocks: is the controller running?", n.Network, name)
	}
	if p.Spec.Source != nil && n.Claim == "" {
		v.because("network %s: pool %s has its addresses from Neutron, and gives them to IPAMClaims alone: have the pod name a claim, or select a definition with the annotation tenure.dev/vif", n.Network, name)
	}
	err = kube.RuleOf(access.Pool, p.Spec.Access, p.Spec.NamespaceSelector).Check(ctx, users{&source{Session: l.Session}, access.Pool}, v.Namespace, name)
	if denied, ok := errors.AsType[*access.DeniedError](err); ok {
		v.because("network %s: %v", n.Network, denied)
		err = nil
	}
	return p, err
}

// furtherOf says what the other conditions of a pool say that one of them sends its reader to.
func furtherOf(p *v1alpha1.IPPool, from *metav1.Condition) (text string) {
	for _, c := range p.Status.Conditions {
		if c.Type != from.Type && strings.Contains(from.Message, "condition "+c.Type) {
			text += fmt.Sprintf("; %s is %s: %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}

// asked adds what an interface asks for and its pools cannot give, or another pod has.
func (l podLook) asked(ctx context.Context, v *podView, n networkView, pools map[string]*v1alpha1.IPPool, node poolspec.NodeLabels) error {
	confs, err := configsOf(n.step)
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if !slices.ContainsFunc(v.Pending, func(why string) bool { return strings.Contains(why, text) }) {
			v.because("network %s: its configuration cannot be used: %s", n.Network, text)
		}
		return nil
	}
	shapes := map[string]*allocator.Shape{}
	for name, p := range pools {
		shapes[name] = state.ShapeOf(p)
	}
	var errs []error
	for _, conf := range confs {
		why := impossible(n.step, conf, shapes)
		for _, fault := range why {
			v.because("network %s: %s", n.Network, fault)
		}
		for _, r := range conf.Requested {
			src, found, _ := conf.SourceOf(r.Addr, func(pool string) (*allocator.Shape, error) { return shapes[pool], nil })
			if len(why) == 0 && found {
				v.askedElsewhere(n, r.Addr, pools[src.Pool], node)
				errs = append(errs, l.takenBy(ctx, v, n, pools[src.Pool], r.Addr))
			}
		}
	}
	return errors.Join(errs...)
}

// takenBy adds who else has an address that an interface asks for.
func (l podLook) takenBy(ctx context.Context, v *podView, n networkView, p *v1alpha1.IPPool, addr netip.Addr) error {
	has, _, err := who.InPool(ctx, l.Session, p, addr)
	if err != nil || has.Owner == "" || has.ServesPod(v.Namespace, v.Name) {
		return err
	}
	text := has.Text()
	if len(has.Pods) == 1 && (has.Owner == "Pod" || has.Owner == "Request") {
		text = l.standoff(has.Pods[0])
	}
	v.because("network %s: it asks for %s of pool %s, and another has it: %s", n.Network, addr, p.Name, text)
	return nil
}

// requests adds what the node has asked of the cluster for the pod.
func (l podLook) requests(ctx context.Context, v *podView) error {
	subs, err := session.ListAll(ctx, l.Client, &v1alpha1.IPSubLeaseList{}, session.SubLeasesIn, client.MatchingFields{"spec.node": v.Node})
	if err != nil {
		return err
	}
	for i := range subs {
		r := subs[i].Spec.Request
		if r == nil || r.Pod.UID != v.UID {
			continue
		}
		switch st := subs[i].Status; {
		case st.Refused != nil:
			v.because("interface %s: request %s is refused: %s: %s", r.Interface, subs[i].Name, st.Refused.Reason, st.Refused.Message)
		case len(st.Granted) == 0:
			v.because("interface %s: request %s has waited for an address for %s", r.Interface, subs[i].Name, l.Age(subs[i].CreationTimestamp.Time))
		}
	}
	return nil
}

// reg adds why the node's agent cannot serve, as far as its registration tells. Not everybody may
// read registrations.
func (l podLook) reg(ctx context.Context, v *podView) error {
	reg, beat, err := state.Registration(ctx, l.Session, protocol.NodeName(v.Node))
	switch {
	case session.Forbidden(err):
	case err != nil:
		return err
	case reg == nil:
		v.because("no agent has ever run on node %s: is the DaemonSet tenured there?", v.Node)
	case reg.Ended():
		v.because("node %s counts as dead and its agent has not come back: if it has the out-of-service taint and runs again, remove the taint", v.Node)
	case reg.Fence > 0 && l.Now().Sub(beat) >= reg.Fence:
		v.because("the agent of node %s gives out nothing new: no heartbeat of it was accepted for %s", v.Node, l.Age(beat))
	}
	return nil
}
