package delegate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStartedAheadAsStartedAtOnce: what a plugin does with its input, or without reading
// it, comes to the same whether it was started ahead or not.
func TestStartedAheadAsStartedAtOnce(t *testing.T) {
	const full = 64 << 10 // of a pipe
	for name, tt := range map[string]struct {
		script string
		size   int
		alone  bool // it cannot be started ahead
	}{
		"reads":               {script: "wc -c", size: 3000},
		"reads a full pipe":   {script: "wc -c", size: full},
		"reads more":          {script: "wc -c", size: full + 1, alone: true},
		"does not read":       {script: "exec <&-; echo well", size: full},
		"fails unread":        {script: `exec <&-; echo '{"code":7,"msg":"no"}'; exit 1`, size: full},
		"dies unread":         {script: "echo said >&2; kill -KILL $$", size: full},
		"leaves it to others": {script: "sleep 60 <&0 >/dev/null 2>&1 & echo $!; exit 0", size: full},
		"is not there":        {size: 10, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := filepath.Join(t.TempDir(), "plugin")
			if tt.script != "" {
				check(t, os.WriteFile(plugin, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700)) //nolint:gosec // it is to be run
			}
			stdin := bytes.Repeat([]byte("x"), tt.size)
			var said [2]bytes.Buffer
			x := &executor{stderr: &said[0]}
			want, wantErr := x.exec(t.Context(), plugin, stdin, os.Environ())
			x.stderr = &said[1]
			w := x.startAhead(plugin, stdin, os.Environ())
			if w == nil != tt.alone {
				t.Fatalf("started ahead: %v; want %v", w != nil, !tt.alone)
			}
			if tt.alone {
				return
			}
			got, err := w.call()
			if name == "leaves it to others" {
				for _, pid := range []string{string(want), string(got)} {
					kill(t, strings.TrimSpace(pid))
				}
				want, got = nil, nil
			}
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || !bytes.Equal(got, want) || said[1].String() != said[0].String() {
				t.Errorf("%q, %v, said %q; want %q, %v, %q", got, err, &said[1], want, wantErr, &said[0])
			}
		})
	}
}

// TestNotCalledAfterAll: what was started ahead, and what that has started, does not live on.
func TestNotCalledAfterAll(t *testing.T) {
	dir := t.TempDir()
	plugin, began, got := filepath.Join(dir, "plugin"), filepath.Join(dir, "began"), filepath.Join(dir, "got")
	check(t, os.WriteFile(plugin, fmt.Appendf(nil, "#!/bin/sh\n{ echo >%[1]s; cat; echo >%[2]s; } | cat\necho >%[2]s\n", began, got), 0o700)) //nolint:gosec // it is to be run
	x := &executor{stderr: os.Stderr}
	w := x.startAhead(plugin, []byte("{}"), os.Environ())
	if w == nil {
		t.Fatal("it was not started")
	}
	for {
		if _, err := os.Stat(began); err == nil {
			break
		}
	}
	check(t, w.end())
	if _, err := os.Stat(got); err == nil {
		t.Error("its input has ended for it; want that it ends first")
	}
	if err := (*waiting)(nil).end(); err != nil {
		t.Errorf("none: %v", err)
	}
}
