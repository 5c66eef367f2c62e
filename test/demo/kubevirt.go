package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/test/kubevirt"
)

// machineName is the virtual machine of the demo, guestMAC its MAC, which it takes
// along as it does its addresses.
const (
	machineName = "alma"
	guestMAC    = "02:00:00:00:77:01"
)

// A machine is a virtual machine and the claim of its interface.
type machine struct {
	vm    *unstructured.Unstructured
	claim claimed
}

// background is something that runs until it is stopped.
type background struct {
	cancel context.CancelFunc
	done   chan error // has one value once it has ended
}

// inBackground runs work until stop is called, whatever becomes of ctx.
func inBackground(ctx context.Context, work func(context.Context) error) *background {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &background{cancel: cancel, done: make(chan error, 1)}
	go func() { b.done <- work(ctx) }()
	return b
}

// stop is a no-op on nil, and must not be called twice.
func (b *background) stop() error {
	if b == nil {
		return nil
	}
	b.cancel()
	return <-b.done
}

// newMachine starts KubeVirt and a virtual machine, and waits until the machine's
// claim has addresses. KubeVirt makes the instance, the first pod and the claim.
func (d *demo) newMachine(ctx context.Context) (m machine, err error) {
	d.kubevirt = inBackground(ctx, func(ctx context.Context) error { return kubevirt.Run(ctx, d.cp.Config()) })
	m.vm = kubevirt.VM(namespace, machineName, []kubevirt.Network{{Name: networkName, Definition: networkName, MAC: guestMAC}})
	if err := d.kube.Create(ctx, m.vm); err != nil {
		return m, err
	}
	m.claim, err = d.awaitClaim(ctx, kubevirt.ClaimName(machineName, networkName))
	return m, err
}

// launch runs the machine's only pod, which nobody has run yet, on a node.
func (d *demo) launch(ctx context.Context, n *node) (*pod, error) {
	var launchers []corev1.Pod
	_, err := d.screen.await(ctx, "KubeVirt makes a pod for the machine", func(ctx context.Context) (string, error) {
		var err error
		launchers, err = kubevirt.Launchers(ctx, d.kube, namespace, machineName)
		if err == nil && len(launchers) != 1 {
			return fmt.Sprintf("the machine has %d pods", len(launchers)), nil
		}
		return "", err
	})
	if err != nil {
		return nil, err
	}
	return d.schedule(ctx, n, &launchers[0])
}

// migrate runs a second pod of the machine on a node.
func (d *demo) migrate(ctx context.Context, n *node) (*pod, error) {
	launcher, err := kubevirt.Migrate(ctx, d.kube, namespace, machineName)
	if err != nil {
		return nil, err
	}
	return d.schedule(ctx, n, launcher)
}

// schedule binds a pod that somebody has created, as the scheduler does, and runs
// it.
func (d *demo) schedule(ctx context.Context, n *node, object *corev1.Pod) (*pod, error) {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: n.name},
	}
	if err := d.kube.SubResource("binding").Create(ctx, object, binding); err != nil {
		return nil, err
	}
	var selections selections
	if err := json.Unmarshal([]byte(object.Annotations[npwg.AnnotationNetworks]), &selections); err != nil {
		return nil, err
	}
	if len(selections) != 1 {
		return nil, fmt.Errorf("pod %s selects %d networks; want one", object.Name, len(selections))
	}
	p := &pod{name: object.Name, node: n, sel: selections, object: object}
	return p, d.start(ctx, p)
}

// halt stops the machine and waits until KubeVirt has deleted its pod, which goes
// when its node lets it.
func (d *demo) halt(ctx context.Context, p *pod) error {
	if err := kubevirt.Halt(ctx, d.kube, namespace, machineName); err != nil {
		return err
	}
	_, err := d.screen.await(ctx, "KubeVirt deletes the machine's pod", func(ctx context.Context) (string, error) {
		err := d.kube.Get(ctx, clientKey(p.object), p.object)
		if err == nil && p.object.DeletionTimestamp == nil {
			return p.name + " is not being deleted", nil
		}
		return "", err
	})
	return err
}

// endKubeVirt ends KubeVirt, if it runs.
func (d *demo) endKubeVirt() error {
	b := d.kubevirt
	d.kubevirt = nil
	if err := b.stop(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("KubeVirt: %w", err)
	}
	return nil
}

func clientKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
