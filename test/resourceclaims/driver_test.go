package resourceclaims_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// driver asks a node's agent as DRANET 1.4 does: pkg/cloudprovider/webhook of its source.
type driver struct {
	t    testing.TB
	n    *fleet.Node
	http http.Client
}

// start starts a fleet with the agent of one node, and returns a driver there.
func start(t *testing.T, name string, change func(*daemon.Config)) (*fleet.Fleet, *driver) {
	t.Helper()
	f := fleet.New(t, agent)
	f.Change = func(c *daemon.Config) {
		c.DRASocket = filepath.Join(filepath.Dir(c.Socket), "dra", "dranet.sock")
		c.Agent.Wait = 2 * time.Second
		if change != nil {
			change(c)
		}
	}
	return f, driverOn(t, f.Start(name))
}

func driverOn(t testing.TB, n *fleet.Node) *driver {
	d := &driver{t: t, n: n}
	d.http.Timeout = 10 * time.Second // the driver's
	d.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.Config().DRASocket)
	}}
	return d
}

// A netConf is the NetworkConfig of a device.
type netConf struct {
	Profile   string `json:"profile,omitempty"`
	Interface struct {
		Name      string   `json:"name,omitempty"`
		Addresses []string `json:"addresses,omitempty"`
		DHCP      *bool    `json:"dhcp,omitempty"`
		MTU       *int32   `json:"mtu,omitempty"`
	} `json:"interface"`
	Routes []struct {
		Destination string `json:"destination,omitempty"`
		Gateway     string `json:"gateway,omitempty"`
		Scope       uint8  `json:"scope,omitempty"`
	} `json:"routes,omitempty"`
}

func profile(name string, addresses ...string) netConf {
	c := netConf{Profile: name}
	c.Interface.Addresses = addresses
	return c
}

// post sends a request, and returns the status and the answer's text.
func (d *driver) post(path string, body any) (int, string, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	resp, err := d.http.Post("http://localhost"+path, "application/json", bytes.NewReader(raw))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(text)), err
}

func question(uid, device string, config any) map[string]any {
	return map[string]any{"device": map[string]string{"name": device, "mac_address": "02:00:00:00:00:01"}, "claim_uid": uid, "config": config}
}

// prepare asks once for a device's configuration.
func (d *driver) prepare(claim *resource.ResourceClaim, device string, c netConf) (got netConf, err error) {
	status, text, err := d.post("/GetProfileConfig", question(string(claim.UID), device, c))
	if err != nil {
		return got, err
	}
	if status != http.StatusOK {
		return got, fmt.Errorf("%d: %s", status, text)
	}
	return got, json.Unmarshal([]byte(text), &got)
}

// has returns the addresses of a device. It asks again as the kubelet does.
func (d *driver) has(claim *resource.ResourceClaim, device string, c netConf) (got netConf) {
	d.t.Helper()
	fleet.Eventually(d.t, time.Minute, func() (err error) {
		got, err = d.prepare(claim, device, c)
		return err
	})
	return got
}

// same checks that a device has certain addresses.
func (d *driver) same(claim *resource.ResourceClaim, device string, c netConf, want []string) {
	d.t.Helper()
	if got := d.has(claim, device, c).Interface.Addresses; !slices.Equal(got, want) {
		d.t.Errorf("device %s of %s has %v; want %v", device, claim.Name, got, want)
	}
}

// refused checks the status and the words of an answer.
func (d *driver) refused(body any, status int, words string) {
	d.t.Helper()
	got, text, err := d.post("/GetProfileConfig", body)
	if err != nil || got != status || !strings.Contains(text, words) {
		d.t.Errorf("got %d %q, %v; want %d with %q", got, text, err, status, words)
	}
}

// release frees what a device has.
func (d *driver) release(claim *resource.ResourceClaim, device string) {
	d.t.Helper()
	if status, text, err := d.post("/ReleaseProfileConfig", question(string(claim.UID), device, profile("tenure.dev/whatever"))); err != nil || status != http.StatusOK {
		d.t.Errorf("release of %s of %s: %d %s, %v", device, claim.Name, status, text, err)
	}
}

func newPool(t *testing.T, name string, ranges ...v1alpha1.Range) *v1alpha1.IPPool {
	t.Helper()
	return fleet.Create(t, kc, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Ranges: ranges}})
}

// newClaim makes a ResourceClaim, to which the devices eth1 and eth2 are allocated.
func newClaim(t *testing.T, name string, annotations map[string]string) *resource.ResourceClaim {
	t.Helper()
	c := &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations}}
	c.Spec.Devices.Requests = []resource.DeviceRequest{{Name: "nic", Exactly: &resource.ExactDeviceRequest{DeviceClassName: "dranet"}}}
	c = fleet.Create(t, kc, c)
	allocate(t, c, "", "eth1", "eth2")
	return c
}

// allocate has devices of a node, or of any, allocated to a ResourceClaim, and no others, as the
// scheduler does, and its controller when no pod has it any more.
func allocate(t *testing.T, c *resource.ResourceClaim, node string, devices ...string) {
	t.Helper()
	c.Status.Allocation = nil
	for _, name := range devices {
		if c.Status.Allocation == nil {
			asks := resource.OpaqueDeviceConfiguration{Driver: "dra.net", Parameters: runtime.RawExtension{Raw: []byte(`{"profile":"tenure.dev/whatever"}`)}}
			c.Status.Allocation = &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Config: []resource.DeviceAllocationConfiguration{{
				Source: resource.AllocationConfigSourceClaim, DeviceConfiguration: resource.DeviceConfiguration{Opaque: &asks},
			}}}}
		}
		r := resource.DeviceRequestAllocationResult{Request: "nic", Driver: "dra.net", Pool: "node", Device: name}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, r)
	}
	if node != "" {
		c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}
	}
	if err := kc.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// say has the driver write into a ResourceClaim's status which addresses a device has.
func say(t *testing.T, c *resource.ResourceClaim, device string, ips []string) {
	t.Helper()
	c.Status.Devices = append(c.Status.Devices, resource.AllocatedDeviceStatus{
		Driver: "dra.net", Pool: "node", Device: device, NetworkData: &resource.NetworkDeviceData{InterfaceName: "net1", IPs: ips},
	})
	if err := kc.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// newPod makes a pod of a node that has ResourceClaims by name.
func newPod(t *testing.T, n *fleet.Node, name string, claims ...*resource.ResourceClaim) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for i, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("nic%d", i), ResourceClaimName: &c.Name})
	}
	return fleet.Create(t, kc, pod)
}

// newOwner makes a ResourceClaim and a pod of a node that has it, both of that name.
func newOwner(t *testing.T, n *fleet.Node, name string) (*resource.ResourceClaim, *corev1.Pod) {
	t.Helper()
	c := newClaim(t, name, nil)
	return c, newPod(t, n, name, c)
}
