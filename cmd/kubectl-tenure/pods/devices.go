package pods

import (
	"context"
	"fmt"
	"strings"

	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// deviceView is a network device that a pod has by a ResourceClaim, as its driver says in the
// ResourceClaim's status.
type deviceView struct {
	ResourceClaim string   `json:"resourceClaim"`
	Driver        string   `json:"driver"`
	Device        string   `json:"device"`
	Interface     string   `json:"interface,omitempty"` // in the pod
	IPs           []string `json:"ips,omitempty"`
}

// addDevices adds the network devices of the pod. There are none where the cluster has no
// ResourceClaims, or the user may not read them.
func (l podLook) addDevices(ctx context.Context, v *podView) error {
	for _, name := range kube.ResourceClaimsOf(l.pod) {
		var claim resource.ResourceClaim
		err := l.Client.Get(ctx, client.ObjectKey{Namespace: l.pod.Namespace, Name: name}, &claim)
		if session.Forbidden(err) || meta.IsNoMatchError(err) {
			return nil
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read ResourceClaim %s/%s: %w", l.pod.Namespace, name, err)
		}
		for _, d := range claim.Status.Devices {
			if d.NetworkData != nil {
				v.Devices = append(v.Devices, deviceView{
					ResourceClaim: name, Driver: d.Driver, Device: d.Device, Interface: d.NetworkData.InterfaceName, IPs: d.NetworkData.IPs,
				})
			}
		}
	}
	return nil
}

func writeDevices(to screen.Screen, devices []deviceView) {
	if len(devices) == 0 {
		return
	}
	to.Title("Devices by ResourceClaims")
	t := screen.Table{Heads: []string{"INTERFACE", "DEVICE", "ADDRESSES", "RESOURCECLAIM", "DRIVER"}}
	for _, d := range devices {
		t.Row(screen.Plain(d.Interface, d.Device, strings.Join(d.IPs, ","), d.ResourceClaim, d.Driver)...)
	}
	t.Write(to, false)
}
