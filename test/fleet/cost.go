package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/test/controlplane"
)

// Cost is what has been spent since a control plane started: requests that its API
// server has answered, and time of the cores.
type Cost struct {
	Requests map[controlplane.Request]float64
	Cores    map[string]time.Duration // by program; "test" is the agents and the controller
}

// Spent returns the cost so far. The control plane must be this process's child.
func Spent(t testing.TB, cp *controlplane.ControlPlane) Cost {
	t.Helper()
	c := Cost{Cores: map[string]time.Duration{}}
	var err error
	if c.Requests, err = cp.Requests(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.readCores(); err != nil {
		t.Fatal(err)
	}
	return c
}

// readCores reads how long this process and its children have been on a core.
func (c Cost) readCores() error {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return err
	}
	c.Cores["test"] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
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
			c.Cores[name] += time.Duration(n) * tick
		}
	}
	return nil
}

// Minus returns what was spent since o.
func (c Cost) Minus(o Cost) Cost {
	d := Cost{Requests: map[controlplane.Request]float64{}, Cores: map[string]time.Duration{}}
	for what, n := range c.Requests {
		if n > o.Requests[what] {
			d.Requests[what] = n - o.Requests[what]
		}
	}
	for name, took := range c.Cores {
		d.Cores[name] = took - o.Cores[name]
	}
	return d
}

// OnCores returns how long all programs together were on the cores.
func (c Cost) OnCores() (total time.Duration) {
	for _, took := range c.Cores {
		total += took
	}
	return total
}

// String returns c as lines of text, the most frequent requests first.
func (c Cost) String() string {
	asked := slices.SortedFunc(maps.Keys(c.Requests), func(x, y controlplane.Request) int {
		return cmp.Or(cmp.Compare(c.Requests[y], c.Requests[x]), strings.Compare(x.String(), y.String()))
	})
	total, texts := 0.0, make([]string, len(asked))
	for i, what := range asked {
		total += c.Requests[what]
		texts[i] = fmt.Sprintf("%s %.0f", what, c.Requests[what])
	}
	var cores []string
	for _, name := range slices.Sorted(maps.Keys(c.Cores)) {
		cores = append(cores, fmt.Sprintf("%s %v", name, c.Cores[name].Round(10*time.Millisecond)))
	}
	return fmt.Sprintf("%.0f requests: %s\ntime on the cores: %s", total, strings.Join(texts, "; "), strings.Join(cores, "; "))
}

// LoadAverage is what the machine says of its load.
func LoadAverage(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
