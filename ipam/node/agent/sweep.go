package agent

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// sweeper remembers which attachments looked like garbage, and since when. Only
// maintain uses it.
type sweeper struct {
	first map[store.Key]suspicion
}

type suspicion struct {
	generation uint64
	since      protocol.Instant
}

// sweep frees attachments whose DEL never came: the network namespace is gone, and
// the pod is gone too, or has a newer sandbox, or was of another boot; seen twice,
// SweepEvery apart, by live reads. What cannot be verified is alive.
func (a *Agent) sweep(ctx context.Context) {
	all, err := a.attachments()
	if err != nil {
		a.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	now := a.sched.Now()
	suspects := map[store.Key]suspicion{}
	for _, att := range all {
		if !a.host.Gone(att) || !a.podGone(ctx, att, all) {
			continue
		}
		s, seen := a.sweeper.first[att.Key]
		if !seen || s.generation != att.Generation {
			s = suspicion{generation: att.Generation, since: now}
		}
		if now.Since(s.since) < a.cfg.SweepEvery {
			suspects[att.Key] = s
			continue
		}
		if err := a.release(ctx, att.Key, att.Generation); err != nil {
			a.log.WarnContext(ctx, "garbage not freed", "sandbox", att.ContainerID, "interface", att.IfName, "error", err)
			suspects[att.Key] = s
			continue
		}
		a.metrics.swept.Inc()
		a.log.InfoContext(ctx, "garbage freed", "sandbox", att.ContainerID, "interface", att.IfName, "pod", att.Pod.String())
	}
	a.sweeper.first = suspects
}

func (a *Agent) attachments() ([]store.Attachment, error) {
	var all []store.Attachment
	err := a.st.View(func(tx *store.Tx) error {
		all = all[:0]
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			all = append(all, att)
		}
		return nil
	})
	return all, err
}

// podGone reports whether nothing can use an attachment whose network namespace
// is gone.
func (a *Agent) podGone(ctx context.Context, att store.Attachment, all []store.Attachment) bool {
	if att.Boot != a.cfg.Boot {
		return true
	}
	if att.Pod.UID == "" { // no pod's: the namespace was all there was
		return true
	}
	for _, other := range all {
		if other.Pod.UID == att.Pod.UID && other.IfName == att.IfName && other.Network == att.Network && other.Generation > att.Generation {
			return true
		}
	}
	pod, out, _ := a.cl.Pods.ReadPod(ctx, att.Pod.Namespace, att.Pod.Name)
	return out == protocol.NotFound || out == protocol.Done && !pod.Is(att.Pod.UID)
}
