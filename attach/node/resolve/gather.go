package resolve

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
)

// A Source is where facts come from: an agent's caches, or a cluster that is read
// live. All methods may run at once.
type Source interface {
	// Pod returns the pod that ref names.
	Pod(ctx context.Context, ref facts.PodRef) (Pod, error)
	// Definition returns a definition, or one that says why it is missing. named says
	// that it is the plugin's configuration that names it, not the pod.
	Definition(ctx context.Context, ref facts.Ref, named bool) (facts.Definition, error)
	// Labels returns the labels of a namespace.
	Labels(ctx context.Context, namespace string) (map[string]string, error)
	// PodNetworks judges the elements of a pod's list of PodNetworks; served is false where the
	// cluster has none.
	PodNetworks(ctx context.Context, namespace string, elements []podnetwork.Element) (all []facts.PodNetwork, served bool, err error)
	// ServesVIFs reports whether interfaces are served that the control plane decides, and VIFs
	// returns the map of such a pod: when it is complete, or as it is when ctx ends.
	ServesVIFs() bool
	VIFs(ctx context.Context, pod Pod, complete func(vif.Map) bool) (vif.Map, error)
	Devices
}

// parallel is how many definitions are read at once.
const parallel = 8

// maxMissing is after how many definitions that do not exist the others are not looked up: the pod
// is not attached in any case, and its runtime tries again and again.
const maxMissing = 16

// Gather answers a question from src.
func Gather(ctx context.Context, src Source, q facts.Question) (facts.Answer, error) {
	pod, err := src.Pod(ctx, q.Pod)
	if err != nil {
		return facts.Answer{}, err
	}
	uid := q.Pod.UID
	if uid == "" {
		uid = string(pod.kubelets())
	}
	answer := facts.Answer{Pod: facts.Pod{
		PodRef:      facts.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: uid},
		Annotations: telling(pod.Annotations), Moving: pod.Moving,
	}}
	refs := plan.Wanted(q, answer.Pod)
	if refs, err = addPodNetworks(ctx, src, &answer, refs); err != nil {
		return facts.Answer{}, err
	}
	answer.Networks = make([]facts.Definition, len(refs))
	var missing atomic.Int32
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, ref := range refs {
		g.Go(func() (err error) {
			if missing.Load() >= maxMissing {
				answer.Networks[i] = facts.Definition{Ref: ref, Missing: fmt.Sprintf("it is not looked up, since %d others do not exist", maxMissing)}
				return nil
			}
			if answer.Networks[i], err = src.Definition(gctx, ref, i < len(q.Networks)); answer.Networks[i].Missing != "" {
				missing.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return facts.Answer{}, err
	}
	if err := addVIFs(ctx, src, &answer); err != nil {
		return facts.Answer{}, err
	}
	if err := addDevices(ctx, src, &answer); err != nil {
		return facts.Answer{}, err
	}
	if slices.ContainsFunc(answer.Networks, asksForLabels) {
		if answer.Pod.NamespaceLabels, err = src.Labels(ctx, pod.Namespace); err != nil {
			return facts.Answer{}, err
		}
	}
	judgeVIFs(ctx, src, &answer, pod)
	return answer, nil
}

// addPodNetworks adds what is to be known of the pod's list of PodNetworks, and to refs the
// definitions that have their configurations.
func addPodNetworks(ctx context.Context, src Source, a *facts.Answer, refs []facts.Ref) ([]facts.Ref, error) {
	text := a.Pod.Annotations[podnetwork.AnnotationNetworks]
	if text == "" {
		return refs, nil
	}
	elements, invalid := podnetwork.Parse(text)
	if invalid != nil {
		elements = nil // who makes the plan says what is wrong
	}
	all, served, err := src.PodNetworks(ctx, a.Pod.Namespace, elements)
	if err != nil {
		return nil, err
	}
	a.PodNetworks, a.NoPodNetworks = all, !served
	for _, n := range all {
		if n.Definition != (facts.Ref{}) && !slices.Contains(refs, n.Definition) {
			refs = append(refs, n.Definition)
		}
	}
	return refs, nil
}

// addDevices adds the pod's devices to those definitions that name a resource.
func addDevices(ctx context.Context, src Devices, a *facts.Answer) error {
	names := func(d facts.Definition) bool { return npwg.IsDevice(d.Annotations[npwg.AnnotationResource]) }
	if !slices.ContainsFunc(a.Networks, names) {
		return nil
	}
	devices, err := src.DevicesOf(ctx, a.Pod.Namespace, a.Pod.Name)
	if err != nil {
		return fmt.Errorf("devices of pod %s/%s: %w", a.Pod.Namespace, a.Pod.Name, err)
	}
	for i := range a.Networks {
		if d := &a.Networks[i]; names(*d) {
			d.SetDevices(devices[d.Annotations[npwg.AnnotationResource]])
		}
	}
	return nil
}

// asksForLabels reports whether it depends on the labels of a pod's namespace who may
// select d.
func asksForLabels(d facts.Definition) bool {
	_, ok := d.Annotations[npwg.AnnotationSelector]
	return ok
}
