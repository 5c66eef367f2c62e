package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A rollout is a DaemonSet or a Deployment, in Tenure's namespace, that is to be ready.
type rollout struct {
	object client.Object // of its type; it is filled in
	name   string
}

// progress is how far a rollout is.
type progress struct {
	ready, wanted int32
	// done says that all of it is ready, and of the version that was asked for, and known
	// that its controller has seen it.
	done, known bool
}

// progress reads off how far it is.
func (r rollout) progress() progress {
	switch o := r.object.(type) {
	case *appsv1.DaemonSet:
		s := o.Status
		return progress{
			min(s.NumberAvailable, s.UpdatedNumberScheduled), s.DesiredNumberScheduled,
			s.ObservedGeneration >= o.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled,
			s.ObservedGeneration >= o.Generation,
		}
	case *appsv1.Deployment:
		s, wanted := o.Status, *o.Spec.Replicas
		return progress{
			min(s.AvailableReplicas, s.UpdatedReplicas), wanted,
			s.ObservedGeneration >= o.Generation && s.UpdatedReplicas == wanted && s.AvailableReplicas == wanted && s.Replicas == wanted,
			s.ObservedGeneration >= o.Generation,
		}
	}
	return progress{}
}

// text says how far it is.
func (p progress) text() string {
	text := fmt.Sprintf("%d of %d ready", p.ready, p.wanted)
	if p.ready == p.wanted && !p.done {
		text += ", and earlier ones have yet to end"
	}
	return text
}

// await waits until r is ready. It says how far it is, and meanwhile what is wrong, once
// each; when nothing has got better for the timeout, it says that again and gives up.
// Nodes that are NotReady are not waited for long: where nothing but those is missing,
// away names them.
func (c *cluster) await(ctx context.Context, r rollout) (away []string, err error) {
	last := ""
	said := map[string]bool{}
	better := time.Now()
	for {
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: r.name}, r.object); err != nil {
			return nil, fmt.Errorf("look at %s: %w", r.name, err)
		}
		p := r.progress()
		if now := p.text(); p.known && now != last {
			c.say("%s: %s", r.name, now)
			last, better = now, time.Now()
		}
		if p.done {
			return nil, nil
		}
		troubles, err := c.troubles(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, t := range troubles {
			if !said[t] {
				said[t] = true
				c.say("  %s", t)
			}
		}
		away, err := c.onlyAway(ctx, r)
		if err != nil || len(away) > 0 && !slices.ContainsFunc(away, func(node string) bool { return !c.isGone(node) }) {
			return away, err
		}
		if time.Since(better) > c.timeout {
			if len(troubles) == 0 {
				troubles = []string{fmt.Sprintf("its pods do not say why; see kubectl --namespace %s describe pods", namespace)}
			}
			return nil, fmt.Errorf("%s: nothing has got better for %v, %d of %d are ready: %s", r.name, c.timeout, p.ready, p.wanted, strings.Join(troubles, "; "))
		}
		if err := pause(ctx, every); err != nil {
			return nil, err
		}
	}
}

// onlyAway returns the NotReady nodes that a DaemonSet is not ready on, if it is on all
// others; none else. A Deployment's pods go to other nodes.
func (c *cluster) onlyAway(ctx context.Context, r rollout) ([]string, error) {
	set, ok := r.object.(*appsv1.DaemonSet)
	if !ok || set.Status.ObservedGeneration < set.Generation {
		return nil, nil
	}
	pods, away, err := c.podsOf(ctx, r.name)
	if err != nil {
		return nil, err
	}
	var revisions appsv1.ControllerRevisionList
	if err := c.List(ctx, &revisions, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": r.name}); err != nil {
		return nil, fmt.Errorf("list the revisions of %s: %w", r.name, err)
	}
	return missingOn(set, pods, revisions.Items, away), nil
}

// missingOn returns the nodes of away that lack a pod of the set's newest revision that is
// ready, if no other node does; none else.
func missingOn(set *appsv1.DaemonSet, pods []corev1.Pod, revisions []appsv1.ControllerRevision, away map[string]bool) (missing []string) {
	if len(revisions) == 0 {
		return nil
	}
	newest := slices.MaxFunc(revisions, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	hash := newest.Labels[appsv1.ControllerRevisionHashLabelKey]
	ready := int32(0)
	for i := range pods {
		p := &pods[i]
		switch {
		case p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash && p.DeletionTimestamp == nil && isReady(p):
			ready++
		case away[nodeOf(p)]:
			missing = append(missing, nodeOf(p))
		default:
			return nil
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if ready+int32(len(missing)) < set.Status.DesiredNumberScheduled { // some have no pod at all
		return nil
	}
	return missing
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// nodeOf returns the node that p runs on, or that it waits for as a DaemonSet's pods do.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// podsOf returns the pods of a program, and the names of the nodes that are NotReady.
func (c *cluster) podsOf(ctx context.Context, name string) (pods []corev1.Pod, away map[string]bool, err error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": name}); err != nil {
		return nil, nil, fmt.Errorf("list the pods of %s: %w", name, err)
	}
	away, err = c.away(ctx)
	return list.Items, away, err
}

// away returns the names of the nodes that are NotReady, and notes since when they are.
func (c *cluster) away(ctx context.Context) (map[string]bool, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	away := map[string]bool{}
	for _, n := range nodes.Items {
		away[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if _, known := c.notReady[n.Name]; !away[n.Name] {
			delete(c.notReady, n.Name)
		} else if !known {
			c.notReady[n.Name] = time.Now()
		}
	}
	return away, nil
}

// grace is how long a node that is NotReady is waited for, once for all that is asked of
// it.
const grace = 45 * time.Second

// isGone reports whether a node has been NotReady for so long that nothing more is
// expected of it.
func (c *cluster) isGone(node string) bool {
	since, is := c.notReady[node]
	return is && time.Since(since) > min(grace, c.timeout)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// troubles says what is wrong with the pods of r, or why there are none.
func (c *cluster) troubles(ctx context.Context, r rollout) ([]string, error) {
	pods, away, err := c.podsOf(ctx, r.name)
	if err != nil {
		return nil, err
	}
	var found []string
	for i := range pods {
		p := &pods[i]
		if node := nodeOf(p); away[node] && (p.DeletionTimestamp != nil || !isReady(p)) {
			found = append(found, fmt.Sprintf("%s: node %s is NotReady", p.Name, node))
		}
		found = append(found, troublesOf(p)...)
	}
	if len(pods) == 0 {
		// A pod that may not be created is told by an event of what would own it.
		var events corev1.EventList
		if err := c.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list the events of %s: %w", r.name, err)
		}
		for _, e := range events.Items {
			if e.Reason == "FailedCreate" && strings.HasPrefix(e.InvolvedObject.Name, r.name) {
				found = append(found, e.Message)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// troublesOf says why p is not ready: where it cannot be scheduled, what its containers
// wait for, and what those said that have failed.
func troublesOf(p *corev1.Pod) (found []string) {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			found = append(found, fmt.Sprintf("%s: %s", p.Name, condition.Message))
		}
	}
	where := p.Name
	if p.Spec.NodeName != "" {
		where += " on node " + p.Spec.NodeName
	}
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			found = append(found, strings.TrimSpace(fmt.Sprintf("%s: %s: %s %s", where, s.Name, w.Reason, w.Message)))
		}
		for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
			if t := state.Terminated; t != nil && t.ExitCode != 0 {
				found = append(found, strings.TrimSpace(fmt.Sprintf("%s: %s ended with code %d: %s", where, s.Name, t.ExitCode, t.Message)))
			}
		}
	}
	return found
}
