// Package show is how the demo shows things: on a screen, scene by scene, each claim about Tenure
// verified as it is made.
package show

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A Screen is what the person sees. Only one goroutine may use it at a time.
type Screen struct {
	out      io.Writer
	terminal bool // a line can be replaced
	colours  bool
	width    int // of text

	blank bool // the last line was empty
	facts int  // how many were verified
}

// Widths of text, where the terminal does not say or is very wide.
const (
	usualWidth = 96
	leastWidth = 40
)

const margin = "  "

// NewScreen returns a screen on standard output: colours appear on a terminal only, and not
// where NO_COLOR is set (no-color.org).
func NewScreen() *Screen {
	out := os.Stdout
	s := &Screen{out: out, width: usualWidth}
	size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return s
	}
	s.terminal = true
	s.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if size.Col > 0 {
		s.width = min(max(int(size.Col)-1, leastWidth), usualWidth)
	}
	return s
}

// style is an ANSI rendition.
type style string

const (
	bold  style = "1"
	dim   style = "2"
	red   style = "31"
	green style = "32"
	cyan  style = "36"
)

func (s *Screen) in(st style, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\033[" + string(st) + "m" + text + "\033[0m"
}

// Line prints a line as it is.
func (s *Screen) Line(text string) {
	fmt.Fprintln(s.out, text)
	s.blank = false
}

// Gap prints an empty line, unless there is one.
func (s *Screen) Gap() {
	if !s.blank {
		s.Line("")
		s.blank = true
	}
}

// Title prints a line that stands alone.
func (s *Screen) Title(text string) {
	s.Gap()
	s.Line(s.in(bold, text))
	s.Gap()
}

// Say prints a paragraph.
func (s *Screen) Say(text string) {
	for _, l := range wrap(text, s.width-len(margin)) {
		s.Line(margin + l)
	}
}

// Command prints a command that the person could type.
func (s *Screen) Command(format string, args ...any) {
	s.Line(margin + s.in(cyan, "$ "+fmt.Sprintf(format, args...)))
}

// Does prints what the demo does in somebody's role.
func (s *Screen) Does(who, format string, args ...any) {
	s.Line(margin + s.in(cyan, who+":") + " " + fmt.Sprintf(format, args...))
}

// OK prints a fact that has been verified.
func (s *Screen) OK(format string, args ...any) {
	s.facts++
	s.marked(s.in(green, "✓"), fmt.Sprintf(format, args...))
}

// Wrong prints what is not as it should be.
func (s *Screen) Wrong(err error) { s.marked(s.in(red, "✗"), err.Error()) }

func (s *Screen) marked(mark, text string) {
	for i, l := range wrap(text, s.width-len(margin)-2) {
		if i > 0 {
			mark = " "
		}
		s.Line(margin + mark + " " + l)
	}
}

// Item prints text below the line before it.
func (s *Screen) Item(text string) {
	for i, l := range wrap(text, s.width-3*len(margin)) {
		if i > 0 {
			l = margin + l
		}
		s.Line(margin + margin + l)
	}
}

// Refused prints why something was refused, as it should be.
func (s *Screen) Refused(who, why string) {
	s.Gap()
	s.Line(margin + s.in(dim, who+" is told:"))
	for _, l := range wrap(why, s.width-2*len(margin)) {
		s.Line(margin + margin + l)
	}
}

// Block prints the output of a command.
func (s *Screen) Block(text string) {
	for l := range strings.Lines(strings.TrimRight(text, "\n")) {
		s.Line(margin + strings.TrimRight(l, " \n"))
	}
	s.Gap()
}

// Table prints rows in aligned columns; the first row is the header.
func (s *Screen) Table(rows ...[]string) {
	s.Gap()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // to memory
	header, body, _ := strings.Cut(b.String(), "\n")
	s.Line(margin + s.in(dim, header))
	s.Block(body)
}

// While runs work and shows meanwhile that label goes on, with what work reports
// of its state: on a terminal in a line that is gone afterwards, elsewhere in a
// line every five seconds. It returns how long work took.
func (s *Screen) While(label string, work func(report func(string)) error) (time.Duration, error) {
	began := time.Now()
	var state atomic.Pointer[string]
	done := make(chan error, 1)
	go func() { done <- work(func(text string) { state.Store(&text) }) }()
	every := 5 * time.Second
	if s.terminal {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if s.terminal {
				fmt.Fprint(s.out, "\r\033[K")
			}
			return time.Since(began), err
		case <-tick.C:
			text := label
			if p := state.Load(); p != nil && *p != "" {
				text += ": " + *p
			}
			s.passing(n, fmt.Sprintf("%s (%.1f s)", text, time.Since(began).Seconds()))
		}
	}
}

// passing shows a line about work under way, the n-th.
func (s *Screen) passing(n int, text string) {
	const frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
	if !s.terminal {
		s.Line(margin + "… " + text)
		return
	}
	if most := s.width - len(margin) - 2; utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	frame := []rune(frames)[n%utf8.RuneCountInString(frames)]
	fmt.Fprintf(s.out, "\r\033[K%s%s %s", margin, s.in(cyan, string(frame)), s.in(dim, text))
}

// Took says how long something took.
func (s *Screen) Took(d time.Duration) string { return s.in(dim, "("+seconds(d)+")") }

// wrap breaks text into lines of at most width characters, at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// seconds writes a time.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Millis writes a short time.
func Millis(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}
