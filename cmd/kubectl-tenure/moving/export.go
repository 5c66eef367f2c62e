package moving

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/foreign"
)

const exportHelp = `Moves networks from Tenure to whereabouts, while their pods run.

Without --apply it writes nothing: it prints each segment (definitions whose ranges
overlap), what its pods have, what is in the way, and the definitions as they would be.
It ends with code 3 if some would stay as they are.

With --apply it stops the pools (spec.allocation), waits until nodes have given back all
that no pod has, writes what pods have into whereabouts' objects, looks again that nobody
has got an address meanwhile, and switches the definitions. Between the stop and the
switch new pods of these networks wait. It may be interrupted, and called again; import
--apply undoes it. If something is in the way of a segment, it moves the others, and ends
with code 1.

A node that is silent is waited for, until its addresses are taken over or you say with
release-node that it is off.`

// exporting is a call of export.
type exporting struct {
	moving
	without   bool
	namespace string
	state     foreignState
}

// NewExport returns the verb export.
func NewExport(s *session.Session) *cobra.Command {
	e := &exporting{moving: moving{Session: s, from: foreign.Type}}
	c := &cobra.Command{
		Use: "export --to whereabouts", Short: "move networks from Tenure to whereabouts",
		Long: exportHelp, Args: session.None, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := session.OneOf("to", e.to, foreign.TypeWhereabouts); err != nil {
				return err
			}
			if err := session.OneOf("output", e.o.Format, "", "json", "yaml"); err != nil {
				return err
			}
			if err := e.checkFlags(); err != nil {
				return err
			}
			return e.run(c.Context())
		},
	}
	c.Flags().StringVar(&e.to, "to", "", "the IPAM to move to: whereabouts")
	c.Flags().BoolVar(&e.without, "without-claims", false, "go on although claims that no pod uses, and reservations, lose their addresses: whereabouts knows neither")
	c.Flags().StringVar(&e.namespace, "whereabouts-namespace", "", "where whereabouts has its objects (default: where there are some, else kube-system)")
	e.addMoveFlags(c, "the nodes have given back what is free")
	return c
}

// run reports, and with --apply moves.
func (e *exporting) run(ctx context.Context) error {
	if err := e.Connect(); err != nil {
		return err
	}
	if err := e.NamespaceExists(ctx, e.namespace); err != nil {
		return fmt.Errorf("--whereabouts-namespace: %w", err)
	}
	seen, objects, err := e.readOthers(ctx)
	if err != nil {
		return err
	}
	e.state = seen
	report := segmentsOf(seen, e.from, e.to)
	e.rehearse(ctx, &report, objects)
	obstruct(&report, seen)
	if !e.apply {
		return e.print(report, objects, "kubectl tenure export --to "+e.to)
	}
	return e.moveOut(ctx, report, objects)
}

// moveOut moves the segments of which nothing is in the way.
func (e *exporting) moveOut(ctx context.Context, report moveReport, objects map[string]nad.NetworkAttachmentDefinition) error {
	e.tell(report)
	left := false
	var pools, definitions []string
	for _, s := range report.Segments {
		if len(s.InTheWay) > 0 {
			left = true
			fmt.Fprintf(e.Stderr, "segment %s stays as it is: %s\n", s.name(), strings.Join(s.InTheWay, "; "))
			continue
		}
		pools, definitions = append(pools, s.Pools...), append(definitions, s.Switch...)
	}
	switch {
	case len(definitions) == 0 && left:
		return errLeft
	case len(definitions) == 0:
		return nil // the report says so
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if err := e.stop(ctx, pools); err != nil {
		return err
	}
	has, err := e.recordAll(ctx, pools, definitions)
	if err != nil {
		return err
	}
	if err := e.switchAll(ctx, definitions, objects, "whereabouts"); err != nil {
		return err
	}
	to := e.Screen()
	to.Line("Definitions switched: %d. Pools stopped: %s.", len(definitions), strings.Join(pools, ", "))
	switch n := len(has.pods); n {
	case 0:
		to.Line("No running pod has an address of them.")
	case 1:
		to.Line("1 address of a running pod is Tenure's until that pod ends, and is recorded with whereabouts, which gives it to nobody else.")
	default:
		to.Line("%d addresses of running pods are Tenure's until these pods end, and are recorded with whereabouts, which gives them to nobody else.", n)
	}
	if len(has.pods) > 0 {
		to.Line("Tenure has to stay on the nodes until the last of these pods is gone: kubectl tenure pools shows how many addresses they have (USED).")
	}
	if left {
		return errLeft
	}
	return nil
}

// recordAll writes what pods have of stopped pools into whereabouts' objects, and returns who has
// what. When all is written it looks again, and goes on until nobody has got an address meanwhile.
func (e *exporting) recordAll(ctx context.Context, pools, definitions []string) (occupancy, error) {
	for {
		has, err := e.waitSettled(ctx, pools)
		if err != nil {
			return occupancy{}, err
		}
		if len(has.without) > 0 && !e.without {
			return occupancy{}, fmt.Errorf("whereabouts cannot keep %s, which no pod has, and may give them to others: delete the claims and reservations, or take the addresses out of the definitions' ranges with exclude; "+
				"to go on all the same: --without-claims. The pools are stopped; import --from whereabouts --apply has them go on", screen.Some(has.without, 5))
		}
		written, err := e.record(ctx, definitions, has.pods)
		if err != nil {
			return occupancy{}, err
		}
		fmt.Fprintf(e.Stderr, "%s recorded with whereabouts\n", screen.Number(written, "address of a pod is", "addresses of pods are"))
		now, err := e.occupancy(ctx, pools)
		if err != nil {
			return occupancy{}, err
		}
		if len(now.unsettled) == 0 && !slices.ContainsFunc(now.pods, func(o registrant) bool { return !slices.Contains(has.pods, o) }) {
			return has, nil
		}
	}
}

// stop has pools give no address any more, and marks those that gave some until now.
func (e *exporting) stop(ctx context.Context, pools []string) error {
	for _, name := range pools {
		err := e.changePool(ctx, name, func(p *v1alpha1.IPPool) {
			if p.Spec.Allocation != v1alpha1.AllocationStopped {
				p.Spec.Allocation = v1alpha1.AllocationStopped
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationStoppedByExport, "true")
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// undone says how what an export has begun is undone.
const undone = "the pools are stopped, and import --from whereabouts --apply has them go on"

// settleFor is for how long nothing may have changed of who has which address before it is
// believed: what was under way when the pools were stopped has come to its end by then.
const settleFor = 5 * time.Second

// waitSettled waits until it is known of every address of pools whose it is, or that it is
// nobody's, and whereabouts finds it in the status of a pod that runs. It returns who has which.
func (e *exporting) waitSettled(ctx context.Context, pools []string) (has occupancy, err error) {
	var last []registrant
	var since time.Time
	err = e.await(ctx, "the nodes have not given back what is free", func(ctx context.Context) (line string, done bool, err error) {
		now, err := e.occupancy(ctx, pools)
		if err != nil {
			return "", false, err
		}
		if len(now.unsettled) > 0 || !slices.Equal(now.pods, last) || since.IsZero() {
			last, since = now.pods, time.Now()
		}
		has = now
		line = "pods have " + screen.Number(len(now.pods), "address", "addresses")
		switch {
		case len(now.devices) > 0:
			return "", false, fmt.Errorf("%s; %s", unkeptDevices(now.devices), undone)
		case len(now.unsettled) > 0:
			return line + "; " + screen.Some(now.unsettled, 3), false, nil
		case time.Since(since) < settleFor:
			return line, false, nil
		}
		if err := e.readPods(ctx, &e.state); err != nil {
			return "", false, err
		}
		hidden, gone, byDefault := e.state.unseen(now.pods)
		switch {
		case len(byDefault) > 0:
			return "", false, fmt.Errorf("%s; %s", unkeptDefaults(byDefault), undone)
		case len(hidden) > 0:
			return line + "; whereabouts takes records away that the status of a pod does not show: of pods that run, it has yet to show, as an address of another network than the default one, " + screen.Some(hidden, 3) +
				". Where it will not, delete the pod", false, nil
		case len(gone) > 0:
			return line + "; whereabouts takes the records of pods away that are gone, and whose sandboxes may still run: their nodes have yet to take back " + screen.Some(gone, 3), false, nil
		}
		return line, true, nil
	})
	return has, err
}

// occupancy reads who has the addresses of pools.
func (e *exporting) occupancy(ctx context.Context, names []string) (occupancy, error) {
	subs, err := session.ListAll(ctx, e.Client, &v1alpha1.IPSubLeaseList{}, session.SubLeasesIn)
	if err != nil {
		return occupancy{}, err
	}
	o := registrants{subLeases: map[string]*v1alpha1.IPSubLease{}, running: map[string]*foreign.Pod{}}
	for i := range e.state.pods {
		o.running[e.state.pods[i].String()] = &e.state.pods[i]
	}
	for _, name := range names {
		var p v1alpha1.IPPool
		if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, &p); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return occupancy{}, fmt.Errorf("read pool %s: %w", name, err)
		}
		if p.Spec.Allocation != v1alpha1.AllocationStopped {
			return occupancy{}, fmt.Errorf("somebody has started pool %s again (spec.allocation), which the export has stopped: nothing more is switched; call again", name)
		}
		if p.Status.ObservedGeneration != p.Generation || p.Status.Leasing == v1alpha1.LeasingOpen || len(p.Status.Fenced) > 0 {
			o.unsettled = append(o.unsettled, fmt.Sprintf("the controller has yet to stop pool %s", name))
		}
		shape := state.ShapeOf(&p)
		if shape == nil {
			return occupancy{}, fmt.Errorf("pool %s: its ranges cannot be read; see its condition Ready", name)
		}
		// Leases before sub-leases would show a grant whose request came later as one of
		// nobody's: that is unsettled, and read again.
		leases, err := session.ListAll(ctx, e.Client, &v1alpha1.IPLeaseList{}, session.LeasesIn, client.MatchingFields{"spec.pool": name})
		if err != nil {
			return occupancy{}, err
		}
		for i := range subs {
			o.subLeases[subs[i].Name] = &subs[i]
		}
		for i := range leases {
			o.lease(&leases[i], shape)
		}
	}
	return o.sorted(), nil
}

// record writes what pods have into whereabouts' objects, and returns how many addresses
// these then record.
func (e *exporting) record(ctx context.Context, definitions []string, has []registrant) (written int, err error) {
	w, done, recorded := e.recorder(), map[string]bool{}, map[netip.Addr]bool{}
	for _, d := range e.state.definitions {
		if !slices.Contains(definitions, d.String()) {
			continue
		}
		for _, object := range d.Whereabouts {
			if done[object.Name] {
				continue
			}
			done[object.Name] = true
			of := slices.DeleteFunc(slices.Clone(has), func(o registrant) bool { return !object.Range.Contains(o.addr) })
			if err := w.pool(ctx, object, of); err != nil {
				return 0, err
			}
			g, ctx := errgroup.WithContext(ctx)
			g.SetLimit(recordAtOnce)
			for _, o := range of {
				recorded[o.addr] = true
				g.Go(func() error { return w.reservation(ctx, foreign.ReservationName(d.NetworkName, o.addr), o) })
			}
			if err := g.Wait(); err != nil {
				return 0, err
			}
		}
	}
	for _, o := range has {
		if !recorded[o.addr] {
			fmt.Fprintf(e.Stderr, "%v of pod %s lies in no range of the definitions: it is not recorded\n", o.addr, o.ref())
		}
	}
	return len(recorded), nil
}

// recordAtOnce is how many objects are written at once.
const recordAtOnce = 16

// recorder returns what writes whereabouts' objects.
func (e *exporting) recorder() recorder {
	w := recorder{client: e.Client, namespace: e.namespace, running: map[string]bool{}}
	if w.namespace == "" {
		w.namespace = e.state.whereaboutsIn
	}
	if w.namespace == "" {
		w.namespace = "kube-system"
	}
	for _, p := range e.state.pods {
		w.running[p.String()] = true
	}
	maps.Copy(w.running, e.state.idle) // its default network may be whereabouts'
	return w
}
