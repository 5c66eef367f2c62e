package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// output is what a listing verb is asked to write.
type output struct {
	format string
	watch  bool
}

// watchEvery is how often --watch looks again.
const watchEvery = 2 * time.Second

// addFlags adds the flags of a listing verb.
func (o *output) addFlags(flags *pflag.FlagSet, formats ...string) {
	flags.StringVarP(&o.format, "output", "o", "", "what to write: "+strings.Join(append([]string{"table", "wide", "json", "yaml"}, formats...), ", "))
}

func (o *output) addWatch(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.watch, "watch", "w", false, fmt.Sprintf("look again every %v until interrupted", watchEvery))
}

// check checks the flags.
func (o *output) check(formats ...string) error {
	return oneOf("output", o.format, append([]string{"", "table", "wide", "json", "yaml"}, formats...)...)
}

// structured reports whether a program is to read it.
func (o *output) structured() bool { return o.format == "json" || o.format == "yaml" }

// A listing is what a listing verb has found.
type listing struct {
	table table
	// names are the objects' as kubectl writes them, resource.group/name.
	names []string
	// value is what json and yaml show.
	value any
}

// write writes what was found as it is wanted.
func (o *output) write(s *session, l listing) error {
	switch o.format {
	case "json", "yaml":
		return o.encode(s, l.value)
	case "name":
		for _, name := range l.names {
			fmt.Fprintln(s.stdout, name)
		}
		return nil
	}
	l.table.write(s.screen(), o.format == "wide")
	return nil
}

// encode writes value as json or yaml.
func (o *output) encode(s *session, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o.format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.stdout, "%s\n", strings.TrimSuffix(string(text), "\n"))
	return err
}

// run calls show once, or again and again until the user has seen enough.
func (o *output) run(ctx context.Context, s *session, show func(context.Context) error) error {
	if !o.watch {
		return show(ctx)
	}
	for {
		if s.screen().terminal {
			fmt.Fprint(s.stdout, "\x1b[H\x1b[2J")
		}
		if err := show(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// A table is rows under heads.
type table struct {
	heads []string
	wide  int // so many of the last columns are for -o wide
	rows  [][]cell
	none  string // what is written where there are no rows
	sum   string // what is written after the rows, if anything
}

// A cell is a text, and how it is coloured.
type cell struct {
	text string
	look look
}

func plain(texts ...string) (cells []cell) {
	for _, t := range texts {
		if t == "" {
			t = "-"
		}
		cells = append(cells, cell{text: t})
	}
	return cells
}

func (t *table) row(cells ...cell) { t.rows = append(t.rows, cells) }

// write writes the table on a screen.
func (t table) write(to screen, wide bool) {
	columns := len(t.heads)
	if !wide {
		columns -= t.wide
	}
	if len(t.rows) == 0 {
		to.line("%s", cmp.Or(t.none, "There are none."))
		return
	}
	w := printers.GetNewTabWriter(to.w)
	for _, row := range append([][]cell{plain(t.heads...)}, t.rows...) {
		texts := make([]string, columns)
		for i, c := range row[:columns] {
			texts[i] = to.paint(c.text, c.look)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	_ = w.Flush() // as with every other line
	if t.sum != "" {
		to.line("%s", t.sum)
	}
}

// pick returns those of all that have one of the names, in the order of these; without
// names, all. kind is what they are.
func pick[O any](all []O, kind string, names []string, nameOf func(*O) string) ([]O, error) {
	if len(names) == 0 {
		return all, nil
	}
	var few []O
	for _, name := range names {
		before := len(few)
		for i := range all {
			if nameOf(&all[i]) == name {
				few = append(few, all[i])
			}
		}
		if len(few) == before {
			return nil, noneOfName(kind, name)
		}
	}
	return few, nil
}

// noneOfName says that what a user has named is not there.
func noneOfName(kind, name string) error {
	return fmt.Errorf("%s %s: there is none of that name", kind, name)
}

// number writes how many there are of something: "1 address", "2 addresses".
func number(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// some keeps the first of a list that is too long to read.
func some(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(append(slices.Clone(list[:most]), fmt.Sprintf("%d more", len(list)-most)), ", ")
}
