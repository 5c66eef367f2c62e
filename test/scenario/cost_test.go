package scenario_test

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// cost is what has been spent since the control plane started: requests that the API
// server has answered, and time of the cores.
type cost struct {
	requests map[string]float64       // by what of whom was asked, and the code
	cores    map[string]time.Duration // by program; "test" is the agents and the controller
}

// spent returns the cost so far.
func spent(t testing.TB) cost {
	t.Helper()
	c := cost{requests: map[string]float64{}, cores: map[string]time.Duration{}}
	if err := c.readRequests(); err != nil {
		t.Fatal(err)
	}
	if err := c.readCores(); err != nil {
		t.Fatal(err)
	}
	return c
}

// readRequests reads the API server's counter of requests.
func (c cost) readRequests() error {
	cfg := cp.Config()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	resp, err := hc.Get(cfg.Host + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /metrics answers %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, ok := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return fmt.Errorf("metrics: %q is not understood", lines.Text())
		}
		of := map[string]string{}
		for label := range strings.SplitSeq(labels, ",") {
			k, v, _ := strings.Cut(label, "=")
			of[k] = strings.Trim(v, `"`)
		}
		what := of["resource"]
		if of["subresource"] != "" {
			what += "/" + of["subresource"]
		}
		c.requests[fmt.Sprintf("%s %s %s", of["verb"], what, of["code"])] += n
	}
	return lines.Err()
}

// readCores reads how long this process and its children have been on a core.
func (c cost) readCores() error {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return err
	}
	c.cores["test"] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name stands in parentheses; then the state, and from there the parent is
		// the second field, the time in user mode the twelfth, in the kernel the next.
		before, after, _ := strings.Cut(string(text), ") ")
		_, name, _ := strings.Cut(before, "(")
		fields := strings.Fields(after)
		if len(fields) < 13 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		const tick = 10 * time.Millisecond // of every Linux that Go runs on
		for _, field := range fields[11:13] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			c.cores[name] += time.Duration(n) * tick
		}
	}
	return nil
}

// minus returns what was spent since o.
func (c cost) minus(o cost) cost {
	d := cost{requests: map[string]float64{}, cores: map[string]time.Duration{}}
	for what, n := range c.requests {
		if n > o.requests[what] {
			d.requests[what] = n - o.requests[what]
		}
	}
	for name, took := range c.cores {
		d.cores[name] = took - o.cores[name]
	}
	return d
}

// onCores returns how long all programs together were on the cores.
func (c cost) onCores() (total time.Duration) {
	for _, took := range c.cores {
		total += took
	}
	return total
}

// String returns c as lines of text, the most frequent requests first.
func (c cost) String() string {
	asked := slices.SortedFunc(maps.Keys(c.requests), func(x, y string) int {
		return cmp.Or(cmp.Compare(c.requests[y], c.requests[x]), strings.Compare(x, y))
	})
	total, texts := 0.0, make([]string, len(asked))
	for i, what := range asked {
		total += c.requests[what]
		texts[i] = fmt.Sprintf("%s %.0f", what, c.requests[what])
	}
	var cores []string
	for _, name := range slices.Sorted(maps.Keys(c.cores)) {
		cores = append(cores, fmt.Sprintf("%s %v", name, c.cores[name].Round(10*time.Millisecond)))
	}
	return fmt.Sprintf("%.0f requests: %s\ntime on the cores: %s", total, strings.Join(texts, "; "), strings.Join(cores, "; "))
}

// loadAverage is what the machine says of its load.
func loadAverage(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
