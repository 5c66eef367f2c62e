package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/bundle"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/check"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/install"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/listing"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/moving"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/pods"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/release"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/ui"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/who"
)

// Exit codes.
const (
	exitDone  = 0
	exitFail  = 1 // what was asked for could not be found out, or done
	exitUsage = 2 // the command line is wrong
	exitNo    = 3 // the answer is no: the pod would not be attached, nobody has the address
	exitNotes = 4 // check --strict has nothing but notes
)

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
	s := &session.Session{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	wrong, isUsage := errors.AsType[*session.UsageError](err)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, session.ErrNo):
		return exitNo
	case errors.Is(err, session.ErrNotes):
		return exitNotes
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
	if !session.Forbidden(err) {
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
address and nothing is uninstalled; import or export would leave definitions as they are);
4 check --strict has found nothing but notes.`

// newRoot returns the command line's grammar.
func newRoot(s *session.Session) *cobra.Command {
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
				return session.Usagef("unknown command %q: did you mean %s?", args[0], strings.Join(like, " or "))
			}
			return session.Usagef("unknown command %q", args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error {
			c.SetOut(s.Stderr)
			return errors.Join(c.Help(), session.Usagef("no command"))
		},
	}
	root.SetVersionTemplate("kubectl-tenure {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return session.Usagef("%s: %v", c.Name(), err) })
	s.AddFlags(root.PersistentFlags())
	root.AddCommand(
		listing.NewPools(s), listing.NewLeases(s), listing.NewClaims(s), who.New(s), pods.NewPod(s), pods.NewExplain(s), check.New(s), bundle.New(s, version), ui.New(s), release.New(s), moving.NewImport(s), moving.NewExport(s), install.NewCertificate(s), install.NewUninstall(s), install.NewVersion(s, version),
	)
	root.SetHelpCommand(newHelp(root))
	s.Complete(root)
	root.SetOut(s.Stdout) // that command keeps where it will write
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
		shell.Args = session.None
		shells = append(shells, shell.Name())
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(_ *cobra.Command, args []string) error {
		return session.Usagef("completion: got %q, give one of %s", args, strings.Join(shells, ", "))
	}
}

// newHelp returns the command that explains the others.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "explain a command and its flags",
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return session.Usagef("unknown command %q", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
