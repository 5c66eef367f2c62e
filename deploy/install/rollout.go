package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	// done says that all of it is ready, and of the version that was asked for.
	done bool
}

// progress reads off how far it is.
func (r rollout) progress() progress {
	switch o := r.object.(type) {
	case *appsv1.DaemonSet:
		s := o.Status
		return progress{
			min(s.NumberAvailable, s.UpdatedNumberScheduled), s.DesiredNumberScheduled,
			s.ObservedGeneration >= o.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled,
		}
	case *appsv1.Deployment:
		s, wanted := o.Status, *o.Spec.Replicas
		return progress{
			min(s.AvailableReplicas, s.UpdatedReplicas), wanted,
			s.ObservedGeneration >= o.Generation && s.UpdatedReplicas == wanted && s.AvailableReplicas == wanted && s.Replicas == wanted,
		}
	}
	return progress{}
}

// await waits until r is ready. It says how far it is, and meanwhile what is wrong, once
// each; when nothing has got better for the timeout, it says that again and gives up.
func (c *cluster) await(ctx context.Context, r rollout) error {
	var last progress
	said := map[string]bool{}
	better := time.Now()
	for first := true; ; first = false {
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: r.name}, r.object); err != nil {
			return fmt.Errorf("look at %s: %w", r.name, err)
		}
		p := r.progress()
		if first || p != last {
			c.say("%s: %d of %d ready", r.name, p.ready, p.wanted)
			last, better = p, time.Now()
		}
		if p.done {
			return nil
		}
		troubles, err := c.troubles(ctx, r)
		if err != nil {
			return err
		}
		for _, t := range troubles {
			if !said[t] {
				said[t] = true
				c.say("  %s", t)
			}
		}
		if time.Since(better) > c.timeout {
			if len(troubles) == 0 {
				troubles = []string{fmt.Sprintf("its pods do not say why; see kubectl --namespace %s describe pods", namespace)}
			}
			return fmt.Errorf("%s: nothing has got better for %v, %d of %d are ready: %s", r.name, c.timeout, p.ready, p.wanted, strings.Join(troubles, "; "))
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
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
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": r.name}); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", r.name, err)
	}
	var found []string
	for i := range pods.Items {
		found = append(found, troublesOf(&pods.Items[i])...)
	}
	if len(pods.Items) == 0 {
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
