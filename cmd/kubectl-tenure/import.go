package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
)

const importHelp = `Moves networks from another IPAM to Tenure, while their pods run.

Without --apply it writes nothing: it prints each segment (definitions whose ranges
overlap), what its pods have, what is in the way, what is wrong with the other IPAM's
records, and the definitions as they would be.

With --apply it switches the definitions of each segment that nothing stands in the way
of, and waits until their pools are open. What running pods have is kept for them by the
controller, which does that also where definitions are switched by hand. It may be
interrupted, and called again.`

// importing is a call of import.
type importing struct {
	*session
	from    string
	apply   bool
	timeout time.Duration
	o       output
}

func newImport(s *session) *cobra.Command {
	i := &importing{session: s}
	c := &cobra.Command{
		Use: "import --from IPAM", Short: "move networks from whereabouts or host-local to Tenure",
		Long: importHelp, Args: none, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("from", i.from, "whereabouts", "host-local"); err != nil {
				return err
			}
			if err := oneOf("output", i.o.format, "", "json", "yaml"); err != nil {
				return err
			}
			return i.run(c.Context())
		},
	}
	c.Flags().StringVar(&i.from, "from", "", "the IPAM to move from: whereabouts, host-local")
	c.Flags().BoolVar(&i.apply, "apply", false, "switch the definitions; without it nothing is written")
	c.Flags().DurationVar(&i.timeout, "timeout", 10*time.Minute, "how long to wait until the pools are open; 0: not at all")
	c.Flags().StringVarP(&i.o.format, "output", "o", "", "what to write: json, yaml")
	return c
}

// run reports, and with --apply switches.
func (i *importing) run(ctx context.Context) error {
	if err := i.connect(); err != nil {
		return err
	}
	seen, objects, err := i.readOthers(ctx)
	if err != nil {
		return err
	}
	report := segmentsOf(seen, i.from)
	if !i.apply {
		return i.print(report, objects)
	}
	return i.switchAll(ctx, report, objects)
}

// readOthers reads definitions, pods and the other IPAMs' objects, in pages.
func (i *importing) readOthers(ctx context.Context) (seen foreignState, objects map[string]nad.NetworkAttachmentDefinition, err error) {
	all, err := listAll(ctx, i.client, &nad.NetworkAttachmentDefinitionList{}, func(l *nad.NetworkAttachmentDefinitionList) []nad.NetworkAttachmentDefinition { return l.Items })
	if err != nil {
		return seen, nil, err
	}
	objects = map[string]nad.NetworkAttachmentDefinition{}
	for _, o := range all {
		d := foreign.ReadDefinition(o.Namespace, o.Name, o.Spec.Config, o.Annotations)
		seen.definitions = append(seen.definitions, d)
		objects[d.String()] = o
	}
	live := client.MatchingFieldsSelector{Selector: unfinished}
	seen.pods, err = listAll(ctx, i.client, &corev1.PodList{}, func(l *corev1.PodList) (some []foreign.Pod) {
		for k := range l.Items {
			if p := foreign.ReadPod(&l.Items[k]); len(p.Selected) > 0 {
				some = append(some, p)
			}
		}
		return some
	}, live)
	if err != nil {
		return seen, nil, err
	}
	return seen, objects, i.readRecords(ctx, &seen)
}

// readRecords reads what whereabouts has recorded, if the cluster has it.
func (i *importing) readRecords(ctx context.Context, seen *foreignState) error {
	text := func(o *unstructured.Unstructured) (namespace, name string, spec map[string]any) {
		spec, _, _ = unstructured.NestedMap(o.Object, "spec")
		return o.GetNamespace(), o.GetName(), spec
	}
	_, err := i.api.WhereaboutsPools(ctx, func(o *unstructured.Unstructured) {
		records, faults := foreign.WhereaboutsPool(text(o))
		seen.records, seen.damaged = append(seen.records, records...), append(seen.damaged, faults...)
	})
	if err != nil {
		return err
	}
	_, err = i.api.WhereaboutsReservations(ctx, func(o *unstructured.Unstructured) {
		r, fault := foreign.WhereaboutsReservation(text(o))
		if fault != "" {
			seen.damaged = append(seen.damaged, fault)
			return
		}
		seen.reserved = append(seen.reserved, r)
	})
	return err
}

// print writes the report, and the definitions as they would be.
func (i *importing) print(report importReport, objects map[string]nad.NetworkAttachmentDefinition) error {
	if i.o.structured() {
		return i.o.encode(i.session, report)
	}
	to := i.screen()
	for _, line := range report.lines() {
		to.line("%s", line)
	}
	changed := 0
	for _, s := range report.Segments {
		for _, name := range s.Switch {
			o := objects[name]
			text, err := manifestOf(o, i.from)
			if err != nil {
				return fmt.Errorf("definition %s: %w", name, err)
			}
			to.line("---\n%s", strings.TrimSuffix(text, "\n"))
			changed++
		}
	}
	if changed > 0 {
		to.line("# nothing was written: kubectl tenure import --from %s --apply switches these", i.from)
	}
	return nil
}

// manifestOf returns a definition, switched, as one would apply it.
func manifestOf(o nad.NetworkAttachmentDefinition, from string) (string, error) {
	config, err := foreign.Switch(o.Spec.Config, from, foreign.Type)
	if err != nil {
		return "", err
	}
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"name": o.Name, "namespace": o.Namespace}, "spec": map[string]any{"config": config},
	})
	return string(raw), err
}

// errLeft says that some of the segments stay as they are.
var errLeft = errors.New("not everything was moved: what is in the way is named above")

// switchAll switches the segments, and waits for their pools.
func (i *importing) switchAll(ctx context.Context, report importReport, objects map[string]nad.NetworkAttachmentDefinition) error {
	left, pools := false, []string{}
	for _, s := range report.Segments {
		pools = append(pools, s.Pools...)
		if len(s.Switch) == 0 {
			continue
		}
		if len(s.InTheWay) > 0 {
			left = true
			fmt.Fprintf(i.stderr, "segment %s stays as it is: %s\n", s.name(), strings.Join(s.InTheWay, "; "))
			continue
		}
		for _, name := range s.Switch {
			if err := i.switchOne(ctx, objects[name]); err != nil {
				return fmt.Errorf("definition %s: %w; what was switched before stays so, and its pool waits for the rest of the segment: call again", name, err)
			}
			fmt.Fprintf(i.stderr, "definition %s names Tenure\n", name)
		}
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	if err := i.awaitPools(ctx, pools); err != nil {
		return err
	}
	i.summary(report, pools)
	if left {
		return errLeft
	}
	return nil
}

// switchOne writes a definition, if nobody has changed it since it was read.
func (i *importing) switchOne(ctx context.Context, o nad.NetworkAttachmentDefinition) error {
	config, err := foreign.Switch(o.Spec.Config, i.from, foreign.Type)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion}, "spec": map[string]any{"config": config},
	})
	if err != nil {
		return err
	}
	into := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	err = i.client.Patch(ctx, into, client.RawPatch(types.MergePatchType, raw))
	if apierrors.IsConflict(err) {
		return fmt.Errorf("somebody has changed it meanwhile: call again: %w", err)
	}
	return err
}

// awaitPools waits until pools are open and give all that they have.
func (i *importing) awaitPools(ctx context.Context, pools []string) error {
	if i.timeout <= 0 || len(pools) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, i.timeout, fmt.Errorf("the pools are not open after %v (--timeout): nothing is lost; see kubectl tenure pools, and call again to go on waiting", i.timeout))
	defer cancel()
	said := ""
	for {
		waits, kept, err := i.waitingPools(ctx, pools)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%d of %d pools are open, %d addresses are kept for running pods", len(pools)-len(waits), len(pools), kept)
		if len(waits) > 0 {
			line += "; " + waits[0]
		}
		if line != said {
			fmt.Fprintln(i.stderr, line)
			said = line
		}
		if len(waits) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// waitingPools says of which pools something is waited for, and how many addresses all of
// them keep for pods.
func (i *importing) waitingPools(ctx context.Context, names []string) (waits []string, kept int64, err error) {
	for _, name := range names {
		var p v1alpha1.IPPool
		if err := i.client.Get(ctx, client.ObjectKey{Name: name}, &p); apierrors.IsNotFound(err) {
			waits = append(waits, fmt.Sprintf("pool %s is not there yet: the controller makes it, if it is described inline", name))
			continue
		} else if err != nil {
			return nil, 0, fmt.Errorf("read pool %s: %w", name, err)
		}
		if p.Status.Counts != nil {
			kept += p.Status.Counts.Foreign
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
	return waits, kept, nil
}

// summary says what is left to do.
func (i *importing) summary(report importReport, pools []string) {
	old, moved := 0, 0
	for _, s := range report.Segments {
		old += s.Pods
		moved += len(s.Switch)
	}
	to := i.screen()
	to.line("Definitions switched: %d. Pools: %s.", moved, strings.Join(pools, ", "))
	to.line("%d running pods have their addresses by %s. They keep them until they end, and are then taken off the network by %s:", old, i.from, i.from)
	to.line("its binary and its configuration have to stay on the nodes until the last of them is gone.")
	to.line("kubectl tenure pools shows how many addresses are still kept for them (FOREIGN); kubectl tenure check looks for what must not be.")
}
