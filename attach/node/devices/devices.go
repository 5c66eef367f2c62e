// Package devices asks a node's kubelet which devices it gave to a pod, by the
// kubelet's pod-resources API.
package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// DefaultSocket is where a kubelet listens that runs with its defaults.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// maxAnswer is the greatest answer that is taken, in bytes: the kubelet's own limit.
const maxAnswer = 16 << 20

// Kubelet is a node's kubelet.
type Kubelet struct {
	// Socket is the path of its pod-resources socket. Where there is none, no pod
	// has devices.
	Socket string
}

// DevicesOf returns the devices of a pod by resource name, in the kubelet's order, each once and as
// CDI calls it, "kind=ID"; of a device plugin the resource is the kind. They are known from before
// the pod's sandbox is made.
func (k Kubelet) DevicesOf(ctx context.Context, namespace, pod string) (map[string][]string, error) {
	if _, err := os.Stat(k.Socket); errors.Is(err, fs.ErrNotExist) {
		return map[string][]string{}, nil
	}
	conn, err := grpc.NewClient("unix:"+k.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.Socket, err)
	}
	defer conn.Close()
	found, err := ask(ctx, podresources.NewPodResourcesListerClient(conn), namespace, pod)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.Socket, err)
	}
	return devicesIn(found), nil
}

// ask returns what the kubelet has of a pod: nothing if it does not know it. Get is younger
// than List, may be switched off, and does not tell that from a pod that it does not
// know: so List decides.
func ask(ctx context.Context, kubelet podresources.PodResourcesListerClient, namespace, pod string) (*podresources.PodResources, error) {
	one, err := kubelet.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: namespace, PodName: pod})
	if err == nil {
		return one.GetPodResources(), nil
	}
	all, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	for _, p := range all.GetPodResources() {
		if p.GetNamespace() == namespace && p.GetName() == pod {
			return p, nil
		}
	}
	return &podresources.PodResources{}, nil
}

// devicesIn returns the devices of device plugins, and those of ResourceClaims. A device of the
// latter counts under the ResourceClaim's name, as Multus 4.3 has it, and under its kind, since the
// name of a ResourceClaim of a template is random.
func devicesIn(pod *podresources.PodResources) map[string][]string {
	devices := map[string][]string{}
	add := func(resource, device string) {
		if all := devices[resource]; !slices.Contains(all, device) {
			devices[resource] = append(all, device)
		}
	}
	for _, c := range pod.GetContainers() {
		for _, d := range c.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				add(d.GetResourceName(), d.GetResourceName()+"="+id)
			}
		}
		for _, claim := range c.GetDynamicResources() {
			for _, device := range claim.GetClaimResources() {
				for _, cdi := range device.GetCdiDevices() {
					if kind, id, ok := strings.Cut(cdi.GetName(), "="); ok && id != "" {
						add(claim.GetClaimName(), cdi.GetName())
						add(kind, cdi.GetName())
					}
				}
			}
		}
	}
	return devices
}
