package networks_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

func theDefault() *v1alpha1.PodNetwork {
	return &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: podnetwork.Default}}
}

// asController returns a client that has the controller's name, and all rights.
func asController(t *testing.T) client.Client {
	t.Helper()
	rc, err := cp.AddUser("system:serviceaccount:tenure-system:tenure-controller", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	opts, err := kube.ClientOptions(rc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDefault (FD1, FD2, FD5): the default network is there, nobody deletes it, and if it is gone
// all the same it is made again. It is not Ready if its ParamsReady is False.
func TestDefault(t *testing.T) {
	n := theDefault()
	says(t, n, "Ready=True/NetworkReady", "InUse=False/Unreferenced", "-ParamsReady")
	fleet.Eventually(t, within, func() error {
		err := kc.Delete(t.Context(), theDefault(), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "without --multi-network, or with --default-pod-network=false") {
			return fmt.Errorf("its deletion: %w; want it refused", err)
		}
		return nil
	})
	provide(t, n, metav1.ConditionFalse)
	says(t, n, "Ready=False/ParamsNotReady", "ParamsReady=False/"+theirs)

	was := n.UID
	if err := asController(t).Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	again(t, was)
	says(t, n, "Ready=True/NetworkReady", "-ParamsReady")
}

// again waits until there is another default network than that of this UID.
func again(t *testing.T, was types.UID) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		n := theDefault()
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
		if n.UID == was || n.DeletionTimestamp != nil {
			return fmt.Errorf("it is the one of before")
		}
		return nil
	})
}

// TestWithoutDefault (FD1, FD3): a controller that does not keep the default network lets it go,
// and tells that it is not there.
func TestWithoutDefault(t *testing.T) {
	n := theDefault()
	says(t, n, "Ready=True/NetworkReady")
	restart(t, func(c *controller.Config) { c.DefaultPodNetwork = false })
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
		if _, kept := n.Annotations[podnetwork.AnnotationKept]; kept {
			return fmt.Errorf("annotations %v", n.Annotations)
		}
		return nil
	})
	erase(t, n)
	fleet.Event(t, kc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: podnetwork.Namespace}}, podnetworks.ReasonNoDefault, "Default PodNetwork not found")
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(n), n); !apierrors.IsNotFound(err) {
		t.Errorf("the default network: %v; want none", err)
	}
}

// TestTurnedOff (W7): a controller that serves no PodNetworks takes off what a controller that did
// has left, so that nothing hangs.
func TestTurnedOff(t *testing.T) {
	says(t, theDefault(), "Ready=True/NetworkReady")
	parameters(t, infra, "off", macvlan("eth1", 0))
	parameters(t, team, "off", macvlan("", 1400))
	n := network(t, "off", podnetwork.Provider, toParameters("off"))
	a := attachment(t, "off", n.Name, "off")
	p := fleet.Create(t, kc, listing(team, lists("off")))
	says(t, n, "InUse=True/Referenced")
	says(t, a, "Ready=True/NetworkReady")
	d := rendered(t, "attachment.team.off", `{"cniVersion":"1.0.0","name":"attachment.team.off","type":"macvlan","master":"eth1","mtu":1400}`)
	deleted := network(t, "deleted", "")
	q := fleet.Create(t, kc, listing(team, lists("deleted")))
	says(t, deleted, "InUse=True/Referenced")
	fleet.Delete(t, kc, deleted)

	restart(t, func(c *controller.Config) { c.MultiNetwork = false })
	fleet.Gone(t, kc, deleted, within)
	fleet.Gone(t, kc, d, within)
	for _, o := range []client.Object{n, a, theDefault()} {
		fleet.Eventually(t, within, func() error {
			if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if len(o.GetFinalizers())+len(o.GetAnnotations()) > 0 {
				return fmt.Errorf("%s has finalizers %q and annotations %v", o.GetName(), o.GetFinalizers(), o.GetAnnotations())
			}
			return nil
		})
		erase(t, o)
	}
	fleet.Delete(t, kc, p)
	fleet.Delete(t, kc, q)
}

// TestControllerIsHeld: policies hold the controller to what it has to write.
func TestControllerIsHeld(t *testing.T) {
	c := asController(t)
	n := network(t, "held", "")
	says(t, n, "Ready=True/NetworkReady")
	before := n.DeepCopy()
	n.Spec.Enabled = new(false)
	refused(t, "it disables a network", c.Patch(t.Context(), n, client.MergeFrom(before)), "does not change what a PodNetwork")
	another := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: "its-own"}}
	refused(t, "it makes a network", c.Create(t.Context(), another), "makes the PodNetwork default, and no other")
	d := define(t, infra, "held", `{}`, nil)
	refused(t, "it deletes a definition of others", as.Delete(t.Context(), d), "forbidden")
	refused(t, "it deletes a network", as.Delete(t.Context(), n), "forbidden")
	erase(t, n)
}
