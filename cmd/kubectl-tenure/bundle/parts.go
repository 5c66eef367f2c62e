package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// atOnce is how many parts are read at the same time.
const atOnce = 16

// A part is something that is read by itself, and may be missing.
type part struct {
	name  string // for people
	right string // that it takes, such as "list pods"
	read  func(context.Context) error
}

// A missing is a part that could not be had, as a whole or from some place on.
type missing struct {
	part
	err error
}

// parts reads parts, and remembers those that are missing.
type parts struct {
	bar io.Writer // where it is shown how many are read

	mu      sync.Mutex
	ended   int
	got     int
	missing []missing
}

// run reads all of more, some at once. Its error is that nothing else is worth reading. When ctx
// ends it waits for nothing: some calls, such as those for the kinds that there are, have no end.
func (p *parts) run(ctx context.Context, more []part) error {
	bar := screen.NewBar(p.bar, len(more), "parts")
	defer bar.End()
	done := make(chan error, 1)
	go func() { done <- p.readAll(ctx, more, bar) }()
	select {
	case err := <-done:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}
	return errors.New("interrupted: no bundle was written")
}

func (p *parts) readAll(ctx context.Context, more []part, bar *screen.Bar) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, one := range more {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := one.read(ctx)
			if wrong, ok := errors.AsType[*writeError](err); ok {
				return wrong
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p.end(one, err)
			bar.Step()
			return nil
		})
	}
	return g.Wait()
}

func (p *parts) end(one part, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	if err == nil {
		p.got++
	} else {
		p.missing = append(p.missing, missing{one, err})
	}
}

// any reports whether anything was read.
func (p *parts) any() bool { return p.got > 0 }

// why says why a part is missing.
func (m missing) why() string {
	switch {
	case m.forbidden():
		return "you may not: it takes the right to " + m.right
	case meta.IsNoMatchError(m.err):
		return "the API server does not know this kind"
	}
	return strings.ReplaceAll(m.err.Error(), "\n", "; ")
}

// forbidden reports whether a right is missing. A connection that is upgraded is refused in words.
func (m missing) forbidden() bool {
	return session.Forbidden(m.err) || strings.Contains(m.err.Error(), "is forbidden:")
}

// text is errors.txt.
func (p *parts) text() string {
	if len(p.missing) == 0 {
		return "Nothing is missing.\n"
	}
	slices.SortFunc(p.missing, func(a, b missing) int { return cmp.Compare(a.name, b.name) })
	var out strings.Builder
	for _, m := range p.missing {
		fmt.Fprintf(&out, "%s: %s\n", m.name, m.why())
		if m.forbidden() {
			fmt.Fprintf(&out, "    %v\n", m.err)
		}
	}
	return out.String()
}

// mostTold is how many missing parts are told on the terminal.
const mostTold = 8

// tell says what is missing.
func (p *parts) tell(to screen.Screen) {
	if len(p.missing) == 0 {
		return
	}
	rights := map[string]bool{}
	var others []string
	for _, m := range p.missing {
		if m.forbidden() {
			rights[m.right] = true
		} else {
			others = append(others, m.name+": "+m.why())
		}
	}
	to.Line("%s %d of %d parts are missing: errors.txt in the bundle has all.", to.Paint("WARNING", screen.LookWarn), len(p.missing), p.ended)
	if len(rights) > 0 {
		to.Line("  You lack the rights to %s.", strings.Join(slices.Sorted(maps.Keys(rights)), "; "))
	}
	for _, line := range others[:min(mostTold, len(others))] {
		to.Line("  %s", line)
	}
	if more := len(others) - mostTold; more > 0 {
		to.Line("  and %d more", more)
	}
}
