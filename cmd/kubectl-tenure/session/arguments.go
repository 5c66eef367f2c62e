package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// ErrNo is returned by a command whose answer, which is printed, is no.
var ErrNo = errors.New("no")

// ErrNotes is returned by check --strict where nothing is wrong and there are notes, which are
// printed.
var ErrNotes = errors.New("notes")

// A UsageError says what is wrong with the command line.
type UsageError struct{ why string }

// Error implements error.
func (e *UsageError) Error() string { return e.why }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// None wants no arguments.
func None(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s: it takes no arguments, and got %q", c.Name(), args)
	}
	return nil
}

// One wants one argument, which is what says.
func One(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usagef("%s: give one %s", c.Name(), what)
		}
		return nil
	}
}

// OneOf checks a flag's value against those that it can have.
func OneOf(flag, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == "" })
	which := strings.Join(named, ", ")
	if len(named) > 1 {
		which = "one of " + which
	}
	if value == "" {
		return Usagef("--%s is missing: give %s", flag, which)
	}
	return Usagef("--%s is %q, must be %s", flag, value, which)
}
