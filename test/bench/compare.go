package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// earlier is what an earlier run wrote.
type earlier struct {
	machine machine
	figures map[string]figure
}

// readEarlier reads the figures that writeJSON wrote; none if there is no file.
func readEarlier(path string) (earlier, error) {
	e := earlier{figures: map[string]figure{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var x figure
		into := any(&x)
		if n == 1 {
			into = &e.machine
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			return e, fmt.Errorf("%s:%d: %w: delete the file, or name another by --json", path, n, err)
		}
		if n > 1 {
			e.figures[x.Name] = x
		}
	}
	return e, lines.Err()
}

// slip is by how much a figure of a single round must differ to be shown: two runs on
// one machine differ by less.
const slip = 1.25

// changed returns a table of the figures that are not what they were: those whose
// rounds all lie on one side of the earlier rounds, or differ by a quarter where there
// was but one.
func (e earlier) changed(now []figure) table {
	t := table{
		title:   fmt.Sprintf("changed since the last run, of %s at a load of %s", e.machine.Versions["tenure"], e.machine.Load),
		columns: []string{"figure", "was", "is", "times"},
	}
	for _, x := range now {
		was, ok := e.figures[x.Name]
		if !ok || x.Low <= was.High && x.High >= was.Low {
			continue
		}
		times := x.Value / was.Value
		if x.Low == x.High && was.Low == was.High && times < slip && times > 1/slip {
			continue
		}
		t.rows = append(t.rows, []string{x.Name, number(was.Value) + " " + x.Unit, number(x.Value) + " " + x.Unit, number(times)})
	}
	return t
}
