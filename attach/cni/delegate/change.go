package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/attach/cni/route"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// Reasons of what is said of a running pod whose networks have changed.
const (
	ReasonAttached    = "InterfaceAttached"
	ReasonDetached    = "InterfaceDetached"
	ReasonNotAttached = "InterfaceNotAttached"
	ReasonNotDetached = "InterfaceNotDetached"
	// ReasonNotChanged is of an annotation that a running pod cannot have.
	ReasonNotChanged = "NetworksNotChanged"
)

// A Changed is what came of a change of a running pod.
type Changed struct {
	Report facts.Report
	// Failed are the reasons why elements were not attached or detached.
	Failed []error
	// Again says that a later try may succeed, and disturbs nothing of the pod.
	Again bool
}

// Change carries c out, on a pod that runs: c's places are those of the steps that are whole in the
// journal e. What is there in part is ended first, as who began it was killed. Then each element
// stands by itself: one that cannot be attached leaves nothing behind, and one that cannot be
// attached anew is attached again as it was. The journal says at any time what a DEL is to undo.
// warnings are shown beside what fails here. An error means that nothing was changed, or that what
// was changed could not be noted.
func (r *Runner) Change(ctx context.Context, e *journal.Entry, c plan.Change, warnings []facts.Warning) (Changed, error) {
	a := newChanging(r, e, c)
	if err := a.load(); err != nil {
		return Changed{}, err
	}
	var err error
	if a.log, err = r.State.Rewrite(a.entry); err != nil {
		return Changed{}, err
	}
	ctx = context.WithoutCancel(ctx) // what was begun is ended
	for _, i := range a.ends {
		a.end(ctx, i)
	}
	for i, s := range c.Steps {
		if s.Was < 0 || s.Anew {
			a.begin(ctx, i)
		}
	}
	if a.grown {
		if err := a.moveDefaultRoutes(); err != nil {
			a.fail(ReasonNotAttached, false, err)
		}
	}
	report, err := a.told(warnings)
	if err == nil {
		err = a.log.Answer(report)
	}
	return Changed{Report: report, Failed: a.failed, Again: a.again}, errors.Join(err, a.log.Close())
}

// A changing is a change being carried out. The steps of its plan are those that the pod is to
// have, then those that end.
type changing struct {
	attaching
	entry *journal.Entry
	ends  []int       // the steps that end first
	old   map[int]int // by a step that comes in the place of another: that one

	grown    bool // something was attached
	failed   []error
	again    bool
	warnings []facts.Warning
	notes    []facts.Warning
}

func newChanging(r *Runner, e *journal.Entry, c plan.Change) *changing {
	whole, part := e.Live()
	n := &journal.Entry{Head: e.Head, Report: e.Report, Answered: true}
	n.Plan.Steps = nil
	add := func(s plan.Step, done journal.Step) int {
		n.Plan.Steps, n.Steps = append(n.Plan.Steps, s), append(n.Steps, done)
		return len(n.Steps) - 1
	}
	for _, s := range c.Steps {
		if s.Was >= 0 && !s.Anew {
			add(s.Step, e.Steps[whole[s.Was]])
		} else {
			add(s.Step, journal.Step{})
		}
	}
	a := &changing{entry: n, old: map[int]int{}}
	for _, i := range part {
		a.ends = append(a.ends, add(e.Plan.Steps[i], e.Steps[i]))
	}
	for _, i := range slices.Backward(c.Gone) {
		a.ends = append(a.ends, add(e.Plan.Steps[whole[i]], e.Steps[whole[i]]))
	}
	for i, s := range c.Steps {
		if s.Anew {
			a.old[i] = add(e.Plan.Steps[whole[s.Was]], e.Steps[whole[s.Was]])
		}
	}
	a.attaching = attaching{
		Runner: r, Head: n.Head, lists: make([]*chain, len(n.Steps)), done: make([]step, len(n.Steps)), left: func() error { return nil },
	}
	return a
}

// load reads what the journal has of the steps that are attached.
func (a *changing) load() (err error) {
	for i, s := range a.Plan.Steps {
		if a.lists[i], err = parse(s.List); err != nil {
			return stepError(s, "read", err)
		}
		text := a.entry.Steps[i].Result
		if text == nil {
			continue
		}
		done := &a.done[i]
		if done.result, err = resultOf(a.lists[i].version, text); err == nil {
			done.full, err = fullOf(done.result)
		}
		if err == nil {
			done.device, err = readDevice(s.Device)
		}
		if err != nil {
			return stepError(s, "read", err)
		}
	}
	return nil
}

// fail notes that something could not be done; again says that it is to be tried again.
func (a *changing) fail(reason string, again bool, err error) {
	a.failed = append(a.failed, err)
	a.again = a.again || again
	a.warnings = append(a.warnings, facts.Warning{Reason: reason, Message: facts.Cut(oneLine(err))})
}

func (a *changing) note(reason, format string, args ...any) {
	a.notes = append(a.notes, facts.Warning{Reason: reason, Message: facts.Cut(fmt.Sprintf(format, args...))})
}

// end detaches a step that the pod is to have no more, and reports whether it could.
func (a *changing) end(ctx context.Context, i int) bool {
	s, whole := a.Plan.Steps[i], a.done[i].full != nil
	if err := a.undo(ctx, i); err != nil {
		a.fail(ReasonNotDetached, true, stepError(s, "DEL", err))
		return false
	}
	if whole {
		a.note(ReasonDetached, "interface %s was detached from network %s", s.IfName, s.Name)
	}
	return true
}

// undo runs a step's DEL, and notes it.
func (a *changing) undo(ctx context.Context, i int) error {
	s := a.Plan.Steps[i]
	if err := a.del(ctx, a.entry, i, a.Netns); err != nil {
		return err
	}
	a.done[i] = step{}
	gone := func(network, ifName string) bool { return network == s.Network && ifName == s.IfName }
	return errors.Join(a.log.Undone(i), forget(a.cacheFile(a.Key), gone))
}

// begin attaches a step, in the place of another or not.
func (a *changing) begin(ctx context.Context, i int) {
	s := a.Plan.Steps[i]
	old, anew := a.old[i]
	if _, err := a.chains(plan.Plan{Steps: []plan.Step{s}}); err != nil { // before anything is ended
		a.fail(ReasonNotAttached, !anew, err)
		return
	}
	if anew && !a.end(ctx, old) {
		return
	}
	err := a.attach(ctx, i)
	if err == nil {
		a.grown = true
		a.note(ReasonAttached, "interface %s was attached to network %s%s", s.IfName, s.Name, withAddresses(a.done[i].full))
		return
	}
	if anew {
		// Another try would disturb again what is there now.
		if again := a.attach(ctx, old); again != nil {
			err = fmt.Errorf("%w; and to attach it again as it was failed: %w", err, again)
			anew = false
		} else {
			err = fmt.Errorf("%w; the interface is attached again as it was, and this is not tried again until the annotation changes", err)
		}
	}
	a.fail(ReasonNotAttached, !anew, err)
}

// attach runs a step's ADD. After an error the step has left nothing behind, or the error says so.
func (a *changing) attach(ctx context.Context, i int) error {
	s := a.Plan.Steps[i]
	if _, err := route.HardwareAddr(a.Netns, s.IfName); err == nil {
		return stepError(s, "ADD", errors.New("the pod has an interface of that name already: ask for another name with the key interface"))
	}
	if err := a.log.Began(i); err != nil {
		return err
	}
	err := a.add(ctx, i, s)
	if err == nil {
		err = a.settle(i)
	}
	one := attaching{Runner: a.Runner, Head: a.Head, lists: a.lists[i : i+1], done: a.done[i : i+1]}
	one.Plan.Steps = []plan.Step{s}
	if err == nil {
		err = one.findStrangers(ctx)
	}
	if err == nil {
		one.announce()()
		return nil
	}
	if _, stranger := errors.AsType[*StrangersError](err); !stranger {
		err = stepError(s, "ADD", err)
	}
	if left := a.undo(ctx, i); left != nil {
		err = fmt.Errorf("%w; and undoing it failed, which is tried again: %w", err, left)
	}
	return err
}

// settle has what is kept of a step that was attached, for its DEL.
func (a *changing) settle(i int) (err error) {
	a.keepLeft()
	a.left = func() error { return nil }
	if a.entry.Steps[i].Result, err = json.Marshal(a.done[i].result); err == nil {
		err = a.unkept
	}
	return err
}

// withAddresses says which addresses an interface got.
func withAddresses(r *types100.Result) string {
	var all []string
	for _, a := range podAddresses(r) {
		all = append(all, a.String())
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// told returns what the agent is told of the pod as it is now.
func (a *changing) told(warnings []facts.Warning) (facts.Report, error) {
	now := attaching{Runner: a.Runner, Head: a.Head}
	now.Plan.Steps, now.Plan.Warnings = nil, facts.Limit(slices.Concat(a.warnings, warnings))
	for i, done := range a.done {
		if done.full != nil {
			now.Plan.Steps, now.done = append(now.Plan.Steps, a.Plan.Steps[i]), append(now.done, done)
		}
	}
	report, err := now.report()
	report.Notes = facts.Limit(a.notes)
	return report, err
}
