package delegate

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/durable"
	"github.com/tenure-ipam/tenure/ipam/plainjson"
)

// cacheKind marks a file in the form of the CNI library's cache.
const cacheKind = "cniCacheV1"

// cached is an attachment as the CNI library's cache has it: a second trace of what
// was attached, in a form that other programs read too.
type cached struct {
	Kind           string                     `json:"kind"`
	ContainerID    string                     `json:"containerId"`
	Config         []byte                     `json:"config"`
	IfName         string                     `json:"ifName"`
	NetworkName    string                     `json:"networkName"`
	NetNS          string                     `json:"netns"`
	CNIArgs        [][2]string                `json:"cniArgs"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs"`
	Result         json.RawMessage            `json:"result"`
}

func (r *Runner) cacheDir() string { return filepath.Join(r.State.Path, "results") }

// keep writes the result of an attachment into the cache; nil removes what is
// there. The journal has it too, so that it need not survive the machine.
func (r *Runner) keep(list *chain, c call, result json.RawMessage) error {
	path := filepath.Join(r.cacheDir(), list.name+"-"+c.containerID+"-"+c.ifName)
	if result == nil {
		return durable.Remove(path)
	}
	text := c.cacheText(list, result)
	err := os.WriteFile(path, text, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = durable.MakeDir(r.cacheDir()); err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
	}
	return err
}

// cacheText is the cache's file of an attachment.
func (c call) cacheText(list *chain, result json.RawMessage) []byte {
	b := append(make([]byte, 0, 2048), `{"kind":"`+cacheKind+`"`...)
	b = plainjson.AppendTextMember(b, "containerId", c.containerID)
	b = append(base64.StdEncoding.AppendEncode(append(plainjson.AppendKey(b, "config"), '"'), list.text), '"')
	b = plainjson.AppendTextMember(b, "ifName", c.ifName)
	b = plainjson.AppendTextMember(b, "networkName", list.name)
	b = plainjson.AppendTextMember(b, "netns", c.netns)
	for i, a := range c.args {
		b = append(b, []string{`,"cniArgs":[[`, `,[`}[min(i, 1)]...)
		b = append(plainjson.AppendText(append(plainjson.AppendText(b, a.Key), ','), a.Value), ']')
	}
	if len(c.args) > 0 {
		b = append(b, ']')
	}
	if len(c.capabilities) > 0 {
		b = append(plainjson.AppendKey(b, "capabilityArgs"), '{')
		for name, value := range c.capabilities {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(append(plainjson.AppendText(b, name), ':'), value...)
		}
		b = append(b, '}')
	}
	return append(append(plainjson.AppendKey(b, "result"), result...), '}')
}

// kept returns what the cache has of a container, of all of them if the ID is empty,
// in the order of the files' names. Files that do not read are passed over.
func (r *Runner) kept(containerID string) (all []cached, err error) {
	names, err := durable.Names(r.cacheDir())
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.Contains(name, "-"+containerID) {
			continue
		}
		var c cached
		text, err := os.ReadFile(filepath.Join(r.cacheDir(), name))
		if err != nil || json.Unmarshal(text, &c) != nil || c.Kind != cacheKind || c.IfName == "" || c.NetworkName == "" {
			continue
		}
		if containerID == "" || c.ContainerID == containerID {
			all = append(all, c)
		}
	}
	return all, nil
}

// call is how the plugins of the attachment are called.
func (c cached) call(netns string) call {
	out := call{containerID: c.ContainerID, netns: netns, ifName: c.IfName, capabilities: c.CapabilityArgs}
	for _, pair := range c.CNIArgs {
		out.args = append(out.args, plan.Arg{Key: pair[0], Value: pair[1]})
	}
	return out
}
