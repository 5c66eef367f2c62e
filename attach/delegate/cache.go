package delegate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	"github.com/tenure-ipam/tenure/ipam/durable"
)

// cached is a file of the CNI library's cache, in the only form that it writes.
type cached struct {
	Kind           string          `json:"kind"`
	ContainerID    string          `json:"containerId"`
	Config         []byte          `json:"config"`
	IfName         string          `json:"ifName"`
	NetworkName    string          `json:"networkName"`
	NetNS          string          `json:"netns,omitempty"`
	CNIArgs        [][2]string     `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]any  `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
}

// cache puts the result of a step where the CNI library looks for what it passes
// on as prevResult, unless it is there: to replace a file costs ten times as much as
// to read it. Without a result there is none to pass on.
func (r *Runner) cache(list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, result json.RawMessage) error {
	path := filepath.Join(r.State.Path, "results", list.Name+"-"+rt.ContainerID+"-"+rt.IfName)
	if result == nil {
		return durable.Remove(path)
	}
	if old, err := os.ReadFile(path); err == nil {
		var there cached
		if json.Unmarshal(old, &there) == nil && there.Kind == libcni.CNICacheV1 && bytes.Equal(there.Result, result) && bytes.Equal(there.Config, list.Bytes) {
			return nil
		}
	}
	text, err := json.Marshal(cached{
		Kind: libcni.CNICacheV1, ContainerID: rt.ContainerID, Config: list.Bytes, IfName: rt.IfName, NetworkName: list.Name,
		NetNS: rt.NetNS, CNIArgs: rt.Args, CapabilityArgs: rt.CapabilityArgs, Result: result,
	})
	if err != nil {
		return err
	}
	if err := durable.MakeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
