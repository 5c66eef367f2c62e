package attach_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rewrite changes the lines of the only journal.
func (n *node) rewrite(change func(lines [][]byte) [][]byte) {
	n.t.Helper()
	files := n.journals()
	if len(files) != 1 {
		n.t.Fatalf("journals %v; want one", files)
	}
	text, err := os.ReadFile(files[0])
	must(n.t, err)
	must(n.t, os.WriteFile(files[0], bytes.Join(change(bytes.SplitAfter(text, []byte("\n"))), nil), 0o600))
}

// TestJournalCutShort (N75): of a journal that ends too early, at the end of a line or within
// one, the cache of results has what was done.
func TestJournalCutShort(t *testing.T) {
	for name, cut := range map[string]func(lines [][]byte) [][]byte{
		"its plan alone":    func(lines [][]byte) [][]byte { return lines[:1] },
		"half a line":       func(lines [][]byte) [][]byte { return append(lines[:2:2], lines[2][:9]) },
		"but for its end":   func(lines [][]byte) [][]byte { return lines[:len(lines)-2] },
		"nothing, nor plan": func([][]byte) [][]byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.three(nil, nil, nil)
			n.selects("p", "a,b")
			n.ok("ADD", pod("p"))
			adds := n.called("ADD default eth0", "ADD net-a net1", "ADD net-b net2")
			n.rewrite(cut)
			n.fails("CHECK", pod("p"))
			n.ok("DEL", pod("p"))
			dels := n.called("DEL net-b net2", "DEL net-a net1", "DEL default eth0")
			for i, del := range dels {
				if del.at("prevResult", "interfaces") == nil {
					t.Errorf("%s: prevResult %v; want that of %s", del.id(), del.at("prevResult"), adds[2-i].id())
				}
			}
			n.ok("DEL", pod("p"))
			n.called()
		})
	}
}

// TestJournalThatLostAResult (N75): a line that does not read takes no result away from CHECK
// and DEL, which some plugins cannot do without.
func TestJournalThatLostAResult(t *testing.T) {
	n := newNode(t)
	n.three(map[string]any{"ips": []string{"10.7.0.1/24"}}, nil, nil)
	n.selects("p", "a,b")
	n.ok("ADD", pod("p"))
	n.ok("CHECK", pod("p"))
	want := n.called("ADD default eth0", "ADD net-a net1", "ADD net-b net2", "CHECK default eth0", "CHECK net-a net1", "CHECK net-b net2")[4].at("prevResult")
	n.rewrite(func(lines [][]byte) [][]byte {
		for _, line := range lines {
			if bytes.Contains(line, []byte(`"done":1,`)) {
				line[0] = 'x' // no checksum
			}
		}
		return lines
	})
	n.ok("CHECK", pod("p"))
	if d := cmp.Diff(want, n.called("CHECK default eth0", "CHECK net-a net1", "CHECK net-b net2")[1].at("prevResult")); d != "" {
		t.Errorf("CHECK of net-a: prevResult (-want +got):\n%s", d)
	}
	results, err := os.ReadFile(n.path("state", "results", filepath.Base(n.journals()[0])))
	must(t, err)
	must(t, os.RemoveAll(n.path("state", "results")))
	n.fails("CHECK", pod("p"), "network ns/a on net1", "its result is lost", "line 5")
	n.called("CHECK default eth0")
	must(t, os.Mkdir(n.path("state", "results"), 0o700))
	must(t, os.WriteFile(n.path("state", "results", filepath.Base(n.journals()[0])), results, 0o600))
	if o := n.ok("DEL", pod("p")); !strings.Contains(o.stderr, "line 5") {
		t.Errorf("stderr %q; want the line that does not read", o.stderr)
	}
	if d := cmp.Diff(want, n.called("DEL net-b net2", "DEL net-a net1", "DEL default eth0")[1].at("prevResult")); d != "" {
		t.Errorf("DEL of net-a: prevResult (-want +got):\n%s", d)
	}
	n.clean()
}

// TestJournalThatLostAChange (N75): nor does CHECK go by the result that an attachment had
// before its default routes were moved, where the line with the later one does not read.
func TestJournalThatLostAChange(t *testing.T) {
	n := routedNode(t)
	netns(t, "p")
	n.selects("p", `[{"name":"a","default-route":["10.2.0.77"]}]`)
	n.ok("ADD", pod("p"))
	n.ok("CHECK", pod("p"))
	for _, done := range []string{`"done":0,`, `"done":1,`} {
		n.rewrite(func(lines [][]byte) [][]byte {
			for _, line := range slices.Backward(lines) {
				if bytes.Contains(line, []byte(done)) {
					line[0] = 'x' // no checksum
					break
				}
			}
			return lines
		})
		n.ok("CHECK", pod("p"))
	}
	n.ok("DEL", pod("p"))
	n.clean()
}

// TestRenamedConfiguration (N45): a runtime calls DEL with the configuration that there is
// now, which may have got another name since the ADD.
func TestRenamedConfiguration(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("net-a", map[string]any{"fail": map[string]any{"DEL": map[string]any{"code": 5, "msg": "stuck", "file": n.path("gate")}}}))
	n.selects("p", "a")
	n.selects("q", "a")
	n.ok("ADD", pod("p"))
	n.ok("ADD", pod("q"))
	n.records()
	n.config["name"] = "renamed"
	must(t, os.WriteFile(n.path("gate"), nil, 0o600))
	n.fails("DEL", pod("p"), "stuck")
	n.called("DEL net-a net1", "DEL default eth0")
	must(t, os.Remove(n.path("gate")))
	n.ok("DEL", pod("p"))
	n.called("DEL net-a net1")
	n.ok("DEL", pod("p"))
	n.called()
	n.ok("DEL", pod("q"))
	n.called("DEL net-a net1", "DEL default eth0")
	n.clean()
}

// TestJournalUnderAnotherName (N75): a journal whose file has not its own name is damaged.
func TestJournalUnderAnotherName(t *testing.T) {
	n := newNode(t)
	n.selects("p", "")
	n.ok("ADD", pod("p"))
	name := filepath.Base(n.journals()[0])
	for _, dir := range []string{"attachments", "results"} {
		must(t, os.Rename(n.path("state", dir, name), n.path("state", dir, name+"0")))
	}
	n.records()
	if o := n.ok("DEL", pod("p")); !strings.Contains(o.stderr, "is damaged") {
		t.Errorf("stderr %q; want that the journal is damaged", o.stderr)
	}
	n.called("DEL default eth0")
	n.ok("DEL", pod("p"))
	n.called()
}

// TestJournalDamagedAnywhere (N75): wherever a journal ends too early or has a wrong byte, the
// first DEL undoes all of it.
func TestJournalDamagedAnywhere(t *testing.T) {
	n := newNode(t)
	n.three(nil, nil, nil)
	n.selects("p", "a")
	const step = 61
	for at, size := 0, step+1; at < size; at += step {
		for name, damage := range map[string]func(text []byte) []byte{
			"ends": func(text []byte) []byte { return text[:at] },
			"errs": func(text []byte) []byte { text[at] ^= 4; return text },
		} {
			s := sandboxOf{pod: "p", container: fmt.Sprintf("%s-%d", name, at)}
			n.ok("ADD", s)
			files, err := filepath.Glob(n.path("state", "attachments", s.container+".*"))
			must(t, err)
			text, err := os.ReadFile(files[0])
			must(t, err)
			size = len(text)
			must(t, os.WriteFile(files[0], damage(text), 0o600))
			n.records()
			n.ok("DEL", s)
			n.called("DEL net-a net1", "DEL default eth0")
		}
	}
}
