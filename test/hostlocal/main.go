// Command hostlocal stands in the place of the IPAM plugin host-local: it runs Tenure in local
// mode with the same configuration. The program tenure is looked for in PATH.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// envCalls names a file that gets a line for each call.
const envCalls = "TENURE_SUITES_CALLS"

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostlocal:", err)
		code = 1
	}
	os.Exit(code)
}

// run returns the exit code of tenure, which writes to this program's standard streams.
func run() (int, error) {
	if err := count(os.Getenv(envCalls), os.Getenv("CNI_COMMAND")); err != nil {
		return 0, err
	}
	conf, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 0, err
	}
	if conf, err = replaced(conf); err != nil {
		return 0, err
	}
	tenure := exec.Command("tenure")
	tenure.Stdin, tenure.Stdout, tenure.Stderr = bytes.NewReader(conf), os.Stdout, os.Stderr
	err = tenure.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// count adds a line to the file path.
func count(path, command string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("count a call in the file that %s names: %w", envCalls, err)
	}
	_, err = fmt.Fprintln(f, command)
	return errors.Join(err, f.Close())
}

// replaced returns a configuration of host-local as one of Tenure in local mode. What has no ipam
// section stays as it is.
func replaced(conf []byte) ([]byte, error) {
	var whole, ipam map[string]json.RawMessage
	if err := json.Unmarshal(conf, &whole); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if whole["ipam"] == nil {
		return conf, nil
	}
	if err := json.Unmarshal(whole["ipam"], &ipam); err != nil {
		return nil, fmt.Errorf("read the configuration's ipam section: %w", err)
	}
	ipam["type"], ipam["mode"] = json.RawMessage(`"tenure"`), json.RawMessage(`"local"`)
	section, err := json.Marshal(ipam)
	if err != nil {
		return nil, err
	}
	whole["ipam"] = section
	return json.Marshal(whole)
}
