package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// A screen is where results are written for people: a terminal, or a file.
type screen struct {
	w        io.Writer
	terminal bool
	colour   bool
	width    int // of a terminal, by which long facts are folded; else 0
}

// screenOf returns the screen that w is. Colours are for terminals, and not where NO_COLOR is set
// (no-color.org) or the terminal cannot show them.
func screenOf(w io.Writer) screen {
	to := screen{w: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return to
	}
	to.terminal = true
	to.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		to.width = width
	}
	return to
}

// A look is how a text is coloured.
type look uint8

// The looks.
const (
	lookPlain look = iota
	lookGood
	lookWarn
	lookBad
	lookHead
)

// paint gives text its look where there are colours. Every look takes the same number of
// characters, or the columns of a table would not be straight.
func (s screen) paint(text string, as look) string {
	if !s.colour {
		return text
	}
	codes := [...]string{lookPlain: "39", lookGood: "32", lookWarn: "33", lookBad: "31", lookHead: "01"}
	return "\x1b[" + codes[as] + "m" + text + "\x1b[0m"
}

func (s screen) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// title writes a heading of a description.
func (s screen) title(text string) { s.line("\n%s", s.paint(text, lookHead)) }

// A fact is a key of a description and its value, which may be long: it is folded at the width.
type fact struct {
	key   string
	value cell
}

// fact writes one fact.
func (s screen) fact(key string, value cell) { s.facts([]fact{{key, value}}) }

// facts writes facts, with their values in one column.
func (s screen) facts(all []fact) {
	indent := 14
	for _, f := range all {
		indent = max(indent, runes(f.key)+2)
	}
	for _, f := range all {
		key := f.key
		for _, part := range fold(f.value.text, s.width-indent) {
			s.line("%-*s%s", indent, key, s.paint(part, f.value.look))
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
