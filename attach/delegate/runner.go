package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// A Runner carries out plans for one call of the meta-plugin.
type Runner struct {
	State journal.Dir
	// Path are the directories of the plugins, in order.
	Path []string
	// Stderr gets the plugins' standard error.
	Stderr io.Writer
	// Lock is what plugins inherit; whoever runs a container's plan holds its lock.
	// Nil for calls that are about no container.
	Lock *journal.Lock
	// Boot is the ID of this boot.
	Boot string
	// CIDRs asks for a status with prefix lengths.
	CIDRs bool
}

// cni returns the CNI library as this call uses it.
func (r *Runner) cni() *libcni.CNIConfig {
	x := &executor{stderr: r.Stderr}
	if r.Lock != nil {
		x.inherit = []*os.File{r.Lock.File()}
	}
	return libcni.NewCNIConfigWithCacheDir(r.Path, r.State.Path, x)
}

// parse reads the configuration list of a step.
func parse(text json.RawMessage) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		return nil, &types.Error{Code: types.ErrInvalidNetworkConfig, Msg: err.Error()}
	}
	if len(list.Plugins) == 0 {
		return nil, &types.Error{Code: types.ErrInvalidNetworkConfig, Msg: fmt.Sprintf("network %s: its list has no plugins", list.Name)}
	}
	return list, nil
}

// callOf is how the plugins of a step are called.
func callOf(containerID, netns string, s plan.Step) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: containerID, NetNS: netns, IfName: s.IfName}
	for _, a := range s.Args {
		rt.Args = append(rt.Args, [2]string{a.Key, a.Value})
	}
	if len(s.Capabilities) > 0 {
		rt.CapabilityArgs = make(map[string]any, len(s.Capabilities))
		for name, value := range s.Capabilities {
			rt.CapabilityArgs[name] = value
		}
	}
	return rt
}

// failed says which step an error is of, and keeps the code of a plugin's.
func failed(s plan.Step, verb string, err error) error {
	code := types.ErrInternal
	if e, ok := errors.AsType[*types.Error](err); ok && e.Code != 0 {
		code = e.Code
	}
	what := "network"
	if s.Default {
		what = "default network"
	}
	return &types.Error{Code: code, Msg: fmt.Sprintf("%s of %s %s on %s: %v", verb, what, s.Name, s.IfName, oneLine(err))}
}

// oneLine is an error's text in one line, as logs and events have it.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
