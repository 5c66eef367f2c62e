package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// officeName is the PodNetwork's, and its InterfaceParameters'.
const officeName = "office"

const officeList = `[{"podNetworkName": "default"}, {"podNetworkName": "office", "isDefaultGW4": true}]`

func (d *demo) playPodNetwork(ctx context.Context) {
	params := &v1alpha1.InterfaceParameters{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: officeName},
		Spec:       v1alpha1.InterfaceParametersSpec{Bridge: &v1alpha1.BridgeParameters{Bridge: "br-lan"}},
	}
	network := &v1alpha1.PodNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: officeName},
		Spec: v1alpha1.PodNetworkSpec{Provider: podnetwork.Provider, ParametersRefs: []v1alpha1.ParametersRef{
			{Group: v1alpha1.GroupName, Kind: "InterfaceParameters", Namespace: namespace, Name: officeName},
			{Group: v1alpha1.GroupName, Kind: "IPPool", Name: poolName},
		}},
	}
	d.Must(d.Client.Create(ctx, network))
	d.awaitReady(ctx, network, false)
	d.kubectl(ctx, "get", "podnetwork", officeName, "-o", `jsonpath={.status.conditions[?(@.type=="ParamsReady")].message}`)
	d.OK("PodNetwork %s is not Ready: its InterfaceParameters are not there.", officeName)
	d.Must(d.Client.Create(ctx, params))
	d.awaitReady(ctx, network, true)
	d.kubectl(ctx, "get", "podnetworks")

	sel := selections{{Name: officeName, PodNetwork: true}}
	p := d.create(ctx, d.nodeA, "visitor", sel, func(o *corev1.Pod) {
		delete(o.Annotations, npwg.AnnotationNetworks)
		o.Annotations[podnetwork.AnnotationNetworks] = officeList
	})
	d.start(ctx, p)
	d.Block(fmt.Sprintf("%s: %s\n%s: %s", podnetwork.AnnotationNetworks, officeList, podnetwork.AnnotationIPs, p.object.Annotations[podnetwork.AnnotationIPs]))
	d.pingAll(ctx, []*pod{d.pods[0]}, []*pod{p})
	d.OK("visitor has addresses of PodNetwork %s, without CNI JSON by anybody.", officeName)

	d.Command("kubectl delete podnetwork %s --wait=false", officeName)
	d.Must(d.Client.Delete(ctx, network))
	late := d.create(ctx, d.nodeB, "late", sel, func(o *corev1.Pod) {
		delete(o.Annotations, npwg.AnnotationNetworks)
		o.Annotations[podnetwork.AnnotationNetworks] = officeList
	})
	d.refuse(ctx, late, "PodNetwork office is being deleted")
	d.Must(d.Client.Get(ctx, clientKey(network), network))
	d.OK("The network is deleted, and stays as long as a pod lists it. It takes no new ones.")
	d.remove(ctx, p)
	d.forget(ctx, late)
	took := d.Await(ctx, "the PodNetwork is gone", func(ctx context.Context) error {
		err := d.Client.Get(ctx, clientKey(network), network)
		if err == nil {
			return errors.New("it is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	d.OK("Without pods it is gone %s.", d.Took(took))
	d.Must(d.Client.Delete(ctx, params))
}

// awaitReady waits until the controller has said that a PodNetwork is Ready, or that it is not.
func (d *demo) awaitReady(ctx context.Context, network *v1alpha1.PodNetwork, ready bool) {
	want := metav1.ConditionFalse
	if ready {
		want = metav1.ConditionTrue
	}
	d.Await(ctx, "the controller looks at the PodNetwork", func(ctx context.Context) error {
		if err := d.Client.Get(ctx, clientKey(network), network); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(network.Status.Conditions, v1alpha1.NetworkReady); c == nil || c.Status != want {
			return fmt.Errorf("its conditions are %v; want Ready %s", network.Status.Conditions, want)
		}
		return nil
	})
}
