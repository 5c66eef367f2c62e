package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
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
	table screen.Table
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
	l.table.Write(s.screen(), o.format == "wide")
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
		if s.screen().Terminal {
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
