package attach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	netv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
)

// clusterOfTests is a real control plane that those tests share which need one: the
// first of them starts it.
type clusterOfTests struct {
	*controlplane.ControlPlane
	client client.Client
}

var theCluster clusterOfTests

func (c *clusterOfTests) start(ctx context.Context) (err error) {
	ctrllog.SetLogger(logr.Discard())
	if c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{CRDs: []string{"../../deploy/crds", "../../deploy/crds/upstream"}}); err != nil {
		return err
	}
	if _, c.client, err = kube.Dial(c.Config()); err != nil {
		return err
	}
	return c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.DefaultRegistrationNamespace}})
}

func (c *clusterOfTests) stop() error {
	if c.ControlPlane == nil {
		return nil
	}
	return c.ControlPlane.Stop()
}

// realCluster is theCluster, for one test.
type realCluster struct {
	*clusterOfTests
	t *testing.T
}

func useCluster(t *testing.T) realCluster {
	t.Helper()
	if theCluster.ControlPlane == nil {
		must(t, theCluster.start(context.WithoutCancel(t.Context())))
	}
	return realCluster{&theCluster, t}
}

// namespace makes a namespace for pods, of the test's own.
func (c realCluster) namespace() string {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	must(c.t, c.client.Create(c.t.Context(), ns))
	must(c.t, c.client.Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns.Name}}))
	return ns.Name
}

// define creates a NetworkAttachmentDefinition.
func (c realCluster) define(namespace, name string, config any) {
	c.t.Helper()
	must(c.t, c.client.Create(c.t.Context(), &netv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       netv1.NetworkAttachmentDefinitionSpec{Config: string(encoded(c.t, config))},
	}))
}

// pod creates a pod of a node that selects networks, and returns it with its sandbox.
func (c realCluster) pod(namespace, name, node, networks string) (*corev1.Pod, sandboxOf) {
	c.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{npwg.AnnotationNetworks: networks}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	must(c.t, c.client.Create(c.t.Context(), p))
	return p, sandboxOf{pod: name, args: fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", namespace, name, p.UID)}
}

// status returns the pod's status annotation.
func (c realCluster) status(p *corev1.Pod) (list []map[string]any, err error) {
	if err := c.client.Get(c.t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		return nil, err
	}
	text := p.Annotations[npwg.AnnotationStatus]
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("status annotation %q: %w", text, err)
	}
	return list, nil
}
