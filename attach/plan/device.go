package plan

import (
	"fmt"
	"path"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// Directories of the Device Information Specification 1.1.0, section 4.
const (
	devicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	// DeviceDir is where the files of attachments lie, and no others.
	DeviceDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"

	capabilityDeviceFile = "CNIDeviceInfoFile"
	capabilityDevice     = "deviceID"
)

// addDevice gives the step the next of the pod's devices of the definition's resource that no other
// step has, and the file for its information.
func (m *maker) addDevice(where string, step *Step, l *list, d facts.Definition) {
	resource := d.Annotations[npwg.AnnotationResource]
	if !npwg.IsDevice(resource) {
		resource = ""
	}
	device, n := Device{Resource: resource}, 0
	for n < len(d.Devices) && m.devices[d.DeviceName(n, resource)] {
		n++
	}
	switch {
	case resource == "":
	case len(d.Devices) == 0:
		m.fail(where, step.Name, fmt.Sprintf("it takes a device of %s, and the kubelet shows none of this pod", resource), "let a container request one, or name a ResourceClaim with one")
	case n == len(d.Devices):
		m.fail(where, step.Name, fmt.Sprintf("it takes a device of %s, and all %d of the pod's are assigned", resource, len(d.Devices)), "let the pod request one for each attachment")
	default:
		m.devices[d.DeviceName(n, resource)] = true
		device.ID = d.Devices[n]
		if name := d.DeviceName(n, resource); name != device.name() {
			device.Name = name
		}
		device.Source = path.Join(devicePluginDir, fileName(resource, device.ID))
		// Plugins such as SR-IOV read the device from their own configuration.
		first := l.plugins[0].members
		first["deviceID"], first["pciBusID"] = quote(device.ID), quote(device.ID)
		if l.declares(capabilityDevice) {
			step.capability(capabilityDevice, quote(device.ID))
		}
	}
	if l.declares(capabilityDeviceFile) {
		device.File = path.Join(DeviceDir, fileName(l.name, m.call.ContainerID, step.IfName))
		step.capability(capabilityDeviceFile, quote(device.File))
	}
	if device.ID != "" || device.File != "" {
		step.Device = &device
	}
}

// fileName returns the name of a device information file.
func fileName(parts ...string) string {
	return strings.ReplaceAll(strings.Join(parts, "-"), "/", "-") + "-device.json"
}
