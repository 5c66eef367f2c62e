package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/npwg"
	"github.com/tenure-ipam/tenure/test/cninet"
)

// A selection is an element of a pod's k8s.v1.cni.cncf.io/networks.
type selection struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Claim     string   `json:"ipam-claim-reference,omitempty"`
}

func (s selection) String() string {
	text, err := json.Marshal([]selection{s})
	if err != nil {
		panic(fmt.Sprintf("demo: a selection is plain text: %v", err))
	}
	return string(text)
}

// ifName returns the name of the interface that s gets, as the first element of its
// annotation.
func (s selection) ifName() string {
	if s.Interface == "" {
		return "net1"
	}
	return s.Interface
}

// capabilities is what a meta-plugin hands to the plugins that declare them.
func (s selection) capabilities() map[string]any {
	c := map[string]any{}
	if len(s.IPs) > 0 {
		c["ips"] = s.IPs
	}
	if s.MAC != "" {
		c["mac"] = s.MAC
	}
	return c
}

// A pod is a Pod object and, once it runs, its sandbox: a network namespace with
// one interface.
type pod struct {
	name   string
	node   *node
	sel    selection
	object *corev1.Pod

	ns      cninet.NS
	sandbox string // container ID
	addrs   []netip.Prefix
	added   time.Duration // how long ADD took, as the runtime saw it
	served  string        // how long the agent took of it
}

// create makes the Pod object, bound to its node. Nothing runs yet.
func (d *demo) create(ctx context.Context, n *node, name string, sel selection) (*pod, error) {
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{npwg.AnnotationNetworks: sel.String()},
		},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "main", Image: "demo"}}},
	}
	if err := d.kube.Create(ctx, object); err != nil {
		return nil, err
	}
	return &pod{name: name, node: n, sel: sel, object: object}, nil
}

// run creates a pod and starts it.
func (d *demo) run(ctx context.Context, n *node, name string, sel selection) (*pod, error) {
	p, err := d.create(ctx, n, name, sel)
	if err != nil {
		return nil, err
	}
	return p, d.start(ctx, p)
}

// start attaches a pod and reports that it runs.
func (d *demo) start(ctx context.Context, p *pod) error {
	if err := d.attach(ctx, p); err != nil {
		return err
	}
	return d.reportRunning(ctx, p)
}

// reportRunning writes the pod's status, as kubelet does.
func (d *demo) reportRunning(ctx context.Context, p *pod) error {
	base := p.object.DeepCopy()
	p.object.Status.Phase = corev1.PodRunning
	p.object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.object.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: p.object.Spec.Containers[0].Name, Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	return d.kube.Status().Patch(ctx, p.object, client.MergeFrom(base))
}

// attachment names what the CNI calls of p are about.
func (p *pod) attachment() cninet.Attachment {
	return cninet.Attachment{
		ContainerID: p.sandbox, NS: p.ns, IfName: p.sel.ifName(), Capability: p.sel.capabilities(),
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.sandbox}, {"K8S_POD_UID", string(p.object.UID)},
		},
	}
}

// networkOf returns the configuration of the network that p selects, for its node:
// read from the API, or while that is frozen, as it was last read.
func (d *demo) networkOf(ctx context.Context, p *pod) (string, error) {
	if !d.frozen {
		var def nad.NetworkAttachmentDefinition
		if err := d.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: p.sel.Name}, &def); err != nil {
			return "", err
		}
		d.network = def.Spec.Config
	}
	return p.node.config(d.network)
}

// attach does what the container runtime and the meta-plugin do for a new pod:
// make a network namespace, and ADD. Then it checks that the interface has what
// ADD answered. If ADD is refused, the sandbox is taken down again, and the error
// is a [*types.Error].
func (d *demo) attach(ctx context.Context, p *pod) (err error) {
	config, err := d.networkOf(ctx, p)
	if err != nil {
		return err
	}
	p.sandbox = fmt.Sprintf("%x", random(32))
	if p.ns, err = cninet.Make("pod-" + p.name + "-" + p.sandbox[:6]); err != nil {
		return err
	}
	p.addrs = nil
	p.added, err = d.screen.during("ADD of "+p.name, func(func(string)) error {
		result, err := p.node.cni.Add(ctx, config, p.attachment())
		if err == nil {
			p.addrs = cninet.Addresses(result)
		}
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("ADD of %s on %s: %w", p.name, p.node.name, err), d.tearDown(ctx, p, config))
	}
	got, err := p.ns.Addrs(p.sel.ifName())
	if err != nil {
		return err
	}
	if !slices.Equal(got, p.addrs) {
		return fmt.Errorf("%s: %s has %v; ADD answered %v", p.name, p.sel.ifName(), got, p.addrs)
	}
	p.served = "?"
	if took, ok := p.node.tookIn(p.sandbox); ok {
		p.served = millis(took)
	}
	d.pods = append(d.pods, p)
	return nil
}

// verify is CNI's CHECK.
func (d *demo) verify(ctx context.Context, p *pod) error {
	config, err := d.networkOf(ctx, p)
	if err != nil {
		return err
	}
	_, err = d.screen.during("CHECK of "+p.name, func(func(string)) error { return p.node.cni.Check(ctx, config, p.attachment()) })
	if err != nil {
		return fmt.Errorf("CHECK of %s on %s: %w", p.name, p.node.name, err)
	}
	return nil
}

func (d *demo) tearDown(ctx context.Context, p *pod, config string) error {
	ctx = context.WithoutCancel(ctx)
	if err := p.node.cni.Del(ctx, config, p.attachment()); err != nil {
		return fmt.Errorf("DEL of %s on %s: %w", p.name, p.node.name, err)
	}
	return p.ns.Delete()
}

// remove does what kubelet and the runtime do when a pod is deleted: DEL, take the
// namespace down, and only then let the object go.
func (d *demo) remove(ctx context.Context, p *pod) error {
	if err := d.kube.Delete(ctx, p.object); client.IgnoreNotFound(err) != nil {
		return err
	}
	config, err := d.networkOf(ctx, p)
	if err != nil {
		return err
	}
	if _, err := d.screen.during("DEL of "+p.name, func(func(string)) error { return d.tearDown(ctx, p, config) }); err != nil {
		return err
	}
	d.pods = slices.DeleteFunc(d.pods, func(o *pod) bool { return o == p })
	return d.forget(ctx, p)
}

// forget lets a pod's object go for good.
func (d *demo) forget(ctx context.Context, p *pod) error {
	return client.IgnoreNotFound(d.kube.Delete(ctx, p.object, client.GracePeriodSeconds(0)))
}

// refuse runs a pod whose ADD must be refused with every word of because, and
// shows why it was.
func (d *demo) refuse(ctx context.Context, p *pod, because ...string) error {
	err := d.attach(ctx, p)
	if err == nil {
		return fmt.Errorf("%s got %v; it should have been refused", p.name, p.addrs)
	}
	var why *types.Error
	if !errors.As(err, &why) {
		return err
	}
	for _, word := range because {
		if !strings.Contains(why.Error(), word) {
			return fmt.Errorf("%s is refused, but the reason does not mention %q: %w", p.name, word, why)
		}
	}
	d.screen.refused(p.name, fmt.Sprintf("%s (CNI code %d)", why, why.Code))
	return nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}

// showPods prints who has which address, and how long it took to get it.
func (d *demo) showPods(pods ...*pod) {
	rows := [][]string{{"POD", "NODE", "ADDRESSES", "ADD", "OF WHICH TENURED"}}
	for _, p := range pods {
		rows = append(rows, []string{p.name, p.node.name, texts(p.addrs), millis(p.added), p.served})
	}
	d.screen.table(rows...)
}

func texts[T fmt.Stringer](list []T) string {
	all := make([]string, len(list))
	for i, x := range list {
		all[i] = x.String()
	}
	return strings.Join(all, "  ")
}
