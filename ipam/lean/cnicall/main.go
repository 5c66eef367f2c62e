package cnicall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/tenure-ipam/tenure/ipam/lean/cniname"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// Args is what a plugin is called with: CNI's variables and its standard input.
type Args struct {
	ContainerID, Netns, IfName, Args, Path, NetnsOverride string
	StdinData                                             []byte
	// Version is the CNI version of StdinData.
	Version string
}

// Funcs serve the verbs.
type Funcs struct {
	Add, Del, Check, Status, GC func(*Args) error
}

// Streams are a plugin's standard input and outputs.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main serves the one call that getenv and s.In describe, as PluginMainFuncsWithError of
// the CNI library's package skel does: it answers VERSION itself, and about to people;
// it checks what the library checks, in its order and its words; and it returns what
// the runtime is to be told, nil for success, and the CNI version of the configuration, as far as
// that can be read, else nothing: what is told has to be in that version. There are two
// differences. An ADD into the plugin's own network namespace is refused before it is served, not
// afterwards. An error about the value of a variable names the variable, as CNI demands.
//
// The library compiles regular expressions before main, has encoding/json learn three
// types, and locks a thread to look at its network namespace, for which the runtime of
// Go starts another thread.
func Main(getenv func(string) string, s Streams, f Funcs, about string) (confVersion string, e *types.Error) {
	verb := getenv("CNI_COMMAND")
	args, e := readArgs(getenv, s.In, verb)
	if e != nil {
		if verb == "" && e.Code == types.ErrInvalidEnvironmentVariables && about != "" {
			fmt.Fprintln(s.Err, about)
			fmt.Fprintf(s.Err, "CNI protocol versions supported: %s\n", strings.Join(version.All.SupportedVersions(), ", "))
			return "", nil
		}
		return versionOf(args.StdinData), e
	}
	if e = dispatch(verb, args, s.Out, f); e != nil && args.Version == "" {
		args.Version = versionOf(args.StdinData)
	}
	return args.Version, e
}

// dispatch has f serve verb, or answers it itself.
func dispatch(verb string, args *Args, out io.Writer, f Funcs) *types.Error {
	switch verb {
	case "ADD":
		return serve(args, func(args *Args) error {
			if e := checkNetns(args); e != nil {
				return e
			}
			return f.Add(args)
		})
	case "DEL":
		if e := serve(args, f.Del); e != nil {
			return e
		}
		return checkNetns(args)
	case "CHECK":
		return serveSince("0.4.0", verb, args, f.Check)
	case "GC":
		return serveSince("1.1.0", verb, args, f.GC)
	case "STATUS":
		return serveSince("1.1.0", verb, args, f.Status)
	case "VERSION":
		if err := version.All.Encode(out); err != nil {
			return types.NewError(types.ErrIOFailure, err.Error(), "")
		}
		return nil
	default:
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("unknown CNI_COMMAND: %v", verb), "")
	}
}

// readArgs reads what a call of verb brings, and checks it. With an error, the Args have what could
// be read.
func readArgs(getenv func(string) string, in io.Reader, verb string) (*Args, *types.Error) {
	args := new(Args)
	var unread error
	if verb != "" && verb != "VERSION" { // first, since errors are told in the version that it has
		args.StdinData, unread = io.ReadAll(in)
	}
	ofPod := verb == "ADD" || verb == "CHECK" || verb == "DEL"
	ofAny := ofPod || verb == "GC" || verb == "STATUS"
	var missing []string
	for _, v := range [...]struct {
		name     string
		value    *string
		required bool
		check    func(string) *types.Error // of a required one
	}{
		{"CNI_COMMAND", &verb, true, nil},
		{"CNI_CONTAINERID", &args.ContainerID, ofPod, cniname.CheckContainerID},
		{"CNI_NETNS", &args.Netns, ofPod && verb != "DEL", nil},
		{"CNI_IFNAME", &args.IfName, ofPod, cniname.CheckInterface},
		{"CNI_ARGS", &args.Args, false, nil},
		{"CNI_PATH", &args.Path, ofAny, nil},
		{"CNI_NETNS_OVERRIDE", &args.NetnsOverride, false, nil},
	} {
		*v.value = getenv(v.name)
		switch {
		case *v.value == "" && v.required:
			missing = append(missing, v.name)
		case *v.value != "" && v.required && v.check != nil:
			if e := v.check(*v.value); e != nil {
				e.Msg = v.name + ": " + e.Msg
				return args, e
			}
		}
	}
	if len(missing) > 0 {
		return args, types.NewError(types.ErrInvalidEnvironmentVariables, "required env variables ["+strings.Join(missing, ",")+"] missing", "")
	}
	if verb == "VERSION" {
		return args, nil
	}
	if unread != nil {
		return args, types.NewError(types.ErrIOFailure, fmt.Sprintf("error reading from stdin: %v", unread), "")
	}
	return args, checkName(args.StdinData)
}

// serve has f serve a call whose configuration is of a version that is supported.
func serve(args *Args, f func(*Args) error) *types.Error {
	if e := args.readVersion(); e != nil {
		return e
	}
	supported := version.All.SupportedVersions()
	if !slices.Contains(supported, args.Version) {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", (&version.ErrorIncompatible{Config: args.Version, Supported: supported}).Details())
	}
	err := f(args)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}

// serveSince serves a verb that exists only since a version of CNI.
func serveSince(since, verb string, args *Args, f func(*Args) error) *types.Error {
	if e := args.readVersion(); e != nil {
		return e
	}
	known, err := version.GreaterThanOrEqualTo(args.Version, since)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if !known {
		return types.NewError(types.ErrIncompatibleCNIVersion, "config version does not allow "+verb, "")
	}
	newer, err := version.GreaterThan(args.Version, version.Current())
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if newer {
		return types.NewError(types.ErrIncompatibleCNIVersion, "plugin version does not allow "+verb, "")
	}
	return serve(args, f)
}

// readVersion reads the version of args' configuration.
func (args *Args) readVersion() *types.Error {
	if v, ok := member(args.StdinData, "cniVersion"); ok {
		if args.Version = v; v == "" {
			args.Version = "0.1.0"
		}
		return nil
	}
	var err error
	if args.Version, err = (&version.ConfigDecoder{}).Decode(args.StdinData); err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	return nil
}

// versionOf returns the version that a configuration has, as far as it can be read at all: it may
// end before its end. It is empty if there is none.
func versionOf(text []byte) string {
	args := Args{StdinData: text}
	if args.readVersion() == nil {
		return args.Version
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return ""
		}
		if key == "cniVersion" && value[0] == '"' {
			return plainjson.Text(value)
		}
	}
	return ""
}

// checkName reports a configuration without a name of a network.
func checkName(text []byte) *types.Error {
	name, ok := member(text, "name")
	if !ok {
		var conf struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(text, &conf); err != nil {
			return types.NewError(types.ErrDecodingFailure, fmt.Sprintf("error unmarshall network config: %v", err), "")
		}
		name = conf.Name
	}
	if name == "" {
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name", "")
	}
	return cniname.CheckNetwork(name)
}

// member returns the string under key of the object that text is, "" if there is none.
// It leaves to encoding/json, with ok = false, what that sees otherwise: other kinds,
// and keys that are there twice or in other letters.
func member(text []byte, key string) (value string, ok bool) {
	if !json.Valid(text) {
		return "", false
	}
	raw := plainjson.Trim(text)
	if raw[0] != '{' {
		return "", false
	}
	seen := 0
	for k, v := range plainjson.Members(raw) {
		if !strings.EqualFold(string(k), key) {
			continue
		}
		if seen++; seen > 1 || v[0] != '"' || string(k) != key {
			return "", false
		}
		value = plainjson.Text(v)
	}
	return value, true
}
