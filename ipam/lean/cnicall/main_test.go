package cnicall

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// An outcome is what came of a call.
type outcome struct {
	err      *types.Error
	served   string // the verb and what it was served with, the version included
	out, say string
}

// a call of a plugin: variables of CNI without the prefix, and standard input.
type pluginCall struct {
	env   map[string]string
	stdin string
}

func (c pluginCall) getenv(name string) string { return c.env[strings.TrimPrefix(name, "CNI_")] }

const about = "CNI plugin x"

// failures are what verbs are served with, by the container's ID.
var failures = map[string]error{
	"refused": types.NewError(types.ErrTryAgainLater, "later", "details"),
	"wrapped": fmt.Errorf("around: %w", types.NewError(types.ErrTryAgainLater, "later", "")),
	"plain":   errors.New("plain"),
}

// ours has Main serve c, and returns the version that it says too.
func (c pluginCall) ours() (o outcome, version string) {
	var out, say bytes.Buffer
	verb := func(name string) func(*Args) error {
		return func(a *Args) error {
			o.served = fmt.Sprintln(name, a.ContainerID, a.Netns, a.IfName, a.Args, a.Path, a.NetnsOverride, string(a.StdinData), a.Version)
			return failures[a.ContainerID]
		}
	}
	version, o.err = Main(c.getenv, Streams{strings.NewReader(c.stdin), &out, &say}, Funcs{verb("ADD"), verb("DEL"), verb("CHECK"), verb("STATUS"), verb("GC")}, about)
	o.out, o.say = out.String(), say.String()
	return o, version
}

// byLibrary has the CNI library serve c, which takes all from the process.
func (c pluginCall) byLibrary(t *testing.T) (o outcome) {
	t.Helper()
	for _, name := range []string{"COMMAND", "CONTAINERID", "NETNS", "IFNAME", "ARGS", "PATH", "NETNS_OVERRIDE"} {
		t.Setenv("CNI_"+name, c.env[name])
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, []byte(c.stdin), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, stdout, stderr := os.Stdin, os.Stdout, os.Stderr
	defer func() { os.Stdin, os.Stdout, os.Stderr = stdin, stdout, stderr }()
	var errs [3]error
	os.Stdin, errs[0] = os.Open(in)
	os.Stdout, errs[1] = os.Create(filepath.Join(dir, "out"))
	os.Stderr, errs[2] = os.Create(filepath.Join(dir, "err"))
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	verb := func(name string) func(*skel.CmdArgs) error {
		return func(a *skel.CmdArgs) error {
			v, err := (&version.ConfigDecoder{}).Decode(a.StdinData)
			if err != nil {
				t.Error(err)
			}
			o.served = fmt.Sprintln(name, a.ContainerID, a.Netns, a.IfName, a.Args, a.Path, a.NetnsOverride, string(a.StdinData), v)
			return failures[a.ContainerID]
		}
	}
	o.err = skel.PluginMainFuncsWithError(skel.CNIFuncs{Add: verb("ADD"), Del: verb("DEL"), Check: verb("CHECK"), GC: verb("GC"), Status: verb("STATUS")}, version.All, about)
	read := func(f *os.File) string {
		_, seekErr := f.Seek(0, io.SeekStart)
		text, err := io.ReadAll(f)
		if err := errors.Join(seekErr, err, f.Close()); err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_ = os.Stdin.Close() // only read
	o.out, o.say = read(os.Stdout), read(os.Stderr)
	return o
}

// calls are calls of every kind, right ones and wrong ones.
func calls() (all []pluginCall) {
	env := func(verb string, changes ...string) map[string]string {
		m := map[string]string{"COMMAND": verb, "CONTAINERID": "c1", "NETNS": "/none", "IFNAME": "eth0", "ARGS": "A=1", "PATH": "/opt/cni/bin"}
		for i := 0; i < len(changes); i += 2 {
			m[changes[i]] = changes[i+1]
		}
		return m
	}
	const conf = `{"cniVersion":"1.1.0","name":"n"}`
	for _, verb := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "", "add", "UPDATE"} {
		for _, stdin := range []string{
			conf, ` {"name" : "a_b.c-9" , "cniVersion" : "0.4.0" } `, `{"name":"n"}`, `{"name":"n","cniVersion":""}`, `{"name":"n","cniVersion":"0.3.1"}`, `{"name":"n","cniVersion":"0.1.0"}`,
			`{"name":"n","cniVersion":"1.2.0"}`, `{"name":"n","cniVersion":"9"}`, `{"name":"n","cniVersion":"one"}`, `{"name":"n","cniVersion":"1.1.0.0"}`, `{"name":"n","cniVersion":1}`, `{"name":"n","cniVersion":null}`,
			`{"name":"n","cniVersion":"0.4.0","cniVersion":"1.0.0"}`, `{"name":"n","cniVersion":"1.0.0","CNIVersion":"0.4.0"}`, `{"name":"n","cniversion":"0.4.0","cniVersion":"9"}`, `{"name":"n","cniVersion":"1.0.0","cniVersion":null}`,
			`{"Name":"n","cniversion":"1.1.0"}`, `{"name":"n","CNIVERSION":"0.4.0"}`, `{"name":"n","NAME":"m"}`, `{"name":"n","name":"."}`, `{"name":"n\u0061","cniVersion":"1.\u0031.0"}`, `{"name":"é"}`, `{"name":null}`, `{"name":1}`, `{"name":""}`, `{"name":"-n"}`, `{"name":"a b"}`,
			``, `null`, `[]`, `"n"`, `{`, `{"name":"n"}}`, `{"cniVersion":"1.1.0"}`,
		} {
			all = append(all, pluginCall{env(verb), stdin})
		}
		for _, name := range []string{"CONTAINERID", "NETNS", "IFNAME", "ARGS", "PATH"} {
			all = append(all, pluginCall{env(verb, name, ""), conf}, pluginCall{env(verb, name, "", "IFNAME", ""), conf})
		}
		for _, id := range []string{"refused", "wrapped", "plain", "-c", "c/1", "é", "A_b.9-"} {
			all = append(all, pluginCall{env(verb, "CONTAINERID", id), conf})
		}
		for _, name := range []string{".", "..", "...", "a/b", "a:b", "a b", "a\u0085b", "a\xffb", "exactly15chars-", "sixteencharacter"} {
			all = append(all, pluginCall{env(verb, "IFNAME", name), conf}, pluginCall{env(verb, "IFNAME", name, "NETNS", ""), conf})
		}
	}
	return all
}

// TestMainDoesWhatTheCNILibraryDoes (C16) compares every kind of call. What is wrong with a
// variable's value, the library says without the variable's name.
func TestMainDoesWhatTheCNILibraryDoes(t *testing.T) {
	for _, c := range calls() {
		got, _ := c.ours()
		want := c.byLibrary(t)
		for prefix, name := range map[string]string{"invalid characters in containerID": "CNI_CONTAINERID", "interface name ": "CNI_IFNAME"} {
			if want.err != nil && strings.HasPrefix(want.err.Msg, prefix) {
				want.err.Msg = name + ": " + want.err.Msg
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v with %q:\ngot  %+v, %v\nwant %+v, %v", c.env, c.stdin, got, got.err, want, want.err)
		}
	}
}

// TestOwnNetworkNamespace (C17): what the library refuses after an ADD is refused before
// it, with or without whatever stands for an override.
func TestOwnNetworkNamespace(t *testing.T) {
	for _, override := range []string{"", "0", "no", "1", "true", "tRue"} {
		for _, verb := range []string{"ADD", "DEL", "CHECK"} {
			c := pluginCall{map[string]string{"COMMAND": verb, "CONTAINERID": "c1", "NETNS": "/proc/self/ns/net", "IFNAME": "eth0", "PATH": "/x", "NETNS_OVERRIDE": override}, `{"cniVersion":"1.1.0","name":"n"}`}
			got, _ := c.ours()
			want := c.byLibrary(t)
			if verb == "ADD" && want.err != nil {
				want.served = ""
			}
			if got.served != want.served || (got.err == nil) != (want.err == nil) || got.err != nil && got.err.Code != want.err.Code {
				t.Errorf("%s with override %q: served %q, %v; want %q, %v", verb, override, got.served, got.err, want.served, want.err)
			}
		}
	}
}

// TestEarlyErrorsAreInTheVersionOfTheConfiguration (C16): also those that come before the
// configuration is looked at, or by which it cannot be read, as far as its version can be.
func TestEarlyErrorsAreInTheVersionOfTheConfiguration(t *testing.T) {
	const conf = `{"cniVersion":"0.4.0","name":"n"}`
	for _, tt := range []struct {
		what, variable, value, stdin, version string
		code                                  uint
	}{
		{"a variable that is missing", "CONTAINERID", "", conf, "0.4.0", types.ErrInvalidEnvironmentVariables},
		{"a variable that is wrong", "IFNAME", "a/b", conf, "0.4.0", types.ErrInvalidEnvironmentVariables},
		{"no such verb", "COMMAND", "EAT", conf, "0.4.0", types.ErrInvalidEnvironmentVariables},
		{"no name", "ARGS", "", `{"cniVersion":"0.4.0"}`, "0.4.0", types.ErrInvalidNetworkConfig},
		{"no version", "ARGS", "", `{}`, "0.1.0", types.ErrInvalidNetworkConfig},
		{"a name that is none", "ARGS", "", `{"name":7,"cniVersion":"0.4.0"}`, "0.4.0", types.ErrDecodingFailure},
		{"cut short", "ARGS", "", `{"cniVersion":"0.4.0","name":"n`, "0.4.0", types.ErrDecodingFailure},
		{"cut short in another member", "ARGS", "", `{"cniVersion":"0.4.0","name":{"n":`, "0.4.0", types.ErrDecodingFailure},
		{"cut short before the version", "ARGS", "", `{"name":"n","cniVer`, "", types.ErrDecodingFailure},
		{"a version that is none", "ARGS", "", `{"cniVersion":4,"name":"n"}`, "", types.ErrDecodingFailure},
		{"a version elsewhere", "ARGS", "", `{"ipam":{"cniVersion":"0.4.0"},`, "", types.ErrDecodingFailure},
		{"no object", "ARGS", "", `["cniVersion","0.4.0"]`, "", types.ErrDecodingFailure},
		{"nothing", "ARGS", "", ``, "", types.ErrDecodingFailure},
	} {
		env := map[string]string{"COMMAND": "ADD", "CONTAINERID": "c1", "NETNS": "/none", "IFNAME": "eth0", "PATH": "/x"}
		env[tt.variable] = tt.value
		got, version := pluginCall{env, tt.stdin}.ours()
		if got.err == nil || got.err.Code != tt.code || version != tt.version {
			t.Errorf("%s: %v in CNI %q; want code %d in %q", tt.what, got.err, version, tt.code, tt.version)
		}
	}
}

// TestErrorsAreInTheVersionOfTheConfiguration (C17), also those that come before a verb is
// served.
func TestErrorsAreInTheVersionOfTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		what, verb, netns, version string
		code                       uint
	}{
		{"own network namespace", "ADD", "/proc/self/ns/net", "0.4.0", types.ErrInvalidNetNS},
		{"own network namespace", "DEL", "/proc/self/ns/net", "0.4.0", types.ErrInvalidNetNS},
		{"no such version", "ADD", "/none", "0.5.0", types.ErrIncompatibleCNIVersion},
		{"no such verb then", "CHECK", "/none", "0.3.1", types.ErrIncompatibleCNIVersion},
		{"no such verb then", "GC", "", "1.0.0", types.ErrIncompatibleCNIVersion},
		{"no such verb then", "STATUS", "", "1.0.0", types.ErrIncompatibleCNIVersion},
	} {
		c := pluginCall{map[string]string{"COMMAND": tt.verb, "CONTAINERID": "c1", "NETNS": tt.netns, "IFNAME": "eth0", "PATH": "/x"}, fmt.Sprintf(`{"cniVersion":%q,"name":"n"}`, tt.version)}
		got, version := c.ours()
		if got.err == nil || got.err.Code != tt.code || version != tt.version {
			t.Errorf("%s with %s: %v in CNI %q; want code %d in %s", tt.verb, tt.what, got.err, version, tt.code, tt.version)
		}
	}
}

// TestMainStdinCannotBeRead: the runtime is told which side failed.
func TestMainStdinCannotBeRead(t *testing.T) {
	getenv := pluginCall{env: map[string]string{"COMMAND": "GC", "PATH": "/x"}}.getenv
	if _, e := Main(getenv, Streams{In: io.MultiReader(strings.NewReader("{"), badReader{})}, Funcs{}, about); e == nil || e.Code != types.ErrIOFailure {
		t.Errorf("got %v; want code %d", e, types.ErrIOFailure)
	}
}

type badReader struct{}

func (badReader) Read([]byte) (int, error) { return 0, errors.New("bad") }
