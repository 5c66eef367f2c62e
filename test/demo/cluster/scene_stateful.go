package main

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
)

// brokersAsk are the annotations of the StatefulSet's template, beside its selection.
var brokersAsk = map[string]string{
	workload.AnnotationClaims: networkName, workload.AnnotationRequested: "10.77.200.20-10.77.200.21",
	workload.AnnotationRetention: "whenDeleted=Delete",
}

func (d *demo) playStateful(ctx context.Context) {
	set := d.brokers(ctx)
	d.Block(fmt.Sprintf("%s: %s\n%s: %s", workload.AnnotationClaims, networkName, workload.AnnotationRequested, brokersAsk[workload.AnnotationRequested]))
	var claims []claimed
	for i, want := range []string{"10.77.200.20/16", "10.77.200.21/16"} {
		c := d.awaitClaim(ctx, fmt.Sprintf("broker-%d.%s", i, networkName))
		if len(c.ips) != 2 || c.ips[0].String() != want {
			d.Fail("claim %s has %v; want %s and an IPv6 address", c.name(), c.ips, want)
		}
		d.granted(ctx, c)
		claims = append(claims, c)
	}
	d.kubectl(ctx, "-n", namespace, "get", "ipamclaims", "-o", claimColumns)
	d.OK("Each pod has a claim already, with the address that was asked for it. No pod runs yet.")

	first := d.broker(ctx, set, d.nodeA, 0)
	d.check(ctx, claims[0], first)
	d.pingAll(ctx, []*pod{d.pods[0]}, []*pod{first})
	d.remove(ctx, first)
	d.awaitUsedBy(ctx, claims[0])
	again := d.broker(ctx, set, d.nodeB, 0)
	d.showPods(again)
	d.check(ctx, claims[0], again)
	d.OK("broker-0 names no claim, and has its own on node-a, and after it was deleted, on node-b.")

	d.remove(ctx, again)
	d.awaitUsedBy(ctx, claims[0])
	d.Command("kubectl -n %s delete statefulset broker", namespace)
	d.Must(d.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	took := d.Await(ctx, "Kubernetes' garbage collector deletes its claims", func(ctx context.Context) error {
		for _, c := range claims {
			if err := d.Client.Get(ctx, clientKey(c.object), c.object); client.IgnoreNotFound(err) != nil {
				return err
			} else if err == nil {
				return fmt.Errorf("claim %s is there", c.name())
			}
		}
		return nil
	})
	d.OK("It was made so that its claims go with it %s. Else they would be kept, as volumes are.", d.Took(took))
}

// brokers makes a StatefulSet of two pods. Nobody here makes the pods but the demo.
func (d *demo) brokers(ctx context.Context) *appsv1.StatefulSet {
	labels := map[string]string{"app": "broker"}
	annotations := map[string]string{npwg.AnnotationNetworks: networkName}
	maps.Copy(annotations, brokersAsk)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "broker"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), ServiceName: "broker", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "demo"}}},
			},
		},
	}
	d.Must(d.Client.Create(ctx, set))
	return set
}

// broker runs a pod of the StatefulSet, as its controller makes it.
func (d *demo) broker(ctx context.Context, set *appsv1.StatefulSet, n *node, ordinal int) *pod {
	p := d.create(ctx, n, fmt.Sprintf("%s-%d", set.Name, ordinal), selections{{Name: networkName}}, func(o *corev1.Pod) {
		o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		o.Annotations[workload.AnnotationClaims] = brokersAsk[workload.AnnotationClaims]
	})
	d.start(ctx, p)
	return p
}
