package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// A take is what giving out one address of a pool costs, in the allocator alone: a
// free, a find and a take.
type take struct {
	pool, fill string
	ns         []float64 // of each repetition
	bytes      float64   // allocated in each
	held       float64   // bytes of state for each taken address
}

// allocator runs the allocator's own benchmark, which fills pools and then gives
// addresses out and takes them back at random.
func (b *bench) allocator(ctx context.Context) {
	length, count := "0.3s", 3
	if b.quick {
		length, count = "0.03s", 1
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkTake$", "-benchtime="+length, "-count="+strconv.Itoa(count), "./allocator")
	cmd.Dir = b.root
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		b.Fail("%s: %w: %s%s", cmd, err, out.Bytes(), errs.Bytes())
	}
	takes, err := parseTakes(&out)
	b.Must(err)
	b.report.allocator(takes)
}

// parseTakes reads the output of go test -bench: names and values with units.
func parseTakes(out *bytes.Buffer) ([]take, error) {
	var takes []take
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "BenchmarkTake/")
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		pool, fill, _ := strings.Cut(words[0], "/")
		fill, _, _ = strings.Cut(fill, "-") // of the number of processors
		if n := len(takes); n == 0 || takes[n-1].pool != pool || takes[n-1].fill != fill {
			takes = append(takes, take{pool: pool, fill: fill})
		}
		t := &takes[len(takes)-1]
		for i := 2; i+1 < len(words); i += 2 {
			v, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark's line %q: %w", lines.Text(), err)
			}
			switch words[i+1] {
			case "ns/op":
				t.ns = append(t.ns, v)
			case "B/op":
				t.bytes = v
			case "held-B/addr":
				t.held = v
			}
		}
	}
	if len(takes) == 0 {
		return nil, errors.New("package allocator has no BenchmarkTake")
	}
	return takes, lines.Err()
}
