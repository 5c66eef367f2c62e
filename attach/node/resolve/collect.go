package resolve

import (
	"context"
	"time"

	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// What is collected of the plugin's directory at once, and how old it must be: of
// younger reports, the process that made them may be sending them.
const (
	collectLimit = 64
	collectAge   = 10 * time.Second
)

// collect takes over the reports that the plugin could not make, as while this agent
// did not run, until ctx ends. The plugin's next call would make them too; on a quiet
// node that may be long.
func (r *Resolver) collect(ctx context.Context) {
	for {
		r.collectOnce(ctx, time.Now())
		if !pause.For(ctx, r.cfg.Collect) {
			return
		}
	}
}

func (r *Resolver) collectOnce(ctx context.Context, now time.Time) {
	dir := journal.Dir{Path: r.cfg.State}
	unsent, err := dir.Unsent(now.Add(-collectAge), collectLimit)
	if err != nil {
		r.log.WarnContext(ctx, "reports of the meta-plugin not read", "dir", r.cfg.State, "error", err)
	}
	for _, u := range unsent {
		// A report that is not understood is not understood the next time either: it
		// is noted as sent all the same.
		if err := r.take(u.Report); err != nil {
			r.log.WarnContext(ctx, "report of the meta-plugin not taken", "sandbox", u.ContainerID, "error", err)
			if !isBadAsk(err) {
				continue
			}
		}
		if err := dir.Sent(u.Key); err != nil {
			r.log.WarnContext(ctx, "report of the meta-plugin taken, and not noted: it will be taken once more", "sandbox", u.ContainerID, "error", err)
		}
	}
}
