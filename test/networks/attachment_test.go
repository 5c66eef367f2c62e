package networks_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestAttachment (Q1): an attachment is Ready as its network is.
func TestAttachment(t *testing.T) {
	a := attachment(t, "early", "late", "")
	if text := says(t, a, "Ready=False/PodNetworkNotReady", "InUse=False/Unreferenced", "-ParamsReady"); !strings.Contains(text, "PodNetwork late does not exist") {
		t.Errorf("without its network it says %s", text)
	}
	n := network(t, "late", "")
	says(t, a, "Ready=True/NetworkReady")
	fleet.Edit(t, kc, n, func() { n.Spec.Enabled = new(false) })
	if text := says(t, a, "Ready=False/PodNetworkNotReady"); !strings.Contains(text, "AdministrativelyDisabled") {
		t.Errorf("of a disabled network it says %s", text)
	}
	fleet.Edit(t, kc, n, func() { n.Spec.Enabled = new(true) })
	says(t, a, "Ready=True/NetworkReady")
	erase(t, a)
	erase(t, n)
}

// TestAttachmentOfDefault (Q1): there is none.
func TestAttachmentOfDefault(t *testing.T) {
	o := &v1alpha1.PodNetworkAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "of-default"}, Spec: v1alpha1.PodNetworkAttachmentSpec{PodNetworkName: podnetwork.Default},
	}
	if err := kc.Create(t.Context(), o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "have pods list the PodNetwork itself") {
		t.Errorf("create an attachment of the default network: %v; want it refused", err)
	}
}

// TestAttachmentParameters: an attachment varies how its own interface is made, and not where the
// network leads.
func TestAttachmentParameters(t *testing.T) {
	parameters(t, infra, "base", macvlan("eth1", 1500))
	n := network(t, "base", podnetwork.Provider, toParameters("base"))
	a := attachment(t, "jumbo", n.Name, "jumbo")
	says(t, a, "ParamsReady=False/ParamsMissing", "Ready=False/ParamsNotReady")
	own := parameters(t, team, "jumbo", macvlan("", 9000))
	says(t, a, "ParamsReady=True/ParamsAccepted", "Ready=True/NetworkReady")
	const config = `{"cniVersion":"1.0.0","name":"attachment.team.jumbo","type":"macvlan","master":"eth1","mtu":9000}`
	d := rendered(t, "attachment.team.jumbo", config)
	fleet.Edit(t, kc, d, func() { d.Spec.Config = "{}" })
	d = rendered(t, d.Name, config)
	fleet.Delete(t, kc, own)
	says(t, a, "ParamsReady=False/ParamsMissing")

	parameters(t, team, "elsewhere", macvlan("eth2", 0))
	b := attachment(t, "elsewhere", n.Name, "elsewhere")
	if text := says(t, b, "ParamsReady=False/ParamsInvalid", "Ready=False/ParamsNotReady"); !strings.Contains(text, "spec.macvlan.master is for the PodNetwork to say") {
		t.Errorf("it says %s", text)
	}
	erase(t, a)
	fleet.Gone(t, kc, d, within)
	fleet.Delete(t, kc, b)
	erase(t, n)
}

// TestAttachmentWithoutItsFinalizer (Q3): whoever takes the finalizer off a deleted attachment
// leaves no definition behind, and none is made again while something else keeps the attachment.
func TestAttachmentWithoutItsFinalizer(t *testing.T) {
	const other = "example.org/other"
	parameters(t, infra, "kept", macvlan("eth1", 1500))
	n := network(t, "kept", podnetwork.Provider, toParameters("kept"))
	parameters(t, team, "kept", macvlan("", 1400))
	a := attachment(t, "kept", n.Name, "kept")
	says(t, a, "Ready=True/NetworkReady")
	d := rendered(t, "attachment.team.kept", `{"cniVersion":"1.0.0","name":"attachment.team.kept","type":"macvlan","master":"eth1","mtu":1400}`)
	fleet.Edit(t, kc, a, func() { a.Finalizers = append(a.Finalizers, other) })
	fleet.Delete(t, kc, a)
	fleet.Gone(t, kc, d, within)
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil || len(a.Finalizers) != 1 {
			return fmt.Errorf("finalizers %q, %w; want that of somebody else", a.Finalizers, err)
		}
		return nil
	})
	fleet.Edit(t, kc, a, func() { a.Annotations = map[string]string{"look": "again"} })
	fleet.Edit(t, kc, a, func() { a.Finalizers = nil })
	fleet.Gone(t, kc, a, within)
	fleet.Gone(t, kc, d, within)

	b := attachment(t, "forced", n.Name, "kept")
	d = rendered(t, "attachment.team.forced", `{"cniVersion":"1.0.0","name":"attachment.team.forced","type":"macvlan","master":"eth1","mtu":1400}`)
	p := fleet.Create(t, kc, listing(team, `[{"podNetworkAttachmentName":"forced"}]`))
	says(t, b, "InUse=True/Referenced")
	fleet.Delete(t, kc, b)
	fleet.Edit(t, kc, b, func() { b.Finalizers = nil })
	fleet.Gone(t, kc, b, within)
	fleet.Gone(t, kc, d, within)
	fleet.Delete(t, kc, p)
	erase(t, n)
}

// TestAttachmentDeletionWaits (Q3, Q4): a deleted attachment stays while one of the pods that
// refer to it has not ended. Its network waits for it.
func TestAttachmentDeletionWaits(t *testing.T) {
	n := network(t, "of-attachment", "")
	a := attachment(t, "shared", n.Name, "")
	const list = `[{"podNetworkAttachmentName":"shared"}]`
	p, q := fleet.Create(t, kc, listing(team, list)), fleet.Create(t, kc, listing(team, list))
	says(t, a, "InUse=True/Referenced")
	fleet.Delete(t, kc, n)
	says(t, a, "Ready=False/PodNetworkNotReady")
	fleet.Delete(t, kc, a)
	says(t, a, "Ready=False/Deleting")
	end(t, p, corev1.PodFailed)
	says(t, a, "InUse=True/Referenced")
	says(t, n, "InUse=True/Referenced")
	fleet.Delete(t, kc, q)
	fleet.Gone(t, kc, a, within)
	fleet.Gone(t, kc, n, within)
	fleet.Delete(t, kc, p)
}
