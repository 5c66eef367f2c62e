// Package moving moves pods between Tenure and other IPAMs while they run. import brings the
// segments of whereabouts and host-local into pools, and export gives them back to whereabouts.
// Both find segments in definitions and pools, and say what is in the way. With --apply they
// switch the definitions.
package moving

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/pause"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// moving is a call of import or of export: what both have.
type moving struct {
	*session.Session
	from, to string // types of IPAM plugins
	apply    bool
	timeout  time.Duration
	o        session.Output
}

// addMoveFlags adds the flags of both; waits says what is waited for.
func (m *moving) addMoveFlags(c *cobra.Command, waits string) {
	c.Flags().BoolVar(&m.apply, "apply", false, "switch the definitions; without it nothing is written")
	c.Flags().DurationVar(&m.timeout, "timeout", 15*time.Minute, "how long to wait until "+waits)
	c.Flags().StringVarP(&m.o.Format, "output", "o", "", "what to write: json, yaml")
}

// checkFlags checks what both have.
func (m *moving) checkFlags() error {
	switch {
	case m.apply && m.o.Format != "":
		return session.Usagef("--output is for the report: leave it out with --apply, which writes what it does")
	case m.timeout < 0:
		return session.Usagef("--timeout is %v, must be 0 or longer", m.timeout)
	}
	return nil
}

// readOthers reads definitions, pods and the other IPAMs' objects, in pages.
func (m *moving) readOthers(ctx context.Context) (seen foreignState, objects map[string]nad.NetworkAttachmentDefinition, err error) {
	all, err := session.ListAll(ctx, m.Client, &nad.NetworkAttachmentDefinitionList{}, func(l *nad.NetworkAttachmentDefinitionList) []nad.NetworkAttachmentDefinition { return l.Items })
	if err != nil {
		return seen, nil, err
	}
	objects = map[string]nad.NetworkAttachmentDefinition{}
	for _, o := range all {
		d := foreign.ReadDefinition(o.Namespace, o.Name, o.Spec.Config, o.Annotations)
		seen.definitions = append(seen.definitions, d)
		objects[d.String()] = o
	}
	if err := m.readPods(ctx, &seen); err != nil {
		return seen, nil, err
	}
	if err := m.readRecords(ctx, &seen); err != nil {
		return seen, nil, err
	}
	return seen, objects, m.readPools(ctx, &seen)
}

// readPods reads the pods that have not ended.
func (m *moving) readPods(ctx context.Context, seen *foreignState) (err error) {
	live := client.MatchingFieldsSelector{Selector: state.Unfinished}
	seen.idle, seen.shown, seen.byDefault = map[string]bool{}, map[string][]string{}, map[string][]string{}
	seen.pods, err = session.ListAll(ctx, m.Client, &corev1.PodList{}, func(l *corev1.PodList) (some []foreign.Pod) {
		for k := range l.Items {
			p := foreign.ReadPod(&l.Items[k])
			seen.shown[p.String()], seen.byDefault[p.String()] = shownBy(l.Items[k].Annotations[npwg.AnnotationStatus])
			if len(p.Selected) > 0 {
				some = append(some, p)
			} else {
				seen.idle[p.String()] = true
			}
		}
		return some
	}, live)
	return err
}

// readPools reads pools, and fills in the ranges of definitions that name them.
func (m *moving) readPools(ctx context.Context, seen *foreignState) error {
	pools, err := session.ListAll(ctx, m.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	if err != nil {
		return err
	}
	held, err := m.held(ctx, *seen)
	if err != nil {
		return err
	}
	seen.pools = map[string]poolSeen{}
	for i := range pools {
		p := held[pools[i].Name]
		p.waits, p.domain, p.shareWith = awaited(&pools[i]), pools[i].Spec.Domain, pools[i].Spec.ShareWith
		p.implicit = pools[i].Labels[v1alpha1.LabelImplicit] == "true"
		p.selective, p.perNode = len(kube.SpecText(&pools[i]).LabelKeys()) > 0, pools[i].Spec.PerNode != nil
		for _, r := range pools[i].Spec.Ranges {
			if cidr, err := netip.ParsePrefix(r.CIDR); err == nil {
				p.ranges = append(p.ranges, cidr.Masked())
			}
		}
		if shape, err := poolspec.ParsePool(kube.SpecText(&pools[i])); err == nil {
			p.usable = shape.Usable()
		}
		seen.pools[pools[i].Name] = p
	}
	domain := kube.DomainPools(pools)
	for i := range seen.definitions {
		if d := &seen.definitions[i]; d.Unnamed {
			place(d, domain)
		}
		if d := &seen.definitions[i]; len(d.CIDRs) == 0 {
			for _, pool := range d.Pools {
				d.CIDRs = append(d.CIDRs, seen.pools[pool].ranges...)
			}
		}
	}
	return nil
}

// awaited reports whether a pool is on its way of being opened as a whole, or was stopped
// by an export: that is what import waits for, and not for what else may be wrong with it.
func awaited(p *v1alpha1.IPPool) bool {
	if p.Spec.Allocation == v1alpha1.AllocationStopped {
		return stoppedByExport(p)
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolReady)
	if ready == nil || p.Status.ObservedGeneration != p.Generation || len(p.Status.Withheld) > 0 {
		return true
	}
	way := []string{v1alpha1.ReasonForeignIPAM, v1alpha1.ReasonForeignLook, v1alpha1.ReasonBlockSizeChanging}
	return ready.Status != metav1.ConditionTrue && slices.Contains(way, ready.Reason)
}

// readRecords reads what whereabouts has recorded, if the cluster has it.
func (m *moving) readRecords(ctx context.Context, seen *foreignState) error {
	text := func(o *unstructured.Unstructured) (namespace, name string, spec map[string]any) {
		spec, _, _ = unstructured.NestedMap(o.Object, "spec")
		return o.GetNamespace(), o.GetName(), spec
	}
	var err error
	seen.whereabouts, err = m.API.WhereaboutsPools(ctx, func(o *unstructured.Unstructured) {
		seen.whereaboutsIn = o.GetNamespace()
		records, faults := foreign.WhereaboutsPool(text(o))
		seen.records, seen.damaged = append(seen.records, records...), append(seen.damaged, faults...)
	})
	if err != nil {
		return err
	}
	_, err = m.API.WhereaboutsReservations(ctx, func(o *unstructured.Unstructured) {
		r, fault := foreign.WhereaboutsReservation(text(o))
		if fault != "" {
			seen.damaged = append(seen.damaged, fault)
			return
		}
		seen.reserved = append(seen.reserved, r)
	})
	return err
}

// print writes the report, and the definitions that --apply would switch, as they would be. The
// answer is no if it would leave some.
func (m *moving) print(report moveReport, objects map[string]nad.NetworkAttachmentDefinition, again string) error {
	stay := len(report.Unread)
	for _, s := range report.Segments {
		if len(s.InTheWay) > 0 {
			stay += len(s.Switch)
		}
	}
	if err := m.plan(report, objects, again, stay); err != nil || stay == 0 {
		return err
	}
	return session.ErrNo
}

// plan writes them; stay is how many definitions --apply would leave.
func (m *moving) plan(report moveReport, objects map[string]nad.NetworkAttachmentDefinition, again string, stay int) error {
	if m.o.Structured() {
		return m.o.Encode(m.Session, report)
	}
	m.tell(report)
	to, changed := m.Screen(), 0
	for _, s := range report.Segments {
		if len(s.InTheWay) > 0 {
			continue
		}
		for _, name := range s.Switch {
			o := objects[name]
			config, err := foreign.Switch(o.Spec.Config, m.from, m.to)
			if err != nil {
				return fmt.Errorf("definition %s: %w", name, err)
			}
			text, err := manifestOf(o, config)
			if err != nil {
				return fmt.Errorf("definition %s: %w", name, err)
			}
			to.Line("---\n%s", strings.TrimSuffix(text, "\n"))
			changed++
		}
	}
	if stay > 0 {
		to.Line("# definitions that stay as they are, since something is in the way: %d", stay)
	}
	if changed > 0 {
		to.Line("# nothing was written: %s --apply switches these", again)
	}
	return nil
}

// tell writes the report for people.
func (m *moving) tell(report moveReport) {
	to := m.Screen()
	for _, line := range report.lines() {
		to.Line("%s", line)
	}
}

// manifestOf returns a definition with another configuration, as one would apply it.
func manifestOf(o nad.NetworkAttachmentDefinition, config string) (string, error) {
	metadata := map[string]any{"name": o.Name, "namespace": o.Namespace}
	if len(o.Labels) > 0 {
		metadata["labels"] = o.Labels
	}
	annotations := maps.Clone(o.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": metadata, "spec": map[string]any{"config": config},
	})
	return string(raw), err
}

// rehearse adds to each segment which of its definitions cannot be switched, so that none is
// switched without the others. With --apply the API server is asked, by a dry run.
func (m *moving) rehearse(ctx context.Context, report *moveReport, objects map[string]nad.NetworkAttachmentDefinition) {
	for i := range report.Segments {
		s := &report.Segments[i]
		if len(s.InTheWay) > 0 {
			continue
		}
		for _, name := range s.Switch {
			_, err := foreign.Switch(objects[name].Spec.Config, m.from, m.to)
			if err == nil && m.apply {
				err = m.switchOne(ctx, objects[name], client.DryRunAll)
			}
			if err != nil && !strings.Contains(err.Error(), noDryRun) {
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s cannot be switched: %v", name, err))
			}
		}
	}
}

// noDryRun is what the API server says where a webhook keeps it from telling what a write would do.
const noDryRun = "does not support dry run"

// switchAll writes the definitions of a segment. If one is refused all the same, it says which are
// left.
func (m *moving) switchAll(ctx context.Context, names []string, objects map[string]nad.NetworkAttachmentDefinition, ipam string) error {
	for k, name := range names {
		if err := m.switchOne(ctx, objects[name]); err != nil {
			done := "none of its segment was switched"
			if k > 0 {
				done = "switched were " + strings.Join(names[:k], ", ")
			}
			return fmt.Errorf("definition %s: %w; %s; left are %s. Call again when this is mended: until then new pods of what was switched may wait", name, err, done, strings.Join(names[k:], ", "))
		}
		fmt.Fprintf(m.Stderr, "definition %s names %s\n", name, ipam)
	}
	return nil
}

// switchOne writes a definition, if nobody has changed it since it was read.
func (m *moving) switchOne(ctx context.Context, o nad.NetworkAttachmentDefinition, options ...client.PatchOption) error {
	config, err := foreign.Switch(o.Spec.Config, m.from, m.to)
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
	err = m.Client.Patch(ctx, into, client.RawPatch(types.MergePatchType, raw), options...)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("somebody has changed it meanwhile: call again: %w", err)
	}
	return err
}

// changePool writes what change makes of a pool as it is now. A pool that is not there stays so.
func (m *moving) changePool(ctx context.Context, name string, change func(*v1alpha1.IPPool)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var p v1alpha1.IPPool
		if err := m.Client.Get(ctx, client.ObjectKey{Name: name}, &p); err != nil {
			return client.IgnoreNotFound(err)
		}
		was := p.DeepCopy()
		if change(&p); equality.Semantic.DeepEqual(was, &p) {
			return nil
		}
		return m.Client.Patch(ctx, &p, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("change spec.allocation of pool %s: %w", name, err)
	}
	return nil
}

// stoppedByExport reports whether an export has stopped a pool, and nobody has started it since.
func stoppedByExport(p *v1alpha1.IPPool) bool {
	_, marked := p.Annotations[v1alpha1.AnnotationStoppedByExport]
	return marked && p.Spec.Allocation == v1alpha1.AllocationStopped
}

// await calls look each second until it says that nothing is waited for any more, and
// writes what it says when that changes. After the timeout it fails with late.
func (m *moving) await(ctx context.Context, late string, look func(context.Context) (line string, done bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeout, fmt.Errorf("%s after %v (--timeout): nothing is lost; call again to go on waiting", late, m.timeout))
	defer cancel()
	said := ""
	for {
		line, done, err := look(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if line != said {
			fmt.Fprintln(m.Stderr, line)
			said = line
		}
		if done {
			return nil
		}
		if !pause.For(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}
