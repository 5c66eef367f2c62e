package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// A list is a network configuration list on its way into a plan.
type list struct {
	members map[string]json.RawMessage // of the list, but for name and plugins
	name    string                     // empty if missing
	plugins []map[string]json.RawMessage
	// loadsMore says that further plugins may lie in files.
	loadsMore bool
}

// parseList reads a list, or a single configuration as a list of one.
func parseList(text []byte) (*list, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("not a CNI configuration: %w", err)
	}
	if members == nil {
		return nil, errors.New("not a CNI configuration: null")
	}
	l := &list{members: members}
	if err := member(members, "name", &l.name, "a string"); err != nil {
		return nil, err
	}
	if _, isSingle := members["type"]; isSingle && members["plugins"] == nil {
		if err := l.addPlugin(text); err != nil {
			return nil, err
		}
		l.members = map[string]json.RawMessage{}
		if v, ok := members["cniVersion"]; ok {
			l.members["cniVersion"] = v
		}
		return l, l.pickVersion()
	}
	if err := l.readPlugins(); err != nil {
		return nil, err
	}
	delete(members, "name")
	return l, l.pickVersion()
}

// readPlugins reads plugins and loadOnlyInlinedPlugins.
func (l *list) readPlugins() error {
	inlined, err := truth(l.members, "loadOnlyInlinedPlugins")
	if err != nil {
		return err
	}
	raw, ok := l.members["plugins"]
	if !ok && inlined {
		return errors.New("plugins: missing, and loadOnlyInlinedPlugins forbids to load any")
	}
	l.loadsMore = !inlined
	if !ok {
		return nil
	}
	var plugins []json.RawMessage
	if json.Unmarshal(raw, &plugins) != nil || len(plugins) == 0 {
		return errors.New("plugins: want a list of one plugin or more")
	}
	for i, plugin := range plugins {
		if err := l.addPlugin(plugin); err != nil {
			return fmt.Errorf("plugins[%d]: %w", i, err)
		}
	}
	delete(l.members, "plugins")
	return nil
}

// addPlugin adds the configuration of one plugin.
func (l *list) addPlugin(text []byte) error {
	var plugin map[string]json.RawMessage
	if err := json.Unmarshal(text, &plugin); err != nil || plugin == nil {
		return errors.New("want an object, the configuration of a plugin")
	}
	var kind string
	if err := member(plugin, "type", &kind, "a string"); err != nil {
		return err
	}
	if kind == "" {
		return errors.New("type: missing; it names the plugin to run")
	}
	var capabilities map[string]bool
	if err := member(plugin, "capabilities", &capabilities, "an object of true and false"); err != nil {
		return err
	}
	l.plugins = append(l.plugins, plugin)
	return nil
}

// pickVersion makes cniVersion the highest version of cniVersion and cniVersions
// that there is a library for.
func (l *list) pickVersion() error {
	var one string
	var all []string
	if err := errors.Join(member(l.members, "cniVersion", &one, "a string"), member(l.members, "cniVersions", &all, "a list of strings")); err != nil {
		return err
	}
	if one != "" {
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil
	}
	known := version.All.SupportedVersions()
	best := -1
	for _, v := range all {
		if _, _, _, err := version.ParseVersion(v); err != nil {
			return fmt.Errorf("cniVersion: %w", err)
		}
		best = max(best, slices.Index(known, v))
	}
	if best < 0 {
		return fmt.Errorf("cniVersion %s: none that is known; use one of %s", strings.Join(all, ", "), strings.Join(known, ", "))
	}
	delete(l.members, "cniVersions")
	l.members["cniVersion"] = quote(known[best])
	return nil
}

// checkName reports whether the list's name can be a network's.
func (l *list) checkName() error {
	if err := utils.ValidateNetworkName(l.name); err != nil {
		return fmt.Errorf("name: %s; a network's name begins with a letter or digit and has letters, digits, periods, hyphens and underscores", err.Msg)
	}
	return nil
}

// callsTenure reports whether the list would run tenure-attach, and so itself.
func (l *list) callsTenure() bool {
	return slices.ContainsFunc(l.plugins, func(p map[string]json.RawMessage) bool { return string(p["type"]) == `"`+PluginType+`"` })
}

// declares reports whether a plugin of the list has the capability.
func (l *list) declares(capability string) bool {
	return slices.ContainsFunc(l.plugins, func(p map[string]json.RawMessage) bool { return declared(p)[capability] })
}

// declared returns a plugin's capabilities; addPlugin has looked at their type.
func declared(plugin map[string]json.RawMessage) (capabilities map[string]bool) {
	if json.Unmarshal(plugin["capabilities"], &capabilities) != nil {
		return nil // there are none
	}
	return capabilities
}

// marshal returns the list as JSON, with all its plugins inlined.
func (l *list) marshal() json.RawMessage {
	members := maps.Clone(l.members)
	if l.name != "" {
		members["name"] = quote(l.name)
	}
	members["plugins"] = encode(l.plugins)
	if l.loadsMore {
		members["loadOnlyInlinedPlugins"] = json.RawMessage("true") // they have been loaded
	}
	return encode(members)
}

// member reads a member, which may be absent.
func member(members map[string]json.RawMessage, name string, v any, want string) error {
	raw, ok := members[name]
	if !ok || json.Unmarshal(raw, v) == nil {
		return nil
	}
	return fmt.Errorf("%s: %s is not %s", name, raw, want)
}

// truth reads a member that is true or false, also as a string, as CNI has it.
func truth(members map[string]json.RawMessage, name string) (bool, error) {
	switch raw := strings.ToLower(string(members[name])); raw {
	case "", "false", `"false"`:
		return false, nil
	case "true", `"true"`:
		return true, nil
	default:
		return false, fmt.Errorf("%s: %s is neither true nor false", name, raw)
	}
}

func quote(s string) json.RawMessage { return encode(s) }

// encode returns v as JSON. v consists of JSON, strings and maps of them alone,
// for which it does not fail.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("plan: %v of what was valid JSON: %v", v, err))
	}
	return raw
}
