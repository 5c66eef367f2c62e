package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitDone  = 0
	exitFail  = 1 // what was asked for could not be found out
	exitUsage = 2 // the command line is wrong
	exitNo    = 3 // the answer is no: the pod would not be attached, nobody has the address
)

// errNo is returned by a command whose answer, which is printed, is no.
var errNo = errors.New("no")

// A usageError says what is wrong with the command line.
type usageError struct{ why string }

func (e *usageError) Error() string { return e.why }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// A command is one subcommand.
type command struct {
	name, args, summary, help string
	// flags adds the command's own flags and returns what runs it, on the arguments
	// that are no flags.
	flags func(*pflag.FlagSet, *session) func(ctx context.Context, args []string) error
}

// commands are the subcommands, in the order in which help shows them.
func commands() []command {
	return []command{explainCommand, poolsCommand, claimsCommand, whoCommand}
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, &session{stdin: stdin, stdout: stdout, stderr: stderr})
	wrong, isUsage := errors.AsType[*usageError](err)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNo):
		return exitNo
	case isUsage:
		fmt.Fprintf(stderr, "kubectl tenure: %v\nRun \"kubectl tenure help\" for help.\n", wrong)
		return exitUsage
	}
	fmt.Fprintln(stderr, "kubectl tenure:", err)
	return exitFail
}

// dispatch finds the command and runs it.
func dispatch(ctx context.Context, args []string, s *session) error {
	if len(args) == 0 {
		help(s.stderr)
		return usagef("no command")
	}
	switch args[0] {
	case "help", "-h", "--help":
		if len(args) > 1 {
			return dispatch(ctx, []string{args[1], "--help"}, s)
		}
		help(s.stdout)
		return nil
	case "version", "--version":
		fmt.Fprintln(s.stdout, "kubectl-tenure", version)
		return nil
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], s)
		}
	}
	return usagef("unknown command %q", args[0])
}

func (c command) run(ctx context.Context, args []string, s *session) error {
	flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // faults are said once, by run
	serve := c.flags(flags, s)
	s.addFlags(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(s.stdout, "Usage: kubectl tenure %s %s\n\n%s\n\nFlags:\n%s", c.name, c.args, c.help, flags.FlagUsages())
		return nil
	case err != nil:
		return usagef("%s: %v", c.name, err)
	}
	return serve(ctx, flags.Args())
}

// help writes what there is.
func help(w io.Writer) {
	var b strings.Builder
	b.WriteString("kubectl tenure shows what Tenure does. It changes nothing.\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-24s %s\n", c.name+" "+c.args, c.summary)
	}
	b.WriteString(`  help [COMMAND]           explain a command and its flags
  version                  print the version

Exit codes: 0 done; 1 it could not be found out; 2 the command line is wrong;
3 the answer is no (the pod would not be attached; nobody has the address).
`)
	fmt.Fprint(w, b.String())
}
