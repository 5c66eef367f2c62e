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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/process"
)

// A selection is an element of a pod's k8s.v1.cni.cncf.io/networks.
type selection struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Claim     string   `json:"ipam-claim-reference,omitempty"`

	// PodNetwork says that it is no element of that annotation: the pod lists the PodNetwork of
	// this name.
	PodNetwork bool `json:"-"`
}

// status returns the network's name in the network status.
func (s selection) status() string {
	if s.PodNetwork {
		return s.Name
	}
	return namespace + "/" + s.Name
}

// selections are the whole annotation: one or more.
type selections []selection

func (s selections) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("demo: a selection is plain text: %v", err))
	}
	return string(text)
}

// ifName returns the name of the interface that the i-th selection gets.
func (s selections) ifName(i int) string {
	if s[i].Interface == "" {
		return fmt.Sprintf("net%d", i+1)
	}
	return s[i].Interface
}

// A pod is a Pod object and, once it runs, its sandbox: a network namespace with an
// interface for the default network, and one for each selection.
type pod struct {
	name   string
	node   *node
	sel    selections
	object *corev1.Pod

	ns      cninet.NS
	sandbox string         // container ID
	addrs   []netip.Prefix // of the first selection, a network of the one pool
	added   time.Duration  // how long ADD took, as the runtime saw it
	served  string         // how long the agent took of it
}

// create makes the Pod object, bound to its node, and changed as the caller wants it. Nothing
// runs yet.
func (d *demo) create(ctx context.Context, n *node, name string, sel selections, changes ...func(*corev1.Pod)) *pod {
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{npwg.AnnotationNetworks: sel.String()},
		},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "main", Image: "demo"}}},
	}
	for _, change := range changes {
		change(object)
	}
	d.Must(d.Client.Create(ctx, object))
	return &pod{name: name, node: n, sel: sel, object: object}
}

// run creates a pod and starts it.
func (d *demo) run(ctx context.Context, n *node, name string, sel selections) *pod {
	p := d.create(ctx, n, name, sel)
	d.start(ctx, p)
	return p
}

// start attaches a pod and reports that it runs.
func (d *demo) start(ctx context.Context, p *pod) {
	d.Must(d.attach(ctx, p))
	d.reportRunning(ctx, p)
}

// reportRunning writes the pod's status, as kubelet does, and waits until the agent
// has written the network status.
func (d *demo) reportRunning(ctx context.Context, p *pod) {
	base := p.object.DeepCopy()
	p.object.Status.Phase = corev1.PodRunning
	p.object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.object.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: p.object.Spec.Containers[0].Name, Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	d.Must(d.Client.Status().Patch(ctx, p.object, client.MergeFrom(base)))
	d.awaitStatus(ctx, p)
}

// awaitStatus waits until the pod's network status tells what is in its network
// namespace.
func (d *demo) awaitStatus(ctx context.Context, p *pod) {
	d.Await(ctx, "the agent writes the network status of "+p.name, func(ctx context.Context) error {
		if err := d.Client.Get(ctx, clientKey(p.object), p.object); err != nil {
			return err
		}
		text, ok := p.object.Annotations[npwg.AnnotationStatus]
		if !ok {
			return errors.New("there is none")
		}
		var list []npwg.Status
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return process.Final(fmt.Errorf("network status of %s: %w: %s", p.name, err, text))
		}
		if err := p.compare(list); err != nil {
			return process.Final(err) // it is written once
		}
		return nil
	})
}

// compare reports where a network status differs from what the pod selected and what
// the kernel has.
func (p *pod) compare(list []npwg.Status) error {
	if len(list) != 1+len(p.sel) {
		return fmt.Errorf("the network status of %s has %d elements; it has %d interfaces", p.name, len(list), 1+len(p.sel))
	}
	for i, s := range list {
		name, ifName := podsNetwork, "eth0"
		if i > 0 {
			name, ifName = p.sel[i-1].status(), p.sel.ifName(i-1)
		}
		addrs, err := p.ns.Addrs(ifName)
		if err != nil {
			return err
		}
		var ips []string
		for _, a := range addrs {
			ips = append(ips, a.Addr().String())
		}
		if s.Name != name || s.Interface != ifName || s.Default != (i == 0) || s.MAC == "" || !slices.Equal(s.IPs, ips) {
			return fmt.Errorf("the network status of %s says %+v; %s is of network %s, and has %v", p.name, s, ifName, name, ips)
		}
	}
	return nil
}

// addrs returns what an interface of a pod has in the kernel.
func (d *demo) addrs(p *pod, ifName string) []netip.Prefix {
	addrs, err := p.ns.Addrs(ifName)
	d.Must(err)
	return addrs
}

// attachment names what the CNI calls of p are about: for a runtime a pod has one
// interface.
func (p *pod) attachment() cninet.Attachment {
	return cninet.Attachment{
		ContainerID: p.sandbox, NS: p.ns, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.sandbox}, {"K8S_POD_UID", string(p.object.UID)},
		},
	}
}

// attach does what the container runtime does for a new pod: make a network
// namespace, and ADD. Then it checks that the pod's own interface has what ADD
// answered. If ADD is refused, the sandbox is taken down again, and the error is a
// [*types.Error].
func (d *demo) attach(ctx context.Context, p *pod) (err error) {
	config, err := p.node.configuration()
	if err != nil {
		return err
	}
	p.sandbox = fmt.Sprintf("%x", random(32))
	if p.ns, err = cninet.Make("pod-" + p.name + "-" + p.sandbox[:6]); err != nil {
		return err
	}
	var answered []netip.Prefix
	p.added, err = d.While("ADD of "+p.name, func(func(string)) error {
		result, err := p.node.cni.Add(ctx, config, p.attachment())
		if err == nil {
			answered = cninet.Addresses(result)
		}
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("ADD of %s on %s: %w", p.name, p.node.name, err), d.tearDown(ctx, p, config))
	}
	got, err := p.ns.Addrs("eth0")
	if err != nil {
		return err
	}
	if !slices.Equal(got, answered) {
		return fmt.Errorf("%s: eth0 has %v; ADD answered %v", p.name, got, answered)
	}
	if p.addrs, err = p.ns.Addrs(p.sel.ifName(0)); err != nil {
		return err
	}
	p.served = "?"
	if took, ok := p.node.tookIn(p.sandbox); ok {
		p.served = show.Millis(took)
	}
	d.pods = append(d.pods, p)
	return nil
}

// verify is CNI's CHECK.
func (d *demo) verify(ctx context.Context, p *pod) {
	config, err := p.node.configuration()
	d.Must(err)
	d.During("CHECK of "+p.name, func() error { return p.node.cni.Check(ctx, config, p.attachment()) })
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
func (d *demo) remove(ctx context.Context, p *pod) {
	d.Must(client.IgnoreNotFound(d.Client.Delete(ctx, p.object)))
	config, err := p.node.configuration()
	d.Must(err)
	d.During("DEL of "+p.name, func() error { return d.tearDown(ctx, p, config) })
	d.pods = slices.DeleteFunc(d.pods, func(o *pod) bool { return o == p })
	d.forget(ctx, p)
}

// forget lets a pod's object go for good.
func (d *demo) forget(ctx context.Context, p *pod) {
	d.Must(client.IgnoreNotFound(d.Client.Delete(ctx, p.object, client.GracePeriodSeconds(0))))
}

// refuse runs a pod whose ADD must be refused with every word of because, and
// shows why it was.
func (d *demo) refuse(ctx context.Context, p *pod, because ...string) {
	err := d.attach(ctx, p)
	if err == nil {
		d.Fail("%s got %v; it should have been refused", p.name, p.addrs)
	}
	var why *types.Error
	if !errors.As(err, &why) {
		d.Must(err)
	}
	for _, word := range because {
		if !strings.Contains(why.Error(), word) {
			d.Fail("%s is refused, but the reason does not mention %q: %w", p.name, word, why)
		}
	}
	d.Refused(p.name, fmt.Sprintf("%s (CNI code %d)", why, why.Code))
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
		rows = append(rows, []string{p.name, p.node.name, texts(p.addrs), show.Millis(p.added), p.served})
	}
	d.Table(rows...)
}

func texts[T fmt.Stringer](list []T) string {
	all := make([]string, len(list))
	for i, x := range list {
		all[i] = x.String()
	}
	return strings.Join(all, "  ")
}

// annotation shows what somebody's pod selects.
func (d *demo) annotation(whose string, sel selections) {
	d.Does(whose+"'s annotation", "%s", npwg.AnnotationNetworks)
	for l := range strings.Lines(strings.ReplaceAll(sel.String(), "},{", "},\n {")) {
		d.Item(l)
	}
}
