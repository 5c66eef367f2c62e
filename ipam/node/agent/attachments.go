package agent

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/sightings"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// attachments are the interfaces that have addresses of this node.
type attachments struct {
	*base
	pools     *pools
	rights    *rights
	blocks    *blocks
	sightings *sightings.Reporter
	keys      sched.Locks[store.Key] // serialises the calls of one attachment
	sweeper   sweeper
	damaged   atomic.Int64 // entries of the journal that do not read
}

// release frees an attachment, of that generation only unless it is 0, and lets
// go of what nothing rests on any more.
func (as *attachments) release(ctx context.Context, key store.Key, generation uint64) error {
	unlock, err := as.keys.Lock(ctx, as.sched, key)
	if err != nil {
		return err
	}
	defer unlock()
	return as.releaseLocked(ctx, key, generation)
}

// releaseLocked is release for a caller that holds the key's lock.
func (as *attachments) releaseLocked(ctx context.Context, key store.Key, generation uint64) error {
	var freed store.Attachment
	var ok bool
	err := as.blocks.freeing(func(expect func(store.Attachment)) error {
		return as.st.Update(ctx, func(tx *store.Tx) error {
			held, known, err := tx.Attachment(key)
			if err != nil || !known {
				ok = false
				return err
			}
			expect(held)
			as.sightings.Freed(held)
			freed, ok, err = assign.ReleaseIf(tx, key, generation)
			return err
		})
	})
	if err != nil || !ok {
		return err
	}
	if freed.Use != "" {
		as.background(func(ctx context.Context) {
			if r, ok := as.right(freed.Use); ok {
				as.rights.letGo(ctx, r)
			}
		})
	}
	as.blocks.scheduleUpkeep(freed)
	return nil
}

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
// the pod is gone too, or has a newer sandbox, or was of another boot; and those of ResourceClaims
// that are gone, or have let go of the device. It frees what it has seen twice, SweepEvery apart,
// by live reads. What cannot be verified is alive.
func (as *attachments) sweep(ctx context.Context) {
	all, err := as.allAttachments()
	if err != nil {
		as.log.ErrorContext(ctx, "store not read", "error", err)
		return
	}
	now := as.sched.Now()
	suspects := map[store.Key]suspicion{}
	// Read once, and where there are devices alone.
	sandboxes := sync.OnceValue(func() func(protocol.UID) bool { return as.sightings.Sandboxes(ctx) })
	for _, att := range all {
		if !as.isGarbage(ctx, att, all, sandboxes) {
			continue
		}
		s, seen := as.sweeper.first[att.Key]
		if !seen || s.generation != att.Generation {
			s = suspicion{generation: att.Generation, since: now}
		}
		if now.Since(s.since) < as.cfg.SweepEvery {
			suspects[att.Key] = s
			continue
		}
		if err := as.release(ctx, att.Key, att.Generation); err != nil {
			as.log.WarnContext(ctx, "garbage not freed", "sandbox", att.ContainerID, "interface", att.IfName, "error", err)
			suspects[att.Key] = s
			continue
		}
		as.metrics.swept.Inc()
		as.log.InfoContext(ctx, "garbage freed", "sandbox", att.ContainerID, "interface", att.IfName, "pod", att.Pod.String())
	}
	as.sweeper.first = suspects
}

// isGarbage reports whether att is nobody's any more, as it looks now.
func (as *attachments) isGarbage(ctx context.Context, att store.Attachment, all []store.Attachment, sandboxes func() func(protocol.UID) bool) bool {
	if ref, ok := att.ResourceClaim(); ok {
		return as.deviceGone(ctx, att, ref, all, sandboxes)
	}
	return as.host.Gone(att) && as.podGone(ctx, att, all)
}

// podGone reports whether nothing can use an attachment whose network namespace
// is gone.
func (as *attachments) podGone(ctx context.Context, att store.Attachment, all []store.Attachment) bool {
	if att.Boot != as.cfg.Boot {
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
	pod, out, _ := as.cl.Pods.ReadPod(ctx, att.Pod.Namespace, att.Pod.Name)
	return out == protocol.NotFound || out == protocol.Done && !pod.Is(att.Pod.UID)
}
