package screen

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// A Bar shows on a terminal how much of something is done. Elsewhere it shows nothing. Its methods
// may be called at once.
type Bar struct {
	to   Screen
	what string
	all  int

	mu   sync.Mutex
	done int // guarded by mu
}

// NewBar shows a bar on w, of which nothing is done; what is what there are many of.
func NewBar(w io.Writer, all int, what string) *Bar {
	b := &Bar{to: Of(w), what: what, all: all}
	b.draw()
	return b
}

// Step says that one more is done.
func (b *Bar) Step() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	b.draw()
}

// barWidth is how many characters a bar has.
const barWidth = 30

func (b *Bar) draw() {
	if b.to.Terminal && b.all > 0 {
		full := barWidth * b.done / b.all
		fmt.Fprintf(b.to.w, "\r[%s%s] %d of %d %s", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), b.done, b.all, b.what)
	}
}

// End removes the bar.
func (b *Bar) End() {
	if b.to.Terminal {
		fmt.Fprint(b.to.w, "\r\x1b[K")
	}
}
