package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A chain is a network configuration list: the plugins that make one attachment,
// in the order of ADD.
type chain struct {
	name    string
	version string // of CNI; empty if the list has none
	noCheck bool
	noGC    bool
	text    json.RawMessage
	plugins []plugin
}

// A plugin is one of a chain.
type plugin struct {
	kind         string          // the name of its program
	ipam         string          // that of its IPAM plugin's, which it runs by itself; empty for none
	text         json.RawMessage // its configuration
	capabilities []string        // what it declares to take of runtimeConfig
}

// parse reads the configuration list of a step. Package plan has made it, so that
// its plugins are inlined and it has one version.
func parse(text json.RawMessage) (*chain, error) {
	c, err := parseChain(text)
	if err != nil {
		return nil, &types.Error{Code: types.ErrInvalidNetworkConfig, Msg: "network configuration list: " + err.Error()}
	}
	return c, nil
}

func parseChain(text json.RawMessage) (*chain, error) {
	raw, err := object(text)
	if err != nil {
		return nil, err
	}
	c := &chain{text: text}
	for key, v := range plainjson.Members(raw) {
		switch string(key) {
		case "name":
			c.name, err = textOf(v)
		case "cniVersion":
			c.version, err = textOf(v)
		case "disableCheck":
			c.noCheck, err = truthOf(v)
		case "disableGC":
			c.noGC, err = truthOf(v)
		case "plugins":
			c.plugins, err = parsePlugins(v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if c.name == "" {
		return nil, errors.New("it has no name")
	}
	if len(c.plugins) == 0 {
		return nil, fmt.Errorf("network %s has no plugins", c.name)
	}
	return c, nil
}

func parsePlugins(raw json.RawMessage) (all []plugin, err error) {
	if raw[0] != '[' {
		return nil, errors.New("want a list")
	}
	for text := range plainjson.Items(raw) {
		p := plugin{text: text}
		if text[0] != '{' {
			return nil, errors.New("want objects")
		}
		for key, v := range plainjson.Members(text) {
			switch string(key) {
			case "type":
				p.kind, err = textOf(v)
			case "ipam":
				p.ipam = ipamOf(v)
			case "capabilities":
				p.capabilities, err = declared(v)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		if p.kind == "" {
			return nil, errors.New("type: missing; it names the plugin to run")
		}
		all = append(all, p)
	}
	return all, nil
}

// ipamOf returns the name that a plugin's member "ipam" has as its type. What else there
// may be is the plugin's affair.
func ipamOf(raw json.RawMessage) (kind string) {
	if raw[0] != '{' {
		return ""
	}
	for key, v := range plainjson.Members(raw) {
		if string(key) == "type" && v[0] == '"' {
			kind = plainjson.Text(v)
		}
	}
	return kind
}

// declared returns the names of the capabilities that are true.
func declared(raw json.RawMessage) (names []string, err error) {
	if raw[0] != '{' {
		if string(raw) == "null" {
			return nil, nil
		}
		return nil, errors.New("want an object")
	}
	for name, v := range plainjson.Members(raw) {
		if string(v) == "true" {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// object returns the JSON object that text is.
func object(text json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(text) {
		return nil, json.Unmarshal(text, new(any)) // says where
	}
	raw := plainjson.Trim(text)
	if raw[0] != '{' {
		return nil, fmt.Errorf("%.40q is not an object", raw)
	}
	return raw, nil
}

func textOf(raw json.RawMessage) (string, error) {
	if raw[0] != '"' {
		return "", fmt.Errorf("%.40q is not a string", raw)
	}
	return plainjson.Text(raw), nil
}

// truthOf reads a truth value, which CNI also takes as a string.
func truthOf(raw json.RawMessage) (bool, error) {
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%.40q is neither true nor false", raw)
}

// A member is one that CNI adds to a plugin's configuration.
type member struct {
	key   string // needs no escapes
	value json.RawMessage
}

// config returns what p is given on its standard input: its configuration, with the
// network's name and version, and more, in the place of what it has by these names.
func (c *chain) config(p plugin, more ...member) []byte {
	return with(p.text, append([]member{
		{"cniVersion", plainjson.AppendText(nil, c.version)},
		{"name", plainjson.AppendText(nil, c.name)},
	}, more...)...)
}

// with returns the object raw with members set.
func with(raw json.RawMessage, set ...member) json.RawMessage {
	b := append(make([]byte, 0, len(raw)+512), '{')
	for _, m := range set {
		b = append(plainjson.AppendKey(b, m.key), m.value...)
	}
	for key, v := range plainjson.Members(raw) {
		if slices.ContainsFunc(set, func(m member) bool { return m.key == string(key) }) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(plainjson.AppendText(b, string(key)), ':'), v...)
	}
	return append(b, '}')
}
