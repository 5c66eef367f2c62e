package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// A Table is rows under heads.
type Table struct {
	Heads []string
	Wide  int // so many of the last columns are for -o wide
	rows  [][]Cell
	None  string // what is written where there are no rows
	Sum   string // what is written after the rows, if anything
}

// A Cell is a text, and how it is coloured.
type Cell struct {
	Text string
	Look Look
}

// Plain returns cells without colours. An empty one is written as a dash.
func Plain(texts ...string) (cells []Cell) {
	for _, t := range texts {
		if t == "" {
			t = "-"
		}
		cells = append(cells, Cell{Text: t})
	}
	return cells
}

// Row adds a row.
func (t *Table) Row(cells ...Cell) { t.rows = append(t.rows, cells) }

// Write writes the table on a screen.
func (t Table) Write(to Screen, wide bool) {
	columns := len(t.Heads)
	if !wide {
		columns -= t.Wide
	}
	if len(t.rows) == 0 {
		to.Line("%s", cmp.Or(t.None, "There are none."))
		return
	}
	w := printers.GetNewTabWriter(to.w)
	for _, row := range append([][]Cell{Plain(t.Heads...)}, t.rows...) {
		texts := make([]string, columns)
		for i, c := range row[:columns] {
			texts[i] = to.Paint(c.Text, c.Look)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	_ = w.Flush() // as with every other line
	if t.Sum != "" {
		to.Line("%s", t.Sum)
	}
}

// Number writes how many there are of something: "1 address", "2 addresses".
func Number(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// Some keeps the first of a list that is too long to read.
func Some(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(append(slices.Clone(list[:most]), fmt.Sprintf("%d more", len(list)-most)), ", ")
}
