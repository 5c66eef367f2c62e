package networks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	networks "github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// within is how long the controller has to take notice.
const within = 10 * time.Second

// network makes a PodNetwork.
func network(t *testing.T, name, provider string, refs ...v1alpha1.ParametersRef) *v1alpha1.PodNetwork {
	t.Helper()
	return fleet.Create(t, kc, &v1alpha1.PodNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PodNetworkSpec{Provider: provider, ParametersRefs: refs},
	})
}

// attachment makes a PodNetworkAttachment of the namespace team, with InterfaceParameters of its
// own if these have a name.
func attachment(t *testing.T, name, network, parameters string) *v1alpha1.PodNetworkAttachment {
	t.Helper()
	o := &v1alpha1.PodNetworkAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, Spec: v1alpha1.PodNetworkAttachmentSpec{PodNetworkName: network},
	}
	if parameters != "" {
		o.Spec.ParametersRefs = []v1alpha1.ParametersRef{{Group: v1alpha1.GroupName, Kind: networks.KindParameters, Name: parameters}}
	}
	return fleet.Create(t, kc, o)
}

func toParameters(name string) v1alpha1.ParametersRef {
	return v1alpha1.ParametersRef{Group: v1alpha1.GroupName, Kind: networks.KindParameters, Namespace: infra, Name: name}
}

func toPool(name string) v1alpha1.ParametersRef {
	return v1alpha1.ParametersRef{Group: v1alpha1.GroupName, Kind: networks.KindPool, Name: name}
}

func toDefinition(name string) v1alpha1.ParametersRef {
	return v1alpha1.ParametersRef{Group: networks.GroupDefinition, Kind: networks.KindDefinition, Namespace: infra, Name: name}
}

// macvlan makes InterfaceParameters; those of a network have a master.
func macvlan(t *testing.T, namespace, name string, master v1alpha1.InterfaceName, mtu int32) *v1alpha1.InterfaceParameters {
	t.Helper()
	return fleet.Create(t, kc, &v1alpha1.InterfaceParameters{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.InterfaceParametersSpec{MTU: mtu, Macvlan: &v1alpha1.MacvlanParameters{Master: master}},
	})
}

// pool makes an IPPool whose addresses may be those of others, too.
func pool(t *testing.T, name string, cidrs ...string) *v1alpha1.IPPool {
	t.Helper()
	o := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name}}
	for _, c := range cidrs {
		o.Spec.Ranges = append(o.Spec.Ranges, v1alpha1.Range{CIDR: c})
	}
	return fleet.Create(t, kc, o)
}

// definition makes a definition of the namespace infra with this IPAM section.
func definition(t *testing.T, name, ipam string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: infra, Name: name},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"bridge","ipam":%s}`, name, ipam)},
	})
}

// pod makes a pod of the namespace team that lists networks. No scheduler sees it.
func pod(t *testing.T, name, list string) *corev1.Pod {
	t.Helper()
	return fleet.Create(t, kc, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Annotations: map[string]string{podnetwork.AnnotationNetworks: list}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	})
}

// end has a pod end, as its kubelet says it.
func end(t *testing.T, p *corev1.Pod, phase corev1.PodPhase) {
	t.Helper()
	before := p.DeepCopy()
	p.Status.Phase = phase
	if err := kc.Status().Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// conditionsOf returns the conditions of a network or an attachment.
func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.PodNetwork:
		return o.Status.Conditions
	case *v1alpha1.PodNetworkAttachment:
		return o.Status.Conditions
	}
	panic(fmt.Sprintf("%T has no conditions", o))
}

// says waits until a network or an attachment has each of these conditions, "Ready=True/Reason",
// of its present spec. "-ParamsReady" is one that it has not. It returns what they say.
func says(t *testing.T, o client.Object, want ...string) (messages string) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		has, all := map[string]bool{}, conditionsOf(o)
		messages = ""
		for _, c := range all {
			if c.ObservedGeneration == o.GetGeneration() || c.Reason == theirs {
				has[fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)] = true
			}
			messages += c.Message + "\n"
		}
		for _, w := range want {
			if absent, ok := strings.CutPrefix(w, "-"); ok && meta.FindStatusCondition(all, absent) != nil || !ok && !has[w] {
				return fmt.Errorf("%T %s says %+v; want %s", o, o.GetName(), all, w)
			}
		}
		return nil
	})
	return messages
}

// theirs is the reason of a condition of another provider.
const theirs = "AsTheySay"

// provide sets ParamsReady, as another provider does.
func provide(t *testing.T, o *v1alpha1.PodNetwork, status metav1.ConditionStatus) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: v1alpha1.NetworkParamsReady, Status: status, Reason: theirs})
		return kc.Status().Update(t.Context(), o)
	})
}

// rendered waits until the definition of that name has a configuration as want says, and returns
// it.
func rendered(t *testing.T, name, want string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	o := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: podnetwork.Namespace, Name: name}}
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Spec.Config != want {
			return fmt.Errorf("definition %s is %s; want %s", name, o.Spec.Config, want)
		}
		return nil
	})
	return o
}
