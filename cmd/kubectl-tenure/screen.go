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
	width    int // 0: as wide as it takes
}

// screen returns where the session's results go. Colours and bars are for terminals,
// and not where NO_COLOR is set (no-color.org) or the terminal cannot show them.
func (s *session) screen() screen {
	to := screen{w: s.stdout}
	f, ok := s.stdout.(*os.File)
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

// paint gives text its look where there are colours.
func (s screen) paint(text string, as look) string {
	if !s.colour || as == lookPlain {
		return text
	}
	codes := [...]string{lookGood: "32", lookWarn: "33", lookBad: "31", lookHead: "1"}
	return "\x1b[" + codes[as] + "m" + text + "\x1b[0m"
}

func (s screen) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// title writes a heading of a description.
func (s screen) title(text string) { s.line("\n%s", s.paint(text, lookHead)) }

// fact writes a key and its value, which may be long: it is folded at the width.
func (s screen) fact(key string, value cell) {
	const indent = 14
	for i, part := range fold(value.text, s.width-indent) {
		if i > 0 {
			key = ""
		}
		s.line("%-*s%s", indent, key, s.paint(part, value.look))
	}
}

// least is how narrow a column may become.
const least = 8

// fit makes the widths of columns small enough for the screen: the widest gives way
// first. What still does not fit is wrapped by the terminal.
func (s screen) fit(widths []int) {
	if s.width == 0 {
		return
	}
	for {
		sum, widest := gap*(len(widths)-1), 0
		for i, w := range widths {
			sum += w
			if w >= widths[widest] {
				widest = i
			}
		}
		if sum <= s.width || widths[widest] <= least {
			return
		}
		widths[widest] = max(least, widths[widest]-(sum-s.width))
	}
}

// row writes a row of a table.
func (s screen) row(cells []cell, widths []int) {
	var b strings.Builder
	for i, c := range cells {
		text := cut(c.text, widths[i])
		b.WriteString(s.paint(text, c.look))
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-runes(text)+gap))
		}
	}
	s.line("%s", strings.TrimRight(b.String(), " "))
}

func runes(text string) int { return utf8.RuneCountInString(text) }

// cut shortens text to a width.
func cut(text string, width int) string {
	if runes(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

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

// barWidth is how many characters a bar has.
const barWidth = 12

// usage writes how much of a whole is taken: as a bar on a terminal, and in percent.
func (s screen) usage(taken, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	share := min(1, float64(taken)/float64(whole))
	percent := int(share * 100) // 100 is for nothing left
	if percent == 0 && taken > 0 {
		percent = 1
	}
	if !s.terminal || !s.colour {
		return fmt.Sprintf("%d%%", percent)
	}
	full := int(share*barWidth + 0.5)
	return fmt.Sprintf("%s%s %3d%%", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), percent)
}
