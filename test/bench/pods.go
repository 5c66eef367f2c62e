package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/ipam/cluster"
)

// podNamespace is the namespace of the pods.
const podNamespace = "default"

// A pod is one of the node's. It selects the network four times, as net1 to net4.
type pod struct{ name, uid string }

const interfacesPerPod = 4

// args are the CNI_ARGS that containerd gives plugins for the pod's sandbox.
func (p pod) args(sandbox string) string {
	return fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s", podNamespace, p.name, sandbox, p.uid)
}

// podsUpTo returns count pods of the node, which it creates as needed. No kubelet
// runs them: the agent sees them as it sees any.
func (n *node) podsUpTo(ctx context.Context, count int) ([]pod, error) {
	have := len(n.pods)
	n.pods = append(n.pods, make([]pod, max(0, count-have))...)
	var g errgroup.Group
	g.SetLimit(32)
	for i := have; i < count; i++ {
		g.Go(func() error {
			o := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("pod-%d", i), Namespace: podNamespace,
					Annotations: map[string]string{cluster.AnnotationNetworks: strings.Repeat(","+networkName, interfacesPerPod)[1:]},
				},
				Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			}
			err := n.kube.Create(ctx, o)
			n.pods[i] = pod{name: o.Name, uid: string(o.UID)}
			return err
		})
	}
	return n.pods[:count], g.Wait()
}
