package devices

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet answers as a kubelet does, over a real socket.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	pods   []*podresources.PodResources
	gets   bool  // it has Get
	broken error // it answers nothing else
}

// List implements podresources.PodResourcesListerServer.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, k.broken
}

// Get implements podresources.PodResourcesListerServer.
func (k *kubelet) Get(ctx context.Context, req *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	if !k.gets {
		return k.UnimplementedPodResourcesListerServer.Get(ctx, req)
	}
	for _, p := range k.pods {
		if p.Namespace == req.PodNamespace && p.Name == req.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: p}, nil
		}
	}
	return nil, errors.New("pod not found")
}

func serve(t *testing.T, k *kubelet) Kubelet {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(srv, k)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return Kubelet{Socket: socket}
}

func devices(resource string, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func pod(namespace, name string, containers ...*podresources.ContainerResources) *podresources.PodResources {
	return &podresources.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

// TestDevicesOfAPod (N64).
func TestDevicesOfAPod(t *testing.T) {
	pods := []*podresources.PodResources{
		pod("other", "p", &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{devices("a/nic", "not-mine")}}),
		pod("ns", "p",
			&podresources.ContainerResources{Devices: []*podresources.ContainerDevices{devices("a/nic", "0000:3b:02.1"), devices("b/gpu", "g0"), devices("a/nic", "0000:3b:01.0")}},
			&podresources.ContainerResources{Devices: []*podresources.ContainerDevices{devices("a/nic", "0000:3b:02.1", "0000:3b:03.0")}}),
	}
	want := map[string][]string{"a/nic": {"a/nic=0000:3b:02.1", "a/nic=0000:3b:01.0", "a/nic=0000:3b:03.0"}, "b/gpu": {"b/gpu=g0"}}
	for name, gets := range map[string]bool{"by Get": true, "by List": false} {
		t.Run(name, func(t *testing.T) {
			k := serve(t, &kubelet{pods: pods, gets: gets})
			got, err := k.DevicesOf(t.Context(), "ns", "p")
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if got, err := k.DevicesOf(t.Context(), "ns", "unknown"); err != nil || len(got) > 0 {
				t.Errorf("got %v, %v for a pod that the kubelet does not know; want nothing", got, err)
			}
		})
	}
}

// TestDevicesOfResourceClaims: as Multus 4.3 reads them, and by their kind.
func TestDevicesOfResourceClaims(t *testing.T) {
	claim := func(name string, cdi ...string) *podresources.DynamicResource {
		r := &podresources.ClaimResource{DriverName: "nic.example.com", PoolName: "n1", DeviceName: "d"}
		for _, x := range cdi {
			r.CdiDevices = append(r.CdiDevices, &podresources.CDIDevice{Name: x})
		}
		return &podresources.DynamicResource{ClaimName: name, ClaimNamespace: "ns", ClaimResources: []*podresources.ClaimResource{r}}
	}
	k := serve(t, &kubelet{gets: true, pods: []*podresources.PodResources{pod("ns", "p",
		&podresources.ContainerResources{
			Devices:          []*podresources.ContainerDevices{devices("example.com/vf", "0000:3b:02.1")},
			DynamicResources: []*podresources.DynamicResource{claim("nics", "example.com/vf=0000:3b:01.0", "example.com/vf=0000:3b:01.1"), claim("odd", "no-id", "example.com/vf=")},
		},
		&podresources.ContainerResources{DynamicResources: []*podresources.DynamicResource{claim("nics", "example.com/vf=0000:3b:01.0"), claim("p-gpu-x7k2q", "example.com/gpu=g0")}},
	)}})
	want := map[string][]string{
		"example.com/vf":  {"example.com/vf=0000:3b:02.1", "example.com/vf=0000:3b:01.0", "example.com/vf=0000:3b:01.1"},
		"nics":            {"example.com/vf=0000:3b:01.0", "example.com/vf=0000:3b:01.1"},
		"example.com/gpu": {"example.com/gpu=g0"}, "p-gpu-x7k2q": {"example.com/gpu=g0"},
	}
	got, err := k.DevicesOf(t.Context(), "ns", "p")
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestNoKubelet (N64).
func TestNoKubelet(t *testing.T) {
	got, err := Kubelet{Socket: filepath.Join(t.TempDir(), "none")}.DevicesOf(t.Context(), "ns", "p")
	if err != nil || len(got) > 0 {
		t.Errorf("got %v, %v; want no devices", got, err)
	}
}

// TestKubeletDoesNotAnswer (N64).
func TestKubeletDoesNotAnswer(t *testing.T) {
	k := serve(t, &kubelet{broken: errors.New("starting up")})
	if got, err := k.DevicesOf(t.Context(), "ns", "p"); err == nil {
		t.Errorf("got %v; want an error", got)
	}
}
