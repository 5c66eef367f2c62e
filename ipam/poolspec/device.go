package poolspec

import "encoding/json"

// deviceVersion is the CNI version by which the network of a device is read: no plugin gets the
// result, so that the version of the text bounds nothing.
const deviceVersion = "1.1.0"

// ParseDevice reads the configuration in a NetworkAttachmentDefinition for a device, which asks for
// the addresses ips by name. No Config is a network of somebody else. Definition is the object's
// name, which a configuration without a name of its own gets.
func ParseDevice(config []byte, definition string, ips []string) (*Config, error) {
	plugins, err := oursOf(config, definition)
	if err != nil || len(plugins) == 0 {
		return nil, err
	}
	if len(plugins) > 1 {
		fs := faults{kind: ErrConfig}
		fs.add("plugins", "has several plugins with addresses of Tenure, and a device is of one network", "name a definition with one of them")
		return nil, fs.err()
	}
	plugins[0].set("cniVersion", quote(deviceVersion))
	if len(ips) > 0 {
		raw, err := json.Marshal(map[string][]string{"ips": ips})
		if err != nil { // there is no string that JSON cannot hold
			panic("poolspec: " + err.Error())
		}
		plugins[0].set("runtimeConfig", raw)
	}
	all, err := parseAll(plugins)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// PoolConfig returns the configuration of a network that is a pool, and has its name.
func PoolConfig(pool string) []byte {
	raw, err := json.Marshal(map[string]any{"name": pool, "ipam": map[string]string{"type": Type, "pool": pool}})
	if err != nil { // there is no string that JSON cannot hold
		panic("poolspec: " + err.Error())
	}
	return raw
}
