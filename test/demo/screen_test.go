package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		width      int
		want       []string
	}{
		{"fits", "a pool", 10, []string{"a pool"}},
		{"breaks at spaces", "pods come and go", 9, []string{"pods come", "and go"}},
		{"a word that is too long stays whole", "see fd00:77::8280/112", 8, []string{"see", "fd00:77::8280/112"}},
		{"counts characters, not bytes", "✓ ✓ ✓", 3, []string{"✓ ✓", "✓"}},
		{"nothing", "", 5, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, wrap(tt.text, tt.width)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, width: usualWidth, blank: true}
	s.table([]string{"POD", "SANDBOX", "NODE"}, []string{"web-1", "3381e862…", "a"}, []string{"w", "x", "b"})
	want := `
  POD     SANDBOX     NODE
  web-1   3381e862…   a
  w       x           b

`
	if diff := cmp.Diff(want[1:], out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestAwait: what ends a wait is told apart.
func TestAwait(t *testing.T) {
	broken, stopped := errors.New("broken"), errors.New("stopped")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	looks := 0
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		limit time.Duration
		look  func(context.Context) (string, error)
		want  string
	}{
		{"there at once", t.Context(), time.Minute, func(context.Context) (string, error) { return "", nil }, ""},
		{"there after a while", t.Context(), time.Minute, func(context.Context) (string, error) {
			if looks++; looks < 3 {
				return "not yet", nil
			}
			return "", nil
		}, ""},
		{"an error", t.Context(), time.Minute, func(context.Context) (string, error) { return "", broken }, "broken"},
		{"never", t.Context(), time.Second, func(context.Context) (string, error) { return "no pool", nil }, "not within 1s: no pool"},
		{"never, and looking lasts", t.Context(), time.Second, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, "not within 1s: nothing is known"},
		{"stopped", cancelled, time.Minute, func(context.Context) (string, error) { return "no pool", nil }, "stopped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := await(tt.ctx, tt.limit, tt.look); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}
