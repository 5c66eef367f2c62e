package networks_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	networks "github.com/tenure-ipam/tenure/attach/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestOfAnotherProvider (P1, P2, P3, P4, P5, P6, P7, P11): a network of another provider goes
// through its phases. Its ParamsReady is that provider's word, and nothing of it is said of a
// node.
func TestOfAnotherProvider(t *testing.T) {
	n := foreign(t, "theirs")
	if n.Spec.Enabled == nil || !*n.Spec.Enabled {
		t.Errorf("enabled is %v; want true, where it is left out", n.Spec.Enabled)
	}
	says(t, n, "Ready=False/ParamsNotReady", "InUse=False/Unreferenced", "-ParamsReady")
	provide(t, n, metav1.ConditionTrue)
	says(t, n, "ParamsReady=True/"+theirs, "Ready=True/NetworkReady")
	p := fleet.Create(t, kc, listing(team, lists("theirs")))
	says(t, n, "InUse=True/Referenced", "Ready=True/NetworkReady")
	fleet.Edit(t, kc, n, func() { n.Spec.Enabled = new(false) })
	says(t, n, "Ready=False/AdministrativelyDisabled", "ParamsReady=True/"+theirs, "InUse=True/Referenced")
	provide(t, n, metav1.ConditionFalse)
	fleet.Edit(t, kc, n, func() { n.Spec.Enabled = new(true) })
	says(t, n, "Ready=False/ParamsNotReady", "ParamsReady=False/"+theirs)
	fleet.Delete(t, kc, p)
	says(t, n, "InUse=False/Unreferenced")
	erase(t, n)
}

// TestDisabled (P8): a disabled network takes no new pod, and leaves those that it has.
func TestDisabled(t *testing.T) {
	n := network(t, "disabled", "")
	says(t, n, "Ready=True/NetworkReady", "-ParamsReady")
	p := fleet.Create(t, kc, listing(team, lists("disabled")))
	says(t, n, "InUse=True/Referenced")
	fleet.Edit(t, kc, n, func() { n.Spec.Enabled = new(false) })
	says(t, n, "Ready=False/AdministrativelyDisabled", "InUse=True/Referenced")
	if networks.Of(n, access.Rule{}).Enabled {
		t.Error("new pods may have it")
	}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pod that has it: deleted at %v, %v", p.DeletionTimestamp, err)
	}
	fleet.Delete(t, kc, p)
	erase(t, n)
}

// TestImmutable (P10, Q2): only whether a network is enabled, and who may use it, can be changed;
// nothing of an attachment.
func TestImmutable(t *testing.T) {
	n := network(t, "immutable", api.Provider, toDefinition("none"))
	a := attachment(t, "immutable", n.Name, "")
	for what, change := range map[string]func(){
		"provider":       func() { n.Spec.Provider = "foo.io/bar" },
		"no provider":    func() { n.Spec.Provider = "" },
		"parametersRefs": func() { n.Spec.ParametersRefs[0].Name = "other" },
		"no parameters":  func() { n.Spec.ParametersRefs = nil },
	} {
		if err := fleet.TryEdit(t, kc, n, change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s: %v; want it refused as immutable", what, err)
		}
	}
	fleet.Edit(t, kc, n, func() {
		n.Spec.Enabled, n.Spec.Access = new(false), v1alpha1.AccessRBAC
		n.Spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"a": "b"}}
	})
	if err := fleet.TryEdit(t, kc, a, func() { a.Spec.PodNetworkName = "other" }); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is immutable") {
		t.Errorf("the network of an attachment: %v; want it refused as immutable", err)
	}
	fleet.Delete(t, kc, a)
	erase(t, n)
}

// TestDeletionWaits (P9): a deleted network stays while a pod that has not ended, or an
// attachment, refers to it.
func TestDeletionWaits(t *testing.T) {
	n := network(t, "waits", "")
	a := attachment(t, "waits", n.Name, "")
	p := fleet.Create(t, kc, listing(team, lists("waits")))
	says(t, n, "InUse=True/Referenced")
	says(t, a, "Ready=True/NetworkReady")
	fleet.Delete(t, kc, n)
	erase(t, a)
	says(t, n, "InUse=True/Referenced", "Ready=False/Deleting") // the pod is left
	end(t, p, corev1.PodSucceeded)
	fleet.Gone(t, kc, n, within)

	n = network(t, "waits", "")
	a = attachment(t, "waits", n.Name, "")
	says(t, n, "InUse=True/Referenced") // the attachment alone
	fleet.Delete(t, kc, n)
	says(t, n, "InUse=True/Referenced")
	fleet.Delete(t, kc, a)
	fleet.Gone(t, kc, n, within)
	fleet.Delete(t, kc, p)
}

// TestDefinitions (P12, P13): of parameters, and a pool if there is one, a definition is made, and
// kept as it should be. Two networks may have the same addresses.
func TestDefinitions(t *testing.T) {
	one := network(t, "one", api.Provider, toParameters("one"), toPool("one"))
	if text := says(t, one, "ParamsReady=False/ParamsMissing", "Ready=False/ParamsNotReady"); !strings.Contains(text, "InterfaceParameters infra/one does not exist") {
		t.Errorf("it says %s", text)
	}
	parameters(t, infra, "one", macvlan("eth1", 1400))
	says(t, one, "ParamsReady=False/ParamsMissing")
	pools := []client.Object{pool(t, "one", "10.7.0.0/24", "fd00:7::/64"), pool(t, "two", "10.7.0.0/24")}
	says(t, one, "ParamsReady=True/ParamsAccepted", "Ready=True/NetworkReady")
	two := network(t, "two", api.Provider, toParameters("one"), toPool("two"))
	flat := network(t, "flat", api.Provider, toParameters("one"))
	for _, n := range []*v1alpha1.PodNetwork{one, two, flat} {
		says(t, n, "Ready=True/NetworkReady")
	}
	const config = `{"cniVersion":"1.0.0","name":"podnetwork.one","type":"macvlan","master":"eth1","mtu":1400,"ipam":{"type":"tenure","pool":"one"}}`
	d := rendered(t, "podnetwork.one", config)
	rendered(t, "podnetwork.two", strings.NewReplacer(`.one"`, `.two"`, `"one"`, `"two"`).Replace(config))
	rendered(t, "podnetwork.flat", `{"cniVersion":"1.0.0","name":"podnetwork.flat","type":"macvlan","master":"eth1","mtu":1400}`)
	fleet.Edit(t, kc, d, func() { d.Spec.Config = "{}" })
	d = rendered(t, d.Name, config)
	fleet.Edit(t, kc, d, func() { d.Labels, d.Annotations = nil, nil })
	d = rendered(t, d.Name, config)
	fleet.Delete(t, kc, d)
	d = rendered(t, d.Name, config)
	if v, ok := d.Annotations["tenure.dev/namespaces"]; !ok || v != "" {
		t.Errorf("its annotations are %v: pods could select it", d.Annotations)
	}
	for _, n := range []*v1alpha1.PodNetwork{one, two, flat} {
		erase(t, n)
	}
	fleet.Gone(t, kc, d, within)
	for _, p := range pools {
		fleet.Delete(t, kc, p)
	}
}

// TestParametersOfNetworks (P13): what a network cannot have is said, and the network is Ready
// when it is mended.
func TestParametersOfNetworks(t *testing.T) {
	d := define(t, infra, "two-pools", `{"cniVersion":"1.0.0","name":"two-pools","type":"bridge","ipam":{"type":"tenure","pools":["four","also-four"]}}`, nil)
	n := network(t, "of-definition", api.Provider, toDefinition("two-pools"))
	if text := says(t, n, "ParamsReady=False/ParamsMissing"); !strings.Contains(text, "IPPool four does not exist") {
		t.Errorf("without its pools it says %s", text)
	}
	four, also := pool(t, "four", "10.8.0.0/24"), pool(t, "also-four", "10.9.0.0/24")
	if text := says(t, n, "ParamsReady=False/ParamsInvalid", "Ready=False/ParamsNotReady"); !strings.Contains(text, "gives an interface 2 IPv4 addresses") {
		t.Errorf("with two pools it says %s", text)
	}
	fleet.Edit(t, kc, d, func() { d.Spec.Config = strings.ReplaceAll(d.Spec.Config, `,"also-four"`, "") })
	says(t, n, "ParamsReady=True/ParamsAccepted", "Ready=True/NetworkReady")

	fleet.Delete(t, kc, four)
	says(t, n, "ParamsReady=False/ParamsMissing")
	fleet.Delete(t, kc, also)
	erase(t, n)
}

// TestDefinitionOfAnother: a definition that stands where one would be made, and is somebody
// else's, is left alone.
func TestDefinitionOfAnother(t *testing.T) {
	parameters(t, infra, "taken", macvlan("eth1", 0))
	d := define(t, api.Namespace, "podnetwork.taken", `{"type":"bridge"}`, nil)
	n := network(t, "taken", api.Provider, toParameters("taken"))
	if text := says(t, n, "ParamsReady=False/ParamsInvalid"); !strings.Contains(text, "tenure-system/podnetwork.taken") {
		t.Errorf("it says %s", text)
	}
	rendered(t, d.Name, d.Spec.Config)
	fleet.Delete(t, kc, d)
	rendered(t, d.Name, `{"cniVersion":"1.0.0","name":"podnetwork.taken","type":"macvlan","master":"eth1"}`)
	says(t, n, "Ready=True/NetworkReady")
	erase(t, n)
}

// blind is a cache that has not seen yet what refers to networks.
type blind struct{ client.Reader }

func (blind) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestLiveLook (P9, Q3): no finalizer is taken off by the cache's word alone.
func TestLiveLook(t *testing.T) {
	n := network(t, "unseen", "")
	a := attachment(t, "unseen", n.Name, "")
	p := fleet.Create(t, kc, listing(team, `[{"podNetworkName":"unseen"},{"podNetworkAttachmentName":"unseen"}]`))
	says(t, n, "InUse=True/Referenced")
	says(t, a, "InUse=True/Referenced")
	fleet.Delete(t, kc, a)
	fleet.Delete(t, kc, n)
	shared := &podnetworks.Cluster{Cache: blind{kc}, Live: kc, Log: slog.New(slog.DiscardHandler)}
	waits := func(r reconcile.Reconciler, o client.Object) {
		t.Helper()
		res, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		if err != nil || res.RequeueAfter == 0 {
			t.Errorf("%s: %+v, %v; want it looked at again", o.GetName(), res, err)
		}
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || len(o.GetFinalizers()) == 0 {
			t.Errorf("%s has the finalizers %q, %v", o.GetName(), o.GetFinalizers(), err)
		}
	}
	waits(&podnetworks.Networks{Cluster: shared}, n)
	waits(&podnetworks.Attachments{Cluster: shared}, a)
	end(t, p, corev1.PodSucceeded)
	fleet.Gone(t, kc, a, within)
	fleet.Gone(t, kc, n, within)
	fleet.Delete(t, kc, p)
}

// TestFewWrites (P9): pods that come and go write nothing, while another one is there.
func TestFewWrites(t *testing.T) {
	n := network(t, "busy", "")
	first := fleet.Create(t, kc, listing(team, lists("busy")))
	says(t, n, "InUse=True/Referenced", "Ready=True/NetworkReady")
	revision := n.ResourceVersion
	for range 20 {
		fleet.Delete(t, kc, fleet.Create(t, kc, listing(team, lists("busy"))))
	}
	if says(t, n, "InUse=True/Referenced"); n.ResourceVersion != revision {
		t.Errorf("the network was written meanwhile: %+v", n.Status.Conditions)
	}
	fleet.Delete(t, kc, first)
	says(t, n, "InUse=False/Unreferenced")
	erase(t, n)
}

// TestNodesServe (W1): a node whose agent says that it does not attach pods is named on the
// networks of Tenure's provider, which are Ready all the same.
func TestNodesServe(t *testing.T) {
	parameters(t, infra, "served", macvlan("eth1", 0))
	n := network(t, "served", api.Provider, toParameters("served"))
	other := network(t, "served-by-others", "foo.io/bar")
	says(t, n, "Ready=True/NetworkReady", "NodesServe=True/NodesServe")
	agents := kube.NewAPI(kc)
	why := "its agent lacks the flag"
	agents.Unserved = func() string { return why }
	if _, _, err := agents.CreateRegistration(t.Context(), protocol.Registration{Node: "unserved", NodeUID: "n", Store: "s", Machine: "m", Boot: "b"}); err != nil {
		t.Fatal(err)
	}
	if text := says(t, n, "Ready=True/NetworkReady", "NodesServe=False/NodesDoNotServe"); !strings.Contains(text, "unserved (its agent lacks the flag)") {
		t.Errorf("it says %q", text)
	}
	says(t, other, "Ready=True/NetworkReady", "-NodesServe")
	why = ""
	fleet.Amend(t, agents, "unserved", func(*protocol.Registration) {}) // what it says is written with it
	says(t, n, "NodesServe=True/NodesServe")
}
