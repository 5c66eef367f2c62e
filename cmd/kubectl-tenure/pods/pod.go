// Package pods has the verbs about one pod: explain shows by which plan it is attached, and pod
// what it has on each network and why it lacks one.
package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
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
	// Devices are the network devices that it has by ResourceClaims.
	Devices []deviceView `json:"devices,omitempty"`
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

	// step is how the plan attaches it; without a list where the plan does not.
	step plan.Step
}

// eventView is a warning about a pod.
type eventView struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	Last    time.Time `json:"last"`
}

// NewPod returns the verb pod.
func NewPod(s *session.Session) *cobra.Command {
	var o session.Output
	c := &cobra.Command{
		Use: "pod [NAMESPACE/]NAME", Short: "what a pod has on each network, and why it is pending",
		Long: `Prints a pod's networks: which it selects, by the plan that explain shows whole; which it
is attached to and with what addresses, by its status annotation; of which pools and
claims these are; and what it has by ResourceClaims, as drivers say in their status. If it lacks one, it says what stands in the way: faults of the plan,
claims and pools that cannot serve, addresses and gateways that they cannot give, requests
that were refused, a node without an agent, and the warnings of the Events about the pod
and the definitions that it waits for. It exits with 3 then.`,
		Args: session.One("pod"), ValidArgsFunction: s.OnePod,
		RunE: func(c *cobra.Command, args []string) error {
			if err := session.OneOf("output", o.Format, "", "json", "yaml"); err != nil {
				return err
			}
			return showPod(c.Context(), s, o, args[0])
		},
	}
	c.Flags().StringVarP(&o.Format, "output", "o", "", "what to write: json, yaml")
	return c
}

func showPod(ctx context.Context, s *session.Session, o session.Output, name string) error {
	namespace, name, err := s.PodNamed("pod", name)
	if err != nil {
		return err
	}
	if err := s.Connect(); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	look := podLook{Session: s, pod: &pod}
	v, err := look.all(ctx)
	if err != nil {
		return err
	}
	if o.Structured() {
		err = o.Encode(s, v)
	} else {
		writePod(s, v)
	}
	if err == nil && len(v.Pending) > 0 {
		return session.ErrNo
	}
	return err
}

// Why returns the reasons why a pod is not attached to all networks that it selects; none if it is,
// or has finished.
func Why(ctx context.Context, s *session.Session, pod *corev1.Pod) ([]string, error) {
	v, err := podLook{Session: s, pod: pod}.all(ctx)
	return v.Pending, err
}

// podLook is a look at one pod.
type podLook struct {
	*session.Session
	pod *corev1.Pod
}

// all finds out all of a pod's networks.
func (l podLook) all(ctx context.Context) (podView, error) {
	v := podView{
		Namespace: l.pod.Namespace, Name: l.pod.Name, UID: string(l.pod.UID), Node: l.pod.Spec.NodeName, Phase: string(l.pod.Status.Phase),
		Networks: []networkView{},
	}
	status, err := state.StatusOf(l.pod)
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
	lacks, since := state.Missed(l.pod)
	// At first its node may be about to say that it has them.
	if len(lacks) > 0 && l.Now().Sub(since) >= audit.SaysWithin {
		l.addMissed(&v, lacks)
		status = nil // it is of an earlier sandbox
	}
	for _, st := range status {
		v.attach(st)
	}
	for _, err := range []error{l.correctPools(ctx, &v), l.addDevices(ctx, &v)} {
		if err != nil && !session.Forbidden(err) {
			return v, err
		}
	}
	finished := l.pod.Status.Phase == corev1.PodSucceeded || l.pod.Status.Phase == corev1.PodFailed
	waiting := slices.DeleteFunc(slices.Clone(v.Networks), func(n networkView) bool { return n.Attached })
	onlyDefault := !slices.ContainsFunc(waiting, func(n networkView) bool { return !n.Default })
	ran := l.pod.Status.Phase == corev1.PodRunning || len(status) > 0 // so that it has the default network
	if finished || len(faults) == 0 && (len(waiting) == 0 || onlyDefault && ran) {
		return v, nil
	}
	v.Pending = append(v.Pending, faults...)
	for _, err := range []error{l.why(ctx, &v, waiting), l.events(ctx, &v)} {
		switch {
		case session.Forbidden(err): // what else is known is worth having
			v.because("there may be more that you may not see: %v", err)
		case err != nil:
			return v, err
		}
	}
	if len(v.Pending) == 0 {
		v.because("nothing of what can be seen from here stands in the way: it is being attached, or a plugin fails on its node, of which an Event tells")
	}
	return v, nil
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
	src := &source{Session: l.Session, namespace: l.pod.Namespace, name: l.pod.Name}
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
	if src.deployment != nil {
		v.Remarks = append(v.Remarks, standoffs(src.deployment, p.Steps)...)
	}
	for _, step := range append(p.Steps, p.Missing...) {
		n := networkView{Network: step.Name, Interface: step.IfName, Default: step.Default, Claim: step.Claim, step: step}
		if n.Claim == "" {
			if n.Claim, err = l.inferred(ctx, step.IfName); err != nil {
				faults = append(faults, fmt.Sprintf("network %s: %v", n.Network, err))
			}
		}
		of := networks.Read("", step.Name, time.Time{}, string(step.List))
		if of.Unnamed() {
			pools, err := state.DomainPools(ctx, l.Session)
			if err != nil && !session.Forbidden(err) {
				return nil, err
			}
			if of = of.Place(pools); of.Fault != "" {
				faults = append(faults, fmt.Sprintf("network %s: %s", n.Network, of.Fault))
			}
		}
		if of.ByNamespace() {
			labels, err := src.Labels(ctx, src.namespace)
			if err != nil && !session.Forbidden(err) {
				return nil, err
			}
			of = of.OfNamespace(src.namespace, labels) // what is wrong there is among the faults of the plan
		}
		for _, src := range of.Sources {
			if src.Pool != "" && !slices.Contains(n.Pools, src.Pool) {
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

func writePod(s *session.Session, v podView) {
	to := s.Screen()
	where := "not scheduled"
	if v.Node != "" {
		where = "on node " + v.Node
	}
	to.Line("Pod %s/%s, %s, %s", v.Namespace, v.Name, v.Phase, where)
	to.Title("Networks")
	t := screen.Table{Heads: []string{"INTERFACE", "NETWORK", "ADDRESSES", "POOL", "CLAIM", "ATTACHED"}}
	for _, n := range v.Networks {
		attached := screen.Cell{Text: "no", Look: screen.LookBad}
		if n.Attached {
			attached = screen.Cell{Text: "yes", Look: screen.LookGood}
		}
		t.Row(append(screen.Plain(n.Interface, n.Network, strings.Join(n.IPs, ","), strings.Join(n.Pools, ","), n.Claim), attached)...)
	}
	t.Write(to, false)
	writeDevices(to, v.Devices)
	for _, remark := range v.Remarks {
		to.Line("Note: %s", remark)
	}
	if len(v.Pending) > 0 {
		title := "Why it is not attached"
		if !slices.ContainsFunc(v.Networks, func(n networkView) bool { return !n.Attached }) {
			title = "It is attached, and what would be in the way of a new sandbox"
		}
		to.Title(title)
		for _, why := range v.Pending {
			to.Line("  - %s", why)
		}
	}
	if len(v.Events) > 0 {
		to.Title("Events")
		for _, e := range v.Events {
			to.Line("  - %s ago, %s, %s: %s", s.Age(e.Last), screen.Number(int(e.Count), "time", "times"), e.Reason, e.Message)
		}
	}
}
