package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// Output is what a listing verb is asked to write.
type Output struct {
	Format string
	Watch  bool
}

// watchEvery is how often --watch looks again.
const watchEvery = 2 * time.Second

// AddFlags adds the flags of a listing verb.
func (o *Output) AddFlags(flags *pflag.FlagSet, formats ...string) {
	flags.StringVarP(&o.Format, "output", "o", "", "what to write: "+strings.Join(append([]string{"table", "wide", "json", "yaml"}, formats...), ", "))
}

// AddWatch adds the flag of a listing that can be looked at again and again.
func (o *Output) AddWatch(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.Watch, "watch", "w", false, fmt.Sprintf("look again every %v until interrupted", watchEvery))
}

// Check checks the flags.
func (o *Output) Check(formats ...string) error {
	return OneOf("output", o.Format, append([]string{"", "table", "wide", "json", "yaml"}, formats...)...)
}

// Structured reports whether a program is to read it.
func (o *Output) Structured() bool { return o.Format == "json" || o.Format == "yaml" }

// A Listing is what a listing verb has found.
type Listing struct {
	Table screen.Table
	// Names are the objects' as kubectl writes them, resource.group/name.
	Names []string
	// Value is what json and yaml show.
	Value any
}

// Write writes what was found as it is wanted.
func (o *Output) Write(s *Session, l Listing) error {
	switch o.Format {
	case "json", "yaml":
		return o.Encode(s, l.Value)
	case "name":
		for _, name := range l.Names {
			fmt.Fprintln(s.Stdout, name)
		}
		return nil
	}
	l.Table.Write(s.Screen(), o.Format == "wide")
	return nil
}

// Encode writes value as json or yaml.
func (o *Output) Encode(s *Session, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o.Format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Stdout, "%s\n", strings.TrimSuffix(string(text), "\n"))
	return err
}

// Run calls show once, or again and again until the user has seen enough.
func (o *Output) Run(ctx context.Context, s *Session, show func(context.Context) error) error {
	if !o.Watch {
		return show(ctx)
	}
	for {
		if s.Screen().Terminal {
			fmt.Fprint(s.Stdout, "\x1b[H\x1b[2J")
		}
		if err := show(ctx); err != nil {
			return err
		}
		if !pause.For(ctx, watchEvery) {
			return nil
		}
	}
}

// Pick returns those of all that have one of the names, in the order of these; without
// names, all. kind is what they are.
func Pick[O any](all []O, kind string, names []string, nameOf func(*O) string) ([]O, error) {
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
			return nil, NoneOfName(kind, name)
		}
	}
	return few, nil
}

// NoneOfName says that what a user has named is not there.
func NoneOfName(kind, name string) error {
	return fmt.Errorf("%s %s: there is none of that name", kind, name)
}
