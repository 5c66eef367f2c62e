package security_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestNetworksOfOthers: whatever alice's pods name, they are not attached to the networks
// of other namespaces. The pods are hers, agent and tenure-attach are real.
func TestNetworksOfOthers(t *testing.T) {
	ctx := context.Background()
	rc, err := cp.AddUser("alice")
	if err != nil {
		t.Fatal(err)
	}
	i := newIntruder(t, "who may edit a namespace", rc)
	for namespace, names := range map[string]map[string]string{
		"team-a": {"hers": `{}`},
		"team-b": {"theirs": `{}`, "for-c": `{tenure.dev/namespaces: team-c}`, "selects": `{tenure.dev/namespace-selector: "team=b"}`},
	} {
		for name, annotations := range names {
			text := fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: %[1]s, namespace: %[2]s, annotations: %[3]s},
			  spec: {config: '{"cniVersion":"1.0.0","name":"%[2]s-%[1]s","type":"%[4]s"}'}}`, name, namespace, annotations, fleet.Delegate)
			if err := kc.Create(ctx, parse(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime := fleet.NewRuntime(t, fleet.New(t, boundTo(t, "tenured", podOn(t, system, "tenured-n", "node-n", "tenured"))).Start("node-n"))
	// attach has her create a pod with an annotation, and what a runtime does then.
	attach := func(pod, annotation, value string) error {
		p := &corev1.Pod{}
		fleet.Eventually(t, 20*time.Second, func() error { // the roles are aggregated some moments after they are there
			return i.create(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: team-a, annotations: {%s: '%s'}},
			  spec: {nodeName: node-n, automountServiceAccountToken: false, containers: [{name: c, image: none}]}}`, pod, annotation, value))
		})
		if err := kc.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: pod}, p); err != nil {
			return fmt.Errorf("the test is wrong: %w", err)
		}
		if said, err := runtime.Call("ADD", pod, p); err != nil {
			return errors.New(said)
		}
		return nil
	}
	i.mayDo(t, []attempt{{"use a network of her own", func() error { return attach("n0", npwg.AnnotationNetworks, "hers") }, ""}})
	const isolated = "namespaces are isolated"
	i.breakIn(t, []attempt{
		{"a pod on another namespace's network", func() error { return attach("n1", npwg.AnnotationNetworks, "team-b/theirs") }, "team-b/theirs: " + isolated},
		{"and after one of her own", func() error {
			return attach("n2", npwg.AnnotationNetworks, `[{"name": "hers"}, {"name": "theirs", "namespace": "team-b"}]`)
		}, isolated},
		{"as her pod's default network", func() error { return attach("n3", npwg.AnnotationDefaultNetwork, "team-b/theirs") }, isolated},
		{"one that is open to others by name", func() error { return attach("n4", npwg.AnnotationNetworks, "team-b/for-c") }, "does not let pods of namespace team-a"},
		{"one that is open to others by label", func() error { return attach("n5", npwg.AnnotationNetworks, "team-b/selects") }, "does not let pods of namespace team-a"},
		{"open it to herself", func() error {
			return i.patch(named("NetworkAttachmentDefinition", "team-b", "theirs"), `{metadata: {annotations: {tenure.dev/namespaces: team-a}}}`)
		}, "cannot patch resource \"network-attachment-definitions\""},
	})
}
