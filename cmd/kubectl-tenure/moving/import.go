package moving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/translation"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const importHelp = `Moves networks from another IPAM to Tenure, while their pods run.

Without --apply it writes nothing: it prints each segment (definitions whose ranges
overlap), what its pods have, what is in the way, what is wrong with the other IPAM's
records, and the definitions as they would be. It ends with code 3 if some would stay
as they are.

With --apply it switches the definitions of each segment that nothing stands in the way
of, and waits until their pools are open. Of a segment all definitions are switched, or
none: the API server is asked first whether it lets each of them be. What running pods
have is kept for them by the controller, which does that also where definitions are
switched by hand. It may be interrupted, and called again. If something is in the way of
a segment, it moves the others, and ends with code 1.

A pool that an export has stopped gives addresses again. One that somebody else has
stopped stays so, and is not waited for.

Where a node's agent cannot read what the other IPAM has recorded there, as in a dataDir
of host-local's that it does not see, the pools wait for your word: --trust-status.

From nv-ipam and spiderpool it prints the definitions for Tenure, and after them the pools
that those name: with a subnet for each node, or ranges for some nodes, as the other IPAM
has them. Apply what it prints; import --from status --apply then waits for the pools.

From status is for every other IPAM: write its definitions for Tenure by hand; import
then shows how much is kept for their pods, and waits for the pools.`

// fromStatus is what import calls an IPAM of which only the pods' status tells.
const fromStatus = "status"

// importing is a call of import.
type importing struct {
	moving
	trustStatus bool
}

// NewImport returns the verb import.
func NewImport(s *session.Session) *cobra.Command {
	i := &importing{moving: moving{Session: s, to: foreign.Type}}
	c := &cobra.Command{
		Use: "import --from IPAM", Short: "move networks from whereabouts, host-local or another IPAM to Tenure",
		Long: importHelp, Args: session.None, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := session.OneOf("from", i.from, foreign.TypeWhereabouts, foreign.TypeHostLocal, translation.NVIPAM, translation.Spiderpool, fromStatus); err != nil {
				return err
			}
			if err := session.OneOf("output", i.o.Format, "", "json", "yaml"); err != nil {
				return err
			}
			if err := i.checkFlags(); err != nil {
				return err
			}
			if i.apply && i.translates() {
				return session.Usagef("--apply is not for --from %s, whose pools are printed: apply these, then wait with import --from status --apply", i.from)
			}
			if i.trustStatus && (!i.apply || i.timeout == 0) {
				return session.Usagef("--trust-status is written to the pools once they are there: it needs --apply, and a --timeout above 0")
			}
			return i.run(c.Context())
		},
	}
	c.Flags().StringVar(&i.from, "from", "", "the IPAM to move from: whereabouts, host-local; nv-ipam, spiderpool: what to apply is printed; status: any other, whose definitions you write for Tenure by hand")
	c.Flags().BoolVar(&i.trustStatus, "trust-status", false, "your word that the status of the pods shows all that they have: the pools do not wait where a node's agent cannot read the other IPAM's files")
	i.addMoveFlags(c, "the pools are open; 0: not at all")
	return c
}

// run reports, and with --apply switches.
func (i *importing) run(ctx context.Context) error {
	if err := i.Connect(); err != nil {
		return err
	}
	seen, objects, err := i.readOthers(ctx)
	if err != nil {
		return err
	}
	if i.translates() {
		return i.translate(ctx, seen, objects)
	}
	report := segmentsOf(seen, i.from, i.to)
	i.rehearse(ctx, &report, objects)
	if !i.apply {
		return i.print(report, objects, "kubectl tenure import --from "+i.from)
	}
	return i.move(ctx, report, objects)
}

// errLeft says that some of the segments stay as they are.
var errLeft = errors.New("not everything was moved: what is in the way is named above")

// move switches the segments, and waits for their pools.
func (i *importing) move(ctx context.Context, report moveReport, objects map[string]nad.NetworkAttachmentDefinition) error {
	left, moved, pools := len(report.Unread) > 0, 0, []string{}
	i.tell(report)
	switch {
	case len(report.Segments) == 0 && left:
		return errLeft
	case len(report.Segments) == 0:
		return nil // the report says so
	}
	for _, s := range report.Segments {
		if len(s.InTheWay) > 0 { // its pools are not waited for: they may never open
			left = left || len(s.Switch) > 0
			fmt.Fprintf(i.Stderr, "segment %s stays as it is: %s\n", s.name(), strings.Join(s.InTheWay, "; "))
			continue
		}
		pools = append(pools, s.Pools...)
		if err := i.switchAll(ctx, s.Switch, objects, "Tenure"); err != nil {
			return err
		}
		moved += len(s.Switch)
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	stopped, err := i.start(ctx, pools)
	if err != nil {
		return err
	}
	wait := slices.DeleteFunc(slices.Clone(pools), func(name string) bool { return slices.Contains(stopped, name) })
	if err := i.awaitPools(ctx, wait); err != nil {
		return err
	}
	if err := i.summary(ctx, moved, pools, stopped); err != nil {
		return err
	}
	if left {
		return errLeft
	}
	return nil
}

// start has pools give addresses again that an export has stopped. What somebody else has stopped
// stays so: it returns these pools.
func (i *importing) start(ctx context.Context, pools []string) (stopped []string, err error) {
	for _, name := range pools {
		byOthers, byExport := false, false
		err := i.changePool(ctx, name, func(p *v1alpha1.IPPool) {
			byExport = stoppedByExport(p)
			if byOthers = p.Spec.Allocation == v1alpha1.AllocationStopped && !byExport; byOthers {
				return
			}
			p.Spec.Allocation = v1alpha1.AllocationAutomatic
			delete(p.Annotations, v1alpha1.AnnotationStoppedByExport)
		})
		switch {
		case err != nil:
			return nil, err
		case byOthers:
			fmt.Fprintf(i.Stderr, "pool %s stays stopped, since no export has stopped it\n", name)
			stopped = append(stopped, name)
		case byExport:
			fmt.Fprintf(i.Stderr, "pool %s gives addresses again: an export had stopped it\n", name)
		}
	}
	return stopped, nil
}

// awaitPools waits until pools are open and give all that they have.
func (i *importing) awaitPools(ctx context.Context, pools []string) error {
	if i.timeout <= 0 || len(pools) == 0 {
		return nil
	}
	return i.await(ctx, "the pools are not open", func(ctx context.Context) (line string, done bool, err error) {
		if err := i.trust(ctx, pools); err != nil {
			return "", false, err
		}
		waits, err := i.waitingPools(ctx, pools)
		line = fmt.Sprintf("%d of %d pools are open", len(pools)-len(waits), len(pools))
		if len(waits) > 0 {
			line += "; " + waits[0]
		}
		return line, len(waits) == 0, err
	})
}

// trust writes to those pools that are there that the status of pods tells all, if that is said.
func (i *importing) trust(ctx context.Context, pools []string) error {
	if !i.trustStatus {
		return nil
	}
	raw := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationTrustStatus)
	for _, name := range pools {
		into := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := i.Client.Patch(ctx, into, client.RawPatch(types.MergePatchType, raw)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write annotation %s to pool %s: %w", v1alpha1.AnnotationTrustStatus, name, err)
		}
	}
	return nil
}

// waitingPools says of which pools something is waited for.
func (i *importing) waitingPools(ctx context.Context, names []string) (waits []string, err error) {
	for _, name := range names {
		var p v1alpha1.IPPool
		if err := i.Client.Get(ctx, client.ObjectKey{Name: name}, &p); apierrors.IsNotFound(err) {
			waits = append(waits, fmt.Sprintf("pool %s is not there yet: the controller makes it, if it is described inline", name))
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read pool %s: %w", name, err)
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolReady)
		withheld := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolWithheld)
		switch {
		case p.Status.ObservedGeneration != p.Generation || ready == nil:
			waits = append(waits, fmt.Sprintf("pool %s has yet to be looked at", name))
		case ready.Status != metav1.ConditionTrue:
			waits = append(waits, fmt.Sprintf("pool %s: %s", name, ready.Message))
		case withheld != nil:
			waits = append(waits, fmt.Sprintf("pool %s: %s", name, withheld.Message))
		}
	}
	return waits, nil
}

// summary says what was done, and what is left to do.
func (i *importing) summary(ctx context.Context, moved int, pools, stopped []string) error {
	to := i.Screen()
	to.Line("Definitions switched: %d. Pools: %s.", moved, cmp.Or(strings.Join(pools, ", "), "none"))
	if len(stopped) > 0 {
		to.Line("Pools that stay stopped: %s. They give no address until you set their spec.allocation to Automatic.", strings.Join(stopped, ", "))
	}
	if i.timeout == 0 && len(pools) > len(stopped) {
		to.Line("The pools open when what running pods have is kept for them: kubectl tenure pools shows it.")
		return nil
	}
	all, err := i.held(ctx, foreignState{})
	if err != nil {
		return err
	}
	addrs, several, pods, by := 0, 0, map[string]bool{}, i.from
	for _, name := range pools {
		for _, g := range all[name].kept {
			if protocol.UID(g.To.UID).Several() {
				several++
				continue
			}
			addrs, pods[g.To.UID] = addrs+1, true
		}
	}
	if several > 0 {
		to.Line("%s kept from all, since several pods are said to have it: see the pools' condition TwoOwners.", screen.Number(several, "address is", "addresses are"))
	}
	if by == fromStatus {
		by = "another IPAM"
	}
	if addrs == 0 {
		left := ": nothing is left to do"
		if len(stopped)+several > 0 {
			left = ""
		}
		to.Line("No address is kept for a pod that has it by %s%s.", by, left)
		return nil
	}
	then := "They keep them until they end, and are then"
	if len(pods) == 1 {
		then = "It keeps what it has until it ends, and is then"
	}
	to.Line("%s %s by %s. %s taken off the network by it:", screen.Number(len(pods), "pod has", "pods have"), screen.Number(addrs, "address", "addresses"), by, then)
	to.Line("its binary and its configuration have to stay on the nodes until the last of them is gone.")
	to.Line("kubectl get ippools -o wide shows how many addresses are still kept (FOREIGN); kubectl tenure check looks for what must not be.")
	return nil
}
