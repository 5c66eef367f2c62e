package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// base is what all parts of an agent use.
type base struct {
	cfg     Config
	st      *store.Store
	cl      Cluster
	sched   sched.Scheduler
	host    Host
	log     *slog.Logger
	metrics *Metrics
	queue   func(task func(context.Context)) // set by Run: runs a task that Run waits for
}

// background runs task beside its caller. Run waits for it.
func (b *base) background(task func(context.Context)) {
	b.queue(task)
}

// wait pauses for d or until ctx ends; it reports whether it was the former.
func (b *base) wait(ctx context.Context, d time.Duration) bool {
	return sched.Pause(ctx, b.sched, d)
}

// jittered returns d, give or take a half: agents must not come all at once.
func (b *base) jittered(d time.Duration) time.Duration { return d/2 + sched.N(b.sched, d) }

// spread is jittered for what is done seldom: after an outage, or a roll-out, all
// agents begin at once, and must not go on so.
func (b *base) spread(every time.Duration) time.Duration {
	if every < time.Minute {
		return every
	}
	return every - sched.N(b.sched, every/4)
}

// right returns what the store has of a right. It does not wait for a disk that hangs: an ADD comes
// here on its way to the API server. That is safe. Each step reads the right again in its Update.
// The right's lock keeps others off between steps. UID, revision and write counter come from an
// answer of the API server, so they are true even if they are not on disk yet.
func (b *base) right(name string) (r protocol.Right, ok bool) {
	err := b.st.Peek(func(tx *store.Tx) error {
		var err error
		r, ok, err = tx.Right(name)
		return err
	})
	if err != nil {
		b.log.Error("right not read", "right", name, "error", err)
	}
	return r, ok && err == nil
}

// known returns what the store has of a right, the zero Right for nothing.
func (b *base) known(name string) protocol.Right {
	r, _ := b.right(name)
	return r
}

// holds reports whether the store has a right of that name as Held: it was the
// node's before the API server went back, and is put back.
func (b *base) holds(name string) bool {
	r, ok := b.right(name)
	return ok && r.Phase == protocol.Held
}

// rightsThat returns the rights that keep accepts.
func (b *base) rightsThat(keep func(protocol.Right) bool) ([]protocol.Right, error) {
	var rights []protocol.Right
	err := b.st.View(func(tx *store.Tx) error {
		rights = rights[:0]
		for r, err := range tx.Rights() {
			if err != nil {
				return err
			}
			if keep(r) {
				rights = append(rights, r)
			}
		}
		return nil
	})
	return rights, err
}

func (b *base) allAttachments() ([]store.Attachment, error) {
	var all []store.Attachment
	err := b.st.View(func(tx *store.Tx) error {
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

// restsOn returns the names of the rights that att rests on: what was granted rests
// on the right that it was granted to, not on the lease that it stands on.
func restsOn(att store.Attachment) []string {
	if att.Use != "" {
		return []string{att.Use}
	}
	names := make([]string, len(att.Addresses))
	for i, addr := range att.Addresses {
		names[i] = addr.Lease
	}
	return names
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// cmpErr returns err, or one that names the outcome.
func cmpErr(err error, out protocol.Outcome) error {
	if err == nil {
		err = fmt.Errorf("the API server answers %v", out)
	}
	return err
}
