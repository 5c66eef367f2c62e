package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
)

// podNamespace is the namespace of the pods.
const podNamespace = "default"

// A pod is one of a node's.
type pod struct{ name, uid string }

// interfacesPerPod is how often the node's pods select the network: as net1 to net4.
const interfacesPerPod = 4

// args are the CNI_ARGS that containerd gives plugins for the pod's sandbox.
func (p pod) args(sandbox string) string {
	return fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s", podNamespace, p.name, sandbox, p.uid)
}

// podsUpTo returns count pods of the node, which it creates as needed.
func (n *node) podsUpTo(ctx context.Context, count int) []pod {
	have := len(n.pods)
	if have < count {
		more := n.makePods(ctx, nodeName, fmt.Sprintf("pods-from-%d", have), count-have, func(int) string { return strings.Repeat(","+networkName, interfacesPerPod)[1:] })
		n.pods = append(n.pods, more...)
	}
	return n.pods[:count]
}

// makePods makes pods of a node. Each has the annotation of networks that selects
// returns. No kubelet runs them: the agent sees them as it sees any.
func (n *node) makePods(ctx context.Context, of, prefix string, count int, selects func(i int) string) []pod {
	pods := make([]pod, count)
	n.createAll(ctx, count, func(i int) client.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", prefix, i), Namespace: podNamespace,
				Annotations: map[string]string{kube.AnnotationNetworks: selects(i)},
			},
			Spec: corev1.PodSpec{NodeName: of, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
	}, func(i int, o client.Object) { pods[i] = pod{name: o.GetName(), uid: string(o.GetUID())} })
	return pods
}

// createAll creates count objects, a few at once, and calls made, if that is not nil,
// with each that the API server has made.
func (n *node) createAll(ctx context.Context, count int, object func(i int) client.Object, made func(i int, o client.Object)) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range count {
		g.Go(func() error {
			o := object(i)
			if err := n.Client.Create(ctx, o); err != nil {
				return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
			}
			if made != nil {
				made(i, o)
			}
			return nil
		})
	}
	n.Must(g.Wait())
}

// writers is how many objects are written at once.
const writers = 32
