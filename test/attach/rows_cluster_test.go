package attach_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	netv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

// manifest creates what text says in a namespace.
func (c realCluster) manifest(namespace, text string) {
	c.t.Helper()
	var o unstructured.Unstructured
	must(c.t, yaml.Unmarshal([]byte(text), &o.Object))
	o.SetNamespace(namespace)
	must(c.t, c.client.Create(c.t.Context(), &o))
}

// TestDefinitionsOfEveryForm (N1, N2, N3, N4, N5) has the API server take the four examples of
// section 3.2, and the plugin attach a pod to each: what has no configuration of its own is on the
// node's disk, and nothing is written into its definition.
func TestDefinitionsOfEveryForm(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	ns := c.namespace()
	log := n.path("log")
	head := func(name string) string {
		return "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  name: " + name + "\n"
	}
	for _, text := range []string{
		head("single") + fmt.Sprintf(`spec: {config: '{"cniVersion":"0.3.0","name":"a-bridge-network","type":"recorder","recorder":{"log":%q}}'}`, log),
		head("list") + fmt.Sprintf(`spec: {config: '{"cniVersion":"0.3.0","name":"another-bridge-network","plugins":[{"type":"recorder","recorder":{"log":%[1]q}},{"type":"recorder","recorder":{"log":%[1]q}}]}'}`, log),
		head("limited") + fmt.Sprintf(`spec: {config: '{"cniVersion":"0.3.0","type":"recorder","recorder":{"log":%q}}'}`, log),
		head("empty") + "spec: {}",
		head("none"),
		head("kuryr") + `  annotations: {openstack.org/kuryr-config: '{"subnetId":"1"}'}`,
	} {
		c.manifest(ns, text)
	}
	for _, name := range []string{"empty", "none", "kuryr"} {
		n.onDisk(name+".conflist", n.recorder(name, nil))
	}
	n.config["socket"] = fleet.New(t, c.Config()).Start("forms").Socket()
	p, s := c.pod(ns, "p", "forms", "single,list,limited,empty,none,kuryr")
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD a-bridge-network net1", "ADD another-bridge-network net2", "ADD another-bridge-network net2",
		"ADD limited net3", "ADD empty net4", "ADD none net5", "ADD kuryr net6")
	n.ok("DEL", s)
	n.called("DEL kuryr net6", "DEL none net5", "DEL empty net4", "DEL limited net3",
		"DEL another-bridge-network net2", "DEL another-bridge-network net2", "DEL a-bridge-network net1", "DEL default eth0")
	must(t, c.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	for _, name := range []string{"empty", "none", "kuryr"} {
		var d netv1.NetworkAttachmentDefinition
		must(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &d))
		if d.Spec.Config != "" {
			t.Errorf("%s: spec.config is %q; want it as it was", name, d.Spec.Config)
		}
	}
}

// TestStaticPod (N66): the pod that the runtime names by the kubelet's UID is found by its
// mirror, without which it is not known what it selects.
func TestStaticPod(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	ns := c.namespace()
	c.define(ns, "a", n.recorder("net-a", nil))
	const uid = "0123456789abcdef0123456789abcdef"
	s := sandboxOf{pod: "static", args: "K8S_POD_NAMESPACE=" + ns + ";K8S_POD_NAME=static;K8S_POD_UID=" + uid}
	n.config["socket"] = fleet.New(t, c.Config()).Start("static").Socket()
	if f := n.fails("ADD", s, "mirror"); f.Code != 11 {
		t.Errorf("before there is a mirror: code %d; want 11", f.Code)
	}
	mirror := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "static", Namespace: ns, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: uid, npwg.AnnotationNetworks: "a"}},
		Spec:       corev1.PodSpec{NodeName: "static", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	must(t, c.client.Create(t.Context(), mirror))
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD net-a net1")
	fleet.Eventually(t, waitLimit, func() error { return c.statusHas(mirror, []string{"default", ns + "/a"}) })
	n.ok("DEL", s)
}

// kubelet answers which devices its pods have.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
}

// List implements podresources.PodResourcesListerServer.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

// TestTheKubeletIsAsked (N64): which devices the pod has says the kubelet, over its socket.
func TestTheKubeletIsAsked(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	ns := c.namespace()
	socket := n.path("kubelet.sock")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &kubelet{pods: []*podresources.PodResources{
		{Namespace: ns, Name: "other", Containers: []*podresources.ContainerResources{{Devices: []*podresources.ContainerDevices{{ResourceName: "intel.com/sriov", DeviceIds: []string{"0000:01:02.1"}}}}}},
		{Namespace: ns, Name: "p", Containers: []*podresources.ContainerResources{{Devices: []*podresources.ContainerDevices{{ResourceName: "intel.com/sriov", DeviceIds: []string{"0000:01:02.3"}}}}}},
	}})
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		must(t, <-served)
	})
	must(t, c.client.Create(t.Context(), &netv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: ns, Annotations: map[string]string{npwg.AnnotationResource: "intel.com/sriov"}},
		Spec:       netv1.NetworkAttachmentDefinitionSpec{Config: string(encoded(t, n.recorder("net-a", nil)))},
	}))
	f := fleet.New(t, c.Config())
	f.Change = func(c *daemon.Config) { c.PodResources = socket }
	n.config["socket"] = f.Start("devices").Socket()
	_, s := c.pod(ns, "p", "devices", "a")
	n.ok("ADD", s)
	if call := n.called("ADD default eth0", "ADD net-a net1")[1]; call.at("deviceID") != "0000:01:02.3" {
		t.Errorf("deviceID is %v; want that which the kubelet has given to the pod", call.at("deviceID"))
	}
	n.ok("DEL", s)
}

// TestAddressesAndClaims (N23, N42) has Tenure's own IPAM plugin under the meta-plugin, its agent
// and its controller: an address that is asked for gets its range's prefix length, or is
// refused with another one; a claim's addresses are the pod's, whether it had them or not.
func TestAddressesAndClaims(t *testing.T) {
	c := useCluster(t)
	stop, err := fleet.StartController(context.WithoutCancel(t.Context()), c.Config())
	must(t, err)
	t.Cleanup(func() { must(t, stop()) })
	n := newNode(t)
	ns := c.namespace()
	_, err = programs.Build(t.Context(), n.path(), "tenure")
	must(t, err)
	must(t, c.client.Create(t.Context(), &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "claimed"}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{CIDR: "10.62.0.0/20"}, {CIDR: "fd00:62::/64"}}},
	}))
	socket := fleet.New(t, c.Config()).Start("claims").Socket()
	n.config["socket"], n.config["binDir"] = socket, n.dir
	c.define(ns, "lan", map[string]any{"cniVersion": "1.1.0", "name": "lan", "plugins": []any{map[string]any{
		"type": "tenure", "capabilities": map[string]bool{"ips": true}, "ipam": map[string]any{"type": "tenure", "pool": "claimed", "socket": socket},
	}}})
	n.config["statusIPs"] = "CIDR"
	attached := func(name, element string) (ips string, detach func()) {
		t.Helper()
		p, s := c.pod(ns, name, "claims", element)
		fleet.Eventually(t, waitLimit, func() error {
			if o := n.call("ADD", s); o.status != 0 {
				return fmt.Errorf("ADD: %s", o.stdout)
			}
			return nil
		})
		var list []map[string]any
		fleet.Eventually(t, waitLimit, func() (err error) {
			list, err = c.status(p)
			return err
		})
		return fmt.Sprint(list[1]["ips"]), func() {
			n.ok("DEL", s)
			must(t, c.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
		}
	}
	refused := func(name, element string, texts ...string) {
		t.Helper()
		_, s := c.pod(ns, name, "claims", element)
		n.fails("ADD", s, texts...)
		n.ok("DEL", s)
	}
	for name, asked := range map[string]string{"bare": "10.62.1.1", "full": "10.62.1.2/20"} {
		got, detach := attached(name, fmt.Sprintf(`[{"name":"lan","ips":[%q]}]`, asked))
		if want, _, _ := strings.Cut(asked, "/"); !strings.HasPrefix(got, "["+want+"/20 fd00:62::") {
			t.Errorf("N23 %s is asked for: the pod has %s; want it with the range's prefix length, and any address of the other family", asked, got)
		}
		detach()
	}
	refused("wrong", `[{"name":"lan","ips":["10.62.1.3/24"]}]`, "network "+ns+"/lan", "10.62.1.3", "prefix length 24, and its range has 20")

	claim := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"}, Spec: ipamclaims.IPAMClaimSpec{Network: "lan"}}
	must(t, c.client.Create(t.Context(), claim))
	const names = `[{"name":"lan","ipam-claim-reference":"c"}]`
	first, detach := attached("first", names) // as soon as it is there
	must(t, c.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	if len(claim.Status.IPs) != 2 || first != fmt.Sprint(claim.Status.IPs) {
		t.Errorf("N42 a claim that had no addresses: the pod has %s, the claim %v; want the same, of both families", first, claim.Status.IPs)
	}
	refused("second", names, "claim "+ns+"/c", "in use")
	refused("both", `[{"name":"lan","ipam-claim-reference":"c","ips":["10.62.1.9"]}]`, "ips", "ipam-claim-reference")
	detach()
	third, detach := attached("third", names)
	if third != first {
		t.Errorf("N42 a claim that has %s: the next pod has %s", first, third)
	}
	detach()
}
