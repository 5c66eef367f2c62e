package delegate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/lean/cniname"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A call is how the plugins of a chain are called for one attachment. The zero call
// is for verbs that are about none.
type call struct {
	containerID, netns, ifName string
	args                       []plan.Arg
	capabilities               map[string]json.RawMessage
}

// callOf returns how to call the plugins of a step.
func callOf(containerID, netns string, s plan.Step) call {
	return call{containerID: containerID, netns: netns, ifName: s.IfName, args: s.Args, capabilities: s.Capabilities}
}

// check reports what CNI's rules for names forbid.
func (c call) check(list *chain) error {
	if err := cniname.CheckContainerID(c.containerID); err != nil {
		return err
	}
	if err := cniname.CheckNetwork(list.name); err != nil {
		return err
	}
	if err := cniname.CheckInterface(c.ifName); err != nil {
		return err
	}
	return nil
}

// env returns a plugin's environment: that of this process, with the variables that CNI sets
// replaced.
func (c call) env(verb string, path []string) []string {
	pairs := make([]string, len(c.args))
	for i, a := range c.args {
		pairs[i] = a.Key + "=" + a.Value
	}
	ours := []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + c.containerID, "CNI_NETNS=" + c.netns, "CNI_ARGS=" + strings.Join(pairs, ";"),
		"CNI_IFNAME=" + c.ifName, "CNI_PATH=" + strings.Join(path, string(os.PathListSeparator)),
	}
	for _, pair := range os.Environ() {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_ARGS", "CNI_IFNAME", "CNI_PATH":
		default:
			ours = append(ours, pair)
		}
	}
	return ours
}

// runtimeConfig returns the capability arguments that p declares to take. It returns nothing if
// there are none.
func (c call) runtimeConfig(p plugin) []member {
	b := []byte{'{'}
	for _, name := range p.capabilities {
		if value, ok := c.capabilities[name]; ok {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(plainjson.AppendText(b, name), ':'), value...)
		}
	}
	if len(b) == 1 {
		return nil
	}
	return []member{{"runtimeConfig", append(b, '}')}}
}

// previous returns what gives a plugin the result of the one before it. Without a result it
// returns nothing.
func previous(result json.RawMessage) []member {
	if result == nil {
		return nil
	}
	return []member{{"prevResult", result}}
}

// run runs a plugin and returns what it answers. more is what its configuration gets
// beside runtimeConfig.
func (r *Runner) run(ctx context.Context, verb string, list *chain, p plugin, c call, more ...member) ([]byte, error) {
	path, err := r.find(p.kind)
	if err != nil {
		return nil, err
	}
	return r.executor().exec(ctx, path, c.stdin(list, p, more...), c.env(verb, r.Path))
}

// stdin returns the configuration that p gets on its standard input.
func (c call) stdin(list *chain, p plugin, more ...member) []byte {
	return list.config(p, append(c.runtimeConfig(p), more...)...)
}

func (r *Runner) executor() *executor {
	x := &executor{stderr: r.Stderr, limit: r.Limit, meanwhile: func() {
		if do := r.meanwhile; do != nil {
			r.meanwhile = nil
			do()
		}
	}}
	if r.Lock != nil {
		x.inherit = []*os.File{r.Lock.File()}
	}
	return x
}

// find returns the path of a plugin's program.
func (r *Runner) find(kind string) (string, error) {
	if strings.ContainsRune(kind, os.PathSeparator) {
		return "", fmt.Errorf("%q is no name of a plugin", kind)
	}
	for _, dir := range r.Path {
		path := filepath.Join(dir, kind)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("failed to find plugin %q in path %s", kind, r.Path)
}

// addAhead starts the first plugin of a chain, so that addChain has only to call it. It
// returns nil where that cannot be: addChain then says why.
func (r *Runner) addAhead(list *chain, c call) *waiting {
	first := list.plugins[0]
	path, err := r.find(first.kind)
	if err != nil || c.check(list) != nil {
		return nil
	}
	return r.executor().startAhead(path, c.stdin(list, first), c.env("ADD", r.Path))
}

// addChain runs the plugins of a chain for ADD, each with the result of the one
// before, and returns the last result. The first one may have been started.
func (r *Runner) addChain(ctx context.Context, list *chain, c call, first *waiting) (types.Result, json.RawMessage, error) {
	if err := c.check(list); err != nil {
		return nil, nil, err
	}
	var result types.Result
	var text json.RawMessage
	for i, p := range list.plugins {
		var answer []byte
		var err error
		if i == 0 && first != nil {
			answer, err = first.call()
		} else {
			answer, err = r.run(ctx, "ADD", list, p, c, previous(text)...)
		}
		if err == nil {
			result, err = resultOf(list.version, answer)
		}
		if err == nil {
			text, err = json.Marshal(result)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("plugin %s failed (add): %w", p.kind, err)
		}
	}
	return result, text, nil
}

// resultOf reads a plugin's answer to ADD. One that does not say its version has
// that of the configuration, and an empty one says nothing else either (NPWG
// 5.1.1).
func resultOf(v string, answer []byte) (types.Result, error) {
	if text := string(bytes.TrimSpace(answer)); text == "" || text == "null" {
		answer = []byte("{}")
	}
	raw, err := object(answer)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	said := versionOf(raw)
	if said == "" {
		said = cmp.Or(v, "0.1.0")
		raw = with(raw, member{"cniVersion", plainjson.AppendText(nil, said)})
	}
	return create.Create(said, raw)
}

// versionOf returns the version of CNI that the object raw says, if it does.
func versionOf(raw json.RawMessage) (v string) {
	for key, value := range plainjson.Members(raw) {
		if string(key) == "cniVersion" && value[0] == '"' {
			v = plainjson.Text(value)
		}
	}
	return v
}

// delChain runs the plugins of a chain for DEL, the last one first. They get result, that of their
// ADD, unless it is nil or does not read.
func (r *Runner) delChain(ctx context.Context, list *chain, c call, result json.RawMessage) error {
	since, err := version.GreaterThanOrEqualTo(list.version, "0.4.0")
	if err != nil {
		return err
	}
	var prev json.RawMessage
	if since {
		prev, _ = inVersion(result, list.version) // to undo without it is better than not to
	}
	for _, p := range slices.Backward(list.plugins) {
		if _, err := r.run(ctx, "DEL", list, p, c, previous(prev)...); err != nil {
			return fmt.Errorf("plugin %s failed (delete): %w", p.kind, err)
		}
	}
	return nil
}

// checkChain runs the plugins of a chain for CHECK. Those of a version that has no
// CHECK are passed over.
func (r *Runner) checkChain(ctx context.Context, list *chain, c call, result json.RawMessage) error {
	since, err := version.GreaterThanOrEqualTo(list.version, "0.4.0")
	if err != nil || !since || list.noCheck {
		return err
	}
	prev, err := inVersion(result, list.version)
	if err != nil {
		return err
	}
	for _, p := range list.plugins {
		if _, err := r.run(ctx, "CHECK", list, p, c, previous(prev)...); err != nil {
			return err
		}
	}
	return nil
}

// statusChain asks the plugins of a chain whether they can serve an ADD, if their
// version of CNI has STATUS.
func (r *Runner) statusChain(ctx context.Context, list *chain) error {
	if since, err := version.GreaterThanOrEqualTo(list.version, "1.1.0"); err != nil || !since {
		return err
	}
	for _, p := range list.plugins {
		if _, err := r.run(ctx, "STATUS", list, p, call{}); err != nil {
			return err
		}
	}
	return nil
}

// gcChain undoes what is kept of the chain's network and is not valid, and tells its
// plugins what is, if their version of CNI has GC. It goes on past failures.
func (r *Runner) gcChain(ctx context.Context, list *chain, valid []types.GCAttachment) error {
	if list.noGC {
		return nil
	}
	var errs []error
	kept, err := r.cachedOf("", "")
	if err != nil {
		return err
	}
	for _, a := range kept {
		if a.NetworkName == list.name && !slices.Contains(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}) {
			if err := r.detachOneCached(ctx, a, a.NetNS); err != nil {
				errs = append(errs, fmt.Errorf("container %s, interface %s, which is not valid: %w", a.ContainerID, a.IfName, err))
			}
		}
	}
	if since, err := version.GreaterThanOrEqualTo(list.version, "1.1.0"); err != nil || !since {
		return errors.Join(append(errs, err)...)
	}
	text, err := json.Marshal(valid)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	// The second name is what older plugins read.
	told := []member{{"cni.dev/valid-attachments", text}, {"cni.dev/attachments", text}}
	for _, p := range list.plugins {
		if _, err := r.run(ctx, "GC", list, p, call{}, told...); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s failed (GC): %w", p.kind, err))
		}
	}
	return errors.Join(errs...)
}

// inVersion returns a result in a version of CNI, which it most often has; nil for
// nil.
func inVersion(text json.RawMessage, v string) (json.RawMessage, error) {
	if text == nil {
		return nil, nil
	}
	raw, err := object(text)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	if versionOf(raw) == v {
		return raw, nil
	}
	result, err := create.CreateFromBytes(raw)
	if err == nil {
		result, err = result.GetAsVersion(v)
	}
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	return json.Marshal(result)
}
