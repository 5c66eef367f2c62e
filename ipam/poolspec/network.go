package poolspec

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// ParseNetwork reads the configuration in a NetworkAttachmentDefinition, single
// or list, and returns one Config for each plugin in it whose IPAM is Tenure's;
// none for a network of somebody else. Definition is the object's name, which a
// configuration without a name of its own gets.
func ParseNetwork(config []byte, definition string) ([]*Config, error) {
	plugins, err := oursOf(config, definition)
	if err != nil || len(plugins) == 0 {
		return nil, err
	}
	return parseAll(plugins)
}

// oursOf returns the plugins of a configuration, single or list, whose IPAM is Tenure's. If the
// configuration has no name of its own, it gets that of its definition.
func oursOf(config []byte, definition string) (plugins []object, err error) {
	fs := faults{kind: ErrConfig}
	top, ok := fs.document(config)
	if !ok {
		return nil, fs.err()
	}
	if _, ok := top.get("name"); !ok {
		top.set("name", quote(definition))
	}
	raw, isList := top.get("plugins")
	if !isList {
		if !isOurs(top) {
			return nil, nil
		}
		return []object{top}, nil
	}
	for i, item := range fs.items("plugins", raw) {
		o, ok := fs.dict(fmt.Sprintf("plugins[%d]", i), item)
		if !ok || !isOurs(o) {
			continue
		}
		// As libcni does before it calls a plugin.
		for _, key := range []string{"name", "cniVersion", "allowPersistentIPs"} {
			if raw, ok := top.get(key); ok {
				o.set(key, raw)
			}
		}
		plugins = append(plugins, o)
	}
	return plugins, fs.err()
}

// parseAll reads each of the configurations.
func parseAll(tops []object) ([]*Config, error) {
	var configs []*Config
	var errs []error
	for _, top := range tops {
		p := parser{faults: faults{kind: ErrConfig}}
		p.config(top, "")
		configs = append(configs, &p.cfg)
		errs = append(errs, p.list...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return configs, nil
}

// isOurs reports whether the plugin's IPAM is Tenure's.
func isOurs(plugin object) bool {
	raw, ok := plugin.get("ipam")
	if !ok || !says(raw, kindObject) {
		return false
	}
	kind, ok := object{fields: members(raw)}.get("type")
	return ok && says(kind, kindString) && plainjson.Text(kind) == Type
}

// quote returns s as JSON.
func quote(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil { // there is no string that JSON cannot hold
		panic("poolspec: " + err.Error())
	}
	return raw
}
