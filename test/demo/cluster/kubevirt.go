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
	"github.com/tenure-ipam/tenure/test/process"
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

// newMachine starts KubeVirt and a virtual machine, and waits until the machine's
// claim has addresses. KubeVirt makes the instance, the first pod and the claim.
func (d *demo) newMachine(ctx context.Context) (m machine) {
	d.kubevirt = process.Go(ctx, func(ctx context.Context) error { return kubevirt.Run(ctx, d.Config()) })
	m.vm = kubevirt.VM(namespace, machineName, []kubevirt.Network{{Name: networkName, Definition: networkName, MAC: guestMAC}})
	d.Must(d.Client.Create(ctx, m.vm))
	m.claim = d.awaitClaim(ctx, kubevirt.ClaimName(machineName, networkName))
	return m
}

// launch runs the machine's only pod, which nobody has run yet, on a node.
func (d *demo) launch(ctx context.Context, n *node) *pod {
	var launchers []corev1.Pod
	d.Await(ctx, "KubeVirt makes a pod for the machine", func(ctx context.Context) error {
		var err error
		launchers, err = kubevirt.Launchers(ctx, d.Client, namespace, machineName)
		if err == nil && len(launchers) != 1 {
			return fmt.Errorf("the machine has %d pods", len(launchers))
		}
		return err
	})
	return d.schedule(ctx, n, &launchers[0])
}

// migrate runs a second pod of the machine on a node.
func (d *demo) migrate(ctx context.Context, n *node) *pod {
	launcher, err := kubevirt.Migrate(ctx, d.Client, namespace, machineName)
	d.Must(err)
	return d.schedule(ctx, n, launcher)
}

// schedule binds a pod that somebody has created, as the scheduler does, and runs
// it.
func (d *demo) schedule(ctx context.Context, n *node, object *corev1.Pod) *pod {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: n.name},
	}
	d.Must(d.Client.SubResource("binding").Create(ctx, object, binding))
	var selections selections
	d.Must(json.Unmarshal([]byte(object.Annotations[npwg.AnnotationNetworks]), &selections))
	if len(selections) != 1 {
		d.Fail("pod %s selects %d networks; want one", object.Name, len(selections))
	}
	p := &pod{name: object.Name, node: n, sel: selections, object: object}
	d.start(ctx, p)
	return p
}

// halt stops the machine and waits until KubeVirt has deleted its pod, which goes
// when its node lets it.
func (d *demo) halt(ctx context.Context, p *pod) {
	d.Must(kubevirt.Halt(ctx, d.Client, namespace, machineName))
	d.Await(ctx, "KubeVirt deletes the machine's pod", func(ctx context.Context) error {
		err := d.Client.Get(ctx, clientKey(p.object), p.object)
		if err == nil && p.object.DeletionTimestamp == nil {
			return errors.New(p.name + " is not being deleted")
		}
		return err
	})
}

// endKubeVirt ends KubeVirt, if it runs.
func (d *demo) endKubeVirt() error {
	if d.kubevirt == nil {
		return nil
	}
	if err := d.kubevirt.Stop(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("KubeVirt: %w", err)
	}
	return nil
}

func clientKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
