package attach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	netv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/npwg"
	"github.com/tenure-ipam/tenure/ipam/cluster"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestN14N47N75RealAgent has the agent itself answer, over a real API server: the
// pod's annotation and definitions come from there, and its status goes there; a
// DEL needs none of them.
func TestN14N47N75RealAgent(t *testing.T) {
	ctx := t.Context()
	cp, err := controlplane.Start(ctx, controlplane.Options{CRDs: []string{"../../deploy/crds", "../../deploy/crds/upstream"}})
	must(t, err)
	t.Cleanup(func() { must(t, cp.Stop()) })
	_, kc, err := cluster.Dial(cp.Config())
	must(t, err)
	n := newNode(t)
	text := string(encoded(t, n.recorder("net-a", map[string]any{"ips": []string{"10.7.0.1/24"}})))
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultSeatNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		&netv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Spec: netv1.NetworkAttachmentDefinitionSpec{Config: text}},
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Annotations: map[string]string{npwg.AnnotationNetworks: "a,a"}},
		Spec:       corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, o := range append(objects, p) {
		must(t, kc.Create(ctx, o))
	}
	agent := fleet.New(t, cp.Config()).Start("worker")
	n.config["socket"] = agent.Socket()
	s := pod("p")
	s.args = fmt.Sprintf("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=%s", p.UID)
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD net-a net1", "ADD net-a net2")
	fleet.Eventually(t, waitLimit, func() error { return statusHas(ctx, kc, p, []string{"default", "ns/a", "ns/a"}) })

	must(t, kc.Delete(ctx, p, client.GracePeriodSeconds(0)))
	agent.Stop()
	n.ok("DEL", s)
	n.called("DEL net-a net2", "DEL net-a net1", "DEL default eth0")
	n.clean()
}

// statusHas returns why the pod's status annotation does not have these networks.
func statusHas(ctx context.Context, kc client.Client, p *corev1.Pod, want []string) error {
	if err := kc.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	var list []struct{ Name string }
	text := p.Annotations[netv1.NetworkStatusAnnot]
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fmt.Errorf("status annotation %q: %w", text, err)
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		return fmt.Errorf("status of %v; want %v", names, want)
	}
	return nil
}
