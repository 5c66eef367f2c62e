package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// program returns the path of one of Prometheus' programs.
func program(name string) (string, error) {
	rig, err := programs.RigDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(rig, "prometheus/usr/bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not unpacked: run `make rig-prometheus`: %w", name, err)
	}
	return path, nil
}

// Promtool runs Prometheus' tool for those who write rules; the error has what it said.
func Promtool(ctx context.Context, args ...string) error {
	path, err := program("promtool")
	if err != nil {
		return err
	}
	if said, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return nil
}

// A Prometheus is a server that collects metrics.
type Prometheus struct {
	*process.Process
	address string
}

// Prepare writes a configuration into a directory, and returns a server that does not run yet. It
// has its data there, and listens at an address.
func Prepare(dir, address, config string) (*Prometheus, error) {
	path, err := program("prometheus")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return &Prometheus{address: address, Process: &process.Process{
		Name: "prometheus", Path: path, Log: filepath.Join(dir, "prometheus.log"),
		Args:  []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address},
		Ready: process.Answers(http.DefaultClient, "http://"+address+"/-/ready"),
	}}, nil
}

// A Sample is one line of an answer.
type Sample struct {
	Metric map[string]string
	Value  [2]any // time, and the value as text
}

// Ask returns what the server answers to a query now.
func (p *Prometheus) Ask(ctx context.Context, expr string) ([]Sample, error) {
	var answer struct{ Result []Sample }
	err := p.get(ctx, "query?query="+url.QueryEscape(expr), &answer)
	return answer.Result, err
}

// Firing returns the names of the alerts that fire, each once, in order.
func (p *Prometheus) Firing(ctx context.Context) (names []string, err error) {
	var answer struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := p.get(ctx, "alerts", &answer); err != nil {
		return nil, err
	}
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// WithoutData returns an error for each query that the server answers nothing to.
func (p *Prometheus) WithoutData(ctx context.Context, queries []Query) error {
	var errs []error
	for _, q := range queries {
		samples, err := p.Ask(ctx, q.Expr)
		if err == nil && len(samples) == 0 {
			err = errors.New("no data")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", q.Where, q.Expr, err))
		}
	}
	return errors.Join(errs...)
}

// get reads what the server's API answers at a path.
func (p *Prometheus) get(ctx context.Context, path string, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("prometheus: %s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus: %s: %s", path, answer.Error)
	}
	return json.NewDecoder(bytes.NewReader(answer.Data)).Decode(data)
}
