// Command recorder is a CNI plugin for tests: it writes down how it is called and
// answers as its configuration says, in the version of its configuration. Without
// instructions it does nothing and answers a result with its interface.
//
// Its instructions are the member "recorder" of its configuration.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// config is what the recorder reads of its configuration.
type config struct {
	CNIVersion string          `json:"cniVersion"`
	PrevResult json.RawMessage `json:"prevResult"`
	Recorder   struct {
		// Log is the directory of the records; empty: none are made.
		Log string `json:"log"`
		// IPs are the addresses of the result, of its interface.
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
		// Say are bytes to answer instead of a result.
		Say *string `json:"say"`
		// Stderr is written to standard error.
		Stderr string `json:"stderr"`
		// Fail are errors by verb; a verb fails as long as File, if given, exists.
		Fail map[string]struct {
			Code uint   `json:"code"`
			Msg  string `json:"msg"`
			File string `json:"file"`
		} `json:"fail"`
		// KillParent has the caller killed before the work, by verb: as often as the
		// file can be removed.
		KillParent map[string]string `json:"killParent"`
		// Millis is how long a call takes, in milliseconds.
		Millis int `json:"millis"`
		// Until is a file: the call takes until it exists.
		Until string `json:"until"`
		// Device is written to the file CNIDeviceInfoFile of runtimeConfig.
		Device string `json:"device"`
	} `json:"recorder"`
	Runtime struct {
		DeviceFile string `json:"CNIDeviceInfoFile"`
	} `json:"runtimeConfig"`
}

// record is a call. Times are in nanoseconds, of one clock for all processes.
type record struct {
	Verb  string            `json:"verb"`
	Env   map[string]string `json:"env"`
	Stdin json.RawMessage   `json:"stdin"`
	Begin int64             `json:"begin"`
	End   int64             `json:"end"`
}

func main() {
	verb := func(args *skel.CmdArgs) error { return serve(os.Getenv("CNI_COMMAND"), args) }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: verb, Del: verb, Check: verb, GC: verb, Status: verb}, version.All, "CNI plugin recorder, for tests")
}

func serve(verb string, args *skel.CmdArgs) error {
	var c config
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return err
	}
	rec := record{Verb: verb, Env: environment(), Stdin: args.StdinData, Begin: time.Now().UnixNano()}
	if err := rec.write(c.Recorder.Log, ".started"); err != nil {
		return err
	}
	if c.Recorder.Stderr != "" {
		fmt.Fprintln(os.Stderr, c.Recorder.Stderr)
	}
	if file, ok := c.Recorder.KillParent[verb]; ok && os.Remove(file) == nil {
		if err := syscall.Kill(os.Getppid(), syscall.SIGKILL); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(c.Recorder.Millis) * time.Millisecond)
	for c.Recorder.Until != "" {
		if _, err := os.Stat(c.Recorder.Until); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	rec.End = time.Now().UnixNano()
	if err := rec.write(c.Recorder.Log, ".json"); err != nil {
		return err
	}
	if f, ok := c.Recorder.Fail[verb]; ok {
		if _, err := os.Stat(f.File); f.File == "" || !errors.Is(err, fs.ErrNotExist) {
			return types.NewError(f.Code, f.Msg, "")
		}
	}
	if verb != "ADD" {
		return nil
	}
	return c.answer(args)
}

// answer prints the result of an ADD.
func (c config) answer(args *skel.CmdArgs) error {
	if c.Recorder.Device != "" && c.Runtime.DeviceFile != "" {
		if err := os.WriteFile(c.Runtime.DeviceFile, []byte(c.Recorder.Device), 0o600); err != nil {
			return err
		}
	}
	if c.Recorder.Say != nil {
		_, err := os.Stdout.WriteString(*c.Recorder.Say)
		return err
	}
	if c.PrevResult != nil {
		prev, err := create.CreateFromBytes(c.PrevResult)
		if err != nil {
			return err
		}
		return types.PrintResult(prev, c.CNIVersion)
	}
	zero := 0
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	r.Interfaces = []*types100.Interface{{Name: args.IfName, Mac: c.Recorder.MAC, Sandbox: args.Netns}}
	for _, text := range c.Recorder.IPs {
		ip, network, err := net.ParseCIDR(text)
		if err != nil {
			return err
		}
		network.IP = ip
		r.IPs = append(r.IPs, &types100.IPConfig{Address: *network, Interface: &zero})
	}
	return types.PrintResult(r, c.CNIVersion)
}

// environment is what CNI says in variables.
func environment() map[string]string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CNI_") {
			env[name] = value
		}
	}
	return env
}

// write puts the record, of a call that has begun or ended, into the directory, whole or not at
// all, under a name that sorts by its beginning.
func (r record) write(dir, suffix string) error {
	if dir == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	final := filepath.Join(dir, fmt.Sprintf("%020d.%d", r.Begin, os.Getpid())+suffix)
	if err := os.WriteFile(final+".tmp", text, 0o600); err != nil {
		return err
	}
	return os.Rename(final+".tmp", final)
}
