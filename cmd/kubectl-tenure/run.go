package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Exit codes.
const (
	exitDone  = 0
	exitFail  = 1 // what was asked for could not be found out, or done
	exitUsage = 2 // the command line is wrong
	exitNo    = 3 // the answer is no: the pod would not be attached, nobody has the address
)

// errNo is returned by a command whose answer, which is printed, is no.
var errNo = errors.New("no")

// A usageError says what is wrong with the command line.
type usageError struct{ why string }

func (e *usageError) Error() string { return e.why }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// commandLine returns the arguments of a process. Under the name by which kubectl asks
// its plugins for completions, kubectl_complete-tenure, the program answers that: a
// link of that name is all that it takes.
func commandLine(argv []string) []string {
	if len(argv) > 0 && filepath.Base(argv[0]) == "kubectl_complete-tenure" {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[min(1, len(argv)):]
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &session{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
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
	fmt.Fprintf(stderr, "kubectl tenure: %v%s\n", err, hint(err))
	return exitFail
}

// hint tells somebody whom err says that they may not, which roles let one; and somebody whose API
// server does not know a kind, what may be the reason.
func hint(err error) string {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || meta.IsNoMatchError(err) {
		return "\nThe API server does not know this kind: is Tenure installed in this cluster, and is it the cluster that you mean?"
	}
	if !forbidden(err) {
		return ""
	}
	return "\nIt takes the ClusterRole tenure-view, which is part of view, edit and admin; check takes tenure-operator, and release-node tenure-release-node besides"
}

const rootHelp = `kubectl tenure shows what Tenure does: who has which address, how full pools are,
why a pod is not attached, and whether all is as it must be. It changes nothing, but
for release-node, certificate, uninstall, and import and export with --apply.

Exit codes: 0 done; 1 it could not be found out, or done; 2 the command line is wrong;
3 the answer is no (the pod is or would not be attached; nobody has the address; check
has found something wrong; the node may be alive and is not released; somebody has an
address and nothing is uninstalled; import or export would leave definitions as they are).`

// newRoot returns the command line's grammar.
func newRoot(s *session) *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-tenure", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenure"},
		Short: "See what Tenure does", Long: rootHelp, Version: version,
		SilenceErrors: true, SilenceUsage: true, // faults are said once, by run
		SuggestionsMinimumDistance: 2,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if like := c.SuggestionsFor(args[0]); len(like) > 0 {
				return usagef("unknown command %q: did you mean %s?", args[0], strings.Join(like, " or "))
			}
			return usagef("unknown command %q", args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error {
			c.SetOut(s.stderr)
			return errors.Join(c.Help(), usagef("no command"))
		},
	}
	root.SetVersionTemplate("kubectl-tenure {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usagef("%s: %v", c.Name(), err) })
	s.addFlags(root.PersistentFlags())
	root.AddCommand(
		newPools(s), newLeases(s), newClaims(s), newWho(s), newPod(s), newExplain(s), newCheck(s), newRelease(s), newImport(s), newExport(s), newCertificate(s), newUninstall(s), newVersion(s),
	)
	root.SetHelpCommand(newHelp(root))
	s.complete(root)
	root.SetOut(s.stdout) // that command keeps where it will write
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		strictCompletion(c)
	}
	return root
}

// strictCompletion has the command that writes completion scripts say what is wrong with
// its command line as the others do.
func strictCompletion(c *cobra.Command) {
	var shells []string
	for _, shell := range c.Commands() {
		shell.Args = none
		shells = append(shells, shell.Name())
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(_ *cobra.Command, args []string) error {
		return usagef("completion: got %q, give one of %s", args, strings.Join(shells, ", "))
	}
}

// newHelp returns the command that explains the others.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "explain a command and its flags",
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// none wants no arguments.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s: it takes no arguments, and got %q", c.Name(), args)
	}
	return nil
}

// one wants one argument, which is what says.
func one(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s: give one %s", c.Name(), what)
		}
		return nil
	}
}

// oneOf checks a flag's value against those that it can have.
func oneOf(flag, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == "" })
	which := strings.Join(named, ", ")
	if len(named) > 1 {
		which = "one of " + which
	}
	if value == "" {
		return usagef("--%s is missing: give %s", flag, which)
	}
	return usagef("--%s is %q, must be %s", flag, value, which)
}
