package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
)

// TestMissingPartsAreTold: each with why, and the rights that are missing in one line.
func TestMissingPartsAreTold(t *testing.T) {
	forbidden := fmt.Errorf("list every Node: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no")))
	fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	p := parts{bar: io.Discard}
	if err := p.run(t.Context(), []part{
		{"nodes", "list nodes", fails(forbidden)},
		{"pods", "list pods", fails(nil)},
		{"metrics of a", "get pods/portforward", fails(errors.New(`unable to upgrade: pods "a" is forbidden: User "x" cannot`))},
		{"log of a", "get pods/log", fails(errors.New("dial tcp: refused\nand so on"))},
	}); err != nil {
		t.Fatal(err)
	}
	want := `log of a: dial tcp: refused; and so on
metrics of a: you may not: it takes the right to get pods/portforward
    unable to upgrade: pods "a" is forbidden: User "x" cannot
nodes: you may not: it takes the right to list nodes
    list every Node: nodes is forbidden: no
`
	if diff := cmp.Diff(want, p.text()); diff != "" || !p.any() {
		t.Errorf("any %v, (-want +got):\n%s", p.any(), diff)
	}
	var out strings.Builder
	p.tell(screen.Of(&out))
	want = `WARNING 3 of 4 parts are missing: errors.txt in the bundle has all.
  You lack the rights to get pods/portforward; list nodes.
  log of a: dial tcp: refused; and so on
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPartsAtOnce: no more than 16; and where the bundle cannot be written nothing else is read.
func TestPartsAtOnce(t *testing.T) {
	var now, most, all atomic.Int32
	var reached sync.Once
	release := make(chan struct{}) // once so many are read
	many := make([]part, 40)
	for i := range many {
		many[i] = part{name: "p", read: func(context.Context) error {
			all.Add(1)
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if n == atOnce {
				reached.Do(func() {
					time.Sleep(50 * time.Millisecond) // more would come now
					close(release)
				})
			}
			<-release
			now.Add(-1)
			return nil
		}}
	}
	p := parts{bar: io.Discard}
	if err := p.run(t.Context(), many); err != nil || most.Load() != atOnce || p.got != len(many) {
		t.Errorf("%v: %d at once, %d read", err, most.Load(), p.got)
	}
	full := errors.New("no space left on device")
	all.Store(0)
	many[0].read = func(context.Context) error { return &writeError{full} }
	for i := 1; i < len(many); i++ {
		many[i].read = func(ctx context.Context) error { all.Add(1); <-ctx.Done(); return nil }
	}
	if err := p.run(t.Context(), many); !errors.Is(err, full) || all.Load() > atOnce {
		t.Errorf("%v, after which %d were read", err, all.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.run(ctx, many); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted: %v", err)
	}
}

// TestTail: of a long log there are the last lines.
func TestTail(t *testing.T) {
	for _, tt := range []struct {
		most int
		want string
	}{
		{100, "one\ntwo\nthree\n"},
		{14, "one\ntwo\nthree\n"},
		{13, "(4 bytes before this are left out: --limit-bytes)\ntwo\nthree\n"},
		{7, "(8 bytes before this are left out: --limit-bytes)\nthree\n"},
		{1, "(14 bytes before this are left out: --limit-bytes)\n"},
	} {
		for _, chunk := range []int{1, 5, 14} {
			tl := &tail{most: tt.most}
			for text := "one\ntwo\nthree\n"; text != ""; text = text[min(chunk, len(text)):] {
				if _, err := tl.Write([]byte(text[:min(chunk, len(text))])); err != nil {
					t.Fatal(err)
				}
			}
			if got := tl.text(); got != tt.want {
				t.Errorf("%d, by %d: %q; want %q", tt.most, chunk, got, tt.want)
			}
		}
	}
}

// TestStores: of an agent's metrics those tell of its store that are about it.
func TestStores(t *testing.T) {
	var s stores
	s.note("a", []byte("# HELP tenure_agent_store_faults x\ntenure_agent_store_faults 2\ntenure_agent_serving 1\ntenure_agent_journal_damaged 0\n"))
	if got, want := s.all["a"], "store_faults 2, journal_damaged 0"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
