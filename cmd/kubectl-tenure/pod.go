package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// podView is a pod's networks as json and yaml show them. docs/reference/kubectl-tenure.md has
// the fields.
type podView struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	UID       string        `json:"uid"`
	Node      string        `json:"node,omitempty"`
	Phase     string        `json:"phase"`
	Networks  []networkView `json:"networks"`
	// Pending are the reasons why it is not attached to all of them.
	Pending []string `json:"pending,omitempty"`
	// Remarks are what could not be found out, where it speaks against nothing, and what
	// of its annotation is ignored.
	Remarks []string    `json:"remarks,omitempty"`
	Events  []eventView `json:"events,omitempty"`
}

// networkView is one network of a pod.
type networkView struct {
	Network   string   `json:"network"`
	Interface string   `json:"interface"`
	Default   bool     `json:"default,omitempty"`
	Attached  bool     `json:"attached"`
	IPs       []string `json:"ips,omitempty"`
	Pools     []string `json:"pools,omitempty"` // those that Tenure gives its addresses of
	Claim     string   `json:"claim,omitempty"`
}

// eventView is a warning about a pod.
type eventView struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	Last    time.Time `json:"last"`
}

func newPod(s *session) *cobra.Command {
	var o output
	c := &cobra.Command{
		Use: "pod NAME", Short: "what a pod has on each network, and why it is pending",
		Long: `Prints a pod's networks: which it selects, by the plan that explain shows whole; which it
is attached to and with what addresses, by its status annotation; and of which pools and
claims these are. If it lacks one, it says what stands in the way: faults of the plan,
claims and pools that cannot serve, requests that were refused, a node without an agent,
and the warnings of the pod's Events.`,
		Args: one("pod"), ValidArgsFunction: s.onePod,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", o.format, "", "json", "yaml"); err != nil {
				return err
			}
			return showPod(c.Context(), s, o, args[0])
		},
	}
	c.Flags().StringVarP(&o.format, "output", "o", "", "what to write: json, yaml")
	return c
}

func showPod(ctx context.Context, s *session, o output, name string) error {
	namespace, err := s.space()
	if err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	look := podLook{session: s, pod: &pod}
	v, err := look.all(ctx)
	if err != nil {
		return err
	}
	if o.structured() {
		err = o.encode(s, v)
	} else {
		writePod(s, v)
	}
	if err == nil && len(v.Pending) > 0 {
		return errNo
	}
	return err
}

// podLook is a look at one pod.
type podLook struct {
	*session
	pod *corev1.Pod
}

// all finds out all of a pod's networks.
func (l podLook) all(ctx context.Context) (podView, error) {
	v := podView{
		Namespace: l.pod.Namespace, Name: l.pod.Name, UID: string(l.pod.UID), Node: l.pod.Spec.NodeName, Phase: string(l.pod.Status.Phase),
		Networks: []networkView{},
	}
	status, err := statusOf(l.pod)
	if err != nil {
		v.Pending = append(v.Pending, err.Error())
	}
	faults, err := l.addPlanned(ctx, &v)
	switch {
	case err == nil:
	case len(status) == 0:
		return v, fmt.Errorf("find out what networks the pod selects: %w", err)
	default: // it is written when the pod has them all
		v.Remarks = append(v.Remarks, fmt.Sprintf("what networks it selects could not be found out, only which it has: %v", err))
	}
	lacks, since := missed(l.pod)
	// At first its node may be about to say that it has them.
	if len(lacks) > 0 && l.now().Sub(since) >= audit.SaysWithin {
		l.addMissed(&v, lacks)
		status = nil // it is of an earlier sandbox
	}
	for _, st := range status {
		v.attach(st)
	}
	finished := l.pod.Status.Phase == corev1.PodSucceeded || l.pod.Status.Phase == corev1.PodFailed
	waiting := slices.DeleteFunc(slices.Clone(v.Networks), func(n networkView) bool { return n.Attached })
	onlyDefault := !slices.ContainsFunc(waiting, func(n networkView) bool { return !n.Default })
	if finished || len(faults) == 0 && (len(waiting) == 0 || onlyDefault && l.pod.Status.Phase == corev1.PodRunning) {
		return v, nil
	}
	v.Pending = append(v.Pending, faults...)
	for _, err := range []error{l.why(ctx, &v, waiting), l.events(ctx, &v)} {
		switch {
		case forbidden(err): // what else is known is worth having
			v.because("there may be more that you may not see: %v", err)
		case err != nil:
			return v, err
		}
	}
	return v, nil
}

// statusOf reads a pod's status annotation.
func statusOf(pod metav1.Object) (status []nad.NetworkStatus, err error) {
	text := pod.GetAnnotations()[npwg.AnnotationStatus]
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("annotation %s does not read: %w", npwg.AnnotationStatus, err)
	}
	return status, nil
}

// addPlanned adds to v the networks of the plan that would be made for the pod. faults say what
// is wrong with the plan, err why none can be made here. A host-network pod has no plan.
func (l podLook) addPlanned(ctx context.Context, v *podView) (faults []string, err error) {
	if l.pod.Spec.HostNetwork {
		return nil, nil
	}
	c, err := plan.ParseInstalled([]byte(fresh))
	if err != nil {
		return nil, err
	}
	src := &source{session: l.session, namespace: l.pod.Namespace, name: l.pod.Name}
	p, fault, err := planFor(ctx, src, c, facts.PodRef{Namespace: l.pod.Namespace, Name: l.pod.Name}, noDisk{})
	if err != nil {
		return nil, err
	}
	if fault != nil {
		faults = strings.Split(fault.Error(), "\n")
	}
	for _, w := range p.Warnings {
		v.Remarks = append(v.Remarks, w.Reason+": by the default configuration, "+w.Message)
	}
	for _, step := range p.Steps {
		n := networkView{Network: step.Name, Interface: step.IfName, Default: step.Default, Claim: step.Claim}
		if n.Claim == "" {
			if n.Claim, err = l.inferred(step.IfName); err != nil {
				faults = append(faults, fmt.Sprintf("network %s: %v", n.Network, err))
			}
		}
		for _, src := range networks.Read("", step.Name, time.Time{}, string(step.List)).Sources {
			if !slices.Contains(n.Pools, src.Pool) {
				n.Pools = append(n.Pools, src.Pool)
			}
		}
		v.Networks = append(v.Networks, n)
	}
	return faults, nil
}

// attach adds what the pod's status says of one network.
func (v *podView) attach(st nad.NetworkStatus) {
	i := slices.IndexFunc(v.Networks, func(n networkView) bool {
		return n.Default && st.Default || n.Interface == st.Interface && n.Network == st.Name
	})
	if i < 0 {
		v.Networks = append(v.Networks, networkView{Network: st.Name, Interface: st.Interface, Default: st.Default})
		i = len(v.Networks) - 1
	}
	n := &v.Networks[i]
	n.Attached, n.IPs = true, st.IPs
	if n.Default {
		n.Network = st.Name // the node's configuration names it
	}
}

// why adds what stands in the way of the networks that wait.
func (l podLook) why(ctx context.Context, v *podView, waiting []networkView) error {
	if v.Node == "" {
		v.Pending = append(v.Pending, "it is not scheduled to a node yet: kubectl describe pod says why")
		return nil
	}
	tenures := false
	for _, n := range waiting {
		if n.Claim != "" {
			if err := l.claim(ctx, v, n); err != nil {
				return err
			}
		}
		for _, pool := range n.Pools {
			tenures = true
			if err := l.pool(ctx, v, n, pool); err != nil {
				return err
			}
		}
	}
	if !tenures {
		return nil
	}
	return errors.Join(l.requests(ctx, v), l.reg(ctx, v))
}

func (v *podView) because(format string, args ...any) {
	v.Pending = append(v.Pending, fmt.Sprintf(format, args...))
}

// claim adds why a claim cannot be used.
func (l podLook) claim(ctx context.Context, v *podView, n networkView) error {
	var c ipamclaims.IPAMClaim
	err := l.client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: n.Claim}, &c)
	cond := meta.FindStatusCondition(c.Status.Conditions, kube.ConditionIPsAllocated)
	switch {
	case apierrors.IsNotFound(err):
		v.because("network %s: claim %s does not exist: whoever makes the pod's claims has to make it", n.Network, n.Claim)
	case err != nil:
		return fmt.Errorf("read claim %s/%s: %w", v.Namespace, n.Claim, err)
	case c.DeletionTimestamp != nil:
		v.because("network %s: claim %s is being deleted", n.Network, n.Claim)
	case len(c.Status.IPs) > 0:
	case cond != nil:
		v.because("network %s: claim %s has no addresses: %s: %s", n.Network, n.Claim, cond.Reason, cond.Message)
	default:
		v.because("network %s: claim %s has no addresses yet: is the controller running, and is %q the name in a network's configuration?", n.Network, n.Claim, c.Spec.Network)
	}
	return nil
}

// pool adds why a pool cannot serve.
func (l podLook) pool(ctx context.Context, v *podView, n networkView, name string) error {
	p, out, err := l.api.ReadIPPool(ctx, protocol.PoolName(name))
	switch {
	case out == protocol.NotFound:
		v.because("network %s: pool %s does not exist", n.Network, name)
		return nil
	case err != nil:
		return fmt.Errorf("read pool %s: %w", name, err)
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolReady); c == nil {
		v.because("network %s: pool %s has not been opened: is the controller running?", n.Network, name)
	} else if c.Status != metav1.ConditionTrue {
		v.because("network %s: pool %s is not ready: %s: %s", n.Network, name, c.Reason, c.Message)
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolExhausted); c != nil && c.Status == metav1.ConditionTrue {
		v.because("network %s: %s", n.Network, c.Message) // it names the pool
	}
	return nil
}

// requests adds what the node has asked of the cluster for the pod.
func (l podLook) requests(ctx context.Context, v *podView) error {
	subs, err := listAll(ctx, l.client, &v1alpha1.IPSubLeaseList{}, subLeasesIn, client.MatchingFields{"spec.node": v.Node})
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
			v.because("interface %s: request %s waits for an address since %s", r.Interface, subs[i].Name, l.age(subs[i].CreationTimestamp.Time))
		}
	}
	return nil
}

// registration adds why the node's agent cannot serve, as far as its registration tells. Not
// everybody may read registrations.
func (l podLook) reg(ctx context.Context, v *podView) error {
	reg, beat, err := l.readRegistration(ctx, protocol.NodeName(v.Node))
	switch {
	case forbidden(err):
	case err != nil:
		return err
	case reg == nil:
		v.because("no agent has ever run on node %s: is the DaemonSet tenured there?", v.Node)
	case reg.Ended():
		v.because("node %s counts as dead and its agent has not come back: if it has the out-of-service taint and runs again, remove the taint", v.Node)
	case reg.Fence > 0 && l.now().Sub(beat) >= reg.Fence:
		v.because("the agent of node %s gives out nothing new: no heartbeat of it was accepted for %s", v.Node, l.age(beat))
	}
	return nil
}

func writePod(s *session, v podView) {
	to := s.screen()
	where := "not scheduled"
	if v.Node != "" {
		where = "on node " + v.Node
	}
	to.line("Pod %s/%s, %s, %s", v.Namespace, v.Name, v.Phase, where)
	to.title("Networks")
	t := table{heads: []string{"INTERFACE", "NETWORK", "ADDRESSES", "POOL", "CLAIM", "ATTACHED"}}
	for _, n := range v.Networks {
		attached := cell{"no", lookBad}
		if n.Attached {
			attached = cell{"yes", lookGood}
		}
		t.row(append(plain(n.Interface, n.Network, strings.Join(n.IPs, ","), strings.Join(n.Pools, ","), n.Claim), attached)...)
	}
	t.write(to, false)
	for _, remark := range v.Remarks {
		to.line("Note: %s", remark)
	}
	if len(v.Pending) > 0 {
		title := "Why it is not attached"
		if !slices.ContainsFunc(v.Networks, func(n networkView) bool { return !n.Attached }) {
			title = "It is attached, and what would be in the way of a new sandbox"
		}
		to.title(title)
		for _, why := range v.Pending {
			to.line("  - %s", why)
		}
	}
	if len(v.Events) > 0 {
		to.title("Events")
		for _, e := range v.Events {
			to.line("  - %s ago, %d times, %s: %s", s.age(e.Last), e.Count, e.Reason, e.Message)
		}
	}
}
