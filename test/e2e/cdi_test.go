package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/test/cluster"
)

var _ = Describe("Devices of ResourceClaims", func() {
	It("are given to networks, as a driver, kubelet and containerd name them by CDI, each once", inProof, func(ctx context.Context) {
		n := c.Nodes[0]
		s := newSite(ctx)
		s.cdiDriver(ctx, n)
		for name, of := range map[string]string{"kind": "example.com/vf", "claim": "nics"} {
			s.network(ctx, name, map[string]string{"kind": "10.47.0.0/24", "claim": "10.47.1.0/24"}[name], acrossNodes)
			_, err := c.Kubectl(ctx, "", "annotate", "net-attach-def", name, "-n", s.namespace, npwg.AnnotationResource+"="+of)
			Expect(err).NotTo(HaveOccurred())
		}
		start := func(name, networks string) *corev1.Pod {
			p := s.pod(name, "", networks)
			claim := "nics"
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name}
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nics", ResourceClaimName: &claim}}
			p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "nics"}}
			Expect(kube.Create(ctx, p)).To(Succeed())
			return p
		}
		p := start("p", "kind,claim")
		awaitRunning(ctx, p)
		entries, unread, err := journal.Dir{Path: n.Path("/var/lib/cni/tenure-attach")}.List(time.Now())
		Expect(err).NotTo(HaveOccurred())
		Expect(unread).To(BeEmpty())
		var has []string
		for _, e := range entries {
			if e.Plan.Pod.Namespace != s.namespace || e.Plan.Pod.Name != p.Name {
				continue
			}
			for _, step := range e.Plan.Steps[1:] {
				Expect(step.Device).NotTo(BeNil(), step.Name)
				has = append(has, step.IfName+" "+step.Device.ID)
			}
		}
		Expect(has).To(ConsistOf(HavePrefix("net1 0000:3b:01."), HavePrefix("net2 0000:3b:01.")))
		Expect(has[0][len("net1 "):]).NotTo(Equal(has[1][len("net2 "):]), "a device is taken once")

		more := start("more", "claim,kind,claim")
		Eventually(func() ([]string, error) { return told(ctx, more, "FailedCreatePodSandBox") }).Should(
			ContainElement(ContainSubstring("all 2 of the pod's are assigned")))
		for _, p := range []*corev1.Pod{p, more} { // while the driver is there
			stop(ctx, p)
		}
	})
})

// vfDriver is the driver of the devices of [site.cdiDriver].
const vfDriver = "vf.example.com"

// cdiDriver runs, until the spec ends, a driver of two devices on a node, and makes the
// ResourceClaim nics of both. What a device is does not matter: containers get a variable by it.
func (s site) cdiDriver(ctx context.Context, n *cluster.Node) {
	GinkgoHelper()
	Expect(os.MkdirAll(n.Path("/run/cdi"), 0o755)).To(Succeed())
	spec := n.Path("/run/cdi/vf.json")
	Expect(os.WriteFile(spec, []byte(`{"cdiVersion": "0.6.0", "kind": "example.com/vf", "devices": [
		{"name": "0000:3b:01.0", "containerEdits": {"env": ["VF0=yes"]}}, {"name": "0000:3b:01.1", "containerEdits": {"env": ["VF1=yes"]}}]}`), 0o600)).To(Succeed())
	DeferCleanup(os.Remove, spec)

	const socket = "/var/lib/kubelet/plugins/vf.sock"
	d := &draDriver{endpoint: socket}
	for _, path := range []string{socket, "/var/lib/kubelet/plugins_registry/vf-reg.sock"} {
		srv := grpc.NewServer()
		dra.RegisterDRAPluginServer(srv, d)
		registration.RegisterRegistrationServer(srv, d)
		var ln net.Listener
		Expect(n.Do(func() (err error) {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				return err
			}
			ln, err = (&net.ListenConfig{}).Listen(ctx, "unix", path)
			return err
		})).To(Succeed())
		ln.(*net.UnixListener).SetUnlinkOnClose(false) // that path is another's here
		go func() { _ = srv.Serve(ln) }()              // until it is stopped
		DeferCleanup(func() error {
			srv.Stop()
			return os.Remove(n.Path(path))
		})
	}
	slice := &resource.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: resource.ResourceSliceSpec{
		Driver: vfDriver, NodeName: &n.Name, Pool: resource.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
		Devices: []resource.Device{{Name: "vf0"}, {Name: "vf1"}},
	}}
	class := &resource.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: resource.DeviceClassSpec{
		Selectors: []resource.DeviceSelector{{CEL: &resource.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", vfDriver)}}},
	}}
	claim := &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nics"}}
	claim.Spec.Devices.Requests = []resource.DeviceRequest{{
		Name: "vfs", Exactly: &resource.ExactDeviceRequest{DeviceClassName: class.Name, AllocationMode: resource.DeviceAllocationModeExactCount, Count: 2},
	}}
	for _, o := range []client.Object{slice, class, claim} {
		Expect(kube.Create(ctx, o)).To(Succeed())
	}
	DeferCleanup(func(ctx context.Context) {
		for _, o := range []client.Object{slice, class} {
			// The kubelet deletes slices of a driver that is gone.
			Expect(client.IgnoreNotFound(kube.Delete(ctx, o))).To(Succeed())
		}
	})
}

// draDriver answers a kubelet as a driver of devices does.
type draDriver struct {
	dra.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	endpoint string
}

// GetInfo implements registration.RegistrationServer.
func (d *draDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: vfDriver, Endpoint: d.endpoint, SupportedVersions: []string{dra.DRAPluginService},
	}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (d *draDriver) NotifyRegistrationStatus(_ context.Context, said *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	GinkgoWriter.Printf("the kubelet took the driver: %v %s\n", said.GetPluginRegistered(), said.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements dra.DRAPluginServer.
func (d *draDriver) NodePrepareResources(ctx context.Context, req *dra.NodePrepareResourcesRequest) (*dra.NodePrepareResourcesResponse, error) {
	said := &dra.NodePrepareResourcesResponse{Claims: map[string]*dra.NodePrepareResourceResponse{}}
	for _, asked := range req.GetClaims() {
		var claim resource.ResourceClaim
		if err := kube.Get(ctx, client.ObjectKey{Namespace: asked.GetNamespace(), Name: asked.GetName()}, &claim); err != nil {
			return nil, err
		}
		prepared := &dra.NodePrepareResourceResponse{}
		for _, r := range claim.Status.Allocation.Devices.Results {
			prepared.Devices = append(prepared.Devices, &dra.Device{
				RequestNames: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CdiDeviceIds: []string{map[string]string{"vf0": "example.com/vf=0000:3b:01.0", "vf1": "example.com/vf=0000:3b:01.1"}[r.Device]},
			})
		}
		said.Claims[asked.GetUid()] = prepared
	}
	return said, nil
}

// NodeUnprepareResources implements dra.DRAPluginServer.
func (d *draDriver) NodeUnprepareResources(_ context.Context, req *dra.NodeUnprepareResourcesRequest) (*dra.NodeUnprepareResourcesResponse, error) {
	said := &dra.NodeUnprepareResourcesResponse{Claims: map[string]*dra.NodeUnprepareResourceResponse{}}
	for _, asked := range req.GetClaims() {
		said.Claims[asked.GetUid()] = &dra.NodeUnprepareResourceResponse{}
	}
	return said, nil
}
