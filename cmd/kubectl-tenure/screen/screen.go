// Package screen writes what kubectl tenure has found for people to read: lines, facts and
// tables, with colours where a terminal shows them.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Screen is where results are written for people: a terminal, or a file.
type Screen struct {
	w        io.Writer
	Terminal bool
	colour   bool
	width    int // of a terminal, by which long facts are folded; else 0
}

// Of returns the screen that w is. Colours are for terminals, and not where NO_COLOR is set
// (no-color.org) or the terminal cannot show them.
func Of(w io.Writer) Screen {
	to := Screen{w: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return to
	}
	to.Terminal = true
	to.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		to.width = width
	}
	return to
}

// A Look is how a text is coloured.
type Look uint8

// The looks.
const (
	LookPlain Look = iota
	LookGood
	LookWarn
	LookBad
	lookHead
)

// Paint gives text its look where there are colours. Every look takes the same number of
// characters, or the columns of a table would not be straight.
func (s Screen) Paint(text string, as Look) string {
	if !s.colour {
		return text
	}
	codes := [...]string{LookPlain: "39", LookGood: "32", LookWarn: "33", LookBad: "31", lookHead: "01"}
	return "\x1b[" + codes[as] + "m" + text + "\x1b[0m"
}

// Line writes a line.
func (s Screen) Line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// Title writes a heading of a description.
func (s Screen) Title(text string) { s.Line("\n%s", s.Paint(text, lookHead)) }

// A Fact is a key of a description and its value, which may be long: it is folded at the width.
type Fact struct {
	Key   string
	Value Cell
}

// Fact writes one fact.
func (s Screen) Fact(key string, value Cell) { s.Facts([]Fact{{key, value}}) }

// Facts writes facts, with their values in one column.
func (s Screen) Facts(all []Fact) {
	indent := 14
	for _, f := range all {
		indent = max(indent, runes(f.Key)+2)
	}
	for _, f := range all {
		key := f.Key
		for _, part := range fold(f.Value.Text, s.width-indent) {
			s.Line("%-*s%s", indent, key, s.Paint(part, f.Value.Look))
			key = ""
		}
	}
}

func runes(text string) int { return utf8.RuneCountInString(text) }

// fold breaks text into lines of a width, at spaces; a width that is too small for
// words breaks nothing.
func fold(text string, width int) (lines []string) {
	if width < 20 {
		return []string{text}
	}
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && runes(line)+1+runes(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
