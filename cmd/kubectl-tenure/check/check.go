// Package check has the verb check: it reads the whole cluster, and says what breaks the rules of
// package audit.
package check

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// New returns the verb check.
func New(s *session.Session) *cobra.Command {
	var o session.Output
	var strict bool
	apart := Apart
	c := &cobra.Command{
		Use: "check", Short: "look in the whole cluster for what must not be",
		Long: `Reads the whole cluster, twice, and prints what both looks have found of what must not be:
addresses with two owners; addresses of pods and claims that no lease backs; sub-leases
that stand on no lease; what is held by nodes that are gone or silent; addresses that
nobody has and that have not come back; pods that run without the networks that they
select. Each with what, where, and what to do.

It changes nothing. What comes back by itself within minutes, as addresses do of pods that
were deleted a moment ago, is summed up as SOON, unless the two looks are so far apart
that it should have: --apart=5m. Of what lies on the nodes'
disks alone it knows nothing, and pods that are being deleted it leaves out.

Exit codes: 0 nothing is wrong; 3 something is WRONG; 4 with --strict, there is nothing
but NOTEs; 1 it could not be found out.

It reads all pods and Nodes of the cluster, and the registrations in tenure-system.`,
		Args: session.None, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := session.OneOf("output", o.Format, "", "json", "yaml"); err != nil {
				return err
			}
			if apart < 0 {
				return session.Usagef("--apart is %v, must not be negative", apart)
			}
			return check(c.Context(), s, o, apart, strict)
		},
	}
	c.Flags().StringVarP(&o.Format, "output", "o", "", "what to write: json, yaml")
	c.Flags().DurationVar(&apart, "apart", apart, "time between the two looks")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 4 if nothing is wrong and there are notes")
	return c
}

func check(ctx context.Context, s *session.Session, o session.Output, apart time.Duration, strict bool) error {
	if err := s.Connect(); err != nil {
		return err
	}
	r, err := Find(ctx, s, apart)
	if err != nil {
		return err
	}
	if o.Structured() {
		err = o.Encode(s, r)
	} else {
		writeFindings(s.Screen(), r)
	}
	switch {
	case err != nil:
		return err
	case r.Result == Wrong:
		return session.ErrNo
	case r.Result == Notes && strict:
		return session.ErrNotes
	}
	return nil
}

// Find looks twice, so far apart, and returns what both looks have found. The session is connected.
func Find(ctx context.Context, s *session.Session, apart time.Duration) (Report, error) {
	state, err := readState(ctx, s)
	if err != nil {
		return Report{}, err
	}
	found := audit.Look(state)
	if len(found) > 0 {
		if !pause.For(ctx, apart) {
			return Report{}, context.Cause(ctx)
		}
		if state, err = readState(ctx, s); err != nil {
			return Report{}, err
		}
		found = audit.Lasting(found, audit.Look(state), apart)
	}
	return report(state, found), nil
}

func writeFindings(to screen.Screen, r Report) {
	var order []audit.Rule // of what is settling
	settling := map[audit.Rule][]audit.Finding{}
	for _, f := range r.Findings {
		switch {
		case f.Wrong:
			writeFinding(to, screen.Cell{Text: "WRONG", Look: screen.LookBad}, f, "")
		case f.Settling:
			if len(settling[f.Rule]) == 0 {
				order = append(order, f.Rule)
			}
			settling[f.Rule] = append(settling[f.Rule], f)
		default:
			writeFinding(to, screen.Cell{Text: "NOTE ", Look: screen.LookWarn}, f, "")
		}
	}
	for _, rule := range order { // after an ordinary deletion there are many of one kind
		all := settling[rule]
		more := ""
		if len(all) > 1 {
			more = fmt.Sprintf(", and %d more", len(all)-1)
		}
		writeFinding(to, screen.Cell{Text: "SOON ", Look: screen.LookPlain}, all[0], more)
	}
	l := r.Looked
	to.Line("Looked at pools %d, leases %d, sub-leases %d, claims %d, pods %d, nodes %d: %s.", l.Pools, l.Leases, l.SubLeases, l.Claims, l.Pods, l.Nodes, verdict(r.Wrong, r.Notes, r.Settling))
}

// writeFinding writes one finding, and how many more there are of its kind.
func writeFinding(to screen.Screen, mark screen.Cell, f audit.Finding, more string) {
	where := f.Object
	if f.Address != "" {
		where += ", address " + f.Address
	}
	if f.Pool != "" && f.Object != "ippool "+f.Pool {
		where += ", pool " + f.Pool
	}
	to.Line("%s %s: %s%s", to.Paint(mark.Text, mark.Look), f.Rule, where, more)
	to.Fact("      what", screen.Plain(f.What)[0])
	to.Fact("      do", screen.Plain(f.Remedy)[0])
}

// verdict sums findings up: soon is how many should come back by themselves.
func verdict(wrong, notes, soon int) string {
	text := fmt.Sprintf("wrong %d, notes %d", wrong, notes)
	switch {
	case wrong == 0 && notes == 0:
		text = "all is as it must be"
	case wrong == 0:
		text = fmt.Sprintf("nothing is wrong, notes %d", notes)
	}
	if soon > 0 {
		text += fmt.Sprintf("; on their way back %d", soon)
	}
	return text
}
