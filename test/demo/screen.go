package main

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

	"github.com/tenure-ipam/tenure/api/npwg"
)

// A screen is what the person sees. Only one goroutine may use it at a time.
type screen struct {
	out      io.Writer
	terminal bool // a line can be replaced
	colours  bool
	width    int // of text

	blank bool // the last line was empty
	began time.Time
	facts int // how many were verified
}

// Widths of text, where the terminal does not say or is very wide.
const (
	usualWidth = 96
	leastWidth = 40
)

const margin = "  "

// newScreen returns a screen on out: colours appear on a terminal only, and not
// where NO_COLOR is set (no-color.org).
func newScreen(out *os.File, getenv func(string) string) *screen {
	s := &screen{out: out, width: usualWidth, began: time.Now()}
	size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return s
	}
	s.terminal = true
	s.colours = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
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

func (s *screen) in(st style, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\033[" + string(st) + "m" + text + "\033[0m"
}

func (s *screen) line(text string) {
	fmt.Fprintln(s.out, text)
	s.blank = false
}

// gap prints an empty line, unless there is one.
func (s *screen) gap() {
	if !s.blank {
		s.line("")
		s.blank = true
	}
}

// title prints a line that stands alone.
func (s *screen) title(text string) {
	s.gap()
	s.line(s.in(bold, text))
	s.gap()
}

// scene opens a scene: its number, what it is called, what there is to see and
// why it matters.
func (s *screen) scene(number int, title, why string) {
	s.title(fmt.Sprintf("%d. %s", number, title))
	s.say(why)
	s.gap()
}

// say prints a paragraph.
func (s *screen) say(text string) {
	for _, l := range wrap(text, s.width-len(margin)) {
		s.line(margin + l)
	}
}

// command prints a command that the person could type.
func (s *screen) command(format string, args ...any) {
	s.line(margin + s.in(cyan, "$ "+fmt.Sprintf(format, args...)))
}

// does prints what the demo does in somebody's role.
func (s *screen) does(who, format string, args ...any) {
	s.line(margin + s.in(cyan, who+":") + " " + fmt.Sprintf(format, args...))
}

// annotation prints what somebody's pod selects.
func (s *screen) annotation(whose string, sel selections) {
	s.does(whose+"'s annotation", "%s", npwg.AnnotationNetworks)
	for l := range strings.Lines(strings.ReplaceAll(sel.String(), "},{", "},\n {")) {
		s.line(margin + margin + strings.TrimRight(l, "\n"))
	}
}

// ok prints a fact that has been verified.
func (s *screen) ok(format string, args ...any) {
	s.facts++
	s.marked(s.in(green, "✓"), fmt.Sprintf(format, args...))
}

func (s *screen) marked(mark, text string) {
	for i, l := range wrap(text, s.width-len(margin)-2) {
		if i > 0 {
			mark = " "
		}
		s.line(margin + mark + " " + l)
	}
}

// refused prints why something was refused, as it should be.
func (s *screen) refused(who, why string) {
	s.gap()
	s.line(margin + s.in(dim, who+" is told:"))
	for _, l := range wrap(why, s.width-2*len(margin)) {
		s.line(margin + margin + l)
	}
}

// block prints the output of a command.
func (s *screen) block(text string) {
	for l := range strings.Lines(strings.TrimRight(text, "\n")) {
		s.line(margin + strings.TrimRight(l, " \n"))
	}
	s.gap()
}

// table prints rows in aligned columns; the first row is the header.
func (s *screen) table(rows ...[]string) {
	s.gap()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // to memory
	header, body, _ := strings.Cut(b.String(), "\n")
	s.line(margin + s.in(dim, header))
	s.block(body)
}

// during runs work and shows meanwhile that label goes on, with what work reports
// of its state: on a terminal in a line that is gone afterwards, elsewhere in a
// line every five seconds. It returns how long work took.
func (s *screen) during(label string, work func(report func(string)) error) (time.Duration, error) {
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
func (s *screen) passing(n int, text string) {
	const frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
	if !s.terminal {
		s.line(margin + "… " + text)
		return
	}
	if most := s.width - len(margin) - 2; utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	frame := []rune(frames)[n%utf8.RuneCountInString(frames)]
	fmt.Fprintf(s.out, "\r\033[K%s%s %s", margin, s.in(cyan, string(frame)), s.in(dim, text))
}

// took says how long something took.
func (s *screen) took(d time.Duration) string { return s.in(dim, "("+seconds(d)+")") }

// summary ends a demo in which everything was as it should be.
func (s *screen) summary(scenes int) {
	s.title(fmt.Sprintf("%d scenes, %d facts verified, in %s.", scenes, s.facts, seconds(time.Since(s.began))))
}

// interrupted says that the person has ended the demo.
func (s *screen) interrupted() {
	s.title("Interrupted: stopping the agents, the controller and the control plane.")
}

// failed says that something was not as it should be.
func (s *screen) failed(err error) {
	s.gap()
	s.marked(s.in(red, "✗"), err.Error())
	s.title("The demo has failed.")
}

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

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func millis(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}
