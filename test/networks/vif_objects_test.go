package networks_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// within is how long the controller has to take notice.
const within = 10 * time.Second

// pool makes an IPPool of a domain of its own with a gateway in each range.
func pool(t *testing.T, cidrs ...string) string {
	t.Helper()
	name := fleet.Unique("pool")
	o := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Domain: name}}
	for _, c := range cidrs {
		o.Spec.Ranges = append(o.Spec.Ranges, v1alpha1.Range{CIDR: c, Gateway: gatewayOf(c)})
	}
	fleet.Create(t, kc, o)
	return name
}

// gatewayOf returns the first address of a range that ends in 0 or in ::.
func gatewayOf(cidr string) string {
	network, _, _ := strings.Cut(cidr, "/")
	return strings.TrimSuffix(network, "0") + "1"
}

// inline is an annotation of the pool, with macvlan inline.
func inline(pool string) string {
	return fmt.Sprintf(`{"pool": %q, "interfaceParameters": {"macvlan": {"master": "eth1"}, "mtu": 1400}}`, pool)
}

// definition makes a definition without a configuration, with this annotation.
func definition(t *testing.T, namespace, key, text string, more ...string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	o := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.Unique("net"), Annotations: map[string]string{key: text}}}
	for i := 0; i < len(more); i += 2 {
		o.Annotations[more[i]] = more[i+1]
	}
	return fleet.Create(t, kc, o)
}

// lan makes a definition of the team's, of a pool of its own.
func lan(t *testing.T) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return definition(t, team, vif.AnnotationNetwork, inline(pool(t, "10.0.0.0/24")))
}

// made returns what is made of a definition, which may not be there.
func made(o *nad.NetworkAttachmentDefinition) *nad.NetworkAttachmentDefinition {
	return &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: podnetwork.Namespace, Name: vif.DefinitionName(o.Namespace, o.Name)}}
}

// rendered waits until what is made of a definition has a configuration with these words.
func rendered(t *testing.T, of *nad.NetworkAttachmentDefinition, words string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	o := made(of)
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !strings.Contains(o.Spec.Config, words) {
			return fmt.Errorf("what is made of %s is %s; want %s in it", of.Name, o.Spec.Config, words)
		}
		return nil
	})
	return o
}

// newPod returns a pod of the team that selects networks. No scheduler sees it.
func newPod(list string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: fleet.Unique("pod"), Annotations: map[string]string{npwg.AnnotationNetworks: list}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

func pod(t *testing.T, list string) *corev1.Pod {
	t.Helper()
	return fleet.Create(t, kc, newPod(list))
}

// mapped waits until a pod has a map of these interfaces, and returns it.
func mapped(t *testing.T, p *corev1.Pod, names ...string) vif.Map {
	t.Helper()
	var m vif.Map
	fleet.Eventually(t, within, func() (err error) {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if m, err = vif.ParseMap(p.Annotations[vif.AnnotationMap]); err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(m)); !slices.Equal(got, names) {
			return fmt.Errorf("pod %s has a map of %q; want %q", p.Name, got, names)
		}
		return nil
	})
	return m
}

// claimsOf returns the claims that are made for a pod.
func claimsOf(t *testing.T, p *corev1.Pod) []ipamclaims.IPAMClaim {
	t.Helper()
	var list ipamclaims.IPAMClaimList
	if err := kc.List(t.Context(), &list, client.InNamespace(p.Namespace), client.MatchingLabels{vif.LabelClaim: string(p.UID)}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// said waits until there is a warning of that reason about an object, with these words, and checks
// that it is the only Event of that reason.
func said(t *testing.T, o client.Object, reason, words string) {
	t.Helper()
	if e := fleet.Event(t, kc, o, reason, words); e.Type != corev1.EventTypeWarning {
		t.Errorf("the Event %s is %s; want a warning", reason, e.Type)
	}
	var list eventsv1.EventList
	if err := kc.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.UID == o.GetUID() && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	if len(notes) != 1 {
		t.Errorf("%T %s has the Events %s %q; want one", o, o.GetName(), reason, notes)
	}
}

// none checks that a pod has no claims and no map.
func none(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if c := claimsOf(t, p); len(c) > 0 {
		t.Errorf("pod %s has %d claims; want none", p.Name, len(c))
	}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if text, ok := p.Annotations[vif.AnnotationMap]; ok {
		t.Errorf("pod %s has the map %s; want none", p.Name, text)
	}
}
