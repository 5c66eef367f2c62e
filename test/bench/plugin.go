package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A candidate is a plugin that is measured beside others, with the network
// configuration that it gets.
type candidate struct {
	name   name
	path   string
	config map[string][]byte // by verb
}

// A name is a candidate's.
type name string

// The candidates.
const (
	viaAgent  name = "agent"
	static    name = "static"
	inLocal   name = "local"
	hostLocal name = "host-local"
)

// An ipamPlugin is a program and the "ipam" section that it gets.
type ipamPlugin struct {
	name    name
	program string
	ipam    map[string]any
}

// parsePlugin reads NAME=PROGRAM,FILE, where the file has an "ipam" section.
func parsePlugin(text string) (p ipamPlugin, err error) {
	n, rest, ok := strings.Cut(text, "=")
	program, file, both := strings.Cut(rest, ",")
	if !ok || !both || n == "" {
		return p, fmt.Errorf("--with %s: write NAME=PROGRAM,FILE, as in whereabouts=/opt/cni/bin/whereabouts,ipam.json", text)
	}
	if slices.Contains([]name{viaAgent, static, inLocal, hostLocal}, name(n)) {
		return p, fmt.Errorf("--with %s: %s is measured anyway: choose another name", text, n)
	}
	p = ipamPlugin{name: name(n)}
	if p.program, err = exec.LookPath(program); err != nil {
		return p, fmt.Errorf("--with %s: %w", text, err)
	}
	section, err := os.ReadFile(file)
	if err != nil {
		return p, fmt.Errorf("--with %s: %w", text, err)
	}
	if err := json.Unmarshal(section, &p.ipam); err != nil {
		return p, fmt.Errorf("--with %s: %s is no JSON object: %w", text, file, err)
	}
	return p, nil
}

// String is how tables have the name.
func (n name) String() string {
	switch n {
	case viaAgent:
		return "tenure through the agent"
	case inLocal:
		return "tenure in local mode"
	default:
		return string(n)
	}
}

// candidates returns the plugins in the order in which they take turns. Each gets
// its network from a bridge plugin, as far as it can tell.
func (b *bench) candidates() []candidate {
	const subnet = "10.200.0.0/16"
	all := []ipamPlugin{
		{viaAgent, b.program("tenure"), map[string]any{"type": "tenure", "pool": poolName, "socket": b.node.socket(), "journalDir": b.node.journal()}},
		{static, b.program("static"), map[string]any{"type": "static", "addresses": []any{map[string]any{"address": "10.200.0.5/16"}}}},
		{inLocal, b.program("tenure"), map[string]any{"type": "tenure", "mode": "local", "subnet": subnet, "dataDir": filepath.Join(b.dir, "local")}},
		{hostLocal, b.program("host-local"), map[string]any{"type": "host-local", "subnet": subnet, "dataDir": filepath.Join(b.dir, "host-local")}},
	}
	all = append(all, b.others...)
	var out []candidate
	for _, c := range all {
		config, err := networkConfigs(networkName, c.ipam, nil)
		b.Must(err)
		out = append(out, candidate{name: c.name, path: c.program, config: config})
	}
	return out
}

// networkConfigs returns a network's configuration for each verb, with the addresses
// that the runtime asks for, if there are any. With a DEL, runtimes pass the result of
// the ADD, of which IPAM plugins make no use.
func networkConfigs(network string, ipam map[string]any, ips []string) (map[string][]byte, error) {
	config := map[string]any{
		"cniVersion": "1.1.0", "name": network, "type": "bridge", "bridge": "br-lan", "isGateway": false, "mtu": 1500, "ipam": ipam,
	}
	if len(ips) > 0 {
		config["runtimeConfig"] = map[string]any{"ips": ips}
	}
	add, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	config["prevResult"] = map[string]any{
		"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": firstInterface, "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/pod"}},
		"ips": []any{map[string]any{"address": "10.64.0.5/16", "gateway": "10.64.0.1", "interface": 0}},
	}
	del, err := json.Marshal(config)
	return map[string][]byte{"ADD": add, "DEL": del}, err
}

// sample is what one run of a plugin cost.
type sample struct {
	wall time.Duration // from before the fork to after the wait
	cpu  time.Duration // user and system, of the plugin's process
}

// call runs the plugin for sandbox s, as a main plugin does: environment, the
// configuration on stdin, the result from stdout. Pipes are made, filled and
// emptied outside of the time that is measured.
func (c candidate) call(verb string, s sandboxOf) (sample, error) {
	in, err := filled(c.config[verb])
	if err != nil {
		return sample{}, err
	}
	defer in.Close()
	out, w, err := os.Pipe()
	if err != nil {
		return sample{}, err
	}
	defer out.Close()
	attr := &syscall.ProcAttr{Env: s.env(verb), Files: []uintptr{in.Fd(), w.Fd(), w.Fd()}}
	argv := []string{c.path}
	var status syscall.WaitStatus
	var used syscall.Rusage

	began := time.Now()
	pid, err := syscall.ForkExec(c.path, argv, attr)
	if err == nil {
		err = waitFor(pid, &status, &used)
	}
	took := time.Since(began)

	w.Close()
	said, readErr := io.ReadAll(out)
	switch {
	case err != nil:
		return sample{}, fmt.Errorf("%s: run %s: %w", c.name, c.path, err)
	case readErr != nil:
		return sample{}, fmt.Errorf("%s: read its answer: %w", c.name, readErr)
	case !status.Exited() || status.ExitStatus() != 0, verb == "ADD" && !bytes.Contains(said, []byte(`"address"`)):
		return sample{}, fmt.Errorf("%s: %s of %s: status %d: %s", c.name, verb, s.id, status, said)
	}
	return sample{wall: took, cpu: time.Duration(used.Utime.Nano() + used.Stime.Nano())}, nil
}

// filled returns the reading end of a pipe that has text in it and ends after it.
func filled(text []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Write(text); err != nil { // far below a pipe's capacity
		r.Close()
		return nil, err
	}
	return r, nil
}

func waitFor(pid int, status *syscall.WaitStatus, used *syscall.Rusage) error {
	for {
		_, err := syscall.Wait4(pid, status, 0, used)
		if err != syscall.EINTR {
			return err
		}
	}
}

// sandboxOf is a pod's sandbox, as a runtime tells plugins of it.
type sandboxOf struct {
	id     string
	pod    pod
	netns  string
	ifName string // "" is the first
}

// env is the plugin's whole environment.
func (s sandboxOf) env(verb string) []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + s.id, "CNI_NETNS=" + s.netns, "CNI_IFNAME=" + cmp.Or(s.ifName, firstInterface),
		"CNI_PATH=/opt/cni/bin", "CNI_ARGS=" + s.pod.args(s.id),
	}
}
