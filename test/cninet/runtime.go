package cninet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// Runtime runs CNI plugins through libcni, as container runtimes do.
type Runtime struct {
	// Host is the namespace that plugins run in, Files what they see of the file
	// system; the process's own if not set.
	Host  NS
	Files Files

	cni *libcni.CNIConfig
}

// NewRuntime returns a runtime that looks for plugins in binDirs, in order, and
// keeps results in cacheDir.
func NewRuntime(binDirs []string, cacheDir string) *Runtime {
	return &Runtime{cni: libcni.NewCNIConfigWithCacheDir(binDirs, cacheDir, nil)}
}

// Attachment is one interface of one container.
type Attachment struct {
	ContainerID string
	NS          NS
	IfName      string
	Args        [][2]string    // CNI_ARGS, in order
	Capability  map[string]any // runtimeConfig, for plugins that declare the capability
}

func (a Attachment) conf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: a.ContainerID, NetNS: a.NS.Path(), IfName: a.IfName,
		Args: a.Args, CapabilityArgs: a.Capability,
	}
}

// Add attaches a to the network that conf describes: a configuration list, or
// that of one plugin.
func (r *Runtime) Add(ctx context.Context, conf string, a Attachment) (*current.Result, error) {
	var result *current.Result
	err := r.run(conf, func(list *libcni.NetworkConfigList) error {
		res, err := r.cni.AddNetworkList(ctx, list, a.conf())
		if err != nil {
			return err
		}
		result, err = current.NewResultFromResult(res)
		return err
	})
	return result, err
}

// Check asks whether a is as Add left it.
func (r *Runtime) Check(ctx context.Context, conf string, a Attachment) error {
	return r.run(conf, func(list *libcni.NetworkConfigList) error {
		return r.cni.CheckNetworkList(ctx, list, a.conf())
	})
}

// Del detaches a.
func (r *Runtime) Del(ctx context.Context, conf string, a Attachment) error {
	return r.run(conf, func(list *libcni.NetworkConfigList) error {
		return r.cni.DelNetworkList(ctx, list, a.conf())
	})
}

// Status asks whether the network can take attachments.
func (r *Runtime) Status(ctx context.Context, conf string) error {
	return r.run(conf, func(list *libcni.NetworkConfigList) error {
		return r.cni.GetStatusNetworkList(ctx, list)
	})
}

// GC has the network forget every attachment but valid.
func (r *Runtime) GC(ctx context.Context, conf string, valid ...Attachment) error {
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, a := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	return r.run(conf, func(list *libcni.NetworkConfigList) error {
		return r.cni.GCNetworkList(ctx, list, args)
	})
}

// run parses conf and calls verb with it, as a process of the host. Errors of
// plugins keep their type, [*types.Error].
func (r *Runtime) run(conf string, verb func(*libcni.NetworkConfigList) error) error {
	list, err := parse([]byte(conf))
	if err != nil {
		return fmt.Errorf("network configuration: %w", err)
	}
	return r.Do(func() error { return verb(list) })
}

// Do runs fn where plugins run, on a thread of its own: processes that fn starts run there as well.
func (r *Runtime) Do(fn func() error) error {
	return onThread(func() error {
		if err := errors.Join(r.Host.enter(), r.Files.enter()); err != nil {
			return err
		}
		return fn()
	})
}

// parse reads a configuration list; the configuration of one plugin, the form
// that NetworkAttachmentDefinitions may have as well, becomes a list of one.
func parse(conf []byte) (*libcni.NetworkConfigList, error) {
	var form struct {
		CNIVersion string            `json:"cniVersion"`
		Name       string            `json:"name"`
		Plugins    []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(conf, &form); err != nil {
		return nil, err
	}
	if form.Plugins != nil {
		return libcni.NetworkConfFromBytes(conf)
	}
	form.Plugins = []json.RawMessage{conf}
	list, err := json.Marshal(form)
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(list)
}

// Addresses returns the addresses of a result, in its order.
func Addresses(r *current.Result) []netip.Prefix {
	var ps []netip.Prefix
	for _, ip := range r.IPs {
		ps = append(ps, prefix(&ip.Address))
	}
	return ps
}
