package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/tenure-ipam/tenure/ipam/lean/cniname"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A list is a network configuration list on its way into a plan.
type list struct {
	members map[string]json.RawMessage // of the list, but for name and plugins
	name    string                     // empty if missing
	plugins []plugin
	// loadsMore says that further plugins may lie in files.
	loadsMore bool
}

// A plugin is one of a list: its configuration, and what CNI reads of it.
type plugin struct {
	members map[string]json.RawMessage
	conf    types.PluginConf
}

// parseList reads a list, or a single configuration as a list of one.
func parseList(text []byte) (*list, error) {
	members, err := plainjson.Object(text)
	if err != nil {
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
	for _, name := range []string{"disableCheck", "disableGC"} { // for whoever runs the plugins
		if _, err := truth(members, name); err != nil {
			return nil, err
		}
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
	members, err := plainjson.Object(text)
	if err != nil || members == nil {
		return errors.New("want an object, the configuration of a plugin")
	}
	p := plugin{members: members}
	if p.conf, err = confOf(text, members); err != nil {
		return err
	}
	if p.conf.Type == "" {
		return errors.New("type: missing; it names the plugin to run")
	}
	// What is run is what has this very name. CNI's library also takes others, as "Type".
	var kind string
	if raw, ok := members["type"]; !ok || !plainjson.TextTo(raw, &kind) || kind != p.conf.Type {
		return fmt.Errorf("type: it is %q, and a member whose name differs in case says %q; have one, with the name type", kind, p.conf.Type)
	}
	l.plugins = append(l.plugins, p)
	return nil
}

// confOf returns what CNI reads of a plugin's configuration, text, which has members.
func confOf(text []byte, members map[string]json.RawMessage) (types.PluginConf, error) {
	if conf, ok := plainConf(members); ok && !repeats(text, members) {
		return conf, nil
	}
	var conf types.PluginConf
	err := json.Unmarshal(text, &conf)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s: %s is not what CNI wants there", e.Field, e.Value)
	}
	return conf, err
}

// repeats reports whether text has a member twice.
func repeats(text []byte, members map[string]json.RawMessage) bool {
	n := 0
	for range plainjson.Members(plainjson.Trim(text)) {
		n++
	}
	return n > len(members)
}

// plainConf does what confOf does, without encoding/json: that would spend a twentieth of an ADD
// on learning the type. It takes configurations as most are, in which the names are spelt as CNI
// spells them, and which have no results and the like.
func plainConf(members map[string]json.RawMessage) (conf types.PluginConf, ok bool) {
	for key, v := range members {
		switch key {
		case "cniVersion":
			ok = plainjson.TextTo(v, &conf.CNIVersion)
		case "name":
			ok = plainjson.TextTo(v, &conf.Name)
		case "type":
			ok = plainjson.TextTo(v, &conf.Type)
		case "capabilities":
			conf.Capabilities, ok = plainTruths(v)
		case "ipam":
			ok = plainIPAM(v, &conf.IPAM)
		default:
			ok = !slices.ContainsFunc([]string{
				"cniVersion", "name", "type", "capabilities", "ipam", "dns", "prevResult", "cni.dev/valid-attachments",
			}, func(name string) bool { return strings.EqualFold(name, key) })
		}
		if !ok {
			return conf, false
		}
	}
	return conf, true
}

func plainIPAM(raw json.RawMessage, to *types.IPAM) bool {
	if raw[0] != '{' {
		return false
	}
	for key, v := range plainjson.Members(raw) {
		if strings.EqualFold(string(key), "type") && (string(key) != "type" || !plainjson.TextTo(v, &to.Type)) {
			return false
		}
	}
	return true
}

func plainTruths(raw json.RawMessage) (map[string]bool, bool) {
	if raw[0] != '{' {
		return nil, false
	}
	all := map[string]bool{}
	for key, v := range plainjson.Members(raw) {
		if v[0] != 't' && v[0] != 'f' {
			return nil, false
		}
		all[string(key)] = v[0] == 't'
	}
	return all, true
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
	if err := cniname.CheckNetwork(l.name); err != nil {
		return fmt.Errorf("name: %s; a network's name begins with a letter or digit and has letters, digits, periods, hyphens and underscores", err.Msg)
	}
	return nil
}

// checkPlugins reports whether the list runs a plugin that attaches networks itself:
// tenure-attach, which would call itself, or Multus, which would make each interface again.
func (l *list) checkPlugins() error {
	for _, p := range l.plugins {
		switch {
		case p.conf.Type == PluginType:
			return fmt.Errorf("network %s is run by %s, which would call itself", l.name, PluginType)
		case IsMetaPlugin(p.conf.Type):
			return fmt.Errorf("network %s is run by %s, which would attach the pod's networks a second time: take the network that it delegates to", l.name, p.conf.Type)
		}
	}
	return nil
}

// movesRoutes reports whether a plugin of the list moves the routes of its interface to another
// routing table, and names the chain.
func (l *list) movesRoutes() (chain string, moves bool) {
	var kinds []string
	for _, p := range l.plugins {
		kinds = append(kinds, p.conf.Type)
		moves = moves || p.conf.Type == "sbr" || p.conf.Type == "vrf"
	}
	return strings.Join(kinds, ", "), moves
}

// IsMetaPlugin reports whether a plugin of that type attaches pods to the networks that they
// select.
func IsMetaPlugin(kind string) bool {
	return kind == PluginType || kind == "multus" || kind == "multus-shim"
}

// declares reports whether a plugin of the list has the capability.
func (l *list) declares(capability string) bool {
	return slices.ContainsFunc(l.plugins, func(p plugin) bool { return p.conf.Capabilities[capability] })
}

// marshal returns the list as JSON, with all its plugins inlined.
func (l *list) marshal() json.RawMessage {
	members := maps.Clone(l.members)
	if l.name != "" {
		members["name"] = quote(l.name)
	}
	plugins := []byte{'['}
	for i, p := range l.plugins {
		if i > 0 {
			plugins = append(plugins, ',')
		}
		plugins = plainjson.AppendMap(plugins, p.members)
	}
	members["plugins"] = append(plugins, ']')
	if l.loadsMore {
		members["loadOnlyInlinedPlugins"] = json.RawMessage("true") // they have been loaded
	}
	return plainjson.AppendMap(nil, members)
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
	raw, ok := members[name]
	switch strings.ToLower(string(raw)) {
	case "false", `"false"`:
		return false, nil
	case "true", `"true"`:
		return true, nil
	}
	if ok {
		return false, fmt.Errorf("%s: %s is neither true nor false", name, raw)
	}
	return false, nil
}

func quote(s string) json.RawMessage { return plainjson.AppendText(nil, s) }

// encode returns v as JSON. v consists of JSON, strings and maps of them alone,
// for which it does not fail.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("plan: %v of what was valid JSON: %v", v, err))
	}
	return raw
}
