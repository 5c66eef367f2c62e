package networks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	networks "github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// within is how long the controller has to take notice, minute what bounds all other waits.
const within, minute = 10 * time.Second, time.Minute

// create creates an object, and deletes it when the test ends.
func create[O client.Object](t *testing.T, o O) O {
	t.Helper()
	fleet.Create(t, kc, o)
	t.Cleanup(func() { remove(t, o) })
	return o
}

// remove deletes an object at once, if it is there.
func remove(t *testing.T, o client.Object) {
	t.Helper()
	switch o.(type) {
	case *v1alpha1.IPLease, *v1alpha1.IPSubLease:
		confirmDeletion(t, o)
	}
	if err := kc.Delete(context.Background(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// confirmDeletion says of a lease or a sub-lease, if it is there, that it is to be deleted
// by hand, as the policy wants it.
func confirmDeletion(t *testing.T, o client.Object) {
	t.Helper()
	const confirmed = `{"metadata":{"annotations":{"tenure.dev/deletion":"confirmed"}}}`
	if err := kc.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(confirmed))); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// erase deletes an object, and waits until it is gone.
func erase(t *testing.T, o client.Object) {
	t.Helper()
	fleet.Delete(t, kc, o)
	fleet.Gone(t, kc, o, within)
}

// refusal returns an error unless err is a refusal that says every one of words.
func refusal(err error, words ...string) error {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("%v; want it refused", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("%w; want it to say %q", err, w)
		}
	}
	return nil
}

// refused fails the test unless err is a refusal that says every one of words.
func refused(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err := refusal(err, words...); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// namespace makes a namespace in which pods can be made.
func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ns := fleet.Create(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Unique("ns"), Labels: labels}})
	fleet.Create(t, kc, serviceAccount(ns.Name))
	t.Cleanup(func() {
		if err := kc.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(ns.Name), client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// serviceAccount returns the one that pods of a namespace need. No controller makes it.
func serviceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
}

// podWith returns a pod with an annotation, unless that is empty. No scheduler sees it.
func podWith(namespace, key, list string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.Unique("pod"), Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if list != "" {
		p.Annotations[key] = list
	}
	return p
}

// listing returns a pod with a list of PodNetworks.
func listing(namespace, list string) *corev1.Pod {
	return podWith(namespace, podnetwork.AnnotationNetworks, list)
}

// lists returns a list of networks.
func lists(names ...string) string {
	var elements []string
	for _, name := range names {
		elements = append(elements, fmt.Sprintf(`{"podNetworkName": %q}`, name))
	}
	return "[" + strings.Join(elements, ", ") + "]"
}

// selecting returns a pod of the team's that selects definitions.
func selecting(list string) *corev1.Pod { return podWith(team, npwg.AnnotationNetworks, list) }

// network makes a PodNetwork.
func network(t *testing.T, name, provider string, refs ...v1alpha1.ParametersRef) *v1alpha1.PodNetwork {
	t.Helper()
	return fleet.Create(t, kc, &v1alpha1.PodNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PodNetworkSpec{Provider: provider, ParametersRefs: refs},
	})
}

// foreign makes a PodNetwork of another provider, which is Ready once that says so.
func foreign(t *testing.T, name string) *v1alpha1.PodNetwork {
	t.Helper()
	return network(t, name, "foo.io/bar", v1alpha1.ParametersRef{Group: "foo.io", Kind: "Params", Name: "x"})
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

// parameters makes InterfaceParameters.
func parameters(t *testing.T, namespace, name string, spec v1alpha1.InterfaceParametersSpec) *v1alpha1.InterfaceParameters {
	t.Helper()
	return fleet.Create(t, kc, &v1alpha1.InterfaceParameters{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
}

// macvlan is what InterfaceParameters say; those of a network have a master.
func macvlan(master v1alpha1.InterfaceName, mtu int32) v1alpha1.InterfaceParametersSpec {
	return v1alpha1.InterfaceParametersSpec{MTU: mtu, Macvlan: &v1alpha1.MacvlanParameters{Master: master}}
}

// pool makes an IPPool, whose addresses may be those of others, too. Each range has a gateway.
func pool(t *testing.T, name string, cidrs ...string) *v1alpha1.IPPool {
	t.Helper()
	o := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name}}
	for _, c := range cidrs {
		o.Spec.Ranges = append(o.Spec.Ranges, v1alpha1.Range{CIDR: c, Gateway: gatewayOf(c)})
	}
	return fleet.Create(t, kc, o)
}

// gatewayOf returns the first address of a range that ends in 0 or in ::.
func gatewayOf(cidr string) string {
	network, _, _ := strings.Cut(cidr, "/")
	return strings.TrimSuffix(network, "0") + "1"
}

// define makes a definition, and deletes it when the test ends.
func define(t *testing.T, namespace, name, config string, annotations map[string]string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return create(t, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: config},
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

// rendered waits until the definition of that name in Tenure's namespace has a configuration that
// is want, and returns it.
func rendered(t *testing.T, name, want string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return awaitConfig(t, name, want, func(got, want string) bool { return got == want })
}

// awaitConfig waits until the definition of that name in Tenure's namespace has a configuration
// that is good, compared with want, and returns it.
func awaitConfig(t *testing.T, name, want string, good func(got, want string) bool) *nad.NetworkAttachmentDefinition {
	t.Helper()
	o := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: podnetwork.Namespace, Name: name}}
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !good(o.Spec.Config, want) {
			return fmt.Errorf("definition %s is %s; want %s", name, o.Spec.Config, want)
		}
		return nil
	})
	return o
}
