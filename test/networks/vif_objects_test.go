package networks_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// newPool makes an IPPool, and returns its name.
func newPool(t *testing.T, cidrs ...string) string {
	t.Helper()
	return pool(t, fleet.Unique("pool"), cidrs...).Name
}

// inline is an annotation of the pool, with macvlan inline.
func inline(pool string) string {
	return fmt.Sprintf(`{"pool": %q, "interfaceParameters": {"macvlan": {"master": "eth1"}, "mtu": 1400}}`, pool)
}

// definition makes a definition without a configuration, with this annotation and more.
func definition(t *testing.T, namespace, key, text string, more ...string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	annotations := map[string]string{key: text}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	return define(t, namespace, fleet.Unique("net"), "", annotations)
}

// lan makes a definition of the team's, of a pool of its own.
func lan(t *testing.T) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return definition(t, team, vif.AnnotationNetwork, inline(newPool(t, "10.0.0.0/24")))
}

// made returns what is made of a definition, which may not be there.
func made(o *nad.NetworkAttachmentDefinition) *nad.NetworkAttachmentDefinition {
	return &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: podnetwork.Namespace, Name: vif.DefinitionName(o.Namespace, o.Name)}}
}

// renders waits until what is made of a definition has a configuration with these words.
func renders(t *testing.T, of *nad.NetworkAttachmentDefinition, words string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return awaitConfig(t, made(of).Name, words, strings.Contains)
}

// pod makes a pod of the team's that selects definitions.
func pod(t *testing.T, list string) *corev1.Pod {
	t.Helper()
	return create(t, selecting(list))
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
