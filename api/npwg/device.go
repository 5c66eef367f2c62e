package npwg

import (
	"encoding/json"
	"errors"
	"fmt"
)

// deviceKeys are the types of the Device Information Specification 1.1.0 with the
// keys that each requires in the map of its name.
var deviceKeys = map[string][]string{
	"pci":        {"pci-address"},
	"vdpa":       {"parent-device", "driver", "path"},
	"vhost-user": {"mode", "path"},
	"memif":      {"role", "path", "mode"},
}

// CheckDeviceInfo reports whether raw is device information that a status may show
// (5.3.7).
func CheckDeviceInfo(raw json.RawMessage) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return errors.New("device information: not an object")
	}
	var kind, version string
	if readText(members["type"], &kind) != nil || readText(members["version"], &version) != nil || version == "" {
		return errors.New("device information: type and version are required")
	}
	required, known := deviceKeys[kind]
	if !known {
		return fmt.Errorf("device information: type %q is none of pci, vdpa, vhost-user, memif", kind)
	}
	var device map[string]json.RawMessage
	if json.Unmarshal(members[kind], &device) != nil {
		return fmt.Errorf("device information: %s: an object is required", kind)
	}
	for _, key := range required {
		var value string
		if readText(device[key], &value) != nil || value == "" {
			return fmt.Errorf("device information: %s.%s: a string is required", kind, key)
		}
	}
	return nil
}
