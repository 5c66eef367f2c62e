package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A key is a member of the configuration: read, ignored for a reason, or refused
// for one.
type key struct {
	read             func(*Config, json.RawMessage) error
	ignored, refused string
}

// keys are all that a configuration can have, but for those with a period in
// their names, which belong to others.
var keys = map[string]key{
	// CNI's.
	"cniVersion":    text(func(c *Config) *string { return &c.CNIVersion }),
	"name":          text(func(c *Config) *string { return &c.Name }),
	"type":          {read: func(*Config, json.RawMessage) error { return nil }},
	"capabilities":  {read: func(*Config, json.RawMessage) error { return nil }}, // the runtime's to read
	"prevResult":    {read: func(c *Config, raw json.RawMessage) error { c.PrevResult = raw; return nil }},
	"runtimeConfig": {read: func(c *Config, raw json.RawMessage) error { return object(raw, &c.Runtime) }},
	"args":          {ignored: "arguments belong into the configuration of the network that they are for"},
	"ipam":          {ignored: "addresses belong into the configuration of the network that they are for"},
	"dns":           {ignored: "DNS settings belong into the configuration of the network that they are for"},

	// Tenure's.
	"defaultNetwork":    {read: readDefaultNetwork},
	"defaultNamespace":  text(func(c *Config) *string { return &c.Namespace }),
	"isolation":         word(map[string]func(*Config){"Namespace": func(c *Config) { c.Isolated = true }, "None": func(c *Config) { c.Isolated = false }}),
	"specVersion":       word(map[string]func(*Config){"1.3": func(c *Config) { c.Version = npwg.V13 }, "1": func(c *Config) { c.Version = npwg.V1 }}),
	"invalidAnnotation": word(map[string]func(*Config){"Ignore": func(c *Config) { c.FailInvalid = false }, "Fail": func(c *Config) { c.FailInvalid = true }}),
	"ipsWithClaim":      word(map[string]func(*Config){"Fail": func(c *Config) { c.AllowIPsWithClaim = false }, "Allow": func(c *Config) { c.AllowIPsWithClaim = true }}),
	"missingCapability": word(map[string]func(*Config){"Fail": func(c *Config) { c.ArgsWithoutCapability = false }, "CNIArgs": func(c *Config) { c.ArgsWithoutCapability = true }}),
	"statusIPs":         word(map[string]func(*Config){"Address": func(c *Config) { c.StatusCIDRs = false }, "CIDR": func(c *Config) { c.StatusCIDRs = true }}),
	"socket":            file(func(c *Config) *string { return &c.Socket }),
	"stateDir":          file(func(c *Config) *string { return &c.StateDir }),

	// Multus's, of use here too.
	"clusterNetwork":         {read: readClusterNetwork},
	"delegates":              {read: readDelegates},
	"defaultNetworks":        {read: readDefaultNetworks},
	"confDir":                file(func(c *Config) *string { return &c.ConfDir }),
	"binDir":                 file(func(c *Config) *string { return &c.BinDir }),
	"readinessindicatorfile": file(func(c *Config) *string { return &c.ReadinessFile }),
	"multusNamespace":        text(func(c *Config) *string { return &c.Namespace }),
	"namespaceIsolation":     {read: func(c *Config, raw json.RawMessage) error { return readAs(raw, &c.Isolated, "true or false") }},
	"globalNamespaces":       {read: func(c *Config, raw json.RawMessage) error { return names(raw, &c.GlobalNamespaces) }},
	"systemNamespaces":       {read: func(c *Config, raw json.RawMessage) error { return names(raw, &c.SystemNamespaces) }},

	// Multus's, of no use here.
	"kubeconfig":            {ignored: "no credentials lie on the host: the agent is the one to talk to the API server"},
	"cniDir":                {ignored: "what was attached is kept in stateDir"},
	"logFile":               {ignored: "the plugin says what is wrong in its answer and on stderr, and the agent logs"},
	"logLevel":              {ignored: "the plugin says what is wrong in its answer and on stderr, and the agent logs"},
	"logToStderr":           {ignored: "the plugin says what is wrong in its answer and on stderr, and the agent logs"},
	"logOptions":            {ignored: "the plugin says what is wrong in its answer and on stderr, and the agent logs"},
	"retryDeleteOnError":    {ignored: "a DEL that fails is always reported, and runs again when it is repeated"},
	"socketDir":             {ignored: "the agent listens at socket"},
	"daemonSocketDir":       {ignored: "the agent listens at socket"},
	"auxiliaryCNIChainName": {refused: "name the chain in defaultNetworks, or add its plugins to the default network's configuration"},
}

// text is a key whose value is a string; an empty one counts as absent.
func text(field func(*Config) *string) key {
	return key{read: func(c *Config, raw json.RawMessage) error {
		s, err := plainjson.ReadText[string](raw)
		if err != nil {
			return fmt.Errorf("%s is not a string", raw)
		}
		if s != "" {
			*field(c) = s
		}
		return nil
	}}
}

// file is a key whose value is an absolute path of the host.
func file(field func(*Config) *string) key {
	return key{read: func(c *Config, raw json.RawMessage) error {
		s, err := plainjson.ReadText[string](raw)
		if err != nil {
			return fmt.Errorf("%s is not a path", raw)
		}
		if s == "" {
			return nil
		}
		if !path.IsAbs(s) {
			return fmt.Errorf("%q is no absolute path", s)
		}
		*field(c) = path.Clean(s)
		return nil
	}}
}

// word is a key with a closed set of values.
func word(values map[string]func(*Config)) key {
	return key{read: func(c *Config, raw json.RawMessage) error {
		var s string
		if err := readAs(raw, &s, "a string"); err != nil || s == "" {
			return err
		}
		set, ok := values[s]
		if !ok {
			return fmt.Errorf("%q is none of %s", s, strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		}
		set(c)
		return nil
	}}
}

// readAs reads raw into v. want says in words what it must be.
func readAs(raw json.RawMessage, v any, want string) error {
	if json.Unmarshal(raw, v) != nil {
		return fmt.Errorf("%s is not %s", raw, want)
	}
	return nil
}

func object(raw json.RawMessage, v *map[string]json.RawMessage) error {
	return readAs(raw, v, "an object")
}

// names reads a list of names: a list of strings, or as Multus has it one string
// with commas.
func names(raw json.RawMessage, v *[]string) error {
	var one string
	if json.Unmarshal(raw, &one) != nil {
		return readAs(raw, v, "a list of names")
	}
	*v = splitNames(one)
	return nil
}

func splitNames(text string) (all []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// readDefaultNetwork reads a CNI configuration, or what readNamed reads.
func readDefaultNetwork(c *Config, raw json.RawMessage) error {
	if raw[0] == '{' {
		c.Default = Source{Key: "defaultNetwork", Inline: raw}
		return nil
	}
	var s string
	if err := readAs(raw, &s, "a name, a path or a CNI configuration"); err != nil || s == "" {
		return err
	}
	var err error
	c.Default, err = readNamed("defaultNetwork", s)
	return err
}

func readClusterNetwork(c *Config, raw json.RawMessage) error {
	var s string
	if err := readAs(raw, &s, "a name or a path"); err != nil || s == "" {
		return err
	}
	var err error
	c.Default, err = readNamed("clusterNetwork", s)
	return err
}

func readDefaultNetworks(c *Config, raw json.RawMessage) error {
	var all []string
	if err := readAs(raw, &all, "a list of names or paths"); err != nil {
		return err
	}
	var errs []error
	for i, s := range all {
		item, name, _ := strings.Cut(s, "@")
		source, err := readNamed(fmt.Sprintf("defaultNetworks[%d]", i), item)
		if source.IfName = name; name != "" && err == nil {
			err = npwg.CheckInterface(name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("[%d]: %w", i, err))
		}
		c.Extra = append(c.Extra, source)
	}
	return errors.Join(errs...)
}

// readDelegates reads Multus's list of configurations, of which the first is the
// default network's.
func readDelegates(c *Config, raw json.RawMessage) error {
	var all []json.RawMessage
	if err := readAs(raw, &all, "a list of CNI configurations"); err != nil {
		return err
	}
	for i, conf := range all {
		source := Source{Key: fmt.Sprintf("delegates[%d]", i), Inline: conf}
		if i == 0 {
			c.Default = source
		} else {
			c.InlineExtra = append(c.InlineExtra, source)
		}
	}
	return nil
}

// readNamed reads the name of a network, namespace/name of a definition, or a
// path.
func readNamed(key, s string) (Source, error) {
	source := Source{Key: key}
	namespace, name, slash := strings.Cut(s, "/")
	switch {
	case s == "":
		return source, errors.New("empty")
	case strings.HasPrefix(s, "/"):
		source.Path = path.Clean(s)
	case slash:
		source.Namespace, source.Name = namespace, name
		return source, errors.Join(npwg.CheckNamespace(namespace), npwg.CheckName(name))
	default:
		source.Name = s // of a definition or, less strictly, of a configuration file
	}
	return source, nil
}
