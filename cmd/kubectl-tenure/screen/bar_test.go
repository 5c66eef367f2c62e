package screen

import (
	"bytes"
	"strings"
	"testing"
)

// TestBar: it is for terminals, in one line, which it leaves empty.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := Bar{to: Screen{w: &out, Terminal: true}, what: "nodes", all: 3}
	b.draw()
	for range 3 {
		b.Step()
	}
	b.End()
	lines := strings.Split(out.String(), "\r")
	if len(lines) != 6 || lines[1] != "["+strings.Repeat("-", barWidth)+"] 0 of 3 nodes" || lines[3] != "[####################----------] 2 of 3 nodes" || lines[5] != "\x1b[K" {
		t.Errorf("%q", lines)
	}
	out.Reset()
	file := NewBar(&out, 3, "nodes")
	file.Step()
	file.End()
	if out.Len() > 0 {
		t.Errorf("on no terminal: %q", out.String())
	}
}
